//! The response object, whole and in its states.

use serde::Serialize;
use serde_json::{Value, json};

use super::request::{Echo, ResponsesRequest};
use super::stream::State;
use crate::dialect::{Ending, Heading, TokenCounts};
use crate::error::ApiError;

/// How many tokens an exchange had. `cached_tokens` are part of `input_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    input_tokens: usize,
    input_tokens_details: InputDetails,
    output_tokens: usize,
    output_tokens_details: OutputDetails,
    total_tokens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct InputDetails {
    cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct OutputDetails {
    reasoning_tokens: usize,
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Usage {
            input_tokens: counts.prompt,
            input_tokens_details: InputDetails { cached_tokens: counts.cached },
            output_tokens: counts.completion,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: counts.prompt + counts.completion,
        }
    }
}

/// An answer: one response object, whose states a stream reports.
#[derive(Clone, Debug)]
pub struct ResponsesAnswer {
    heading: Heading,
    echo: Echo,
    max_output_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    pub(super) state: State,
}

impl ResponsesAnswer {
    /// An answer with nothing in it yet.
    pub fn new(heading: Heading, request: &ResponsesRequest) -> Self {
        ResponsesAnswer {
            heading,
            echo: request.echo.clone(),
            max_output_tokens: request.generation.max_tokens,
            temperature: request.generation.temperature,
            top_p: request.generation.top_p,
            state: State::default(),
        }
    }

    /// The response while it is being made.
    pub(super) fn in_progress(&self) -> Value {
        self.object("in_progress", json!({"output": []}))
    }

    /// The response at its end.
    pub(super) fn ended(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        let status = status(ending);
        let details = match ending {
            Ending::Limit => json!({"reason": "max_output_tokens"}),
            Ending::Model | Ending::StopText(_) => Value::Null,
        };
        let output = [self.item(status, Some(text))];
        let usage = Usage::from(counts);
        self.object(
            status,
            json!({"incomplete_details": details, "output": output, "usage": usage}),
        )
    }

    /// The response that there will not be.
    pub(super) fn failed(&self, error: &ApiError) -> Value {
        let code = error.code.unwrap_or(error.kind);
        let error = json!({"code": code, "message": error.message});
        self.object("failed", json!({"error": error, "output": []}))
    }

    /// The id of the only item of the output.
    pub(super) fn item_id(&self) -> String {
        format!("msg_{}", self.heading.name)
    }

    /// The only item of the output; without a text it has no part yet.
    pub(super) fn item(&self, status: &str, text: Option<&str>) -> Value {
        json!({
            "id": self.item_id(),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": text.map(part).into_iter().collect::<Value>(),
        })
    }

    /// The object with some of its fields changed.
    fn object(&self, status: &str, changed: Value) -> Value {
        let Echo { instructions, effort, metadata } = &self.echo;
        let mut object = json!({
            "id": format!("resp_{}", self.heading.name),
            "object": "response",
            "created_at": self.heading.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "instructions": instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": metadata,
            "model": self.heading.model,
            "output": [],
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": {"effort": effort, "summary": null},
            "store": false,
            "temperature": self.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": self.top_p,
            "truncation": "disabled",
            "usage": null,
        });
        if let Value::Object(changed) = changed {
            for (name, value) in changed {
                object[name] = value;
            }
        }
        object
    }
}

/// The part of the item that holds the text.
pub(super) fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The status of a response that has come to its end, and of its item.
pub(super) fn status(ending: &Ending) -> &'static str {
    match ending {
        Ending::Model | Ending::StopText(_) => "completed",
        Ending::Limit => "incomplete",
    }
}
