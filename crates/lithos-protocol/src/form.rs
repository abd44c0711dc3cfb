//! The form that a request prescribes for its answer, in every spelling.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};
use crate::refusal::refused;

/// The form of an answer, and where it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerForm {
    /// What the answer is to be.
    pub kind: FormKind,
    /// The field of the request, for errors about it.
    pub param: &'static str,
}

/// What an answer is to be.
#[derive(Clone, Debug, PartialEq)]
pub enum FormKind {
    /// JSON that is valid against this schema.
    JsonSchema(Value),
    /// A JSON object, whatever is in it.
    JsonObject,
    /// Text that matches this regular expression as a whole.
    Regex(String),
    /// Text of this grammar, in Lark's notation.
    Lark(String),
}

impl FormKind {
    /// Its schema, if it is JSON.
    pub(crate) fn schema(&self) -> Option<Value> {
        match self {
            FormKind::JsonSchema(schema) => Some(schema.clone()),
            FormKind::JsonObject => Some(json!({"type": "object"})),
            FormKind::Regex(_) | FormKind::Lark(_) => None,
        }
    }
}

/// Reads `response_format` and its like, which stands at `param`: `text`, `json_object`, or `json_schema` with the schema in it or in an
/// object of its own.
pub(crate) fn read_format(
    format: Value,
    param: &'static str,
) -> Result<Option<AnswerForm>, ApiError> {
    let mut fields = Fields::new(format, param)?;
    let asked: Option<String> = fields.take("type", "a text")?;
    let kind = match asked.as_deref() {
        Some("text") => return Ok(None),
        Some("json_object") => FormKind::JsonObject,
        Some("json_schema") => {
            let inner = fields.value("json_schema");
            let inner = inner.map(|inner| Fields::new(inner, &fields.path("json_schema")));
            let mut fields = inner.transpose()?.unwrap_or(fields);
            let schema = fields.value("schema");
            FormKind::JsonSchema(
                schema.ok_or_else(|| fields.missing("schema", "it must be a JSON schema"))?,
            )
        }
        _ => {
            let message = format!("{param}.type must be text, json_object or json_schema");
            return Err(ApiError::invalid(format!("{param}.type"), message));
        }
    };
    Ok(Some(AnswerForm { kind, param }))
}

/// Fields that other local servers added, for forms of all kinds; the older ones stand at the top of the request.
const STRUCTURED: &str = "structured_outputs";
const OLDER: [(&str, &str); 5] = [
    ("guided_json", "json"),
    ("guided_regex", "regex"),
    ("guided_choice", "choice"),
    ("guided_grammar", "grammar"),
    ("json_schema", "json"),
];

/// Adds what these fields say to the form that was read elsewhere; there may be one only.
pub(crate) fn read_structured(
    fields: &mut Fields,
    form: Option<AnswerForm>,
) -> Result<Option<AnswerForm>, ApiError> {
    if fields.peek("grammar").is_some_and(|grammar| !grammar.is_null()) {
        let reason = "send structured_outputs with a grammar in Lark's notation";
        return Err(refused("grammar", reason));
    }
    let mut forms: Vec<AnswerForm> = form.into_iter().collect();
    for (name, kind) in OLDER {
        if let Some(value) = fields.value(name) {
            forms.push(AnswerForm { kind: read_kind(kind, value, name)?, param: name });
        }
    }
    if let Some(value) = fields.value(STRUCTURED) {
        let mut fields = Fields::new(value, STRUCTURED)?;
        for name in ["json", "regex", "choice", "grammar", "json_object"] {
            if let Some(value) = fields.value(name)
                && value != false
            {
                let kind = read_kind(name, value, &fields.path(name))?;
                forms.push(AnswerForm { kind, param: STRUCTURED });
            }
        }
    }
    if let [first, second, ..] = &forms[..] {
        let message =
            format!("an answer has one form: leave out {} or {}", first.param, second.param);
        return Err(ApiError::invalid(second.param, message));
    }
    Ok(forms.pop())
}

