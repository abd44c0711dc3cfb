//! What Messages and Responses have of their own, against a fake model. What they share with Chat Completions is tested there.

mod fake;
mod fixture;

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use fake::CONTEXT;
use fixture::{Fixture, LOOPBACK, post, read_json, read_text};
use lithos_engine::Sampling;
use lithos_server::ServerOptions;
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const RESPONSES: &str = "/v1/responses";

impl Fixture {
    /// Asks on a path, with one thing said and further fields.
    async fn ask(&self, path: &str, said: &str, fields: Value) -> Response {
        self.send(post(path, &body(path, said, fields))).await
    }

    async fn ask_json(&self, path: &str, said: &str, fields: Value) -> (StatusCode, Value) {
        read_json(self.ask(path, said, fields).await).await
    }

    /// The events of a stream: names and data.
    async fn ask_stream(&self, path: &str, said: &str, mut fields: Value) -> Vec<(String, Value)> {
        fields["stream"] = true.into();
        let response = self.ask(path, said, fields).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        events_of(&read_text(response).await)
    }
}

fn body(path: &str, said: &str, fields: Value) -> Value {
    let mut body = match path {
        RESPONSES => json!({"model": "lithos/fake", "input": said}),
        _ => json!({
            "model": "lithos/fake",
            "max_tokens": 1000,
            "messages": [{"role": "user", "content": said}],
        }),
    };
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn events_of(wire: &str) -> Vec<(String, Value)> {
    assert!(wire.ends_with("\n\n"));
    let read = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["type"], name);
        (name, data)
    };
    wire.split_terminator("\n\n").map(read).collect()
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

/// The text of all deltas, of either dialect.
fn text_of(events: &[(String, Value)]) -> String {
    let text = |(_, data): &(String, Value)| {
        data["delta"].as_str().or(data["delta"]["text"].as_str()).map(str::to_owned)
    };
    events.iter().filter_map(text).collect()
}

