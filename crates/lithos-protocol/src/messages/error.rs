//! Errors as the Messages API spells them.

use serde_json::{Value, json};

use crate::error::ApiError;

/// The body of a response. The request's id is also in the header `request-id`.
pub fn error_body(error: &ApiError, request_id: &str) -> Value {
    let mut body = event_data(error);
    body["request_id"] = request_id.into();
    body
}

/// The HTTP status. A server that cannot take requests at all is "overloaded" here.
pub fn error_status(error: &ApiError) -> u16 {
    match error.status {
        503 => 529,
        status => status,
    }
}

/// The data of an `error` event.
pub(super) fn event_data(error: &ApiError) -> Value {
    // Fields have no place of their own in this dialect: messages name them.
    json!({"type": "error", "error": {"type": kind(error.status), "message": error.message}})
}

fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_anthropics() {
        let error = ApiError::model_not_found("opus", "small");
        assert_eq!(
            error_body(&error, "req_1").to_string(),
            r#"{"type":"error","error":{"type":"not_found_error","message":"the model 'opus' does not exist: this server has 'small'"},"request_id":"req_1"}"#
        );
    }

    #[test]
    fn every_status_has_its_type() {
        for (status, kind, sent) in [
            (400, "invalid_request_error", 400),
            (401, "authentication_error", 401),
            (403, "permission_error", 403),
            (404, "not_found_error", 404),
            (405, "invalid_request_error", 405),
            (413, "request_too_large", 413),
            (415, "invalid_request_error", 415),
            (429, "rate_limit_error", 429),
            (500, "api_error", 500),
            (503, "overloaded_error", 529),
        ] {
            let error = ApiError::new(status, "x", "y");
            assert_eq!(error_body(&error, "r")["error"]["type"], kind, "{status}");
            assert_eq!(error_status(&error), sent);
        }
    }
}
