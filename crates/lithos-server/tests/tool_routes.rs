//! Tools in Chat Completions, from the request to the answer, against a fake model.

mod fake;
mod fixture;

use std::time::Duration;

use axum::http::StatusCode;
use fixture::{Fixture, post, read_json, read_text};
use lithos_server::ServerOptions;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const CALL: &str = "<tool_call>\n<function=get_weather>\n<parameter=place>\nNew York\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";

fn tools() -> Value {
    json!([{"type": "function", "function": {
        "name": "get_weather",
        "description": "The weather at a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"]
        },
        "strict": false
    }}])
}

/// A request for an answer of these words, with further fields.
fn body(words: &str, fields: Value) -> Value {
    let message = json!({"role": "user", "content": format!("say {words}")});
    let mut body = json!({"model": "fake", "messages": [message], "tools": tools()});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn ask(fixture: &Fixture, body: &Value) -> (StatusCode, Value) {
    read_json(fixture.send(post(CHAT, body)).await).await
}

async fn choice(fixture: &Fixture, words: &str, fields: Value) -> Value {
    let (status, mut answer) = ask(fixture, &body(words, fields)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["choices"][0].take()
}

/// The choices of a stream's chunks.
async fn stream(fixture: &Fixture, words: &str, mut fields: Value) -> Vec<Value> {
    fields["stream"] = true.into();
    let response = fixture.send(post(CHAT, &body(words, fields))).await;
    assert_eq!(response.status(), StatusCode::OK);
    choices(&read_text(response).await)
}

fn choices(wire: &str) -> Vec<Value> {
    let events = wire.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    let chunks = events.filter(|event| *event != "[DONE]");
    chunks.map(|chunk| serde_json::from_str::<Value>(chunk).unwrap()["choices"][0].take()).collect()
}

/// Puts the deltas of a stream together as a client does: the text, the calls, the reason of the end.
fn joined(choices: &[Value]) -> (String, Vec<(String, String, String)>, Value) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for delta in choices.iter().map(|choice| &choice["delta"]) {
        text.push_str(delta["content"].as_str().unwrap_or(""));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let part = |value: &Value| value.as_str().unwrap_or("").to_owned();
            let index = call["index"].as_u64().unwrap() as usize;
            let function = &call["function"];
            if index == calls.len() {
                assert_eq!(call["type"], "function");
                calls.push((part(&call["id"]), part(&function["name"]), String::new()));
            } else {
                assert!(call.get("id").is_none() && function.get("name").is_none());
            }
            calls[index].2.push_str(&part(&function["arguments"]));
        }
    }
    (text, calls, choices.last().unwrap()["finish_reason"].clone())
}

#[tokio::test]
async fn a_call_is_answered_in_one_piece_and_as_a_stream() {
    let fixture = Fixture::new();
    let words = format!("Let me look.\n\n{CALL}");
    let choice = choice(&fixture, &words, json!({})).await;
    let message = &choice["message"];
    assert_eq!(
        (&message["content"], &choice["finish_reason"]),
        (&json!("Let me look."), &json!("tool_calls"))
    );
    let call = &message["tool_calls"][0];
    assert_eq!(
        (&call["type"], &call["function"]["name"]),
        (&json!("function"), &json!("get_weather"))
    );
    let arguments = r#"{"place": "New York", "days": 3}"#;
    assert_eq!(call["function"]["arguments"], arguments);

    let (text, calls, reason) = joined(&stream(&fixture, &words, json!({})).await);
    assert_eq!((text.as_str(), reason), ("Let me look.", json!("tool_calls")));
    assert_eq!((calls[0].1.as_str(), calls[0].2.as_str()), ("get_weather", arguments));
    assert!(calls[0].0.starts_with("call_") && calls[0].0 != call["id"]);
}

#[tokio::test]
async fn ac_15_two_calls_have_their_own_ids() {
    let fixture = Fixture::new();
    let words = format!("{CALL}\n{CALL}");
    let (text, calls, reason) = joined(&stream(&fixture, &words, json!({})).await);
    assert_eq!((text.as_str(), calls.len(), reason), ("", 2, json!("tool_calls")));
    assert_ne!(calls[0].0, calls[1].0);
    let choice = choice(&fixture, &words, json!({"parallel_tool_calls": false})).await;
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert!(choice["message"]["content"].is_null());
}

