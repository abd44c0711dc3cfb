//! An answer in one piece.

use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::WholeAnswer;
use crate::dialect::{Ending, Heading, TokenCounts};

/// How many tokens an exchange had. `input_tokens` leaves out those taken over from earlier requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    input_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Usage {
            input_tokens: counts.prompt.saturating_sub(counts.cached),
            // Nothing is kept at the client's order.
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: counts.cached,
            output_tokens: counts.completion,
        }
    }
}

/// A message: the answer where no stream was asked for, and without content and end the head of a stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Value>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    usage: Usage,
}

impl<'a> Message<'a> {
    /// A message that has not begun.
    pub(super) fn head(heading: &'a Heading) -> Self {
        // What of the prompt is taken over shows only at the end.
        let counts = TokenCounts { prompt: heading.prompt_tokens, ..TokenCounts::default() };
        Message {
            id: format!("msg_{}", heading.name),
            kind: "message",
            role: "assistant",
            model: &heading.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: counts.into(),
        }
    }

    /// A whole message.
    pub(super) fn whole(
        heading: &'a Heading,
        answer: WholeAnswer,
        ending: &'a Ending,
        counts: TokenCounts,
    ) -> Self {
        let WholeAnswer { thought, text, calls } = answer;
        let (reason, stop_sequence) = stop_reason(ending, calls.len());
        let mut content = Vec::new();
        // Clients send a message back as it is, and an empty text is no block.
        if !thought.is_empty() {
            content.push(thinking_block(&thought, SIGNATURE));
        }
        if !text.is_empty() {
            content.push(text_block(&text));
        }
        for (index, (name, arguments)) in calls.into_iter().enumerate() {
            let input = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            content.push(call_block(heading, index, &name, input));
        }
        let (stop_reason, usage) = (Some(reason), counts.into());
        Message { content, stop_reason, stop_sequence, usage, ..Message::head(heading) }
    }
}

/// Clients keep a thought only with a signature, and send both back. Nobody needs to be convinced here, so all have the same.
pub(super) const SIGNATURE: &str = "unsigned";

/// A block of text.
pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A block of what the model thinks.
pub(super) fn thinking_block(thought: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": thought, "signature": signature})
}

/// A block that is a call. Its id is unique because the answer's is.
pub(super) fn call_block(heading: &Heading, index: usize, name: &str, input: Value) -> Value {
    let id = format!("toolu_{}_{index}", heading.name);
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// `stop_reason` and `stop_sequence` of an answer with so many calls.
pub(super) fn stop_reason(ending: &Ending, calls: usize) -> (&'static str, Option<&str>) {
    match ending {
        Ending::Limit => ("max_tokens", None),
        Ending::Model | Ending::StopText(_) if calls > 0 => ("tool_use", None),
        Ending::Model => ("end_turn", None),
        Ending::StopText(text) => ("stop_sequence", Some(text)),
    }
}

/// The answer to a request to count tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenCount {
    input_tokens: usize,
}

impl TokenCount {
    /// So many tokens has the prompt.
    pub fn new(input_tokens: usize) -> Self {
        TokenCount { input_tokens }
    }
}
