//! Legacy Completions: `POST /v1/completions`. A prompt is continued as it is, without a chat template.

mod answer;
mod request;

pub use request::CompletionRequest;
