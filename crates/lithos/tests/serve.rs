//! `lithos serve`: from the command line to an answer over HTTP.

#![cfg(unix)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::{command, finish, text_model};

/// A running server; ended when dropped.
struct Served {
    child: Child,
    address: String,
    greeting: String,
}

impl Served {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("-d '") {
            let before = greeting.len();
            stderr.read_line(&mut greeting).unwrap();
            assert!(greeting.len() > before, "it ended: {greeting}");
        }
        // Keeps the pipe empty, so that the server's log is never in its way.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let at = greeting.find("http://").unwrap() + 7;
        let address = greeting[at..].split('/').next().unwrap().to_owned();
        Served { child, address, greeting }
    }

    /// Status and body of a request.
    fn ask(&self, method: &str, path: &str, body: &str, headers: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_conversation_is_answered() {
    let model = text_model();
    let mut served =
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
    support::interrupt(&served.child);
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
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
