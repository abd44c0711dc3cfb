//! Every answer of the server that needs no socket, against a fake model.

mod fake;
mod fixture;

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use fake::{CONTEXT, FakeModel};
use fixture::{Fixture, LOOPBACK, read_json, read_text};
use lithos_engine::{Sampling, TokenId};
use lithos_server::{ServeError, Server, ServerOptions};
use serde_json::{Value, json};
use tower::ServiceExt;

const CHAT: &str = "/v1/chat/completions";

impl Fixture {
    /// Sends a conversation of one message with further fields.
    async fn chat(&self, message: &str, fields: Value) -> Response {
        self.send(post(&chat_body(message, fields))).await
    }

    async fn chat_json(&self, message: &str, fields: Value) -> (StatusCode, Value) {
        read_json(self.chat(message, fields).await).await
    }

    /// The data of all events of a stream.
    async fn chat_stream(&self, message: &str, mut fields: Value) -> Vec<String> {
        fields["stream"] = true.into();
        let response = self.chat(message, fields).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        events_of(&read_text(response).await)
    }
}

fn chat_body(message: &str, fields: Value) -> Value {
    let mut body = json!({
        "model": "lithos/fake",
        "messages": [{"role": "user", "content": message}],
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn post(body: &Value) -> Request<Body> {
    fixture::post(CHAT, body)
}

fn events_of(wire: &str) -> Vec<String> {
    assert!(wire.ends_with("\n\n"));
    let events = wire.split_terminator("\n\n");
    events.map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
}

fn chunk(event: &str) -> Value {
    serde_json::from_str(event).unwrap()
}

fn text_of(events: &[String]) -> String {
    let chunks = events.iter().filter(|event| *event != "[DONE]").map(|event| chunk(event));
    chunks.filter_map(|c| c["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn an_answer_in_one_piece() {
    let fixture = Fixture::new();
    let (status, answer) = fixture.chat_json("say Paris it is", json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(answer["model"], "lithos/fake");
    assert_eq!(answer["choices"][0]["message"]["content"], "Paris it is");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(15), &json!(3)));
    assert_eq!(usage["total_tokens"], 18);
    let (_, other) = fixture.chat_json("say again", json!({})).await;
    assert_ne!(other["id"], answer["id"]);
}

#[tokio::test]
async fn an_answer_as_a_stream() {
    let fixture = Fixture::new();
    let usage = json!({"stream_options": {"include_usage": true}});
    let events = fixture.chat_stream("say Paris it is", usage).await;
    // The role, three words, the end, the usage, and the mark.
    assert_eq!(events.len(), 7);
    assert_eq!(chunk(&events[0])["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(text_of(&events), "Paris it is");
    assert_eq!(chunk(&events[4])["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunk(&events[5])["usage"]["total_tokens"], 18);
    assert_eq!(events[6], "[DONE]");
    let id = chunk(&events[0])["id"].clone();
    assert!(events[..6].iter().all(|event| chunk(event)["id"] == id));

    let plain = fixture.chat_stream("say Paris it is", json!({})).await;
    assert_eq!(plain.len(), 6);
    assert!(plain[..5].iter().all(|event| chunk(event).get("usage").is_none()));
}

#[tokio::test]
async fn limits_and_stop_texts_end_answers() {
    let fixture = Fixture::new();
    let (_, answer) = fixture.chat_json("say a b c d", json!({"max_tokens": 2})).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "a b ");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let stop = json!({"stop": ["c d"]});
    let (_, answer) = fixture.chat_json("say a b c d e", stop.clone()).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "a b ");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(text_of(&fixture.chat_stream("say a b c d e", stop).await), "a b ");
}

#[tokio::test]
async fn parameters_reach_the_model_and_defaults_stay() {
    let fixture = Fixture::new();
    fixture.chat_json("say a", json!({})).await;
    let fields = json!({
        "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.25, "repetition_penalty": 1.5,
        "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"7": 2}, "seed": 11,
        "max_completion_tokens": 9, "stop": "!", "ignore_eos": true,
        "chat_template_kwargs": {"enable_thinking": false},
    });
    fixture.chat_json("say b", fields).await;
    let requests = fixture.control.requests.lock().unwrap();
    let defaults = Sampling { temperature: 0.7, top_k: 20, ..Sampling::greedy() };
    assert_eq!(requests[0].sampling, defaults);
    assert_eq!((requests[0].max_tokens, requests[0].ignore_end), (None, false));
    assert!(requests[0].reuse);
    let asked = Sampling {
        temperature: 0.0,
        top_k: 3,
        top_p: 0.5,
        min_p: 0.25,
        repetition_penalty: 1.5,
        presence_penalty: 0.5,
        frequency_penalty: -0.5,
        logit_bias: vec![(TokenId(7), 2.0)],
        seed: Some(11),
    };
    assert_eq!(requests[1].sampling, asked);
    assert_eq!((requests[1].max_tokens, requests[1].ignore_end), (Some(9), true));
    assert_eq!(requests[1].stop, ["!"]);
    let conversations = fixture.control.conversations.lock().unwrap();
    assert_eq!(conversations[1].0, json!([{"role": "user", "content": "say b"}]));
    assert_eq!(Value::Object(conversations[1].1.clone()), json!({"enable_thinking": false}));
}

#[tokio::test]
async fn models_are_listed_and_found() {
    let fixture = Fixture::new();
    let (status, list) = fixture.get("/v1/models").await;
    assert_eq!((status, &list["object"]), (StatusCode::OK, &json!("list")));
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["created"]), (&json!("lithos/fake"), &json!(1_700_000_000)));
    assert_eq!(model["context_length"], CONTEXT);
    for id in ["lithos/fake", "lithos%2Ffake", "fake"] {
        assert_eq!(fixture.get(&format!("/v1/models/{id}")).await, (StatusCode::OK, model.clone()));
    }
    let (status, error) = fixture.get("/v1/models/gpt-4").await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("model_not_found"))
    );
    assert_eq!(
        fixture.get("/health").await,
        (StatusCode::OK, json!({"status": "ready", "waiting": 0, "running": 0}))
    );
}

#[tokio::test]
async fn a_model_goes_by_several_names_but_not_by_all() {
    let fixture = Fixture::new();
    for name in ["lithos/fake", "fake", "default", ""] {
        let (status, answer) = fixture.chat_json("say a", json!({"model": name})).await;
        assert_eq!((status, &answer["model"]), (StatusCode::OK, &json!("lithos/fake")));
    }
    let (status, error) = fixture.chat_json("say a", json!({"model": "gpt-4"})).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("model_not_found"))
    );
    assert!(error["error"]["message"].as_str().unwrap().contains("lithos/fake"));
}

