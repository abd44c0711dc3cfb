//! The response object, whole and in its states.

use serde::Serialize;
use serde_json::{Value, json};

use super::request::{Echo, ResponsesRequest};
use super::stream::State;
use super::tools::Origins;
use crate::dialect::{Ending, Heading, TokenCounts};
use crate::error::ApiError;
use crate::tools::{Calls, ToolChoice};

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
            output_tokens_details: OutputDetails { reasoning_tokens: counts.thought },
            total_tokens: counts.prompt + counts.completion,
        }
    }
}

/// An answer: one response object, whose states a stream reports.
#[derive(Debug)]
pub struct ResponsesAnswer {
    pub(super) setting: Setting,
    pub(super) state: State,
}

/// What is known of an answer before it begins.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) heading: Heading,
    pub(super) calls: Calls,
    pub(super) origins: Origins,
    echo: Echo,
    max_output_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
}

impl ResponsesAnswer {
    /// An answer with nothing in it yet.
    pub fn new(heading: Heading, request: &ResponsesRequest) -> Self {
        ResponsesAnswer::of(Setting {
            heading,
            calls: request.generation.calls.clone(),
            origins: request.origins.clone(),
            echo: request.echo.clone(),
            max_output_tokens: request.generation.max_tokens,
            temperature: request.generation.temperature,
            top_p: request.generation.top_p,
        })
    }

    pub(super) fn of(setting: Setting) -> Self {
        let state = State::new(&setting);
        ResponsesAnswer { setting, state }
    }
}

impl Setting {
    /// The response while it is being made.
    pub(super) fn in_progress(&self) -> Value {
        self.object("in_progress", json!({"output": []}))
    }

    /// The response at its end, with the items of its output.
    pub(super) fn ended(&self, output: &[Value], ending: &Ending, counts: TokenCounts) -> Value {
        let status = status(ending);
        let details = match ending {
            Ending::Limit => json!({"reason": "max_output_tokens"}),
            Ending::Model | Ending::StopText(_) => Value::Null,
        };
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

    /// The id of an item, by its kind and its place in the output.
    pub(super) fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}_{index}", self.heading.name)
    }

    /// The object with some of its fields changed.
    fn object(&self, status: &str, changed: Value) -> Value {
        let Echo { instructions, effort, metadata } = &self.echo;
        let choice = match &self.calls.choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({"type": "function", "name": name}),
        };
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
            "parallel_tool_calls": !self.calls.one_only,
            "previous_response_id": null,
            "reasoning": {"effort": effort, "summary": null},
            "store": false,
            "temperature": self.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": choice,
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
