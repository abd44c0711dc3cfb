//! The prompts of `bench/prompts`, which are part of the program.

use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use lithos_engine::TokenId;
use lithos_model::text::{TemplateOptions, Text};
use serde_json::Value;

/// What templates that write a date are told, so that a result does not depend on the day: 2025-01-01.
pub const TIME_OF_TEMPLATES: Duration = Duration::from_secs(1_735_689_600);

/// A kind of prompt and its file: one JSON object a line, with `id`, `messages` and, for prompts that offer tools,
/// `tools`.
const FILES: [(&str, &str); 6] = [
    ("code", include_str!("../../../bench/prompts/code.jsonl")),
    ("code-edit", include_str!("../../../bench/prompts/code-edit.jsonl")),
    ("math", include_str!("../../../bench/prompts/math.jsonl")),
    ("chat", include_str!("../../../bench/prompts/chat.jsonl")),
    ("prose", include_str!("../../../bench/prompts/prose.jsonl")),
    ("tool-use", include_str!("../../../bench/prompts/tool-use.jsonl")),
];

/// What people ask of one kind.
pub struct Prompts {
    /// The kind's name.
    pub kind: &'static str,
    /// The prompts.
    pub prompts: Vec<Prompt>,
}

/// One conversation that waits for an answer.
pub struct Prompt {
    /// Its name.
    pub id: String,
    /// Messages with `role` and `content`.
    pub messages: Value,
    /// Function descriptions with JSON schemas.
    pub tools: Option<Value>,
}

/// All prompts, by kind.
///
/// # Errors
/// If a file is not as described.
pub fn all() -> anyhow::Result<Vec<Prompts>> {
    FILES.iter().map(|(kind, file)| Ok(Prompts { kind, prompts: parse(kind, file)? })).collect()
}

/// What people ask of one kind, in a model's tokens.
pub struct Questions {
    /// The kind's name.
    pub kind: &'static str,
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<TokenId>>,
}

/// The prompts of each kind as tokens, up to where the model answers.
///
/// # Errors
/// If the model has no template, or one that cannot write them.
pub fn questions(text: &Text) -> anyhow::Result<Vec<Questions>> {
    let options = TemplateOptions {
        add_generation_prompt: true,
        now: Some(SystemTime::UNIX_EPOCH + TIME_OF_TEMPLATES),
        ..TemplateOptions::default()
    };
    let tokens = |Prompt { id, messages, tools }: &Prompt| {
        text.encode_chat(messages, tools.as_ref(), &options)
            .map_err(|error| anyhow!("prompt {id}: {error}"))
    };
    let of_kind = |kind: &Prompts| {
        let prompts = kind.prompts.iter().map(tokens).collect::<anyhow::Result<_>>()?;
        Ok(Questions { kind: kind.kind, prompts })
    };
    all()?.iter().map(of_kind).collect()
}

fn parse(kind: &str, file: &str) -> anyhow::Result<Vec<Prompt>> {
    let parsed = |(index, line): (usize, &str)| {
        let wrong = |cause: String| anyhow!("prompts {kind}, line {}: {cause}", index + 1);
        let mut value: Value =
            serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let id = value["id"].as_str().ok_or_else(|| wrong("no id".into()))?.to_owned();
        let messages = value["messages"].take();
        if !messages.is_array() {
            return Err(wrong("no messages".into()));
        }
        let tools = Some(value["tools"].take()).filter(|tools| !tools.is_null());
        Ok(Prompt { id, messages, tools })
    };
    file.lines().enumerate().map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn there_are_eight_of_each_kind_and_they_end_with_the_user() {
        let mut ids = HashSet::new();
        for Prompts { kind, prompts } in all().unwrap() {
            assert_eq!(prompts.len(), 8, "{kind}");
            for Prompt { id, messages, tools } in prompts {
                assert!(id.starts_with(kind) && ids.insert(id.clone()), "{id}");
                let last = messages.as_array().unwrap().last().unwrap();
                assert_eq!(last["role"], "user", "{id}");
                assert!(last["content"].as_str().is_some_and(|text| !text.is_empty()), "{id}");
                assert_eq!(tools.is_some(), kind == "tool-use", "{id}");
                for tool in tools.iter().flat_map(|tools| tools.as_array().unwrap()) {
                    let function = &tool["function"];
                    assert!(function["name"].is_string(), "{id}");
                    assert_eq!(function["parameters"]["type"], "object", "{id}");
                }
            }
        }
    }

    #[test]
    fn the_prompts_of_the_model_card_are_twenty_and_twenty() {
        for text in [
            include_str!("../../../bench/prompts/card.jsonl"),
            include_str!("../../../bench/prompts/held-out.jsonl"),
        ] {
            let card = parse("card", text).unwrap();
            assert_eq!(card.len(), 20);
            assert_eq!(card.iter().map(|prompt| &prompt.id).collect::<HashSet<_>>().len(), 20);
        }
    }
}
