//! An answer in one piece.

use serde::Serialize;

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<TextBlock<'a>>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
    usage: Usage,
}

/// A block of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

impl<'a> TextBlock<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        TextBlock { kind: "text", text }
    }
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
        text: &'a str,
        ending: &'a Ending,
        counts: TokenCounts,
    ) -> Self {
        // Clients send a message back as it is, and an empty text is no block.
        let content = (!text.is_empty()).then(|| TextBlock::new(text)).into_iter().collect();
        let (reason, stop_sequence) = stop_reason(ending);
        let (stop_reason, usage) = (Some(reason), counts.into());
        Message { content, stop_reason, stop_sequence, usage, ..Message::head(heading) }
    }
}

/// `stop_reason` and `stop_sequence`.
pub(super) fn stop_reason(ending: &Ending) -> (&'static str, Option<&str>) {
    match ending {
        Ending::Model => ("end_turn", None),
        Ending::StopText(text) => ("stop_sequence", Some(text)),
        Ending::Limit => ("max_tokens", None),
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
