//! One line in the log for each request, at its very end. Never what was said.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use lithos_protocol::TokenCounts;

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
    cached_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
    ignored: OnceLock<String>,
}

impl RequestLog {
    /// Notes the counts of tokens.
    pub(crate) fn counts(&self, counts: TokenCounts) {
        self.prompt_tokens.store(counts.prompt, Ordering::Relaxed);
        self.cached_tokens.store(counts.cached, Ordering::Relaxed);
        self.completion_tokens.store(counts.completion, Ordering::Relaxed);
    }

    /// Notes the fields of the request that were not looked at.
    pub(crate) fn ignored(&self, names: &[String]) {
        if !names.is_empty() {
            // It is noted once for each request.
            let _ = self.ignored.set(names.join(", "));
        }
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
            cached_tokens = self.cached_tokens.load(Ordering::Relaxed),
            completion_tokens = self.completion_tokens.load(Ordering::Relaxed),
            // Debug: names are the client's, and a line of the log stays one line.
            ignored = self.ignored.get().map(tracing::field::debug),
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
        cached_tokens: AtomicUsize::new(0),
        completion_tokens: AtomicUsize::new(0),
        ignored: OnceLock::new(),
    });
    request.extensions_mut().insert(log.clone());
    let response = next.run(request).await;
    log.status(response.status().as_u16());
    response
}
