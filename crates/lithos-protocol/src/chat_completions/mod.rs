//! Chat Completions: `POST /v1/chat/completions`.

mod messages;
mod refused;
mod request;
mod response;
mod stream;

pub use request::{ChatRequest, LogitBias};
pub use response::{ChatCompletion, FinishReason, Usage};
pub use stream::ChatStream;
