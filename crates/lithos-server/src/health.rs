//! In which state the server is: `GET /health`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::server::App;

/// Requests that the model fails one after the other before the server is called failing: one may be the request's fault.
const FAILURES: usize = 3;

/// What the model's thread tells of itself.
#[derive(Default)]
pub(crate) struct Health {
    /// Failures since the last answer.
    failures: AtomicUsize,
}

impl Health {
    /// The model gave an answer.
    pub(crate) fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// The model failed, by no fault of the request.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn is_failing(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES
    }
}

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// The model is being opened.
    Loading,
    /// The next request is answered at once.
    Ready,
    /// The next request waits.
    Busy,
    /// The model failed several times in a row.
    Failing,
}

impl Status {
    /// Supervisors look at the HTTP status: 503 means that requests are better sent elsewhere.
    pub(crate) fn http(self) -> StatusCode {
        match self {
            Status::Ready | Status::Busy => StatusCode::OK,
            Status::Loading | Status::Failing => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The body of the answer. It names nothing, since it is given without a key.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) status: Status,
    /// Requests that wait.
    pub(crate) waiting: usize,
    /// Requests that run.
    pub(crate) running: usize,
}

impl IntoResponse for Report {
    fn into_response(self) -> Response {
        (self.status.http(), Json(self)).into_response()
    }
}

/// `GET /health`
pub(crate) async fn health(State(app): State<Arc<App>>) -> Report {
    let (waiting, running) = app.queue.lengths();
    let status = match waiting + running {
        _ if app.health.is_failing() => Status::Failing,
        all if all < app.queue.slots() => Status::Ready,
        _ => Status::Busy,
    };
    Report { status, waiting, running }
}