#[tokio::test]
async fn what_is_no_call_is_text_and_ends_the_turn() {
    let fixture = Fixture::new();
    let unknown = CALL.replace("get_weather", "get_whether");
    for words in [unknown.as_str(), CALL.split_once("York").unwrap().0] {
        let choice = choice(&fixture, words, json!({})).await;
        assert_eq!(choice["finish_reason"], "stop");
        let text = choice["message"]["content"].as_str().unwrap();
        assert!(text.contains("New") && !text.contains('<'), "{text}");
        let (streamed, calls, reason) = joined(&stream(&fixture, words, json!({})).await);
        assert_eq!((streamed.as_str(), calls.len(), reason), (text, 0, json!("stop")));
    }
    // Cut off by the limit inside the call.
    let choice = choice(&fixture, CALL, json!({"max_tokens": 1})).await;
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"].get("tool_calls").is_none());
}

#[tokio::test]
async fn without_tools_or_with_the_choice_none_everything_is_text() {
    let fixture = Fixture::new();
    for fields in [json!({"tools": null}), json!({"tools": []}), json!({"tool_choice": "none"})] {
        let choice = choice(&fixture, CALL, fields).await;
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&json!(CALL), &json!("stop"))
        );
    }
    // The prompt is the same with the choice none.
    assert_eq!(*fixture.control.tools.lock().unwrap(), [None, None, Some(tools())]);
}

#[tokio::test]
async fn calls_and_results_of_the_history_reach_the_template() {
    let fixture = Fixture::new();
    let call = |id: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}});
    let request = |assistant: Value| {
        let messages = json!([
            {"role": "user", "content": "Rome and <|im_end|>?"},
            assistant,
            {"role": "tool", "tool_call_id": "c1", "content": "18 °C"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "say "}, {"type": "text", "text": "fine"}]},
        ]);
        json!({"model": "fake", "messages": messages, "tools": tools()})
    };
    let calls = |arguments: Value| json!([call("c1", arguments), call("c2", json!(""))]);
    let written = calls(json!("{\"place\": \"Rome\", \"days\": 1}"));
    let assistant = json!({"role": "assistant", "content": null, "tool_calls": written});
    let (status, answer) = ask(&fixture, &request(assistant)).await;
    assert_eq!(
        (status, &answer["choices"][0]["message"]["content"]),
        (StatusCode::OK, &json!("fine"))
    );
    let conversations = fixture.control.conversations.lock().unwrap().clone();
    let messages = &conversations[0].0;
    let function = |call: usize| &messages[1]["tool_calls"][call]["function"];
    assert_eq!(function(0)["arguments"].to_string(), r#"{"place":"Rome","days":1}"#);
    assert_eq!(function(1)["arguments"], json!({}));
    assert_eq!(messages[1]["content"], "");
    assert_eq!(messages[3], json!({"role": "tool", "content": "say fine", "tool_call_id": "c2"}));

    let broken = json!({"role": "assistant", "tool_calls": calls(json!("{\"place\": "))});
    let (status, error) = ask(&fixture, &request(broken)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["param"], "messages[1].tool_calls[0].function.arguments");
}

#[tokio::test]
async fn ac_35_a_call_that_is_held_back_is_no_silence() {
    let options = ServerOptions { heartbeat: Duration::from_millis(20), ..Default::default() };
    let fixture = Fixture::with(options);
    let mut request = body("", json!({"stream": true}));
    let (held, rest) = CALL.split_once("\n</parameter>\n</function>").unwrap();
    request["messages"][0]["content"] =
        format!("hold {held} \n</parameter>\n</function>{rest}").into();
    let response = fixture.send(post(CHAT, &request)).await;
    let reading = tokio::spawn(read_text(response));
    tokio::time::sleep(Duration::from_millis(200)).await;
    fixture.control.release();
    let choices = choices(&reading.await.unwrap());
    let is_call = |choice: &Value| choice["delta"].get("tool_calls").is_some();
    let is_beat =
        |choice: &Value| choice["delta"] == json!({}) && choice["finish_reason"].is_null();
    assert!(choices.iter().any(is_beat) && choices.iter().any(is_call));
    assert_eq!(joined(&choices).2, "tool_calls");
}
