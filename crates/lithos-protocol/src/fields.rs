//! Reading the fields of a JSON object, with errors that name the field.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::refusal::refused;

/// Of the fields that nobody took so many are named, by so many characters.
const MOST_NAMES: usize = 16;
const LONGEST_NAME: usize = 48;

/// The body of a request as an object.
pub(crate) fn parse_body(body: &[u8]) -> Result<Fields, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = format!("the body is not valid JSON: line {line}, column {column}");
        ApiError::bad_request(message).with_code("invalid_json")
    })?;
    Fields::new(value, "")
}

/// The fields of one object, taken out one by one.
pub(crate) struct Fields {
    map: Map<String, Value>,
    /// Path of the object in the request, empty for the request itself.
    path: String,
}

impl Fields {
    /// The fields of `value`, which stands at `path`.
    pub(crate) fn new(value: Value, path: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields { map, path: path.to_owned() }),
            other => {
                let place = if path.is_empty() { "the body" } else { path };
                let message = format!("{place} must be an object, but is {}", kind(&other));
                let error = ApiError::bad_request(message).with_code("invalid_type");
                Err(if path.is_empty() { error } else { error.with_param(path) })
            }
        }
    }

    /// The path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Looks at a field without taking it.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.map.get(name)
    }

    /// Takes a field as JSON. `null` counts as absent.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field as a type that `expected` describes.
    pub(crate) fn take<T: DeserializeOwned>(
        &mut self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let found = kind(&value);
        serde_json::from_value(value)
            .map(Some)
            .map_err(|_| wrong_type(self.path(name), expected, found))
    }

    /// The error for a field that is not there; `wanted` says what it must be.
    pub(crate) fn missing(&self, name: &str, wanted: &str) -> ApiError {
        let param = self.path(name);
        let message = format!("{param} is missing: {wanted}");
        ApiError::bad_request(message).with_param(param).with_code("missing_required_parameter")
    }

    /// The names of the fields that nobody took, within bounds: they are the client's.
    pub(crate) fn left(&self) -> Vec<String> {
        let names = self.map.keys().take(MOST_NAMES);
        names.map(|name| name.chars().take(LONGEST_NAME).collect()).collect()
    }

    /// Takes `stream` and `stream_options` of OpenAI: whether to stream, and whether a stream ends with the counts of tokens.
    pub(crate) fn streaming(&mut self) -> Result<(bool, bool), ApiError> {
        let stream = self.take("stream", "true or false")?.unwrap_or(false);
        let Some(options) = self.value("stream_options") else { return Ok((stream, false)) };
        let mut options = Fields::new(options, "stream_options")?;
        let include_usage = options.take("include_usage", "true or false")?.unwrap_or(false);
        Ok((stream, stream && include_usage))
    }

    /// Takes `n` and `best_of`, which must not ask for several answers.
    pub(crate) fn one_answer_only(&mut self) -> Result<(), ApiError> {
        for name in ["n", "best_of"] {
            let count: Option<u64> = self.take(name, "a whole number")?;
            match count {
                None | Some(1) => {}
                Some(0) => {
                    return Err(ApiError::invalid(name, format!("{name} is 0: it must be 1")));
                }
                Some(count) => {
                    let reason = format!("{name} is {count}, and only one answer is made");
                    return Err(refused(name, &reason));
                }
            }
        }
        Ok(())
    }

    /// Takes a number within `low..=high`.
    pub(crate) fn number(
        &mut self,
        name: &str,
        low: f32,
        high: f32,
    ) -> Result<Option<f32>, ApiError> {
        let number: Option<f32> = self.take(name, "a number")?;
        match number {
            Some(value) if !(low..=high).contains(&value) => {
                let message = format!("{name} is {value}: it must be between {low} and {high}");
                Err(ApiError::invalid(self.path(name), message))
            }
            number => Ok(number),
        }
    }
}

/// The error for a field of the wrong type.
pub(crate) fn wrong_type(path: String, expected: &str, found: &str) -> ApiError {
    let message = format!("{path} must be {expected}, but is {found}");
    ApiError::bad_request(message).with_param(path).with_code("invalid_type")
}

/// What a JSON value is, in words. It never quotes the value, which may be private.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(number) if number.is_u64() => "a whole number",
        Value::Number(_) => "a negative number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
