//! The conversation of a request, in the form that chat templates take. All dialects build it here.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};

/// Joins system messages that lead the conversation, and messages of one role that had to be put together.
const BETWEEN_MESSAGES: &str = "\n\n";

/// Claude Code puts a line that begins so, and that differs from session to session, in front of its instructions. Left in, no
/// two sessions would share a prompt's beginning.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Instructions without the line of a vendor that stands in front of them. It is no part of them.
pub(crate) fn without_vendor_header(text: &str) -> &str {
    match text.strip_prefix(BILLING_HEADER) {
        Some(rest) => rest.split_once('\n').map_or("", |(_, text)| text.trim_start_matches('\n')),
        None => text,
    }
}

/// What a chat template makes a prompt of.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// A list of objects with `role` and a text as `content`.
    pub messages: Value,
    /// The functions on offer, a list of objects as templates take them; `None` for none.
    pub tools: Option<Value>,
    /// Further variables of the template.
    pub template_variables: Map<String, Value>,
}

impl Conversation {
    /// The same conversation for templates that know a system message only at the front: later ones are told by the user, where
    /// they stood, and messages of the user that then follow each other become one. `None` if there is no later one.
    pub fn with_system_only_in_front(&self) -> Option<Conversation> {
        let messages = self.messages.as_array()?;
        let later = |(index, message): (usize, &Value)| index > 0 && message["role"] == "system";
        if !messages.iter().enumerate().any(later) {
            return None;
        }
        let mut out: Vec<Value> = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let mut message = message.clone();
            if later((index, &message)) {
                message["role"] = "user".into();
            }
            match out.last_mut() {
                Some(last) if last["role"] == "user" && message["role"] == "user" => {
                    join(last, &message);
                }
                _ => out.push(message),
            }
        }
        Some(Conversation { messages: out.into(), ..self.clone() })
    }
}

/// Puts a conversation together, message by message.
#[derive(Debug, Default)]
pub(crate) struct ConversationBuilder(Vec<Value>);

impl ConversationBuilder {
    /// Adds a message. System messages at the front become one, since many templates take only one; later ones stay where
    /// they are, so that a text that changes does not move to the front of a prompt that could be taken over.
    pub(crate) fn push(&mut self, mut message: Value) {
        if message["role"] == "system"
            && let Some(text) = message["content"].as_str()
            && text.starts_with(BILLING_HEADER)
        {
            let text = without_vendor_header(text);
            if text.is_empty() {
                return;
            }
            message["content"] = text.into();
        }
        match self.0.as_mut_slice() {
            [first] if first["role"] == "system" && message["role"] == "system" => {
                join(first, &message);
            }
            _ => self.0.push(message),
        }
    }

    /// Adds a message that is a text.
    pub(crate) fn text(&mut self, role: &str, text: impl Into<String>) {
        self.push(json!({"role": role, "content": text.into()}));
    }

    /// Adds a text of the assistant: to its open turn, if that has neither text nor calls yet.
    pub(crate) fn assistant_text(&mut self, text: impl Into<String>) {
        let text = text.into();
        match self.open_turn() {
            Some(turn) if turn["content"] == "" && turn.get("tool_calls").is_none() => {
                turn["content"] = text.into();
            }
            _ => self.text("assistant", text),
        }
    }

    /// Adds what the assistant thought before it says something.
    pub(crate) fn reasoning(&mut self, text: impl Into<String>) {
        self.push(json!({"role": "assistant", "content": "", "reasoning_content": text.into()}));
    }

    /// Adds a call of a tool to the assistant's turn.
    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: Value) {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        if self.open_turn().is_none() {
            self.text("assistant", "");
        }
        if let Some(Value::Object(turn)) = self.0.last_mut() {
            let calls = turn.entry("tool_calls").or_insert_with(|| json!([]));
            if let Value::Array(calls) = calls {
                calls.push(call);
            }
        }
    }

    /// Adds what a tool answered.
    pub(crate) fn tool_result(&mut self, call: &str, text: impl Into<String>) {
        self.push(json!({"role": "tool", "content": text.into(), "tool_call_id": call}));
    }

    /// The messages.
    pub(crate) fn finish(self) -> Value {
        self.0.into()
    }

    /// The last message, if it is the assistant's.
    fn open_turn(&mut self) -> Option<&mut Value> {
        self.0.last_mut().filter(|message| message["role"] == "assistant")
    }
}

fn join(first: &mut Value, second: &Value) {
    let text = |message: &Value| message["content"].as_str().unwrap_or("").to_owned();
    first["content"] = [text(first), text(second)].join(BETWEEN_MESSAGES).into();
}

/// How a dialect spells the parts of a content.
pub(crate) struct Parts {
    /// Types of parts that are texts, and the field that holds the text.
    pub(crate) texts: &'static [(&'static str, &'static str)],
    /// Types of parts that are something else.
    pub(crate) others: &'static [&'static str],
}

