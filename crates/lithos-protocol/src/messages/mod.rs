//! Anthropic Messages: `POST /v1/messages` and `POST /v1/messages/count_tokens`.

mod content;
mod error;
mod refused;
mod request;
mod response;
mod stream;
mod tools;

pub use error::{error_body, error_status};
pub use request::{CountRequest, MessagesRequest};
pub use response::{Message, TokenCount, Usage};
pub use stream::MessagesAnswer;
