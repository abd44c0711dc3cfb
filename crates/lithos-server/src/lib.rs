//! HTTP around the protocols.
//!
//! [`serve`] answers `POST /v1/chat/completions`, `/v1/completions`, `/v1/responses`, `/v1/messages` and `/v1/messages/count_tokens`, and `GET /v1/models` as OpenAI's and Anthropic's APIs do. One thread owns the model ([`TextModel`]). The prompt of a request is
//! made beside it ([`Prompts`]), so that what does not fit is refused at once; then the request waits in a bounded queue, in
//! order of arrival, until one of the model's slots is free, and the text comes back through a channel of its own. A client that goes away cancels its request, waiting
//! or running.
//!
//! `GET /health` says in which state the server is, `GET /metrics` what was counted and timed, and `/` is a page to talk with the
//! model and to watch it.
//!
//! What a dialect is, the protocol crate knows. Here one handler answers all of them.
//!
//! A server on a loopback address is still reachable by every web page that its user opens, so `Host` and `Origin` are
//! checked, and bodies must be JSON by name (a page cannot send that elsewhere without being allowed to). Any other address
//! needs a key.

mod answer;
mod body;
mod connections;
mod engine_model;
mod guards;
mod health;
mod loading;
mod metrics;
mod model;
mod options;
mod page;
mod queue;
mod request_log;
mod response;
mod server;
mod stream;
mod usage;
mod worker;

pub use loading::serve_while_loading;
pub use model::{Ended, ModelError, ModelInfo, Prompts, Resources, TextModel};
pub use options::{DEFAULT_ADDRESS, ServeError, ServerOptions};
pub use server::{Server, serve};
