//! The conversation of a request.

use serde_json::{Value, json};

use crate::conversation::{ConversationBuilder, Parts, part_type, without_vendor_header};
use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};
use crate::tools::{OfferBuilder, object};

/// What `messages` must be.
pub(super) const AT_LEAST_ONE: &str = "it must be a list with at least one message";

const PARTS: Parts =
    Parts { texts: &[("text", "text")], others: &["image", "document", "container_upload"] };

/// Reads `system` and `messages`. Functions to which the messages refer come out of those that `offer` defers.
pub(super) fn read_conversation(
    system: Option<Value>,
    messages: Value,
    offer: &mut OfferBuilder,
) -> Result<Value, ApiError> {
    let mut conversation = ConversationBuilder::default();
    if let Some(system) = system {
        read_system(system, "system", &mut conversation)?;
    }
    let messages = match messages {
        Value::Array(messages) if messages.is_empty() => {
            let message = format!("messages is empty: {AT_LEAST_ONE}");
            return Err(ApiError::invalid("messages", message));
        }
        Value::Array(messages) => messages,
        other => return Err(wrong_type("messages".into(), "a list", kind(&other))),
    };
    for (index, message) in messages.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        read_message(Fields::new(message, &path)?, &mut conversation, offer)?;
    }
    Ok(conversation.finish())
}

fn read_message(
    mut fields: Fields,
    conversation: &mut ConversationBuilder,
    offer: &mut OfferBuilder,
) -> Result<(), ApiError> {
    let role: Option<String> = fields.take("role", "a text")?;
    let path = fields.path("content");
    let content = fields.value("content");
    let content = content
        .ok_or_else(|| fields.missing("content", "it must be a text or a list of blocks"))?;
    match role.as_deref() {
        Some("user") => read_user(content, &path, conversation, offer),
        Some("assistant") => read_assistant(content, &path, conversation),
        Some("system" | "developer") => read_system(content, &path, conversation),
        Some(_) | None => {
            let param = fields.path("role");
            let message = format!("{param} must be user, assistant or system");
            Err(ApiError::invalid(param, message))
        }
    }
}

/// Instructions. Their blocks are texts of their own, so they are set apart.
fn read_system(
    content: Value,
    path: &str,
    conversation: &mut ConversationBuilder,
) -> Result<(), ApiError> {
    let mut texts = Vec::new();
    for (path, block) in blocks(content, path)? {
        let mut fields = Fields::new(block, &path)?;
        let kind = part_type(&mut fields)?;
        let text = PARTS.read_part(&kind, &mut fields, &path)?;
        let said = without_vendor_header(&text);
        if !said.is_empty() {
            texts.push(said.to_owned());
        }
    }
    if !texts.is_empty() {
        conversation.text("system", texts.join("\n\n"));
    }
    Ok(())
}

/// What the user says, and what tools answered: each answer is a message, and texts between them are messages of the user.
fn read_user(
    content: Value,
    path: &str,
    conversation: &mut ConversationBuilder,
    offer: &mut OfferBuilder,
) -> Result<(), ApiError> {
    let mut said: Option<String> = None;
    let mut answered = false;
    for (path, block) in blocks(content, path)? {
        let mut fields = Fields::new(block, &path)?;
        let kind = part_type(&mut fields)?;
        if kind != "tool_result" {
            let text = PARTS.read_part(&kind, &mut fields, &path)?;
            said.get_or_insert_default().push_str(&text);
            continue;
        }
        if let Some(said) = said.take() {
            conversation.text("user", said);
        }
        answered = true;
        let call: Option<String> = fields.take("tool_use_id", "a text")?;
        let call = call.ok_or_else(|| fields.missing("tool_use_id", "it must be a text"))?;
        let text = match fields.value("content") {
            Some(content) => read_result(content, &fields.path("content"), offer)?,
            None => String::new(),
        };
        conversation.tool_result(&call, text);
    }
    match said {
        Some(said) => conversation.text("user", said),
        None if !answered => conversation.text("user", ""),
        None => {}
    }
    Ok(())
}

/// What a tool answered: texts, and functions that it found among those that were deferred.
fn read_result(content: Value, path: &str, offer: &mut OfferBuilder) -> Result<String, ApiError> {
    let mut texts = String::new();
    for (path, block) in blocks(content, path)? {
        let mut fields = Fields::new(block, &path)?;
        let kind = part_type(&mut fields)?;
        if kind == "tool_reference" {
            let name: Option<String> = fields.take("tool_name", "a text")?;
            let name = name.ok_or_else(|| fields.missing("tool_name", "it must be a text"))?;
            if !texts.is_empty() {
                texts.push('\n');
            }
            texts.push_str(&offer.refer_to(&name));
        } else {
            texts.push_str(&PARTS.read_part(&kind, &mut fields, &path)?);
        }
    }
    Ok(texts)
}

