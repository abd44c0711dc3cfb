//! The conversation of a request, in the form that chat templates take.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};

/// Joins system messages that lead the conversation.
const BETWEEN_SYSTEM_MESSAGES: &str = "\n\n";

/// Reads the list of messages. Contents become plain texts, `developer` becomes `system` (the name that templates know),
/// and several system messages at the front become one, since many templates take only one.
pub(super) fn read_messages(messages: Value) -> Result<Value, ApiError> {
    let messages = match messages {
        Value::Array(messages) if messages.is_empty() => {
            let message = "messages is empty: it must have at least one message";
            return Err(ApiError::invalid("messages", message));
        }
        Value::Array(messages) => messages,
        other => return Err(wrong_type("messages".into(), "a list", kind(&other))),
    };
    let mut out: Vec<Value> = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let message = read_message(message, &format!("messages[{index}]"))?;
        match out.as_mut_slice() {
            [first] if first["role"] == "system" && message["role"] == "system" => {
                let text = |message: &Value| message["content"].as_str().unwrap_or("").to_owned();
                let joined = [text(first), text(&message)].join(BETWEEN_SYSTEM_MESSAGES);
                first["content"] = joined.into();
            }
            _ => out.push(message),
        }
    }
    Ok(out.into())
}

fn read_message(message: Value, path: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::new(message, path)?;
    let role: Option<String> = fields.take("role", "a text")?;
    let role = match role.as_deref() {
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        Some("function") => {
            let message = "messages of the role 'function' are not supported: use 'tool'";
            return Err(ApiError::unsupported(fields.path("role"), message));
        }
        Some(_) | None => {
            let param = fields.path("role");
            let message = format!("{param} must be system, developer, user, assistant or tool");
            return Err(ApiError::invalid(param, message));
        }
    };
    let mut out = Map::new();
    out.insert("role".into(), role.into());
    let calls: Option<Vec<Value>> = match role {
        "assistant" => fields.take("tool_calls", "a list")?,
        _ => None,
    };
    let content = match fields.value("content") {
        Some(content) => read_content(content, &fields.path("content"))?,
        None if role == "assistant" => refusal(&mut fields)?.unwrap_or_default(),
        None => {
            let param = fields.path("content");
            let message = format!("{param} is missing: it must be a text or a list of text parts");
            let error = ApiError::bad_request(message).with_param(param);
            return Err(error.with_code("missing_required_parameter"));
        }
    };
    out.insert("content".into(), content.into());
    for name in ["audio", "function_call"] {
        if fields.value(name).is_some() {
            let param = fields.path(name);
            let message = format!("{param} is not supported");
            return Err(ApiError::unsupported(param, message));
        }
    }
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.take::<String>(name, "a text")? {
            out.insert(name.into(), text.into());
        }
    }
    if let Some(calls) = calls.filter(|calls| !calls.is_empty()) {
        out.insert("tool_calls".into(), calls.into_iter().map(with_arguments_as_object).collect());
    }
    Ok(out.into())
}

/// What an assistant said instead of an answer.
fn refusal(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    fields.take("refusal", "a text")
}

/// A content as one text. Parts are put together without anything between them, as templates that take parts do.
fn read_content(content: Value, path: &str) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let mut text = String::new();
            for (index, part) in parts.into_iter().enumerate() {
                text.push_str(&read_part(part, &format!("{path}[{index}]"))?);
            }
            Ok(text)
        }
        other => Err(wrong_type(path.to_owned(), "a text or a list of text parts", kind(&other))),
    }
}

fn read_part(part: Value, path: &str) -> Result<String, ApiError> {
    let mut fields = Fields::new(part, path)?;
    let kind: Option<String> = fields.take("type", "a text")?;
    let name = match kind.as_deref() {
        Some(name @ ("text" | "refusal")) => name,
        Some("image_url" | "input_audio" | "file" | "video_url") => {
            let message = format!("{path} is not a text: this server takes text only");
            return Err(ApiError::unsupported(path, message));
        }
        Some(_) | None => {
            let param = fields.path("type");
            let message = format!("{param} must be text");
            return Err(ApiError::invalid(param, message));
        }
    };
    let text: Option<String> = fields.take(name, "a text")?;
    text.ok_or_else(|| {
        let param = fields.path(name);
        let message = format!("{param} is missing");
        ApiError::bad_request(message).with_param(param).with_code("missing_required_parameter")
    })
}

/// The API carries the arguments of a call as a text with JSON in it, while templates iterate over an object.
fn with_arguments_as_object(mut call: Value) -> Value {
    if let Some(arguments) = call.pointer_mut("/function/arguments")
        && let Some(text) = arguments.as_str()
        && let Ok(object @ Value::Object(_)) = serde_json::from_str(text)
    {
        *arguments = object;
    }
    call
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn contents_become_texts() {
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "refusal": "no"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}], "refusal": null},
            {"role": "user", "content": "", "name": "Ada"}
        ]);
        assert_eq!(
            read_messages(messages).unwrap(),
            json!([
                {"role": "user", "content": "ab"},
                {"role": "assistant", "content": "no"},
                {"role": "assistant", "content": "never"},
                {"role": "user", "content": "", "name": "Ada"}
            ])
        );
    }

    #[test]
    fn leading_instructions_become_one_system_message() {
        let messages = json!([
            {"role": "developer", "content": "a"},
            {"role": "system", "content": "b"},
            {"role": "user", "content": "c"},
            {"role": "developer", "content": "d"}
        ]);
        assert_eq!(
            read_messages(messages).unwrap(),
            json!([
                {"role": "system", "content": "a\n\nb"},
                {"role": "user", "content": "c"},
                {"role": "system", "content": "d"}
            ])
        );
    }

    #[test]
    fn calls_in_the_history_keep_their_order_and_text() {
        let messages = json!([
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "not JSON"}}
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"}
        ]);
        let read = read_messages(messages).unwrap();
        assert_eq!(read[0]["content"], "");
        let calls = &read[0]["tool_calls"];
        assert_eq!(calls[0]["function"]["arguments"].to_string(), r#"{"b":1,"a":[2]}"#);
        assert_eq!(calls[1]["function"]["arguments"], "not JSON");
        assert_eq!(read[1], json!({"role": "tool", "content": "done", "tool_call_id": "c1"}));
    }

    #[test]
    fn faults_name_their_place() {
        for (message, param) in [
            (json!({"content": "x"}), "messages[0].role"),
            (json!({"role": "narrator", "content": "x"}), "messages[0].role"),
            (json!({"role": "function", "content": "x"}), "messages[0].role"),
            (json!({"role": "user"}), "messages[0].content"),
            (json!({"role": "user", "content": 3}), "messages[0].content"),
            (json!({"role": "user", "content": ["x"]}), "messages[0].content[0]"),
            (json!({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
            (json!({"role": "user", "content": [{"text": "x"}]}), "messages[0].content[0].type"),
            (
                json!({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}),
                "messages[0].content[1]",
            ),
            (json!({"role": "assistant", "audio": {"id": "x"}}), "messages[0].audio"),
            (json!("hi"), "messages[0]"),
        ] {
            let error = read_messages(json!([message])).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
    }
}
