//! The built-in model held to forms and to calls, in every dialect: answers are valid whatever the model would have liked to say.

#[allow(dead_code, reason = "functions here have their own parameters")]
mod client;
#[allow(dead_code, reason = "these tests have a real model")]
mod fake;
#[allow(dead_code, reason = "these tests have a real model")]
mod fixture;

use std::path::Path;
use std::sync::Arc;

use client::{CHAT, DIALECTS, MESSAGES, Seen, body, user};
use fixture::{Fixture, LOOPBACK};
use lithos_engine::{Engine, EngineOptions};
use lithos_server::{Server, ServerOptions};
use serde_json::{Value, json};

fn start() -> Fixture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/lithos-mini");
    let options = EngineOptions { context: Some(2048), ..EngineOptions::default() };
    let engine = Engine::open(&folder, options).expect("opens");
    let server =
        Server::start(engine, &ServerOptions::default(), LOOPBACK.parse().unwrap()).unwrap();
    Fixture { server, control: Arc::default() }
}

/// A function in the form of a dialect.
fn function(path: &str, name: &str, schema: Value) -> Value {
    match path {
        CHAT => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        MESSAGES => json!({"name": name, "input_schema": schema}),
        _ => json!({"type": "function", "name": name, "parameters": schema}),
    }
}

/// Functions whose parameters are written in every way there is.
fn functions(path: &str) -> Vec<Value> {
    let write = json!({"type": "object", "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 30, "pattern": "^[a-z/]+$"},
        "mode": {"type": "string", "enum": ["append", "replace"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 2},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}
    }, "required": ["path", "mode", "lines"],
    "$defs": {"line": {"type": "integer", "minimum": 1, "maximum": 500}}});
    // A text or a number: not to be told apart without quotes.
    let set = json!({"type": "object", "properties": {
        "value": {"type": ["string", "integer"], "maxLength": 8, "minimum": 0, "maximum": 9}
    }, "required": ["value"]});
    vec![
        function(path, "write", write),
        function(path, "set", set),
        function(path, "stop", json!({"type": "object", "properties": {}})),
    ]
}

fn check(name: &str, arguments: &Value) {
    let keys: Vec<&str> = arguments.as_object().unwrap().keys().map(String::as_str).collect();
    match name {
        "write" => {
            let path = arguments["path"].as_str().unwrap();
            let letter = |c: char| c.is_ascii_lowercase() || c == '/';
            assert!((1..=30).contains(&path.len()) && path.chars().all(letter), "{arguments}");
            assert!(["append", "replace"].contains(&arguments["mode"].as_str().unwrap()));
            let lines = arguments["lines"].as_array().unwrap();
            assert!(lines.len() <= 2, "{arguments}");
            assert!(lines.iter().all(|line| (1..=500).contains(&line.as_u64().unwrap())));
            let note = arguments.get("note");
            assert!(note.is_none_or(|note| note.is_string() || note.is_null()), "{arguments}");
        }
        "set" => {
            assert_eq!(keys, ["value"]);
            let value = &arguments["value"];
            let short = value.as_str().is_some_and(|text| text.chars().count() <= 8);
            assert!(short || value.as_u64().is_some_and(|number| number <= 9), "{arguments}");
        }
        "stop" => assert!(keys.is_empty(), "{arguments}"),
        _ => panic!("{name} is not on offer"),
    }
}

fn sampling(temperature: f64, seed: u64) -> Value {
    json!({"temperature": temperature, "top_p": 1, "top_k": 0, "min_p": 0, "seed": seed})
}

fn joined(mut fields: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        fields[name] = value.clone();
    }
    fields
}

#[tokio::test]
async fn required_and_named_calls_are_valid_calls() {
    let fixture = start();
    for path in DIALECTS {
        let required = if path == MESSAGES { json!({"type": "any"}) } else { json!("required") };
        let named = |name: &str| match path {
            CHAT => json!({"type": "function", "function": {"name": name}}),
            MESSAGES => json!({"type": "tool", "name": name}),
            _ => json!({"type": "function", "name": name}),
        };
        for (seed, temperature) in [(1, 0.0), (2, 1.0)] {
            for (choice, name) in [
                (required.clone(), None),
                (named("write"), Some("write")),
                (named("set"), Some("set")),
                (named("stop"), Some("stop")),
            ] {
                let fields = joined(
                    json!({"tools": functions(path), "tool_choice": choice}),
                    sampling(temperature, seed),
                );
                let seen = fixture.seen(path, user("Tell me about the sea."), fields).await;
                assert!(!seen.calls.is_empty() && seen.text.trim().is_empty(), "{path}: {seen:?}");
                assert!(seen.calls.len() == 1 || name.is_none(), "{path}: {seen:?}");
                for (called, arguments) in &seen.calls {
                    assert!(name.is_none_or(|name| name == called), "{path}: {seen:?}");
                    check(called, arguments);
                }
            }
        }
    }
}

#[tokio::test]
async fn answers_have_the_form_of_their_schema() {
    let fixture = start();
    let schema = json!({"type": "object", "properties": {
        "word": {"type": "string", "maxLength": 12}, "count": {"type": "integer", "minimum": 0, "maximum": 9}
    }, "required": ["word", "count"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema});
    for path in DIALECTS {
        let form = match path {
            CHAT => {
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}})
            }
            MESSAGES => json!({"output_config": {"format": format}}),
            _ => json!({"text": {"format": format}}),
        };
        for (seed, temperature) in [(1, 0.0), (2, 1.0)] {
            // With tools on offer the answer may also be a call.
            for tools in [json!({}), json!({"tools": functions(path)})] {
                let fields = joined(joined(form.clone(), sampling(temperature, seed)), tools);
                let seen = fixture.seen(path, user("Count."), fields).await;
                for (name, arguments) in &seen.calls {
                    check(name, arguments);
                }
                if seen.calls.is_empty() {
                    let answer: Value = serde_json::from_str(&seen.text).expect("JSON");
                    assert!(answer["word"].is_string() && answer["count"].as_u64().unwrap() <= 9);
                }
            }
        }
    }
}

#[tokio::test]
async fn other_forms_are_kept_to_and_a_limit_cuts_them_off() {
    let fixture = start();
    for (form, valid) in [
        (json!({"regex": "[0-9]{3}"}), (|text| text.len() == 3) as fn(&str) -> bool),
        (json!({"choice": ["red", "green"]}), |text| text == "red" || text == "green"),
        (json!({"grammar": "start: \"a\" \"b\"+ \"c\""}), |text| {
            text.starts_with("ab") && text.ends_with('c')
        }),
    ] {
        let fields = json!({"structured_outputs": form, "temperature": 1, "seed": 1});
        let seen = fixture.seen(CHAT, user("Say."), fields).await;
        assert!(valid(&seen.text) && seen.end == "stop", "{form}: {seen:?}");
    }
    let cut = json!({"structured_outputs": {"regex": "[a-z]{400}"}, "max_tokens": 5});
    let seen = fixture.seen(CHAT, user("Say."), cut).await;
    assert_eq!(seen.end, "length", "{seen:?}");
    let answer =
        json!({"response_format": {"type": "json_object"}, "max_tokens": 300, "temperature": 0});
    let request = fixture::post(CHAT, &body(CHAT, user("Say."), answer));
    let (_, answer) = fixture::read_json(fixture.send(request).await).await;
    let seen = Seen::of_answer(CHAT, &answer);
    assert!(seen.text.starts_with('{'), "{seen:?}");
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(&seen.text);
    assert!(object.is_ok() || seen.end == "length", "{seen:?}");
}
