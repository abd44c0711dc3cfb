//! Errors as OpenAI's API spells them.

use serde_json::{Value, json};

/// An error of the API: its HTTP status and what its JSON object says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status, where the response has not begun.
    pub status: u16,
    /// The family, such as `invalid_request_error`.
    pub kind: &'static str,
    /// A stable name for programs, such as `model_not_found`.
    pub code: Option<&'static str>,
    /// The field of the request that is at fault, such as `messages[0].content`.
    pub param: Option<String>,
    /// One line for people: what is wrong and what to do.
    pub message: String,
}

impl ApiError {
    /// An error without field and code.
    pub fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, kind, code: None, param: None, message: message.into() }
    }

    /// 400: the request is at fault.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// 400: a field of the request has a value that cannot be used.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request(message).with_param(param).with_code("invalid_value")
    }

    /// 400: a field of the request asks for what is not there, and to ignore it would change the answer.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request(message).with_param(param).with_code("unsupported_value")
    }

    /// 400: the conversation does not fit the context. Agents know this code and compact their history.
    pub fn context_length_exceeded(prompt_tokens: usize, context: usize) -> Self {
        let message = format!(
            "prompt is too long: {prompt_tokens} tokens > {context} maximum, and the answer needs room too: shorten the messages"
        );
        Self::bad_request(message).with_param("messages").with_code("context_length_exceeded")
    }

    /// 404: no such model.
    pub fn model_not_found(asked: &str, served: &str) -> Self {
        let message = format!("the model '{asked}' does not exist: this server has '{served}'");
        Self::new(404, "invalid_request_error", message)
            .with_param("model")
            .with_code("model_not_found")
    }

    /// 500: the server is at fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "server_error", message)
    }

    /// Names the field at fault.
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Names the error for programs.
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The error's own object: `message`, `type`, `param`, `code`.
    pub fn object(&self) -> Value {
        json!({
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        })
    }

    /// The body of a response: the object under `error`.
    pub fn body(&self) -> Value {
        json!({ "error": self.object() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_all_four_keys() {
        let error = ApiError::model_not_found("gpt", "small");
        assert_eq!(
            error.body().to_string(),
            r#"{"error":{"message":"the model 'gpt' does not exist: this server has 'small'","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
        );
        let error = ApiError::internal("it broke").body();
        assert!(error["error"]["param"].is_null() && error["error"]["code"].is_null());
    }

    #[test]
    fn a_context_error_has_both_numbers() {
        let error = ApiError::context_length_exceeded(40_000, 32_768);
        assert_eq!((error.status, error.code), (400, Some("context_length_exceeded")));
        assert!(error.message.starts_with("prompt is too long: 40000 tokens > 32768 maximum"));
    }
}
