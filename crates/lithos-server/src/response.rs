//! Responses that are errors, in the dialect of whoever asked.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lithos_protocol::{ApiError, messages};

use crate::server::Ids;

/// Seconds after which a client that was turned away may come again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

const MESSAGES: &str = "/v1/messages";

/// Clients of the Messages API send it with every request.
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// An error as a response. Its body is written by [`speak`], which knows the dialect.
pub(crate) struct HttpError(pub(crate) ApiError);

impl From<ApiError> for HttpError {
    fn from(error: ApiError) -> Self {
        HttpError(error)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// The two forms that errors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    OpenAi,
    Anthropic,
}

impl Form {
    fn of(request: &Request) -> Self {
        let path = request.uri().path();
        let rest = path.strip_prefix(MESSAGES);
        let by_path = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        // Other paths, such as the list of models, are common to both.
        if by_path || request.headers().contains_key(ANTHROPIC_VERSION) {
            Form::Anthropic
        } else {
            Form::OpenAi
        }
    }

    fn request_id(self) -> HeaderName {
        match self {
            Form::OpenAi => HeaderName::from_static("x-request-id"),
            Form::Anthropic => HeaderName::from_static("request-id"),
        }
    }
}

/// Gives every response the id of its request, and errors their body, as a layer around everything that may fail.
pub(crate) async fn speak(State(ids): State<Arc<Ids>>, request: Request, next: Next) -> Response {
    let form = Form::of(&request);
    let id = ids.next("req_");
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = error_response(&error, form, &id);
    }
    // An id is hexadecimal digits.
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(form.request_id(), id);
    }
    response
}

fn error_response(error: &ApiError, form: Form, request_id: &str) -> Response {
    let (status, body) = match form {
        Form::OpenAi => (error.status, error.body()),
        Form::Anthropic => (messages::error_status(error), messages::error_body(error, request_id)),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(body)).into_response();
    add_headers(response.headers_mut(), error.status);
    response
}

fn add_headers(headers: &mut HeaderMap, status: u16) {
    match status {
        429 | 503 => {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        401 => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
}
