//! The conversation of a request, in the form that chat templates take.

use serde_json::{Map, Value};

use super::tools::read_call;
use crate::conversation::{ConversationBuilder, Parts};
use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};

/// What `messages` must be.
pub(super) const AT_LEAST_ONE: &str = "it must be a list with at least one message";

const PARTS: Parts = Parts {
    texts: &[("text", "text"), ("refusal", "refusal")],
    others: &["image_url", "input_audio", "file", "video_url"],
};

/// Reads the list of messages. Contents become plain texts, and `developer` becomes `system` (the name that templates know).
pub(super) fn read_messages(messages: Value) -> Result<Value, ApiError> {
    let messages = match messages {
        Value::Array(messages) if messages.is_empty() => {
            let message = format!("messages is empty: {AT_LEAST_ONE}");
            return Err(ApiError::invalid("messages", message));
        }
        Value::Array(messages) => messages,
        other => return Err(wrong_type("messages".into(), "a list", kind(&other))),
    };
    let mut conversation = ConversationBuilder::default();
    for (index, message) in messages.into_iter().enumerate() {
        conversation.push(read_message(message, &format!("messages[{index}]"))?);
    }
    Ok(conversation.finish())
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
        Some(content) => PARTS.read(content, &fields.path("content"))?,
        None if role == "assistant" => refusal(&mut fields)?.unwrap_or_default(),
        None => return Err(fields.missing("content", "it must be a text or a list of text parts")),
    };
    out.insert("content".into(), content.into());
    for name in ["audio", "function_call"] {
        if fields.value(name).is_some() {
            let param = fields.path(name);
            let message = format!("{param} is not supported");
            return Err(ApiError::unsupported(param, message));
        }
    }
    // Servers and clients disagree on the name of what the assistant thought.
    if let Some(thought) = fields.take::<String>("reasoning", "a text")? {
        out.insert("reasoning_content".into(), thought.into());
    }
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.take::<String>(name, "a text")? {
            out.insert(name.into(), text.into());
        }
    }
    if let Some(calls) = calls.filter(|calls| !calls.is_empty()) {
        let path = fields.path("tool_calls");
        let calls = calls.into_iter().enumerate();
        let calls = calls.map(|(index, call)| read_call(call, &format!("{path}[{index}]")));
        out.insert("tool_calls".into(), calls.collect::<Result<Value, ApiError>>()?);
    }
    Ok(out.into())
}

/// What an assistant said instead of an answer.
fn refusal(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    fields.take("refusal", "a text")
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
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"}
        ]);
        let read = read_messages(messages).unwrap();
        assert_eq!(read[0]["content"], "");
        let calls = &read[0]["tool_calls"];
        assert_eq!(calls[0]["function"]["arguments"].to_string(), r#"{"b":1,"a":[2]}"#);
        assert_eq!(calls[1]["function"]["arguments"], json!({}));
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
            (
                json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (json!("hi"), "messages[0]"),
        ] {
            let error = read_messages(json!([message])).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
    }
}