impl Parts {
    /// A content as one text. Parts are put together without anything between them, as templates that take parts do.
    pub(crate) fn read(&self, content: Value, path: &str) -> Result<String, ApiError> {
        match content {
            Value::String(text) => Ok(text),
            Value::Array(parts) => {
                let mut text = String::new();
                for (index, part) in parts.into_iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    let mut fields = Fields::new(part, &path)?;
                    let kind = part_type(&mut fields)?;
                    text.push_str(&self.read_part(&kind, &mut fields, &path)?);
                }
                Ok(text)
            }
            other => {
                Err(wrong_type(path.to_owned(), "a text or a list of text parts", kind(&other)))
            }
        }
    }

    /// The text of a part whose type has been taken.
    pub(crate) fn read_part(
        &self,
        kind: &str,
        fields: &mut Fields,
        path: &str,
    ) -> Result<String, ApiError> {
        if self.others.contains(&kind) {
            let message = format!("{path} is not a text: this server takes text only");
            return Err(ApiError::unsupported(path, message));
        }
        let Some((_, name)) = self.texts.iter().find(|(text, _)| *text == kind) else {
            let param = fields.path("type");
            let known: Vec<&str> = self.texts.iter().map(|(text, _)| *text).collect();
            let message = format!("{param} must be {}", known.join(" or "));
            return Err(ApiError::invalid(param, message));
        };
        let text: Option<String> = fields.take(name, "a text")?;
        text.ok_or_else(|| fields.missing(name, "it must be a text"))
    }
}

/// Takes the type of a part or item; empty if it has none.
pub(crate) fn part_type(fields: &mut Fields) -> Result<String, ApiError> {
    Ok(fields.take("type", "a text")?.unwrap_or_default())
}

/// Dialects of OpenAI carry the arguments of a call as a text with JSON in it, while templates iterate over an object. What is
/// no object stays the text that it is.
pub(crate) fn arguments_as_object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => arguments.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_instructions_become_one_and_later_ones_stay() {
        let mut builder = ConversationBuilder::default();
        for (role, text) in [("system", "a"), ("system", "b"), ("user", "c"), ("system", "d")] {
            builder.text(role, text);
        }
        assert_eq!(
            builder.finish(),
            json!([
                {"role": "system", "content": "a\n\nb"},
                {"role": "user", "content": "c"},
                {"role": "system", "content": "d"}
            ])
        );
    }

    #[test]
    fn the_pieces_of_an_assistants_turn_come_together() {
        let mut builder = ConversationBuilder::default();
        builder.text("user", "hi");
        builder.reasoning("hm");
        builder.assistant_text("yes");
        builder.call("c1", "f", json!({"a": 1}));
        builder.call("c2", "g", json!("no JSON"));
        builder.tool_result("c1", "done");
        builder.call("c3", "f", json!({}));
        let messages = builder.finish();
        assert_eq!(messages.as_array().unwrap().len(), 4);
        assert_eq!(messages[1]["reasoning_content"], "hm");
        assert_eq!(messages[1]["content"], "yes");
        assert_eq!(messages[1]["tool_calls"][1]["function"]["name"], "g");
        assert_eq!(messages[2], json!({"role": "tool", "content": "done", "tool_call_id": "c1"}));
        assert_eq!(messages[3]["tool_calls"][0]["id"], "c3");
    }

    #[test]
    fn a_second_text_is_a_second_message() {
        let mut builder = ConversationBuilder::default();
        builder.assistant_text("a");
        builder.assistant_text("b");
        assert_eq!(builder.finish().as_array().unwrap().len(), 2);
    }

    #[test]
    fn later_instructions_can_be_told_by_the_user() {
        let conversation = |messages: Value| Conversation {
            messages,
            tools: None,
            template_variables: Map::from_iter([("x".to_owned(), json!(1))]),
        };
        let plain = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]);
        assert_eq!(conversation(plain).with_system_only_in_front(), None);
        let later = conversation(json!([
            {"role": "system", "content": "s"},
            {"role": "user", "content": "a"},
            {"role": "system", "content": "b"},
            {"role": "assistant", "content": "c"},
            {"role": "system", "content": "d"}
        ]));
        let wanted = conversation(json!([
            {"role": "system", "content": "s"},
            {"role": "user", "content": "a\n\nb"},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "d"}
        ]));
        assert_eq!(later.with_system_only_in_front(), Some(wanted));
    }

    #[test]
    fn arguments_that_are_no_object_stay_text() {
        assert_eq!(arguments_as_object("{\"b\": 1, \"a\": [2]}").to_string(), r#"{"b":1,"a":[2]}"#);
        assert_eq!(arguments_as_object("[1]"), "[1]");
        assert_eq!(arguments_as_object("{"), "{");
    }
}
