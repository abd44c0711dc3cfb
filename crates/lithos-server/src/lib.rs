//! HTTP around the protocols.
//!
//! [`serve`] answers `POST /v1/chat/completions`, `/v1/responses`, `/v1/messages` and `/v1/messages/count_tokens`, `GET /v1/models`
//! and `GET /health` as OpenAI's and Anthropic's APIs do. One thread owns the model ([`TextModel`]). The prompt of a request is
//! made beside it ([`Prompts`]), so that what does not fit is refused at once; then the request waits in a bounded queue, in
//! order of arrival, and the text comes back through a channel of its own. A client that goes away cancels its request, waiting
//! or running.
//!
//! What a dialect is, the protocol crate knows. Here one handler answers all of them.
//!
//! A server on a loopback address is still reachable by every web page that its user opens, so `Host` and `Origin` are
//! checked, and bodies must be JSON by name (a page cannot send that elsewhere without being allowed to). Any other address
//! needs a key.

mod answer;
mod body;
mod engine_model;
mod guards;
mod model;
mod options;
mod queue;
mod request_log;
mod response;
mod server;
mod stream;
mod usage;
mod worker;

pub use model::{ModelError, ModelInfo, Prompts, TextModel};
pub use options::{DEFAULT_ADDRESS, ServeError, ServerOptions};
pub use server::{Server, serve};
