//! One line in the log for each request, at its very end. Never what was said.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use lithos_protocol::TokenCounts;

use crate::guards::HEALTH;
use crate::metrics::{METRICS, Metrics};
use crate::page;

/// As servers commonly log a client that went away before the answer.
const CLIENT_GONE: u16 = 499;

/// Collects what is logged of a request. It writes its line when the last holder lets go of it: the handler, or the stream
/// that goes on after it.
pub(crate) struct RequestLog {
    method: Method,
    path: String,
    /// The route that the path belongs to, where it belongs to one.
    route: Option<MatchedPath>,
    metrics: Arc<Metrics>,
    first_text: OnceLock<Instant>,
    started: Instant,
    status: AtomicU16,
    prompt_tokens: AtomicUsize,
    cached_tokens: AtomicUsize,
    completion_tokens: AtomicUsize,
    ignored: OnceLock<String>,
}

impl RequestLog {
    /// Notes that the model has said something.
    pub(crate) fn text(&self) {
        self.first_text.get_or_init(|| {
            let now = Instant::now();
            self.metrics.first_text(now - self.started);
            now
        });
    }

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
        let status = self.status.load(Ordering::Relaxed);
        self.metrics.requested(self.route.as_ref().map(MatchedPath::as_str), status);
        if status == 200 && self.route.as_ref().is_some_and(|route| is_watched(route.as_str())) {
            tracing::debug!(method = %self.method, path = %self.path, status, "request");
            return;
        }
        tracing::info!(
            method = %self.method,
            path = %self.path,
            status,
            duration_ms = self.started.elapsed().as_millis() as u64,
            prompt_tokens = self.prompt_tokens.load(Ordering::Relaxed),
            cached_tokens = self.cached_tokens.load(Ordering::Relaxed),
            first_text_ms = self.first_text.get().map(|first| (*first - self.started).as_millis() as u64),
            completion_tokens = self.completion_tokens.load(Ordering::Relaxed),
            // Debug: names are the client's, and a line of the log stays one line.
            ignored = self.ignored.get().map(tracing::field::debug),
            "request"
        );
    }
}

/// Whether somebody who watches asks for this route again and again, which would fill the log.
fn is_watched(route: &str) -> bool {
    route == HEALTH || route == METRICS || page::is_part(route)
}

/// Gives every request its log.
pub(crate) async fn log_request(
    State(metrics): State<Arc<Metrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let log = Arc::new(RequestLog {
        method: request.method().clone(),
        // Without the query, which may hold keys.
        path: request.uri().path().to_owned(),
        route: request.extensions().get::<MatchedPath>().cloned(),
        metrics,
        first_text: OnceLock::new(),
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
