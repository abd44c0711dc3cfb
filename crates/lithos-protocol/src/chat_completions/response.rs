//! An answer in one piece.

use serde::Serialize;

use crate::dialect::TokenCounts;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended it, or a stop text did.
    Stop,
    /// The limit of tokens or of the context did.
    Length,
    /// The model called tools, and waits for their results.
    ToolCalls,
}

/// How many tokens an exchange had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct CompletionDetails {
    reasoning_tokens: usize,
}

impl Usage {
    /// Counts of an exchange.
    pub fn new(counts: TokenCounts) -> Self {
        let TokenCounts { prompt, cached, completion, thought } = counts;
        Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: PromptDetails { cached_tokens: cached },
            completion_tokens_details: CompletionDetails { reasoning_tokens: thought },
        }
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Tokens of the answer.
    pub fn completion_tokens(&self) -> usize {
        self.completion_tokens
    }
}

/// An answer, as it is sent where no stream was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: [Choice; 1],
    usage: Usage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Choice {
    index: u32,
    message: Message,
    logprobs: Option<()>,
    finish_reason: FinishReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Message {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

impl ToolCall {
    /// A call whose arguments are a JSON object.
    pub(super) fn new(id: String, name: String, arguments: String) -> Self {
        ToolCall { id, kind: "function", function: CalledFunction { name, arguments } }
    }
}

impl ChatCompletion {
    /// An answer with its id (`chatcmpl-…`), its time in seconds since 1970, and the model that gave it.
    pub fn new(
        id: impl Into<String>,
        created: u64,
        model: impl Into<String>,
        text: impl Into<String>,
        finish: FinishReason,
        usage: Usage,
    ) -> Self {
        let content = Some(text.into());
        let message = Message {
            role: "assistant",
            content,
            reasoning_content: String::new(),
            refusal: None,
            tool_calls: Vec::new(),
        };
        ChatCompletion {
            id: id.into(),
            object: "chat.completion",
            created,
            model: model.into(),
            choices: [Choice { index: 0, message, logprobs: None, finish_reason: finish }],
            usage,
        }
    }

    /// The answer with what the model thought before it; empty for nothing.
    pub(super) fn with_thought(mut self, thought: String) -> Self {
        let [Choice { message, .. }] = &mut self.choices;
        message.reasoning_content = thought;
        self
    }

    /// The answer with calls. Where there is no text beside them, there is no content.
    pub(super) fn with_calls(mut self, calls: Vec<ToolCall>) -> Self {
        let [Choice { message, .. }] = &mut self.choices;
        if !calls.is_empty() {
            message.content = message.content.take().filter(|text| !text.is_empty());
        }
        message.tool_calls = calls;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_openais() {
        let usage = Usage::new(TokenCounts { prompt: 10, cached: 4, completion: 3, thought: 2 });
        let answer = ChatCompletion::new("chatcmpl-1", 9, "m", "hi", FinishReason::Stop, usage);
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            concat!(
                r#"{"id":"chatcmpl-1","object":"chat.completion","created":9,"model":"m","#,
                r#""choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null},"#,
                r#""logprobs":null,"finish_reason":"stop"}],"#,
                r#""usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"#,
                r#""prompt_tokens_details":{"cached_tokens":4},"#,
                r#""completion_tokens_details":{"reasoning_tokens":2}}}"#
            )
        );
    }
}
