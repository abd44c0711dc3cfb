//! One line in the log for each request, at its very end. Never what was said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Instant;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use lithos_protocol::chat_completions::Usage;

/// As servers commonly log a client that went away before the answer.
const CLIENT_GONE: u16 = 499;

/// Collects what is logged of a request. It writes its line when the last holder lets go of it: the handler, or the stream
/// that goes on after it.
pub(crate) struct RequestLog {
    method: Method,
    path: String,
    started: Instant,
    status: AtomicU16,
    prompt_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
}

impl RequestLog {
    /// Notes the counts of tokens.
    pub(crate) fn usage(&self, usage: &Usage) {
        self.prompt_tokens.store(usage.prompt_tokens(), Ordering::Relaxed);
        self.completion_tokens.store(usage.completion_tokens(), Ordering::Relaxed);
    }

    /// Notes a status that differs from that of the headers, since a stream failed later.
    pub(crate) fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        tracing::info!(
            method = %self.method,
            path = %self.path,
            status = self.status.load(Ordering::Relaxed),
            duration_ms = self.started.elapsed().as_millis() as u64,
            prompt_tokens = self.prompt_tokens.load(Ordering::Relaxed),
            completion_tokens = self.completion_tokens.load(Ordering::Relaxed),
            "request"
        );
    }
}

/// Gives every request its log.
pub(crate) async fn log_request(mut request: Request, next: Next) -> Response {
    let log = Arc::new(RequestLog {
        method: request.method().clone(),
        // Without the query, which may hold keys.
        path: request.uri().path().to_owned(),
        started: Instant::now(),
        status: AtomicU16::new(CLIENT_GONE),
        prompt_tokens: AtomicUsize::new(0),
        completion_tokens: AtomicUsize::new(0),
    });
    request.extensions_mut().insert(log.clone());
    let response = next.run(request).await;
    log.status(response.status().as_u16());
    response
}
