//! How fields are refused that ask for what is not there: to ignore them would change the answer without a word. Values that
//! ask for nothing (`null`, `false`, 0, an empty list) pass.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;

/// Refuses these fields, with these reasons, if they ask for anything.
pub(crate) fn refuse_fields(
    fields: &mut Fields,
    refusals: &[(&str, &str)],
) -> Result<(), ApiError> {
    for (name, reason) in refusals {
        if fields.value(name).is_some_and(|value| asks_for_something(&value)) {
            return Err(refused(name, reason));
        }
    }
    Ok(())
}

/// Whether a value asks for anything.
pub(crate) fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// The error for a field that asks for what is not there.
pub(crate) fn refused(name: &str, reason: &str) -> ApiError {
    ApiError::unsupported(name, format!("{name} is not supported: {reason}"))
}
