//! `lithos serve`: from the command line to an answer over HTTP.

#![cfg(unix)]

mod support;

use serde_json::{Value, json};
use support::served::Served;
use support::{command, finish, text_model};

#[test]
fn a_conversation_is_answered() {
    let model = text_model();
    let served =
        Served::start(command().args(["serve", "--port", "0", "--model"]).arg(model.path()));
    assert!(served.greeting.contains("curl http://127.0.0.1:"), "{}", served.greeting);
    assert_eq!(served.ask("GET", "/health", "", "").0, 200);
    let (status, models) = served.ask("GET", "/v1/models", "", "");
    assert_eq!(status, 200);
    let id = models["data"][0]["id"].as_str().unwrap();
    let body = json!({
        "model": id,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    let (status, answer) = served.ask("POST", "/v1/chat/completions", &body.to_string(), "");
    assert_eq!(status, 200, "{answer}");
    let told = answer["choices"][0]["message"]["content"].as_str().unwrap();
    // It is the answer that the command line gives.
    let mut generate = command();
    generate.args(["generate", "--max-tokens", "5", "Hello", "--model"]).arg(model.path());
    assert_eq!(told, finish(&mut generate, b"").ok());
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn what_is_said_and_what_is_secret_stays_out_of_the_log() {
    let model = text_model();
    let mut serve = command();
    serve.args(["serve", "--port", "0", "--log", "json", "--api-key-env", "LITHOS_TEST_KEY"]);
    serve.env("LITHOS_TEST_KEY", "key-of-nobody").env("LITHOS_LOG", "trace");
    let served = Served::start(serve.arg("--model").arg(model.path()));
    let body = json!({
        "max_tokens": 2,
        "messages": [{"role": "user", "content": "words of nobody"}],
        "unknown_field": "value of nobody",
    });
    let header = "x-api-key: key-of-nobody\r\n";
    let path = "/v1/chat/completions?key=query-of-nobody";
    assert_eq!(served.ask("POST", path, &body.to_string(), header).0, 200);
    assert_eq!(
        served.ask("POST", path, &body.to_string(), "x-api-key: wrong-of-nobody\r\n").0,
        401
    );
    assert_eq!(served.ask("POST", path, "{words of nobody", header).0, 400);
    let metrics = served.ask_text("GET", "/metrics", "", header).1;
    let (_, log) = served.end();
    for text in [&log, &metrics] {
        assert!(!text.contains("of nobody") && !text.contains("of-nobody"), "{text}");
    }
    // The greeting ends with an empty line.
    let lines = log.lines().filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect(line));
    let requests: Vec<Value> = lines.filter(|line| line["message"] == "request").collect();
    let statuses: Vec<_> = requests.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 401, 400, 200], "{log}");
    assert_eq!(requests[0]["path"], "/v1/chat/completions");
    assert_eq!(requests[0]["completion_tokens"], 2);
    assert_eq!(requests[0]["ignored"], "\"unknown_field\"");
}

#[test]
fn the_speed_of_memory_is_told_only_if_it_was_measured() {
    let model = text_model();
    for measured in [false, true] {
        let mut serve = command();
        serve.args(["serve", "--port", "0", "--model"]).arg(model.path());
        if measured {
            serve.arg("--measure-stream");
        }
        let served = Served::start(&mut serve);
        assert_eq!(served.greeting.contains("GB/s"), measured, "{}", served.greeting);
        let body = json!({"max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
        assert_eq!(served.ask("POST", "/v1/chat/completions", &body.to_string(), "").0, 200);
        let metrics = served.ask_text("GET", "/metrics", "", "").1;
        assert_eq!(metrics.contains("\nlithos_read_stream_bytes "), measured, "{metrics}");
        // Three passes after the first token, or fewer with drafts.
        let value = |name: &str| -> f64 {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.expect(name).parse().unwrap()
        };
        let passes = value("lithos_decode_read_bytes_total") / value("lithos_pass_read_bytes");
        assert!((1.0..=3.0).contains(&passes), "{metrics}");
        assert!(value("lithos_model_memory_bytes") > 1e6, "{metrics}");
    }
}

#[cfg(feature = "builtin")]
#[test]
fn the_built_in_model_is_served_where_none_is_named() {
    let served = Served::start(command().args(["serve", "--port", "0"]));
    assert!(served.greeting.starts_with("lithos-mini answers: "), "{}", served.greeting);
    let (status, models) = served.ask("GET", "/v1/models", "", "");
    assert_eq!((status, &models["data"][0]["id"]), (200, &"lithos-mini".into()), "{models}");
}

#[test]
fn a_key_is_asked_for() {
    let model = text_model();
    let key = model.path().join("key");
    std::fs::write(&key, "secret\n").unwrap();
    let served = Served::start(
        command()
            .args(["serve", "--port", "0", "--api-key-file"])
            .arg(&key)
            .arg("--model")
            .arg(model.path()),
    );
    assert!(!served.greeting.contains("secret"), "{}", served.greeting);
    assert_eq!(served.ask("GET", "/v1/models", "", "").0, 401);
    let header = "Authorization: Bearer secret\r\n";
    assert_eq!(served.ask("GET", "/v1/models", "", header).0, 200);
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let model = text_model();
    let serve = |flags: &[&str]| {
        let mut serve = command();
        serve.args(["serve", "--model"]).arg(model.path()).args(flags);
        finish(serve.env_remove("LITHOS_ABSENT").env("LITHOS_EMPTY", " "), b"")
    };
    serve(&["--host", "0.0.0.0", "--port", "0"]).refused(&["key"]);
    serve(&["--port", "0", "--api-key-env", "LITHOS_ABSENT"]).refused(&["LITHOS_ABSENT"]);
    serve(&["--port", "0", "--api-key-env", "LITHOS_EMPTY"]).refused(&["LITHOS_EMPTY", "empty"]);
    serve(&["--port", "0", "--api-key-file", "/no/such/key"]).refused(&["/no/such/key"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    serve(&["--port", &port]).refused(&["127.0.0.1", &port]);
}
