//! The conversation of a request.

use serde_json::Value;

use super::tools::{custom_arguments, name_within};
use crate::conversation::{ConversationBuilder, Parts, arguments_as_object, part_type};
use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};

/// What `input` must be.
pub(super) const TEXT_OR_ITEMS: &str = "it must be a text or a list of items";

const PARTS: Parts = Parts {
    texts: &[
        ("input_text", "text"),
        ("output_text", "text"),
        ("text", "text"),
        ("refusal", "refusal"),
    ],
    others: &["input_image", "input_file", "input_audio", "computer_screenshot"],
};

/// What an assistant thought, of which both forms are read.
const THOUGHTS: Parts =
    Parts { texts: &[("reasoning_text", "text"), ("summary_text", "text")], others: &[] };

/// Reads `instructions` and `input`.
pub(super) fn read_conversation(
    instructions: Option<&str>,
    input: Value,
) -> Result<Value, ApiError> {
    let mut conversation = ConversationBuilder::default();
    if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
        conversation.text("system", instructions);
    }
    match input {
        Value::String(text) => conversation.text("user", text),
        Value::Array(items) if items.is_empty() => {
            let message = "input is empty: it must have at least one item";
            return Err(ApiError::invalid("input", message));
        }
        Value::Array(items) => {
            for (index, item) in items.into_iter().enumerate() {
                let path = format!("input[{index}]");
                read_item(Fields::new(item, &path)?, &path, &mut conversation)?;
            }
        }
        other => return Err(wrong_type("input".into(), "a text or a list of items", kind(&other))),
    }
    Ok(conversation.finish())
}

fn read_item(
    mut fields: Fields,
    path: &str,
    conversation: &mut ConversationBuilder,
) -> Result<(), ApiError> {
    match part_type(&mut fields)?.as_str() {
        "message" | "" => read_message(fields, conversation),
        "reasoning" => {
            // What is only there in encrypted form cannot be read.
            for name in ["content", "summary"] {
                let thought = match fields.value(name) {
                    Some(content) => THOUGHTS.read(content, &fields.path(name))?,
                    None => String::new(),
                };
                if !thought.is_empty() {
                    conversation.reasoning(thought);
                    break;
                }
            }
            Ok(())
        }
        "function_call" => {
            let call = required(&mut fields, "call_id")?;
            let name = required(&mut fields, "name")?;
            let namespace: Option<String> = fields.take("namespace", "a text")?;
            let name = name_within(namespace.as_deref(), &name);
            let arguments = required(&mut fields, "arguments")?;
            conversation.call(&call, &name, arguments_as_object(&arguments));
            Ok(())
        }
        "custom_tool_call" => {
            let call = required(&mut fields, "call_id")?;
            let name = required(&mut fields, "name")?;
            let namespace: Option<String> = fields.take("namespace", "a text")?;
            let input = required(&mut fields, "input")?;
            let name = name_within(namespace.as_deref(), &name);
            conversation.call(&call, &name, custom_arguments(&input));
            Ok(())
        }
        "function_call_output" | "custom_tool_call_output" => {
            let call = required(&mut fields, "call_id")?;
            let output = fields.value("output");
            let output = output.ok_or_else(|| fields.missing("output", "it must be a text"))?;
            conversation.tool_result(&call, PARTS.read(output, &fields.path("output"))?);
            Ok(())
        }
        "item_reference" => {
            let message = format!("{path} refers to an earlier item, and none are kept: send it");
            Err(ApiError::unsupported(path, message))
        }
        _ => {
            let message = format!(
                "{path} is of a type that is not supported: message, reasoning, function_call, custom_tool_call and their outputs are"
            );
            Err(ApiError::unsupported(fields.path("type"), message))
        }
    }
}

fn read_message(
    mut fields: Fields,
    conversation: &mut ConversationBuilder,
) -> Result<(), ApiError> {
    let role: Option<String> = fields.take("role", "a text")?;
    let content = fields.value("content");
    let content = content
        .ok_or_else(|| fields.missing("content", "it must be a text or a list of text parts"))?;
    let text = PARTS.read(content, &fields.path("content"))?;
    match role.as_deref() {
        Some("system" | "developer") => conversation.text("system", text),
        Some("user") => conversation.text("user", text),
        Some("assistant") => conversation.assistant_text(text),
        Some(_) | None => {
            let param = fields.path("role");
            let message = format!("{param} must be system, developer, user or assistant");
            return Err(ApiError::invalid(param, message));
        }
    }
    Ok(())
}

fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let text: Option<String> = fields.take(name, "a text")?;
    text.ok_or_else(|| fields.missing(name, "it must be a text"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_what_the_user_says() {
        assert_eq!(
            read_conversation(Some("be brief"), json!("hi")).unwrap(),
            json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}])
        );
        assert_eq!(read_conversation(Some(""), json!("hi")).unwrap().as_array().unwrap().len(), 1);
    }

    #[test]
    fn messages_become_texts() {
        let input = json!([
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
             "content": [{"type": "output_text", "text": "e", "annotations": []}]},
            {"role": "developer", "content": "f"},
            {"role": "user", "content": "g"}
        ]);
        assert_eq!(
            read_conversation(Some("a"), input).unwrap(),
            json!([
                {"role": "system", "content": "a\n\nb"},
                {"role": "user", "content": "cd"},
                {"role": "assistant", "content": "e"},
                {"role": "system", "content": "f"},
                {"role": "user", "content": "g"}
            ])
        );
    }

    #[test]
    fn a_whole_history_can_be_sent_again() {
        let input = json!([
            {"role": "user", "content": "a"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": "let me see"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"b\":1,\"a\":2}"},
            {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "g", "arguments": ""},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]}
        ]);
        let read = read_conversation(None, input).unwrap();
        assert_eq!(read.as_array().unwrap().len(), 4);
        assert_eq!(read[1]["reasoning_content"], "hm");
        assert_eq!(read[1]["content"], "let me see");
        let call = &read[1]["tool_calls"][0];
        assert_eq!(call["id"], "c1");
        assert_eq!(call["function"]["arguments"].to_string(), r#"{"b":1,"a":2}"#);
        assert_eq!(read[1]["tool_calls"][1]["function"]["arguments"], "");
        assert_eq!(read[3], json!({"role": "tool", "content": "two", "tool_call_id": "c2"}));
    }

    #[test]
    fn faults_name_their_place() {
        for (item, param) in [
            (json!({"content": "x"}), "input[0].role"),
            (json!({"role": "tool", "content": "x"}), "input[0].role"),
            (json!({"role": "user"}), "input[0].content"),
            (json!({"role": "user", "content": 3}), "input[0].content"),
            (json!({"role": "user", "content": [{"text": "x"}]}), "input[0].content[0].type"),
            (json!({"role": "user", "content": [{"type": "input_image"}]}), "input[0].content[0]"),
            (json!({"type": "item_reference", "id": "x"}), "input[0]"),
            (json!({"type": "computer_call"}), "input[0].type"),
            (json!({"type": "function_call", "name": "f", "arguments": ""}), "input[0].call_id"),
            (json!({"type": "function_call_output", "call_id": "c"}), "input[0].output"),
            (json!("hi"), "input[0]"),
        ] {
            let error = read_conversation(None, json!([item])).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
        for input in [json!([]), json!(7)] {
            assert_eq!(read_conversation(None, input).unwrap_err().param.as_deref(), Some("input"));
        }
    }
}
