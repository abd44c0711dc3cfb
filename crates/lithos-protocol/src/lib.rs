//! The dialects that clients of language models speak, as pure state machines, without input or output.
//!
//! [`chat_completions`], [`responses`] and the older [`completions`] are OpenAI's, [`messages`] is Anthropic's. Bytes of a request go in
//! ([`DialectRequest::parse`]), events of a response come out ([`DialectAnswer`]). Nothing here reads a clock, draws a random
//! number or knows a socket: ids and times are arguments, so that every exchange can be tested as data.

mod answer;
pub mod chat_completions;
pub mod completions;
mod conversation;
mod dialect;
mod error;
mod fields;
mod form;
mod generation;
pub mod messages;
pub mod models;
mod refusal;
pub mod responses;
pub mod sse;
mod thinking;
mod thought;
pub mod tools;

pub use conversation::Conversation;
pub use dialect::{DialectAnswer, DialectRequest, Ending, Heading, Prompt, TokenCounts};
pub use error::ApiError;
pub use form::{AnswerForm, FormKind};
pub use generation::{Generation, LogitBias};
pub use thought::{ThoughtParser, ThoughtPiece};
