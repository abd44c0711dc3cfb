//! What a client asks for.

use serde_json::Value;

use super::answer::CompletionAnswer;
use crate::dialect::{DialectAnswer, DialectRequest, Heading, Prompt};
use crate::error::ApiError;
use crate::fields::{kind, parse_body, wrong_type};
use crate::form::read_format;
use crate::generation::{FieldNames, Generation};
use crate::refusal::{refuse_fields, refused};
use crate::thinking::Thinking;
use crate::tools::Offer;

const NAMES: FieldNames = FieldNames { max_tokens: &["max_tokens"], stop: "stop" };

/// Tokens of an answer unless asked otherwise, as in OpenAI's API.
const DEFAULT_MAX_TOKENS: usize = 16;

const REFUSED: [(&str, &str); 4] = [
    ("echo", "the prompt is not repeated in the answer"),
    ("suffix", "there is no text to fill in"),
    ("tools", "tools are for chats"),
    ("min_tokens", "a least number of tokens cannot be asked for"),
];

/// A request, checked. Fields that cannot change the answer are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// The model asked for; empty if the client named none.
    pub model: String,
    /// What is continued.
    pub prompt: Prompt,
    /// What is asked of the model.
    pub generation: Generation,
    /// Answer as a stream of events.
    pub stream: bool,
    /// End the stream with the counts of tokens.
    pub include_usage: bool,
    /// Names of fields that were not looked at.
    pub ignored: Vec<String>,
}

impl DialectRequest for CompletionRequest {
    const PROMPT_FIELD: &'static str = "prompt";

    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = parse_body(body)?;
        refuse_fields(&mut fields, &REFUSED)?;
        // Here even 0 asks for something.
        if fields.value("logprobs").is_some_and(|count| count != false) {
            return Err(refused("logprobs", "log probabilities are not given out yet"));
        }
        fields.one_answer_only()?;
        let (stream, include_usage) = fields.streaming()?;
        let model = fields.take("model", "a text")?.unwrap_or_default();
        let prompt = fields.value("prompt");
        let prompt = prompt.ok_or_else(|| fields.missing("prompt", ONE_TEXT))?;
        let prompt = read_prompt(prompt)?;
        let form = fields.value("response_format");
        let form = form.map(|form| read_format(form, "response_format")).transpose()?.flatten();
        let (nothing, thinking) = (Value::Array(Vec::new()), Thinking::default());
        let mut generation =
            Generation::read(&mut fields, &NAMES, nothing, &thinking, Offer::default(), form)?;
        generation.max_tokens = generation.max_tokens.or(Some(DEFAULT_MAX_TOKENS));
        let ignored = fields.left();
        Ok(CompletionRequest { model, prompt, generation, stream, include_usage, ignored })
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn streams(&self) -> bool {
        self.stream
    }

    fn ignored(&self) -> &[String] {
        &self.ignored
    }

    fn generation(&self) -> &Generation {
        &self.generation
    }

    fn prompt(&self) -> Prompt {
        self.prompt.clone()
    }

    fn answer(&self, heading: Heading) -> Box<dyn DialectAnswer> {
        Box::new(CompletionAnswer::new(heading, self.include_usage))
    }
}

const ONE_TEXT: &str = "it must be a text, a list of one text, or a list of token ids";

fn read_prompt(prompt: Value) -> Result<Prompt, ApiError> {
    match prompt {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(mut items) => match items.first() {
            Some(Value::String(_) | Value::Array(_)) if items.len() > 1 => {
                let reason = format!("it has {} prompts, and only one answer is made", items.len());
                Err(refused("prompt", &reason))
            }
            Some(Value::String(_) | Value::Array(_)) => read_prompt(items.remove(0)),
            None => Err(ApiError::invalid("prompt", format!("prompt is empty: {ONE_TEXT}"))),
            Some(_) => {
                let ids = items.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
                let ids: Option<Vec<u32>> = ids.collect();
                let wrong = || {
                    wrong_type("prompt".into(), "a list of token ids", "a list of something else")
                };
                ids.map(Prompt::Tokens).ok_or_else(wrong)
            }
        },
        other => Err(wrong_type("prompt".into(), "a text or a list", kind(&other))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(request: Value) -> Result<CompletionRequest, ApiError> {
        CompletionRequest::parse(request.to_string().as_bytes())
    }

    #[test]
    fn prompts_are_one_text_or_tokens() {
        for prompt in [json!("a"), json!(["a"])] {
            assert_eq!(parse(json!({"prompt": prompt})).unwrap().prompt, Prompt::Text("a".into()));
        }
        for prompt in [json!([1, 2]), json!([[1, 2]])] {
            assert_eq!(
                parse(json!({"prompt": prompt})).unwrap().prompt,
                Prompt::Tokens(vec![1, 2])
            );
        }
        let plain = parse(json!({"prompt": "a", "n": 1, "best_of": 1, "logprobs": null})).unwrap();
        assert_eq!(plain.generation.max_tokens, Some(16));
        assert_eq!(
            parse(json!({"prompt": "a", "max_tokens": 5})).unwrap().generation.max_tokens,
            Some(5)
        );
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (name, value) in [
            ("prompt", json!(["a", "b"])),
            ("prompt", json!([[1], [2]])),
            ("prompt", json!([])),
            ("prompt", json!([1, "a"])),
            ("prompt", json!([-1])),
            ("prompt", json!(3)),
            ("prompt", Value::Null),
            ("echo", json!(true)),
            ("suffix", json!("b")),
            ("logprobs", json!(0)),
            ("n", json!(2)),
            ("best_of", json!(3)),
        ] {
            let mut request = json!({"prompt": "a"});
            request[name] = value.clone();
            let error = parse(request).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(name)), "{value}");
        }
    }
}