#[tokio::test]
async fn errors_before_the_first_token_have_their_own_status() {
    let fixture = Fixture::new();
    for stream in [false, true] {
        let ask = async |message: &str| {
            let (status, error) = fixture.chat_json(message, json!({"stream": stream})).await;
            (status.as_u16(), error["error"].clone())
        };
        let (status, error) = ask("refuse").await;
        assert_eq!((status, &error["type"]), (400, &json!("invalid_request_error")));
        let (status, error) = ask(&"x".repeat(CONTEXT)).await;
        assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")));
        let (status, error) = ask("fail").await;
        assert_eq!((status, &error["type"]), (500, &json!("server_error")));
        for message in ["panic", "panic in the template"] {
            assert_eq!(ask(message).await.0, 500);
            // The server lives on.
            assert_eq!(fixture.chat_json("say a", json!({})).await.0, StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn nothing_is_taken_over_from_slots_after_a_panic() {
    let fixture = Fixture::new();
    fixture.chat_json("panic", json!({})).await;
    fixture.chat_json("say a", json!({})).await;
    fixture.chat_json("say b", json!({})).await;
    assert_eq!(fixture.control.abandoned.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn late_errors_end_the_stream_as_an_event() {
    let fixture = Fixture::new();
    for message in ["fail late", "panic late"] {
        let events = fixture.chat_stream(message, json!({})).await;
        assert_eq!(text_of(&events), "well ");
        let last = chunk(&events[events.len() - 2]);
        assert_eq!(last["error"]["type"], "server_error");
        assert_eq!(last["choices"][0]["finish_reason"], "error");
        assert_eq!(events.last().unwrap(), "[DONE]");
        let (status, _) = fixture.chat_json(message, json!({})).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}

#[tokio::test]
async fn requests_that_cannot_be_used_are_refused() {
    let fixture = Fixture::new();
    let refuse = async |request: Request<Body>| {
        let (status, body) = read_json(fixture.send(request).await).await;
        (status.as_u16(), body["error"].clone())
    };
    let with = |headers: &[(&str, &str)], body: Body| {
        let mut request = Request::post(CHAT).header("host", LOOPBACK);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body).unwrap()
    };
    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    let good = || Body::from(chat_body("say a", json!({})).to_string());

    let (status, error) = refuse(with(&[JSON], Body::from("{\"model\": "))).await;
    assert_eq!((status, &error["code"]), (400, &json!("invalid_json")));
    let hot = Body::from(chat_body("say a", json!({"temperature": 9})).to_string());
    let (status, error) = refuse(with(&[JSON], hot)).await;
    assert_eq!((status, &error["param"]), (400, &json!("temperature")));
    assert_eq!(refuse(with(&[], good())).await.0, 415);
    assert_eq!(refuse(with(&[("content-type", "text/plain")], good())).await.0, 415);
    assert_eq!(refuse(with(&[JSON, ("content-encoding", "gzip")], good())).await.0, 415);
    assert_eq!(fixture.send(with(&[JSON], good())).await.status(), StatusCode::OK);

    let (status, error) =
        refuse(Request::get("/v1/nothing").header("host", LOOPBACK).body(Body::empty()).unwrap())
            .await;
    assert_eq!((status, &error["code"]), (404, &json!("unknown_url")));
    let wrong = Request::get(CHAT).header("host", LOOPBACK).body(Body::empty()).unwrap();
    assert_eq!(refuse(wrong).await.0, 405);
    let wrong = Request::delete("/v1/models").header("host", LOOPBACK).body(Body::empty()).unwrap();
    assert_eq!(refuse(wrong).await.0, 405);
}

#[tokio::test]
async fn bodies_are_bounded() {
    let fixture = Fixture::with(ServerOptions { body_limit: 300, ..Default::default() });
    let small = chat_body("say a", json!({}));
    assert_eq!(fixture.send(post(&small)).await.status(), StatusCode::OK);
    let large = chat_body(&"x".repeat(300), json!({}));
    // Whether the length is announced or not.
    let mut announced = post(&large);
    let length = large.to_string().len();
    announced.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    for request in [post(&large), announced] {
        let (status, error) = read_json(fixture.send(request).await).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(error["error"]["code"], "request_too_large");
    }
    assert_eq!(ServerOptions::default().body_limit, 32 << 20);
}

#[tokio::test]
async fn foreign_pages_and_names_are_kept_out() {
    let options = ServerOptions {
        allowed_hosts: vec!["box.lan".into()],
        allowed_origins: vec!["https://chat.example".into()],
        ..Default::default()
    };
    let fixture = Fixture::with(options);
    let status = async |host: Option<&str>, origin: Option<&str>| {
        let mut request = Request::get("/v1/models");
        if let Some(host) = host {
            request = request.header("host", host);
        }
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        fixture.send(request.body(Body::empty()).unwrap()).await.status().as_u16()
    };
    for host in ["localhost", "localhost:99", "127.0.0.1:8080", "[::1]:8080", "box.lan:8080"] {
        assert_eq!(status(Some(host), None).await, 200, "{host}");
    }
    for host in ["evil.example", "192.168.0.1", "localhost.evil.example", "a b", ""] {
        assert_eq!(status(Some(host), None).await, 403, "{host}");
    }
    assert_eq!(status(None, None).await, 403);
    let near = ["http://localhost:3000", "http://127.0.0.1:8080", "https://chat.example"];
    for origin in near {
        assert_eq!(status(Some(LOOPBACK), Some(origin)).await, 200, "{origin}");
    }
    for origin in ["https://evil.example", "null", "file://", "http://localhost.evil.example"] {
        assert_eq!(status(Some(LOOPBACK), Some(origin)).await, 403, "{origin}");
    }
    // A page of the server itself, under the name by which it is reached.
    assert_eq!(status(Some("box.lan:8080"), Some("http://box.lan:8080")).await, 200);
}

#[tokio::test]
async fn a_key_opens_everything_but_health() {
    let fixture =
        Fixture::with(ServerOptions { api_key: Some("secret".into()), ..Default::default() });
    let answer = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::get(path).header("host", LOOPBACK);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        fixture.send(request.body(Body::empty()).unwrap()).await
    };
    for headers in [&[("authorization", "Bearer secret")], &[("x-api-key", "secret")]] {
        assert_eq!(answer("/v1/models", headers).await.status(), StatusCode::OK);
    }
    for wrong in ["Bearer secre", "Bearer secret2", "secret", "Bearer "] {
        let response = answer("/v1/models", &[("authorization", wrong)]).await;
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        let (status, error) = read_json(response).await;
        assert_eq!(
            (status, &error["error"]["code"]),
            (StatusCode::UNAUTHORIZED, &json!("invalid_api_key"))
        );
    }
    assert_eq!(answer("/v1/models", &[]).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer("/v1/nothing", &[]).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer("/health", &[]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn other_machines_need_a_key() {
    let start = |address: &str, key: Option<&str>| {
        let options = ServerOptions { api_key: key.map(str::to_owned), ..Default::default() };
        Server::start(FakeModel::new().0, &options, address.parse().unwrap()).err()
    };
    for address in ["0.0.0.0:80", "192.168.0.1:80", "[::]:80"] {
        assert!(matches!(start(address, None), Some(ServeError::KeyNeeded { .. })));
        assert!(start(address, Some("secret")).is_none());
        assert!(matches!(start(address, Some("")), Some(ServeError::EmptyKey)));
    }
    for address in ["127.0.0.1:80", "[::1]:80"] {
        assert!(start(address, None).is_none());
    }
}

#[tokio::test]
async fn a_full_queue_turns_requests_away() {
    let heartbeat = Duration::from_millis(20);
    let options = ServerOptions { queue_capacity: 1, heartbeat, ..Default::default() };
    let fixture = Fixture::with(options);
    let running = fixture.chat("wait", json!({"stream": true})).await;
    // Its headers come after a while, though it waits in the queue.
    let waiting = fixture.chat("say a", json!({"stream": true})).await;
    for stream in [false, true] {
        let turned_away = fixture.chat("say b", json!({"stream": stream})).await;
        assert_eq!(turned_away.headers()[header::RETRY_AFTER], "5");
        let (status, error) = read_json(turned_away).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    }
    fixture.control.release();
    assert_eq!(text_of(&events_of(&read_text(running).await)), "done");
    assert_eq!(text_of(&events_of(&read_text(waiting).await)), "a");
}

#[tokio::test]
async fn waiting_streams_are_kept_alive() {
    let options = ServerOptions { heartbeat: Duration::from_millis(20), ..Default::default() };
    let fixture = Fixture::with(options);
    // The first is silent in its prompt, the second waits in the queue behind it.
    let running = fixture.chat("silent", json!({"stream": true})).await;
    let queued = fixture.chat("say a", json!({"stream": true})).await;
    assert_eq!((running.status(), queued.status()), (StatusCode::OK, StatusCode::OK));
    let reading = [running, queued].map(|response| tokio::spawn(read_text(response)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    fixture.control.release();
    for (reading, answer) in reading.into_iter().zip(["done", "a"]) {
        let events = events_of(&reading.await.unwrap());
        assert_eq!(chunk(&events[0])["choices"][0]["delta"]["role"], "assistant");
        let beat = chunk(&events[1]);
        assert_eq!(
            (&beat["choices"][0]["delta"], &beat["id"]),
            (&json!({}), &chunk(&events[0])["id"])
        );
        assert!(beat["choices"][0]["finish_reason"].is_null());
        assert_eq!(text_of(&events), answer);
    }
}

#[tokio::test]
async fn a_dropped_response_cancels_running_and_waiting_requests() {
    let options = ServerOptions { heartbeat: Duration::from_millis(20), ..Default::default() };
    let fixture = Fixture::with(options);
    let running = fixture.chat("forever", json!({"stream": true})).await;
    let waiting = fixture.chat("say a", json!({"stream": true})).await;
    assert_eq!((running.status(), waiting.status()), (StatusCode::OK, StatusCode::OK));
    drop((waiting, running));
    // The next request is served, and the one given up in the queue never reached the model.
    assert_eq!(fixture.chat_json("say b", json!({})).await.0, StatusCode::OK);
    assert_eq!(fixture.control.cancelled.load(Ordering::SeqCst), 1);
    assert_eq!(fixture.control.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn closing_the_server_ends_its_answers() {
    let fixture = Fixture::new();
    let running = fixture.chat("wait", json!({"stream": true})).await;
    let queued =
        tokio::spawn(fixture.server.router().oneshot(post(&chat_body("say a", json!({})))));
    tokio::task::yield_now().await;
    drop(fixture.server);
    let events = events_of(&read_text(running).await);
    assert_eq!(chunk(&events[events.len() - 2])["error"]["code"], "shutting_down");
    let response = queued.await.unwrap().unwrap();
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    let (status, _) = read_json(response).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn json_is_bounded_in_depth() {
    let fixture = Fixture::new();
    // Deep enough to overflow the stack of whoever follows it without a bound.
    for depth in [200, 100_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
                let tools = format!("{{\"messages\": [], \"tools\": {deep}}}");
                for body in [&deep, &tools] {
                    let request = Request::post(path)
                        .header("host", LOOPBACK)
                        .header("content-type", "application/json")
                        .body(Body::from(body.clone()))
                        .unwrap();
                    let (status, error) = read_json(fixture.send(request).await).await;
                    assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
                    assert!(error["error"]["message"].is_string(), "{error}");
                }
            }
        }
    }
    assert_eq!(fixture.get("/health").await.0, StatusCode::OK);
}
