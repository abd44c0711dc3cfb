//! Greedy answers of the built-in model to `bench/prompts` are the same with every drafter and length rule as without drafts.
//!
//! The usual run takes one prompt of each kind and few tokens. All prompts with 512 tokens take minutes for each kind:
//! `LITHOS_ALL_PROMPTS=1 cargo test -p lithos-engine --test all_prompts`.

mod support;

use lithos_engine::{
    Completion, Draft, DraftLength, Engine, EngineOptions, Fusion, Request, TokenId,
};
use lithos_model::text::TemplateOptions;
use serde_json::Value;
use support::{cpu, repository};

const LENGTHS: [DraftLength; 2] = [DraftLength::Auto, DraftLength::Fixed(4)];

fn open(draft: Draft) -> Engine {
    let options = EngineOptions { draft, context: Some(4096), ..cpu(Fusion::Step) };
    Engine::open(&repository().join("models/lithos-mini"), options).expect("opens")
}

fn prompts(engine: &Engine, kind: &str) -> Vec<Vec<TokenId>> {
    let file = repository().join(format!("bench/prompts/{kind}.jsonl"));
    let options = TemplateOptions { add_generation_prompt: true, ..TemplateOptions::default() };
    let text = engine.text().expect("has text");
    let lines = std::fs::read_to_string(file).expect("reads");
    let encode = |line: &str| {
        let prompt: Value = serde_json::from_str(line).expect("is JSON");
        let tools = Some(&prompt["tools"]).filter(|tools| !tools.is_null());
        text.encode_chat(&prompt["messages"], tools, &options).expect("encodes")
    };
    lines.lines().map(encode).collect()
}

/// Answers so many prompts of a kind with so many tokens in every way; returns drafts that were accepted.
fn compare(kind: &str, count: usize, tokens: usize) -> u64 {
    let mut plain = open(Draft::None);
    let mut drafted = [Draft::Dspark, Draft::Mtp].map(|draft| (draft, open(draft)));
    let complete = |engine: &mut Engine, request: &Request| -> Completion {
        engine.generate(request, &mut |_| ()).expect("generates")
    };
    let mut accepted = 0;
    for (number, prompt) in prompts(&plain, kind).into_iter().take(count).enumerate() {
        let request =
            Request { max_tokens: Some(tokens), ignore_end: true, ..Request::new(prompt) };
        let wanted = complete(&mut plain, &request).tokens;
        assert_eq!(wanted.len(), tokens, "the context has room");
        for (own, engine) in &mut drafted {
            // Copies beside each are in turn alone and before the trained drafter.
            let other = if *own == Draft::Mtp { Draft::Copy } else { Draft::Auto };
            for draft in [*own, other] {
                for length in LENGTHS {
                    engine.set_draft(draft, length);
                    let found = complete(engine, &request);
                    assert_eq!(found.tokens, wanted, "{kind} {}, {draft}, {length:?}", number + 1);
                    accepted += found.speculation.map_or(0, |report| report.accepted);
                }
            }
        }
    }
    accepted
}

#[test]
fn answers_are_those_without_drafts() {
    let (count, tokens) = match std::env::var_os("LITHOS_ALL_PROMPTS") {
        Some(_) => (usize::MAX, 512),
        None => (1, 40),
    };
    for kind in ["code", "code-edit", "math", "chat", "prose", "tool-use"] {
        assert!(compare(kind, count, tokens) > 0, "{kind}: something was drafted and right");
    }
}
