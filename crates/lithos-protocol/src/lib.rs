//! OpenAI Chat Completions as pure state machines, without input or output.
//!
//! Bytes of a request go in ([`chat_completions::ChatRequest::parse`]), events of a response come out
//! ([`chat_completions::ChatStream`]). Nothing here reads a clock, draws a random number or knows a socket: ids and times are
//! arguments, so that every exchange can be tested as data.

pub mod chat_completions;
mod error;
mod fields;
pub mod models;
pub mod sse;

pub use error::ApiError;
