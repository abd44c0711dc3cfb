//! OpenAI Responses: `POST /v1/responses`.

mod input;
mod refused;
mod request;
mod response;
mod stream;
mod tools;

pub use request::{Echo, ResponsesRequest};
pub use response::{ResponsesAnswer, Usage};
