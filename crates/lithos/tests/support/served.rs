//! A server as a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

/// A running server; ended when dropped.
pub struct Served {
    pub child: Child,
    pub address: String,
    /// What it wrote to standard error until it was ready.
    pub greeting: String,
    log: Option<JoinHandle<String>>,
}

impl Served {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("-d '") {
            let before = greeting.len();
            stderr.read_line(&mut greeting).unwrap();
            assert!(greeting.len() > before, "it ended: {greeting}");
        }
        // Keeps the pipe empty, so that the server's log is never in its way.
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            stderr.read_to_string(&mut log).unwrap();
            log
        });
        let at = greeting.find("http://").unwrap() + 7;
        let address = greeting[at..].split('/').next().unwrap().to_owned();
        Served { child, address, greeting, log: Some(log) }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Status and body of a request.
    pub fn ask(&self, method: &str, path: &str, body: &str, headers: &str) -> (u16, Value) {
        let (status, body) = self.ask_text(method, path, body, headers);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// The same, with the body as it is.
    pub fn ask_text(&self, method: &str, path: &str, body: &str, headers: &str) -> (u16, String) {
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
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Ends it as Ctrl-C does; returns its exit code and what it wrote to standard error after the greeting.
    pub fn end(mut self) -> (Option<i32>, String) {
        super::interrupt(&self.child);
        let code = self.child.wait().unwrap().code();
        (code, self.log.take().unwrap().join().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
