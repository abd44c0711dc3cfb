//! What a client asks for.

use serde_json::{Map, Value};

use super::input::{TEXT_OR_ITEMS, read_conversation};
use super::refused::refuse_unsupported;
use super::response::ResponsesAnswer;
use super::tools::{Origins, ReadTools, read_tools};
use crate::dialect::{DialectAnswer, DialectRequest, Heading};
use crate::error::ApiError;
use crate::fields::{Fields, parse_body};
use crate::form::{AnswerForm, read_format};
use crate::generation::{FieldNames, Generation};
use crate::thinking::Thinking;

/// `stop` is not in OpenAI's own API.
const NAMES: FieldNames = FieldNames { max_tokens: &["max_output_tokens"], stop: "stop" };

/// A request, checked. Fields that cannot change the answer are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsesRequest {
    /// The model asked for; empty if the client named none.
    pub model: String,
    /// What is asked of the model.
    pub generation: Generation,
    /// Answer as a stream of events.
    pub stream: bool,
    /// What the answer repeats.
    pub echo: Echo,
    /// What functions are to the client.
    pub(super) origins: Origins,
    /// Names of fields that were not looked at.
    pub ignored: Vec<String>,
}

/// Fields of a request that its response repeats, besides those of the generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Echo {
    /// The instructions, if they came apart from the input.
    pub instructions: Option<String>,
    /// How much thinking was asked for.
    pub effort: Option<String>,
    /// The client's own notes.
    pub metadata: Map<String, Value>,
}

impl DialectRequest for ResponsesRequest {
    const PROMPT_FIELD: &'static str = "input";

    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = parse_body(body)?;
        refuse_unsupported(&mut fields)?;
        let stream = fields.take("stream", "true or false")?.unwrap_or(false);
        let model = fields.take("model", "a text")?.unwrap_or_default();
        let instructions: Option<String> = fields.take("instructions", "a text")?;
        let input = fields.value("input");
        let input = input.ok_or_else(|| fields.missing("input", TEXT_OR_ITEMS))?;
        let messages = read_conversation(instructions.as_deref(), input)?;
        let metadata = fields.take("metadata", "an object")?.unwrap_or_default();
        let thinking = Thinking::read(&mut fields)?;
        let ReadTools { offer, origins, skipped } = read_tools(&mut fields)?;
        let form = read_text(&mut fields)?;
        let generation = Generation::read(&mut fields, &NAMES, messages, &thinking, offer, form)?;
        let echo = Echo { instructions, effort: thinking.effort, metadata };
        let ignored = fields.left().into_iter().chain(skipped).collect();
        Ok(ResponsesRequest { model, generation, stream, echo, origins, ignored })
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
        Box::new(ResponsesAnswer::new(heading, self))
    }
}

/// Reads `text`: the form of the answer.
fn read_text(fields: &mut Fields) -> Result<Option<AnswerForm>, ApiError> {
    let Some(text) = fields.value("text") else { return Ok(None) };
    let format = Fields::new(text, "text")?.value("format");
    Ok(format.map(|format| read_format(format, "text.format")).transpose()?.flatten())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A small request with further fields.
    fn parse(fields: Value) -> Result<ResponsesRequest, ApiError> {
        let mut body = json!({"model": "m", "input": "hi"});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        ResponsesRequest::parse(body.to_string().as_bytes())
    }

    #[test]
    fn all_fields_are_read() {
        let request = parse(json!({
            "instructions": "be brief", "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
            "stop": ["a"], "stream": true, "metadata": {"k": "v"}, "store": false, "prompt_cache_key": "x",
            "include": ["reasoning.encrypted_content"], "parallel_tool_calls": true, "tools": [],
            "tool_choice": "auto", "text": {"format": {"type": "text"}, "verbosity": "low"},
            "reasoning": {"effort": "none", "summary": "auto"}, "previous_response_id": null
        }))
        .unwrap();
        assert!(request.stream);
        assert_eq!(request.ignored, ["store", "prompt_cache_key"]);
        assert_eq!(request.echo.instructions.as_deref(), Some("be brief"));
        assert_eq!(request.echo.effort.as_deref(), Some("none"));
        assert_eq!(request.echo.metadata["k"], "v");
        let asked = request.generation;
        assert_eq!((asked.max_tokens, asked.top_k), (Some(5), Some(40)));
        assert_eq!((asked.temperature, asked.top_p), (Some(0.5), Some(0.9)));
        assert_eq!(asked.stop, ["a"]);
        assert_eq!(asked.conversation.messages.as_array().unwrap().len(), 2);
        let variables = json!({"enable_thinking": false, "reasoning_effort": "none"});
        assert_eq!(Value::Object(asked.conversation.template_variables), variables);
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (name, value, param) in [
            ("previous_response_id", json!("resp_1"), "previous_response_id"),
            ("conversation", json!({"id": "c"}), "conversation"),
            ("prompt", json!({"id": "p"}), "prompt"),
            ("background", json!(true), "background"),
            ("include", json!(["message.output_text.logprobs"]), "include"),
            ("top_logprobs", json!(2), "top_logprobs"),
        ] {
            let error = parse(json!({ name: value })).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
            assert_eq!(error.code, Some("unsupported_value"));
            assert!(error.message.starts_with(&format!("{param} is not supported")));
        }
        let error = parse(json!({"previous_response_id": "resp_1"})).unwrap_err();
        assert!(error.message.contains("send the whole conversation as input"));
    }

    #[test]
    fn values_that_cannot_be_used_name_their_field() {
        for (name, value) in [
            ("max_output_tokens", json!(0)),
            ("temperature", json!("hot")),
            ("stream", json!("yes")),
            ("instructions", json!(7)),
            ("reasoning", json!("high")),
            ("metadata", json!([1])),
            ("text", json!("x")),
            ("input", json!(null)),
        ] {
            let error = parse(json!({ name: value.clone() })).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(name)), "{value}");
        }
    }
}