/// What the assistant thought, said and called.
fn read_assistant(
    content: Value,
    path: &str,
    conversation: &mut ConversationBuilder,
) -> Result<(), ApiError> {
    let (mut thought, mut said) = (String::new(), String::new());
    let mut calls = Vec::new();
    for (path, block) in blocks(content, path)? {
        let mut fields = Fields::new(block, &path)?;
        match part_type(&mut fields)?.as_str() {
            "thinking" => {
                let text: Option<String> = fields.take("thinking", "a text")?;
                thought.push_str(&text.unwrap_or_default());
            }
            // Nobody but its maker can read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let mut text = |name: &str| -> Result<String, ApiError> {
                    let text: Option<String> = fields.take(name, "a text")?;
                    text.ok_or_else(|| fields.missing(name, "it must be a text"))
                };
                let (id, name) = (text("id")?, text("name")?);
                let input = fields.value("input").unwrap_or_else(|| json!({}));
                object(&input, fields.path("input"))?;
                calls.push((id, name, input));
            }
            kind => said.push_str(&PARTS.read_part(kind, &mut fields, &path)?),
        }
    }
    if !thought.is_empty() {
        conversation.reasoning(thought);
        conversation.assistant_text(said);
    } else {
        conversation.text("assistant", said);
    }
    for (id, name, input) in calls {
        conversation.call(&id, &name, input);
    }
    Ok(())
}

/// The blocks of a content, with their paths. A text is one block.
fn blocks(content: Value, path: &str) -> Result<Vec<(String, Value)>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![(path.to_owned(), json!({"type": "text", "text": text}))]),
        Value::Array(blocks) => {
            let place = |(index, block)| (format!("{path}[{index}]"), block);
            Ok(blocks.into_iter().enumerate().map(place).collect())
        }
        other => Err(wrong_type(path.to_owned(), "a text or a list of blocks", kind(&other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_conversation(system: Option<Value>, messages: Value) -> Result<Value, ApiError> {
        super::read_conversation(system, messages, &mut OfferBuilder::default())
    }

    #[test]
    fn contents_become_texts() {
        let system = json!([
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=ab12;"},
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "b"}
        ]);
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
            {"role": "system", "content": "e"},
            {"role": "assistant", "content": "f"},
            {"role": "user", "content": "g"}
        ]);
        assert_eq!(
            read_conversation(Some(system), messages).unwrap(),
            json!([
                {"role": "system", "content": "a\n\nb"},
                {"role": "user", "content": "cd"},
                {"role": "system", "content": "e"},
                {"role": "assistant", "content": "f"},
                {"role": "user", "content": "g"}
            ])
        );
    }

    #[test]
    fn instructions_may_come_as_the_first_messages() {
        let messages = json!([
            {"role": "system", "content": [{"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"}
        ]);
        let read = read_conversation(Some("a".into()), messages).unwrap();
        assert_eq!(read[0], json!({"role": "system", "content": "a\n\nb"}));
        assert_eq!(read.as_array().unwrap().len(), 2);
    }

    #[test]
    fn thoughts_calls_and_answers_of_the_history_are_kept() {
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "let me see"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"b": 1, "a": 2}},
                {"type": "tool_use", "id": "c2", "name": "g", "input": {}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "go on"}
            ]}
        ]);
        let read = read_conversation(None, messages).unwrap();
        assert_eq!(read.as_array().unwrap().len(), 5);
        assert_eq!(read[1]["reasoning_content"], "hm");
        assert_eq!(read[1]["content"], "let me see");
        let call = &read[1]["tool_calls"][0];
        assert_eq!(call["function"]["arguments"].to_string(), r#"{"b":1,"a":2}"#);
        assert_eq!(read[1]["tool_calls"][1]["id"], "c2");
        assert_eq!(read[2], json!({"role": "tool", "content": "one", "tool_call_id": "c1"}));
        assert_eq!(read[3], json!({"role": "tool", "content": "", "tool_call_id": "c2"}));
        assert_eq!(read[4], json!({"role": "user", "content": "go on"}));
    }

    #[test]
    fn faults_name_their_place() {
        let image = json!({"type": "image", "source": {"type": "base64", "data": "x"}});
        for (message, param) in [
            (json!({"content": "x"}), "messages[0].role"),
            (json!({"role": "narrator", "content": "x"}), "messages[0].role"),
            (json!({"role": "user"}), "messages[0].content"),
            (json!({"role": "user", "content": 3}), "messages[0].content"),
            (json!({"role": "user", "content": ["x"]}), "messages[0].content[0]"),
            (json!({"role": "user", "content": [{"text": "x"}]}), "messages[0].content[0].type"),
            (json!({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
            (json!({"role": "user", "content": [image]}), "messages[0].content[0]"),
            (
                json!({"role": "user", "content": [{"type": "tool_result", "content": "x"}]}),
                "messages[0].content[0].tool_use_id",
            ),
            (
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": [image]}
                ]}),
                "messages[0].content[0].content[0]",
            ),
            (
                json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}),
                "messages[0].content[0].name",
            ),
            (json!("hi"), "messages[0]"),
        ] {
            let error = read_conversation(None, json!([message])).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
            assert!(error.message.contains(param), "{}", error.message);
        }
        let error = read_conversation(Some(json!(7)), json!([])).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("system"));
    }
}
