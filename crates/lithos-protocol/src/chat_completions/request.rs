//! What a client asks for.

use super::messages::{AT_LEAST_ONE, read_messages};
use super::refused::refuse_unsupported;
use super::tools::read_offer;
use crate::error::ApiError;
use crate::fields::parse_body;
use crate::form::read_format;
use crate::generation::{FieldNames, Generation};
use crate::thinking::Thinking;

/// The names of Chat Completions; `max_tokens` is the old one.
const NAMES: FieldNames =
    FieldNames { max_tokens: &["max_tokens", "max_completion_tokens"], stop: "stop" };

/// A request, checked. Fields that cannot change the answer are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The model asked for; empty if the client named none.
    pub model: String,
    /// What is asked of the model.
    pub generation: Generation,
    /// Answer as a stream of events.
    pub stream: bool,
    /// End the stream with the counts of tokens.
    pub include_usage: bool,
    /// Names of fields that were not looked at.
    pub ignored: Vec<String>,
}

impl ChatRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400 if it is no JSON, if a field has the wrong type or is out of range, or if it asks for something that is not
    /// there and whose absence would change the answer. The error names the field.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = parse_body(body)?;
        refuse_unsupported(&mut fields)?;
        let (stream, include_usage) = fields.streaming()?;
        let model = fields.take("model", "a text")?.unwrap_or_default();
        let messages = fields.value("messages");
        let messages = messages.ok_or_else(|| fields.missing("messages", AT_LEAST_ONE))?;
        let messages = read_messages(messages)?;
        let thinking = Thinking::read(&mut fields)?;
        let offer = read_offer(&mut fields)?;
        let form = fields.value("response_format");
        let form = form.map(|form| read_format(form, "response_format")).transpose()?.flatten();
        let generation = Generation::read(&mut fields, &NAMES, messages, &thinking, offer, form)?;
        let ignored = fields.left();
        Ok(ChatRequest { model, generation, stream, include_usage, ignored })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A small request with further fields.
    fn parse(fields: Value) -> Result<ChatRequest, ApiError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        ChatRequest::parse(body.to_string().as_bytes())
    }

    fn param(fields: Value) -> String {
        let error = parse(fields).unwrap_err();
        assert_eq!(error.status, 400);
        error.param.unwrap()
    }

    #[test]
    fn all_fields_are_read() {
        let request = parse(json!({
            "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
            "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 2,
            "logit_bias": {"7": -100, "8": 1.5}, "seed": -1, "stop": ["a", "", "b"],
            "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
            "n": 1, "user": "someone", "store": false, "metadata": {"any": "thing"}
        }))
        .unwrap();
        assert!(request.stream && request.include_usage);
        assert_eq!(request.ignored, ["user", "store", "metadata"]);
        let request = request.generation;
        let messages = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(request.conversation.messages, messages);
        assert_eq!((request.max_tokens, request.top_k), (Some(5), Some(40)));
        assert_eq!((request.temperature, request.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((request.presence_penalty, request.frequency_penalty), (Some(-1.0), Some(2.0)));
        assert_eq!((request.min_p, request.repetition_penalty), (Some(0.1), Some(1.1)));
        let biases: Vec<_> = request.logit_bias.iter().map(|b| (b.token, b.bias)).collect();
        assert_eq!(biases, [(7, -100.0), (8, 1.5)]);
        assert_eq!(request.seed, Some(u64::MAX));
        assert_eq!(request.stop, ["a", "b"]);
        assert!(request.ignore_end);
    }

    #[test]
    fn absent_and_null_fields_leave_the_defaults() {
        let plain = parse(json!({})).unwrap();
        let asked = &plain.generation;
        assert_eq!((asked.max_tokens, asked.temperature, asked.seed), (None, None, None));
        assert!(asked.stop.is_empty() && asked.conversation.template_variables.is_empty());
        assert!(!plain.stream);
        let nulls = json!({
            "max_tokens": null, "temperature": null, "stop": null, "stream": null, "tools": null,
            "stream_options": null, "logit_bias": null, "response_format": null, "n": null
        });
        assert_eq!(parse(nulls).unwrap(), plain);
    }

    #[test]
    fn variants_of_fields() {
        assert_eq!(parse(json!({"stop": "x"})).unwrap().generation.stop, ["x"]);
        let both = json!({"max_tokens": 3, "max_completion_tokens": 4});
        assert_eq!(parse(both).unwrap().generation.max_tokens, Some(4));
        assert_eq!(parse(json!({"top_k": -1})).unwrap().generation.top_k, Some(0));
        // Usage is only asked for in streams.
        let plain = json!({"stream_options": {"include_usage": true}});
        assert!(!parse(plain).unwrap().include_usage);
    }

    #[test]
    fn values_that_cannot_be_used_name_their_field() {
        for (name, value) in [
            ("temperature", json!("hot")),
            ("temperature", json!(2.1)),
            ("top_p", json!(-0.1)),
            ("top_k", json!(-2)),
            ("max_tokens", json!(0)),
            ("max_completion_tokens", json!(1.5)),
            ("stream", json!("yes")),
            ("stream_options", json!(true)),
            ("seed", json!(0.5)),
            ("stop", json!(7)),
            ("stop", json!(vec!["x"; 17])),
            ("stop", json!("x".repeat(4097))),
            ("logit_bias", json!({"x": 1})),
            ("logit_bias", json!({"1": 101})),
            ("logit_bias", json!([1])),
            ("messages", json!([])),
            ("messages", json!("hi")),
            ("messages", json!(null)),
            ("model", json!(3)),
        ] {
            assert_eq!(param(json!({ name: value.clone() })), name, "{value}");
        }
        assert_eq!(
            param(json!({"stream_options": {"include_usage": 1}})),
            "stream_options.include_usage"
        );
    }

    #[test]
    fn broken_json_says_where() {
        let error = ChatRequest::parse(b"{\"model\":").unwrap_err();
        assert_eq!((error.status, error.code), (400, Some("invalid_json")));
        assert!(error.message.contains("line 1, column 9"));
        assert_eq!(ChatRequest::parse(b"[]").unwrap_err().status, 400);
        // Deep nesting is an error, not a stack overflow.
        assert!(ChatRequest::parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn thinking_reaches_the_template() {
        let variables = |fields| parse(fields).unwrap().generation.conversation.template_variables;
        assert_eq!(variables(json!({"enable_thinking": true}))["enable_thinking"], true);
        let inner = json!({"chat_template_kwargs": {"enable_thinking": false, "x": [1]}, "enable_thinking": true});
        assert_eq!(Value::Object(variables(inner)), json!({"enable_thinking": false, "x": [1]}));
        let none = variables(json!({"reasoning_effort": "none"}));
        assert_eq!(none["enable_thinking"], false);
        assert_eq!(variables(json!({"reasoning_effort": "high"}))["reasoning_effort"], "high");
        let reserved = json!({"chat_template_kwargs": {"messages": []}});
        assert_eq!(param(reserved), "chat_template_kwargs.messages");
        let text = json!({"chat_template_kwargs": {"enable_thinking": "no"}});
        assert_eq!(param(text), "chat_template_kwargs.enable_thinking");
    }
}