fn read_kind(kind_name: &str, value: Value, path: &str) -> Result<FormKind, ApiError> {
    let wrong =
        |expected: &str, value: &Value| Err(wrong_type(path.to_owned(), expected, kind(value)));
    match (kind_name, value) {
        ("json", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(schema) => Ok(FormKind::JsonSchema(schema)),
            Err(_) => Err(ApiError::invalid(path, format!("{path} must be a JSON schema"))),
        },
        ("json", schema) => Ok(FormKind::JsonSchema(schema)),
        ("json_object", _) => Ok(FormKind::JsonObject),
        ("regex", Value::String(pattern)) => Ok(FormKind::Regex(pattern)),
        ("grammar", Value::String(grammar)) => Ok(FormKind::Lark(grammar)),
        ("choice", Value::Array(texts))
            if !texts.is_empty() && texts.iter().all(Value::is_string) =>
        {
            // A text in JSON is a text in Lark.
            let texts: Vec<String> = texts.iter().map(Value::to_string).collect();
            Ok(FormKind::Lark(format!("start: {}\n", texts.join(" | "))))
        }
        ("choice", value) => wrong("a list of texts", &value),
        (_, value) => wrong("a text", &value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structured(request: Value) -> Result<Option<FormKind>, ApiError> {
        let mut fields = Fields::new(request, "").unwrap();
        Ok(read_structured(&mut fields, None)?.map(|form| form.kind))
    }

    #[test]
    fn formats_are_read_in_every_spelling() {
        let schema = json!({"type": "object"});
        let read = |format| read_format(format, "f").unwrap().map(|form| form.kind);
        let wanted = Some(FormKind::JsonSchema(schema.clone()));
        assert_eq!(read(json!({"type": "text"})), None);
        assert_eq!(read(json!({"type": "json_object"})), Some(FormKind::JsonObject));
        assert_eq!(
            read(json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true})),
            wanted
        );
        assert_eq!(
            read(json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})),
            wanted
        );
        for (format, param) in [
            (json!({"type": "json_schema"}), "f.schema"),
            (json!({"type": "json_schema", "json_schema": {}}), "f.json_schema.schema"),
            (json!({"type": "json_schema", "json_schema": 3}), "f.json_schema"),
            (json!({"type": "xml"}), "f.type"),
            (json!({}), "f.type"),
            (json!("text"), "f"),
        ] {
            let error = read_format(format, "f").unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
    }

    #[test]
    fn local_spellings_are_read_and_two_forms_are_refused() {
        let regex = Some(FormKind::Regex("a+".into()));
        assert_eq!(structured(json!({})).unwrap(), None);
        assert_eq!(structured(json!({"guided_regex": "a+"})).unwrap(), regex);
        assert_eq!(
            structured(json!({"structured_outputs": {"regex": "a+", "json": null}})).unwrap(),
            regex
        );
        assert_eq!(
            structured(json!({"guided_json": "{\"type\": \"null\"}"})).unwrap(),
            Some(FormKind::JsonSchema(json!({"type": "null"})))
        );
        assert_eq!(
            structured(json!({"structured_outputs": {"choice": ["a\"", "b"]}})).unwrap(),
            Some(FormKind::Lark("start: \"a\\\"\" | \"b\"\n".into()))
        );
        for (request, param) in [
            (
                json!({"guided_regex": "a", "structured_outputs": {"json_object": true}}),
                "structured_outputs",
            ),
            (json!({"structured_outputs": {"choice": []}}), "structured_outputs.choice"),
            (json!({"guided_grammar": 3}), "guided_grammar"),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"grammar": "root ::= \"a\""}), "grammar"),
        ] {
            assert_eq!(structured(request).unwrap_err().param.as_deref(), Some(param));
        }
    }
}
