//! HTTP around the protocols.
//!
//! [`serve`] answers `POST /v1/chat/completions`, `GET /v1/models` and `GET /health` as OpenAI's API does. One thread owns the
//! model ([`TextModel`]); requests reach it through a bounded queue, in order of arrival, and its text comes back through a
//! channel of the request. A client that goes away cancels its request, waiting or running.
//!
//! A server on a loopback address is still reachable by every web page that its user opens, so `Host` and `Origin` are
//! checked, and bodies must be JSON by name (a page cannot send that elsewhere without being allowed to). Any other address
//! needs a key.

mod body;
mod chat;
mod engine_model;
mod guards;
mod model;
mod options;
mod queue;
mod request_log;
mod response;
mod server;
mod stream;
mod worker;

pub use model::{ModelError, ModelInfo, TextModel};
pub use options::{DEFAULT_ADDRESS, ServeError, ServerOptions};
pub use server::{Server, serve};
