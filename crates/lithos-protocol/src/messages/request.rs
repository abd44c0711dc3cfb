//! What a client asks for.

use super::content::{AT_LEAST_ONE, read_conversation};
use super::refused::refuse_unsupported;
use super::stream::MessagesAnswer;
use super::tools::{read_choice, read_tools};
use crate::conversation::Conversation;
use crate::dialect::{DialectAnswer, DialectRequest, Heading};
use crate::error::ApiError;
use crate::fields::{Fields, parse_body};
use crate::form::{AnswerForm, read_format};
use crate::generation::{FieldNames, Generation};
use crate::thinking::Thinking;

const NAMES: FieldNames = FieldNames { max_tokens: &["max_tokens"], stop: "stop_sequences" };

/// A request, checked. Fields that cannot change the answer are ignored; `max_tokens` may be left out.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagesRequest {
    /// The model asked for; empty if the client named none.
    pub model: String,
    /// What is asked of the model.
    pub generation: Generation,
    /// Answer as a stream of events.
    pub stream: bool,
    /// Names of fields that were not looked at.
    pub ignored: Vec<String>,
}

/// A request to count the tokens of a prompt, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct CountRequest {
    /// The model asked for; empty if the client named none.
    pub model: String,
    /// What the prompt is made of.
    pub conversation: Conversation,
}

impl DialectRequest for MessagesRequest {
    const PROMPT_FIELD: &'static str = "messages";

    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = parse_body(body)?;
        let stream = fields.take("stream", "true or false")?.unwrap_or(false);
        let Read { model, generation, skipped } = read(&mut fields)?;
        let messages = generation.conversation.messages.as_array();
        let last = messages.and_then(|messages| messages.last());
        if last.is_some_and(|message| message["role"] == "assistant") {
            let message = "messages ends with the assistant, whose text cannot be continued: end with the user";
            return Err(ApiError::unsupported("messages", message));
        }
        let ignored = fields.left().into_iter().chain(skipped).collect();
        Ok(MessagesRequest { model, generation, stream, ignored })
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

    fn answer(&self, heading: Heading) -> Box<dyn DialectAnswer> {
        Box::new(MessagesAnswer::new(heading, self.generation.calls.clone()))
    }
}

impl CountRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// As [`MessagesRequest::parse`].
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let Read { model, generation, .. } = read(&mut parse_body(body)?)?;
        Ok(CountRequest { model, conversation: generation.conversation })
    }
}

/// What both kinds of request have.
struct Read {
    model: String,
    generation: Generation,
    /// Tools that were passed over.
    skipped: Vec<String>,
}

fn read(fields: &mut Fields) -> Result<Read, ApiError> {
    refuse_unsupported(fields)?;
    let model = fields.take("model", "a text")?.unwrap_or_default();
    let (choice, one_only) = read_choice(fields)?;
    let (mut offer, skipped) = read_tools(fields)?;
    let messages = fields.value("messages");
    let messages = messages.ok_or_else(|| fields.missing("messages", AT_LEAST_ONE))?;
    let messages = read_conversation(fields.value("system"), messages, &mut offer)?;
    let form = read_form(fields)?;
    let thinking = Thinking::read(fields)?;
    let offer = offer.finish(choice, one_only)?;
    let generation = Generation::read(fields, &NAMES, messages, &thinking, offer, form)?;
    Ok(Read { model, generation, skipped })
}

/// Reads the form of the answer: `output_config.format`, or `output_format` as it was first called.
fn read_form(fields: &mut Fields) -> Result<Option<AnswerForm>, ApiError> {
    let format = fields.peek("output_config").and_then(|config| config.get("format")).cloned();
    let (format, param) = match format.filter(|format| !format.is_null()) {
        Some(format) => (Some(format), "output_config.format"),
        None => (fields.value("output_format"), "output_format"),
    };
    Ok(format.map(|format| read_format(format, param)).transpose()?.flatten())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A small request with further fields.
    fn parse(fields: Value) -> Result<MessagesRequest, ApiError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        MessagesRequest::parse(body.to_string().as_bytes())
    }

    #[test]
    fn all_fields_are_read() {
        let request = parse(json!({
            "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["a", "b"],
            "stream": true, "system": "s", "metadata": {"user_id": "u"}, "service_tier": "auto",
            "context_management": {"edits": []}, "tools": [], "tool_choice": {"type": "auto"}
        }))
        .unwrap();
        assert!(request.stream);
        assert_eq!(request.ignored, ["metadata", "service_tier", "context_management"]);
        let asked = request.generation;
        assert_eq!((asked.max_tokens, asked.top_k), (Some(5), Some(40)));
        assert_eq!((asked.temperature, asked.top_p), (Some(0.5), Some(0.9)));
        assert_eq!(asked.stop, ["a", "b"]);
        assert_eq!(
            asked.conversation.messages,
            json!([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}])
        );
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (name, value, param) in [
            ("tools", json!([{"type": "bash_20250124", "name": "bash"}]), "tools[0].type"),
            ("mcp_servers", json!([{"url": "x"}]), "mcp_servers"),
            ("container", json!("c"), "container"),
        ] {
            let error = parse(json!({ name: value })).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
            assert!(error.message.starts_with(&format!("{param} is not supported")));
        }
    }

    #[test]
    fn values_that_cannot_be_used_name_their_field() {
        for (name, value) in [
            ("max_tokens", json!(0)),
            ("stop_sequences", json!(7)),
            ("temperature", json!("hot")),
            ("top_k", json!(-2)),
            ("stream", json!("yes")),
            ("thinking", json!("on")),
            ("output_config", json!(1)),
            ("messages", json!([])),
            ("messages", json!(null)),
            (
                "messages",
                json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
            ),
        ] {
            let error = parse(json!({ name: value.clone() })).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(name)), "{value}");
        }
        assert_eq!(MessagesRequest::parse(b"{").unwrap_err().code, Some("invalid_json"));
    }

    #[test]
    fn thinking_reaches_the_template() {
        let variables = |fields| {
            Value::Object(parse(fields).unwrap().generation.conversation.template_variables)
        };
        let budget = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
        assert_eq!(variables(budget), json!({"enable_thinking": true}));
        let off = json!({"thinking": {"type": "disabled"}});
        assert_eq!(variables(off), json!({"enable_thinking": false}));
        let adaptive = json!({"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"}});
        assert_eq!(variables(adaptive), json!({"reasoning_effort": "high"}));
        assert_eq!(variables(json!({"thinking": {"type": "telepathic"}})), json!({}));
    }

    #[test]
    fn counting_needs_no_limit() {
        let body = json!({
            "model": "m", "system": "s", "messages": [{"role": "user", "content": "hi"}]
        });
        let request = CountRequest::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(request.model, "m");
        assert_eq!(request.conversation.messages.as_array().unwrap().len(), 2);
        assert_eq!(CountRequest::parse(b"{}").unwrap_err().param.as_deref(), Some("messages"));
    }
}
