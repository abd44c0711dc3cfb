//! Values that a model wrote without quotes, typed by their schema.

use serde_json::Value;

use super::schema::{Schema, Types};

/// The JSON text of a value as its schema wants it; `None` if the schema does not allow it.
///
/// A text stays as it was written. Anything else must be JSON, and stays as it was written too, so that no digit of a number is
/// lost and no key of an object changes its place. Where a schema allows texts and something else, the value is something else
/// if it can be. Where it says nothing, the value is a text.
pub(super) fn typed(written: &str, schema: Schema<'_>) -> Option<String> {
    let types = schema.types();
    if types != Types::ANY && types != Types::STRING {
        let json = as_json(written.trim(), types);
        if let Ok(value) = serde_json::from_str::<Value>(&json)
            && !value.is_string()
            && schema.allows(&value)
        {
            return Some(json);
        }
    }
    if !types.contain(Types::STRING) {
        return None;
    }
    // White space around one of several words is not part of it.
    let texts = [written, written.trim()].map(Value::from);
    texts.into_iter().find(|text| schema.allows(text)).map(|text| text.to_string())
}

/// Spells a value as JSON does where models spell it as Python does, and an integer without a fraction of zero.
fn as_json(written: &str, types: Types) -> String {
    match written {
        "True" if types.contain(Types::BOOLEAN) => "true".to_owned(),
        "False" if types.contain(Types::BOOLEAN) => "false".to_owned(),
        "None" if types.contain(Types::NULL) => "null".to_owned(),
        _ => match written.split_once('.') {
            Some((whole, fraction))
                if !types.contain(Types::NUMBER)
                    && types.contain(Types::INTEGER)
                    && !fraction.is_empty()
                    && fraction.bytes().all(|digit| digit == b'0') =>
            {
                whole.to_owned()
            }
            _ => written.to_owned(),
        },
    }
}

/// Whether a model wrote that there is no value.
pub(super) fn is_nothing(written: &str) -> bool {
    matches!(written.trim(), "null" | "None")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(text: &str, schema: Value) -> Option<String> {
        typed(text, Schema::root(&schema))
    }

    #[test]
    fn texts_stay_texts() {
        for text in ["5", "true", "null", "[1]", " a\n", "\"quoted\"", "é\\"] {
            assert_eq!(written(text, json!({"type": "string"})), Some(json!(text).to_string()));
            assert_eq!(written(text, json!({})), Some(json!(text).to_string()));
        }
    }

    #[test]
    fn other_values_stay_as_they_are_written() {
        for (text, schema, wanted) in [
            ("5", json!({"type": "integer"}), Some("5")),
            ("5.0", json!({"type": "integer"}), Some("5")),
            ("5.5", json!({"type": "integer"}), None),
            ("a third", json!({"type": "integer"}), None),
            ("249.90", json!({"type": "number"}), Some("249.90")),
            ("12345678901234567890123", json!({"type": "number"}), Some("12345678901234567890123")),
            ("true", json!({"type": "boolean"}), Some("true")),
            ("False", json!({"type": "boolean"}), Some("false")),
            ("yes", json!({"type": "boolean"}), None),
            ("\n[ 1, 2 ]\n", json!({"type": "array"}), Some("[ 1, 2 ]")),
            ("{\"b\": 1, \"a\": 2}", json!({"type": "object"}), Some("{\"b\": 1, \"a\": 2}")),
            ("{\"a\": 1}", json!({"type": "array"}), None),
            ("{'a': 1}", json!({"type": "object"}), None),
            ("null", json!({"type": ["string", "null"]}), Some("null")),
            ("null", json!({"type": "integer"}), None),
            ("7", json!({"type": ["string", "integer"]}), Some("7")),
            ("07", json!({"type": ["string", "integer"]}), Some("\"07\"")),
            ("b\n", json!({"enum": ["a", "b"]}), Some("\"b\"")),
            ("c", json!({"enum": ["a", "b"]}), None),
        ] {
            assert_eq!(written(text, schema.clone()).as_deref(), wanted, "{text} as {schema}");
        }
    }
}
