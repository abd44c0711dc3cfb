//! A client of all dialects: it asks, and puts together what it sees, in one piece or as a stream.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::fixture::{Fixture, post, read_json, read_text};

pub const CHAT: &str = "/v1/chat/completions";
pub const MESSAGES: &str = "/v1/messages";
pub const RESPONSES: &str = "/v1/responses";
pub const DIALECTS: [&str; 3] = [CHAT, MESSAGES, RESPONSES];

/// A request in any dialect. `fields` are added as they are.
pub fn body(path: &str, messages: Value, fields: Value) -> Value {
    let mut body = match path {
        RESPONSES => json!({"input": messages}),
        MESSAGES => json!({"messages": messages, "max_tokens": 3000}),
        _ => json!({"messages": messages}),
    };
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

pub fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// A function in the form of a dialect.
pub fn tool(path: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    match path {
        CHAT => json!({"type": "function", "function": {"name": "write", "parameters": schema}}),
        MESSAGES => json!({"name": "write", "input_schema": schema}),
        _ => json!({"type": "function", "name": "write", "parameters": schema}),
    }
}

/// What a client makes of an answer, whatever the dialect and whether it was streamed.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    pub thought: String,
    pub text: String,
    /// Names and arguments.
    pub calls: Vec<(String, Value)>,
    pub end: String,
}

impl Seen {
    pub fn of_answer(path: &str, answer: &Value) -> Self {
        let mut seen = Seen::default();
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let json_of = |value: &Value| serde_json::from_str(value.as_str().unwrap()).unwrap();
        match path {
            CHAT => {
                let choice = &answer["choices"][0];
                let message = &choice["message"];
                seen.thought = text(&message["reasoning_content"]);
                seen.text = text(&message["content"]);
                seen.end = text(&choice["finish_reason"]);
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    seen.calls.push((text(&function["name"]), json_of(&function["arguments"])));
                }
            }
            MESSAGES => {
                seen.end = text(&answer["stop_reason"]);
                for block in answer["content"].as_array().unwrap() {
                    match block["type"].as_str().unwrap() {
                        "thinking" => seen.thought.push_str(&text(&block["thinking"])),
                        "text" => seen.text.push_str(&text(&block["text"])),
                        _ => seen.calls.push((text(&block["name"]), block["input"].clone())),
                    }
                }
            }
            _ => {
                seen.end = text(&answer["status"]);
                for item in answer["output"].as_array().unwrap() {
                    let part = &item["content"][0]["text"];
                    match item["type"].as_str().unwrap() {
                        "reasoning" => seen.thought.push_str(&text(part)),
                        "message" => seen.text.push_str(&text(part)),
                        _ => seen.calls.push((text(&item["name"]), json_of(&item["arguments"]))),
                    }
                }
            }
        }
        seen
    }

    /// Puts a stream together.
    pub fn of_stream(path: &str, wire: &str) -> Self {
        let mut seen = Seen::default();
        let mut arguments: Vec<String> = Vec::new();
        for data in events(wire) {
            if path == RESPONSES {
                // The last event holds everything; what the pieces add up to is tested beside their making.
                if data["type"] == "response.completed" {
                    return Seen::of_answer(path, &data["response"]);
                }
                continue;
            }
            let piece = |value: &Value| value.as_str().unwrap_or("").to_owned();
            if path == CHAT {
                let choice = &data["choices"][0];
                let delta = &choice["delta"];
                seen.thought += &piece(&delta["reasoning_content"]);
                seen.text += &piece(&delta["content"]);
                seen.end += &piece(&choice["finish_reason"]);
                for call in delta["tool_calls"].as_array().into_iter().flatten() {
                    let index = call["index"].as_u64().unwrap() as usize;
                    if index == arguments.len() {
                        seen.calls.push((piece(&call["function"]["name"]), Value::Null));
                        arguments.push(String::new());
                    }
                    arguments[index] += &piece(&call["function"]["arguments"]);
                }
            } else {
                let delta = &data["delta"];
                seen.thought += &piece(&delta["thinking"]);
                seen.text += &piece(&delta["text"]);
                seen.end += &piece(&delta["stop_reason"]);
                if data["content_block"]["type"] == "tool_use" {
                    seen.calls.push((piece(&data["content_block"]["name"]), Value::Null));
                    arguments.push(String::new());
                }
                if let Some(more) = delta["partial_json"].as_str() {
                    arguments.last_mut().unwrap().push_str(more);
                }
            }
        }
        for (call, arguments) in seen.calls.iter_mut().zip(arguments) {
            call.1 = serde_json::from_str(&arguments).unwrap();
        }
        seen
    }
}

/// The data of a stream's events.
pub fn events(wire: &str) -> Vec<Value> {
    let lines = wire.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

impl Fixture {
    pub async fn whole(&self, path: &str, messages: Value, fields: Value) -> Value {
        let (status, answer) = self.refused(path, messages, fields).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        answer
    }

    pub async fn refused(&self, path: &str, messages: Value, fields: Value) -> (StatusCode, Value) {
        read_json(self.send(post(path, &body(path, messages, fields))).await).await
    }

    pub async fn wire(&self, path: &str, messages: Value, mut fields: Value) -> String {
        fields["stream"] = true.into();
        let response = self.send(post(path, &body(path, messages, fields))).await;
        assert_eq!(response.status(), StatusCode::OK);
        read_text(response).await
    }

    /// What a client sees, which must be the same in one piece and as a stream.
    pub async fn seen(&self, path: &str, messages: Value, fields: Value) -> Seen {
        let seen = Seen::of_answer(path, &self.whole(path, messages.clone(), fields.clone()).await);
        assert_eq!(Seen::of_stream(path, &self.wire(path, messages, fields).await), seen, "{path}");
        seen
    }

    /// The messages that reached the template last.
    pub fn last_messages(&self) -> Value {
        self.control.conversations.lock().unwrap().last().unwrap().0.clone()
    }

    pub fn last_variables(&self) -> Value {
        self.control.conversations.lock().unwrap().last().unwrap().1.clone().into()
    }
}
