//! What the dialects have in common: a request that comes down to a [`Generation`], and an answer that turns what happens
//! during the generation into the dialect's events or into its object.
//!
//! A server needs nothing else, so that it is written once for all of them.

use serde_json::Value;

use crate::conversation::Conversation;
use crate::error::ApiError;
use crate::generation::Generation;
use crate::sse::Event;

/// A request in some dialect.
pub trait DialectRequest: Sized + Send + 'static {
    /// The field that holds the conversation, for errors about the whole of it.
    const PROMPT_FIELD: &'static str;

    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400, with the name of the field at fault.
    fn parse(body: &[u8]) -> Result<Self, ApiError>;

    /// The model asked for; empty if the client named none.
    fn model(&self) -> &str;

    /// Whether the answer shall be a stream of events.
    fn streams(&self) -> bool;

    /// Names of fields that were not looked at.
    fn ignored(&self) -> &[String];

    /// What is asked of the model.
    fn generation(&self) -> &Generation;

    /// What the prompt is made of: the generation's conversation, unless the dialect has none.
    fn prompt(&self) -> Prompt {
        Prompt::Conversation(self.generation().conversation.clone())
    }

    /// The answer to it, with nothing in it yet.
    fn answer(&self, heading: Heading) -> Box<dyn DialectAnswer>;
}

/// What a prompt is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// A conversation, through the model's chat template.
    Conversation(Conversation),
    /// A text as it is, in which special tokens may be spelled.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// What stands at the head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Unique among answers. Dialects make their ids of it.
    pub name: String,
    /// When the answer began, in seconds since 1970.
    pub created: u64,
    /// The model that answers.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Whether the prompt ends inside a thought, which the answer then begins with.
    pub opens_thought: bool,
}

/// An answer in some dialect: either the events of a stream, or the whole in one piece.
///
/// Every call gives the events to send, in order. Whatever the calls, the stream is well formed: its beginning comes first,
/// and nothing follows its end.
pub trait DialectAnswer: Send {
    /// Begins the stream, before there is any text.
    fn start(&mut self) -> Vec<Event>;

    /// A piece of the answer's text.
    fn text(&mut self, text: &str) -> Vec<Event>;

    /// Says that the answer is still coming, in a way that the idle timers of clients count.
    fn heartbeat(&mut self) -> Vec<Event>;

    /// Ends the stream.
    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event>;

    /// Ends the stream with an error that came after it had begun.
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;

    /// The answer in one piece, where no stream was asked for.
    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value;
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended it.
    Model,
    /// This stop text of the request did.
    StopText(String),
    /// The limit of tokens or of the context did.
    Limit,
}

/// How many tokens an exchange had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Of the prompt, all of them.
    pub prompt: usize,
    /// Of those, taken over from earlier requests.
    pub cached: usize,
    /// Of the answer, with its thoughts.
    pub completion: usize,
    /// Of those, the ones of thoughts.
    pub thought: usize,
}
