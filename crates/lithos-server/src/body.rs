//! Reading the body of a request, within bounds.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use futures_core::Stream;
use lithos_protocol::ApiError;

/// The longest time that a client may take to send its body.
const BODY_TIME: Duration = Duration::from_secs(60);

/// The body of a request that must be JSON by its content type.
///
/// # Errors
/// 415 for another content type or a compressed body, 413 past the limit, 408 past the time, 400 if the client breaks off.
pub(crate) async fn read_json_body(request: Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    check_type(request.headers())?;
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    tokio::time::timeout(BODY_TIME, collect(request.into_body(), limit)).await.unwrap_or_else(
        |_| {
            let message = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
            Err(ApiError::new(408, "invalid_request_error", message))
        },
    )
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |message: &str| {
        Err(ApiError::new(415, "invalid_request_error", message)
            .with_code("unsupported_media_type"))
    };
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or("").trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return refuse("the body must have the content type application/json");
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => refuse("the body must not be compressed"),
        _ => Ok(()),
    }
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut stream = pin!(body.into_data_stream());
    let mut collected = Vec::new();
    while let Some(piece) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        let piece = piece.map_err(|_| ApiError::bad_request("the body broke off"))?;
        if collected.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        collected.extend_from_slice(&piece);
    }
    Ok(collected)
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the body is too large: at most {limit} bytes are read");
    ApiError::new(413, "invalid_request_error", message).with_code("request_too_large")
}
