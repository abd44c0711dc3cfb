//! Chat Completions: `POST /v1/chat/completions`.

mod answer;
mod dialect;
mod messages;
mod refused;
mod request;
mod response;
mod stream;
mod tools;

pub use request::ChatRequest;
pub use response::{ChatCompletion, FinishReason, Usage};
pub use stream::ChatStream;