#[tokio::test]
async fn a_message_in_one_piece() {
    let fixture = Fixture::new();
    let response = fixture.ask(MESSAGES, "say Paris it is", json!({})).await;
    assert!(response.headers()["request-id"].to_str().unwrap().starts_with("req_"));
    let (status, answer) = read_json(response).await;
    assert_eq!(status, StatusCode::OK);
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!((&answer["type"], &answer["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(answer["content"], json!([{"type": "text", "text": "Paris it is"}]));
    assert_eq!(answer["stop_reason"], "end_turn");
    let usage = &answer["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(15), &json!(3)));
}

#[tokio::test]
async fn a_message_as_a_stream() {
    let fixture = Fixture::new();
    let events = fixture.ask_stream(MESSAGES, "say Paris it is", json!({})).await;
    assert_eq!(
        names(&events),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert_eq!(text_of(&events), "Paris it is");
    // The prompt's length is known from the beginning.
    assert_eq!(events[0].1["message"]["usage"]["input_tokens"], 15);
    assert_eq!(events[6].1["usage"]["output_tokens"], 3);
}

#[tokio::test]
async fn a_response_in_one_piece() {
    let fixture = Fixture::new();
    let response = fixture.ask(RESPONSES, "say Paris it is", json!({})).await;
    assert!(response.headers().contains_key("x-request-id"));
    let (status, answer) = read_json(response).await;
    assert_eq!(status, StatusCode::OK);
    assert!(answer["id"].as_str().unwrap().starts_with("resp_"));
    assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(answer["output"][0]["content"][0]["text"], "Paris it is");
    assert_eq!(answer["usage"]["total_tokens"], 18);
    assert!(answer["created_at"].as_u64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn a_response_as_a_stream() {
    let fixture = Fixture::new();
    let events = fixture.ask_stream(RESPONSES, "say a b", json!({})).await;
    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    assert_eq!(text_of(&events), "a b");
    let numbers: Vec<_> = events.iter().map(|(_, data)| data["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..10).map(Some).collect::<Vec<_>>());
    assert_eq!(events[9].1["response"]["output"][0]["content"][0]["text"], "a b");
    assert_eq!(events[9].1["response"]["usage"]["output_tokens"], 2);
}

#[tokio::test]
async fn limits_and_stop_texts_end_answers_with_their_reason() {
    let fixture = Fixture::new();
    let said = "say a b c d e";
    let stop = json!({"stop_sequences": ["never", "c d"]});
    let (_, answer) = fixture.ask_json(MESSAGES, said, stop.clone()).await;
    assert_eq!(answer["content"][0]["text"], "a b ");
    assert_eq!(
        (&answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("stop_sequence"), &json!("c d"))
    );
    let events = fixture.ask_stream(MESSAGES, said, stop).await;
    assert_eq!(text_of(&events), "a b ");
    assert_eq!(events[events.len() - 2].1["delta"]["stop_sequence"], "c d");
    // A stop text that does not come changes nothing.
    let (_, answer) = fixture.ask_json(MESSAGES, said, json!({"stop_sequences": ["never"]})).await;
    assert_eq!(
        (&answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("end_turn"), &Value::Null)
    );

    let (_, answer) = fixture.ask_json(MESSAGES, said, json!({"max_tokens": 2})).await;
    assert_eq!(answer["stop_reason"], "max_tokens");
    let limit = json!({"max_output_tokens": 2});
    let (_, answer) = fixture.ask_json(RESPONSES, said, limit.clone()).await;
    assert_eq!(answer["status"], "incomplete");
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    let events = fixture.ask_stream(RESPONSES, said, limit).await;
    assert_eq!(events.last().unwrap().0, "response.incomplete");
}

#[tokio::test]
async fn parameters_and_conversations_reach_the_model() {
    let fixture = Fixture::new();
    let fields = json!({
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "system", "content": "later"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "say c"}
        ],
        "temperature": 0, "top_p": 0.5, "top_k": 3, "max_tokens": 9, "stop_sequences": ["!"],
        "metadata": {"user_id": "u"},
    });
    assert_eq!(fixture.ask_json(MESSAGES, "", fields).await.0, StatusCode::OK);
    let fields = json!({
        "instructions": "s",
        "input": [{"role": "developer", "content": "t"}, {"role": "user", "content": "say c"}],
        "temperature": 0, "top_p": 0.5, "top_k": 3, "max_output_tokens": 9, "stop": "!",
    });
    assert_eq!(fixture.ask_json(RESPONSES, "", fields).await.0, StatusCode::OK);
    let requests = fixture.control.requests.lock().unwrap();
    let sampling = Sampling { temperature: 0.0, top_k: 3, top_p: 0.5, ..Sampling::greedy() };
    for request in requests.iter() {
        assert_eq!(request.sampling, sampling);
        assert_eq!(
            (request.max_tokens, request.stop.as_slice()),
            (Some(9), ["!".to_owned()].as_slice())
        );
    }
    assert_eq!(requests.len(), 2);
    let conversations = fixture.control.conversations.lock().unwrap();
    assert_eq!(conversations[0].0[0], json!({"role": "system", "content": "s"}));
    assert_eq!(conversations[0].0[2], json!({"role": "system", "content": "later"}));
    assert_eq!(conversations[1].0[0], json!({"role": "system", "content": "s\n\nt"}));
}

#[tokio::test]
async fn tokens_are_counted_while_the_model_is_busy() {
    let options = ServerOptions { heartbeat: Duration::from_millis(20), ..Default::default() };
    let fixture = Fixture::with(options);
    let running = fixture.ask(MESSAGES, "wait", json!({"stream": true})).await;
    let count = |said: &str| {
        let body = json!({"model": "fake", "messages": [{"role": "user", "content": said}]});
        fixture.send(post(COUNT, &body))
    };
    assert_eq!(read_json(count("say a").await).await, (StatusCode::OK, json!({"input_tokens": 5})));
    // Also of what is too long to be answered.
    let (_, counted) = read_json(count(&"x".repeat(CONTEXT + 1)).await).await;
    assert_eq!(counted, json!({"input_tokens": CONTEXT + 1}));
    let (status, error) = read_json(count("refuse").await).await;
    assert_eq!(
        (status, &error["error"]["type"]),
        (StatusCode::BAD_REQUEST, &json!("invalid_request_error"))
    );
    // A prompt that cannot be answered is refused without waiting for the model, too.
    let (status, _) = fixture.ask_json(RESPONSES, &"x".repeat(CONTEXT), json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    fixture.control.release();
    assert_eq!(text_of(&events_of(&read_text(running).await)), "done");
}

#[tokio::test]
async fn waiting_streams_are_kept_alive_in_their_dialect() {
    let options = ServerOptions { heartbeat: Duration::from_millis(20), ..Default::default() };
    let fixture = Fixture::with(options);
    // The first is silent in its prompt, the others wait in the queue behind it.
    let stream = json!({"stream": true});
    let mut readings = Vec::new();
    for (path, said) in [(MESSAGES, "silent"), (MESSAGES, "say done"), (RESPONSES, "say done")] {
        let response = fixture.ask(path, said, stream.clone()).await;
        assert_eq!(response.status(), StatusCode::OK);
        readings.push((path, tokio::spawn(read_text(response))));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    fixture.control.release();
    for (path, reading) in readings {
        let events = events_of(&reading.await.unwrap());
        let (first, beat) = match path {
            MESSAGES => ("message_start", "ping"),
            _ => ("response.created", "response.in_progress"),
        };
        assert_eq!(events[0].0, first);
        let beats = names(&events).into_iter().filter(|name| *name == beat).count();
        // One `response.in_progress` belongs to every stream.
        assert!(beats >= 2, "{beats} signs of life on {path}");
        assert_eq!(text_of(&events), "done");
    }
}

#[tokio::test]
async fn heartbeats_come_more_often_than_clients_give_up() {
    assert!(ServerOptions::default().heartbeat <= Duration::from_secs(10));
}

#[tokio::test]
async fn errors_have_the_form_of_their_dialect() {
    let fixture = Fixture::new();
    for stream in [false, true] {
        let ask = async |path: &str, said: &str, mut fields: Value| {
            fields["stream"] = stream.into();
            let (status, error) = fixture.ask_json(path, said, fields).await;
            (status.as_u16(), error)
        };
        for (said, fields, status, kind) in [
            ("say a", json!({"model": "claude-x"}), 404, "not_found_error"),
            ("refuse", json!({}), 400, "invalid_request_error"),
            ("say a", json!({"temperature": 9}), 400, "invalid_request_error"),
            ("say a", json!({"tools": [{"name": ""}]}), 400, "invalid_request_error"),
            ("fail", json!({}), 500, "api_error"),
            ("panic", json!({}), 500, "api_error"),
            ("panic in the template", json!({}), 500, "api_error"),
        ] {
            let (found, error) = ask(MESSAGES, said, fields).await;
            assert_eq!((found, &error["error"]["type"]), (status, &json!(kind)), "{said}");
            assert_eq!(error["type"], "error");
            assert!(error["request_id"].as_str().unwrap().starts_with("req_"));
        }
        let long = "x".repeat(CONTEXT);
        let (status, error) = ask(MESSAGES, &long, json!({})).await;
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(status, 400);
        assert!(message.starts_with("prompt is too long: 4096 tokens > 4096 maximum"), "{message}");

        for (said, fields, status, param, code) in [
            ("say a", json!({"model": "gpt"}), 404, "model", "model_not_found"),
            (long.as_str(), json!({}), 400, "input", "context_length_exceeded"),
            (
                "say a",
                json!({"previous_response_id": "resp_1"}),
                400,
                "previous_response_id",
                "unsupported_value",
            ),
            ("say a", json!({"tool_choice": "required"}), 400, "tool_choice", "invalid_value"),
        ] {
            let (found, error) = ask(RESPONSES, said, fields).await;
            let error = &error["error"];
            assert_eq!(
                (found, &error["param"], &error["code"]),
                (status, &json!(param), &json!(code))
            );
        }
        assert_eq!(ask(RESPONSES, "fail", json!({})).await.0, 500);
    }
}

#[tokio::test]
async fn late_errors_end_the_stream_as_an_event() {
    let fixture = Fixture::new();
    for said in ["fail late", "panic late"] {
        let events = fixture.ask_stream(MESSAGES, said, json!({})).await;
        assert_eq!(text_of(&events), "well ");
        let (name, data) = events.last().unwrap();
        assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &json!("api_error")));
        let events = fixture.ask_stream(RESPONSES, said, json!({})).await;
        let (name, data) = events.last().unwrap();
        assert_eq!(
            (name.as_str(), &data["response"]["error"]["code"]),
            ("response.failed", &json!("server_error"))
        );
    }
}

#[tokio::test]
async fn errors_before_any_handler_have_the_form_of_the_path() {
    let fixture =
        Fixture::with(ServerOptions { api_key: Some("secret".into()), ..Default::default() });
    let ask = async |path: &str, headers: &[(&str, &str)], body: &str| {
        let mut request = Request::post(path).header("host", LOOPBACK);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        fixture.send(request.body(Body::from(body.to_owned())).unwrap()).await
    };
    const JSON: (&str, &str) = ("content-type", "application/json");
    const KEY: (&str, &str) = ("x-api-key", "secret");
    for (headers, body, status, kind) in [
        (vec![JSON], "{}", 401, "authentication_error"),
        (vec![JSON, ("x-api-key", "wrong")], "{}", 401, "authentication_error"),
        (vec![JSON, KEY, ("origin", "https://evil.example")], "{}", 403, "permission_error"),
        (vec![KEY, ("content-type", "text/plain")], "{}", 415, "invalid_request_error"),
        (vec![JSON, KEY], "{", 400, "invalid_request_error"),
        (vec![JSON, KEY], "{}", 400, "invalid_request_error"),
    ] {
        for path in [MESSAGES, COUNT, "/v1/messages?beta=true"] {
            let response = ask(path, &headers, body).await;
            let id = response.headers()["request-id"].to_str().unwrap().to_owned();
            let (found, error) = read_json(response).await;
            assert_eq!((found.as_u16(), &error["error"]["type"]), (status, &json!(kind)));
            assert_eq!(error["request_id"], id);
        }
        let (found, error) = read_json(ask(RESPONSES, &headers, body).await).await;
        assert_eq!(found.as_u16(), status);
        assert!(error["error"].get("param").is_some() && error.get("type").is_none());
    }
    let lost = ask("/v1/messages/batches", &[KEY], "").await;
    let (status, error) = read_json(lost).await;
    assert_eq!((status.as_u16(), &error["error"]["type"]), (404, &json!("not_found_error")));
    // The list of models is common to both, so there the client shows which it is.
    let list = |version: Option<&str>| {
        let mut request = Request::get("/v1/models/opus").header("host", LOOPBACK);
        request = request.header("authorization", "Bearer secret");
        if let Some(version) = version {
            request = request.header("anthropic-version", version);
        }
        fixture.send(request.body(Body::empty()).unwrap())
    };
    let (_, error) = read_json(list(Some("2023-06-01")).await).await;
    assert_eq!(error["error"]["type"], "not_found_error");
    let (_, error) = read_json(list(None).await).await;
    assert_eq!(error["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn either_header_may_hold_the_key() {
    let fixture =
        Fixture::with(ServerOptions { api_key: Some("secret".into()), ..Default::default() });
    for (headers, status) in [
        (vec![("x-api-key", "secret")], 200),
        (vec![("authorization", "Bearer secret")], 200),
        (vec![("authorization", "Bearer another"), ("x-api-key", "secret")], 200),
        (vec![("authorization", "Bearer secret"), ("x-api-key", "another")], 200),
        (vec![("authorization", "Bearer another"), ("x-api-key", "another")], 401),
        (vec![("authorization", "secret")], 401),
    ] {
        let mut request = post(MESSAGES, &body(MESSAGES, "say a", json!({})));
        for (name, value) in headers {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        assert_eq!(fixture.send(request).await.status().as_u16(), status);
    }
}

#[tokio::test]
async fn a_full_queue_turns_requests_away_in_either_form() {
    let heartbeat = Duration::from_millis(20);
    let options = ServerOptions { queue_capacity: 0, heartbeat, ..Default::default() };
    let fixture = Fixture::with(options);
    let running = fixture.ask(MESSAGES, "wait", json!({"stream": true})).await;
    for (path, kind) in [(MESSAGES, "rate_limit_error"), (RESPONSES, "rate_limit_error")] {
        let turned_away = fixture.ask(path, "say b", json!({})).await;
        assert_eq!(turned_away.headers()[header::RETRY_AFTER], "5");
        let (status, error) = read_json(turned_away).await;
        assert_eq!((status.as_u16(), &error["error"]["type"]), (429, &json!(kind)));
    }
    let router = fixture.server.router();
    drop(fixture.server);
    drop(running);
    // The end of the server is an overload to clients of Messages, which they wait out.
    let request = post(MESSAGES, &body(MESSAGES, "say c", json!({})));
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    let (status, error) = read_json(response).await;
    assert_eq!((status.as_u16(), &error["error"]["type"]), (529, &json!("overloaded_error")));
}

#[tokio::test]
async fn the_list_of_models_is_both_apis() {
    let (_, list) = Fixture::new().get("/v1/models?limit=20").await;
    assert_eq!((&list["object"], &list["has_more"]), (&json!("list"), &json!(false)));
    let model = &list["data"][0];
    assert_eq!((&model["object"], &model["type"]), (&json!("model"), &json!("model")));
    assert_eq!(model["created_at"], "2023-11-14T22:13:20Z");
    assert_eq!(list["first_id"], model["id"]);
}
