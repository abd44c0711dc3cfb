//! What only a socket shows: streaming as it happens, clients that leave, the end of a server.

mod fake;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::{Control, FakeModel};
use lithos_server::{ServeError, ServerOptions, serve, serve_while_loading};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
    control: Arc<Control>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

async fn run(options: ServerOptions) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (model, control) = FakeModel::new();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    let serving = tokio::spawn(serve(listener, model, options, shutdown));
    Running { address, control, stop, serving }
}

impl Running {
    async fn ask(&self, message: &str, stream: bool) -> Client {
        let messages = serde_json::json!([{"role": "user", "content": message}]);
        let body = serde_json::json!({"messages": messages, "stream": stream});
        self.post("/v1/chat/completions", &body).await
    }

    async fn post(&self, path: &str, body: &serde_json::Value) -> Client {
        let body = body.to_string();
        let socket = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        write_all(&socket, head.as_bytes()).await;
        write_all(&socket, body.as_bytes()).await;
        Client { socket, received: String::new() }
    }

    async fn reaches(&self, count: impl Fn(&Control) -> &AtomicUsize, wanted: usize) {
        let wait = async {
            while count(&self.control).load(Ordering::SeqCst) < wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, wait).await.unwrap();
    }
}

struct Client {
    socket: TcpStream,
    received: String,
}

impl Client {
    /// Reads until a text has come.
    async fn read_until(&mut self, wanted: &str) {
        while !self.received.contains(wanted) {
            let open = timeout(LONG, self.read()).await.unwrap();
            assert!(open, "{wanted:?} did not come, but: {}", self.received);
        }
    }

    /// Reads until the server closes.
    async fn read_to_end(&mut self) {
        let read = async { while self.read().await {} };
        timeout(LONG, read).await.unwrap();
    }

    /// Reads what has come; returns whether more may come.
    async fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            self.socket.readable().await.unwrap();
            match self.socket.try_read(&mut buffer) {
                Ok(count) => {
                    self.received.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
                    return count > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn write_all(socket: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        socket.writable().await.unwrap();
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_arrives_while_the_model_goes_on() {
    let server = run(ServerOptions::default()).await;
    let mut client = server.ask("forever", true).await;
    client.read_until("\"content\":\"x \"").await;
    assert!(client.received.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(!client.received.contains("[DONE]"));
    assert_eq!(server.control.cancelled.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_come_before_the_prompt_is_taken_in() {
    let server = run(ServerOptions::default()).await;
    let mut client = server.ask("silent", true).await;
    client.read_until("\"role\":\"assistant\"").await;
    server.control.release();
    client.read_until("[DONE]").await;
    assert!(client.received.contains("\"content\":\"done\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_ends_its_request() {
    let server = run(ServerOptions::default()).await;
    let mut ended = 0;
    // While text flows, while the prompt is taken in, and where no stream was asked for.
    for (message, stream) in
        [("forever", true), ("silent", true), ("wait", false), ("forever", false)]
    {
        let mut client = server.ask(message, stream).await;
        if message == "forever" && stream {
            client.read_until("\"content\":\"x \"").await;
        }
        server.reaches(|control| &control.begun, ended + 1).await;
        drop(client);
        ended += 1;
        server.reaches(|control| &control.cancelled, ended).await;
    }
    let mut client = server.ask("say a", false).await;
    client.read_until("\"content\":\"a\"").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dialect_begins_at_once_and_ends_with_its_client() {
    let server = run(ServerOptions::default()).await;
    let ask = async |path: &str, said: &str| {
        let body = match path {
            "/v1/responses" => serde_json::json!({"input": said, "stream": true}),
            _ => serde_json::json!({
                "messages": [{"role": "user", "content": said}],
                "stream": true,
            }),
        };
        server.post(path, &body).await
    };
    let dialects = [
        ("/v1/messages?beta=true", "event: message_start\n", "event: content_block_delta\n"),
        ("/v1/responses", "event: response.created\n", "event: response.output_text.delta\n"),
    ];
    for (ended, (path, first, text)) in dialects.into_iter().enumerate() {
        // In its prompt, without a sign of life: the head of the stream is there all the same.
        let mut client = ask(path, "silent").await;
        client.read_until(first).await;
        assert!(client.received.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(client.received.contains("content-type: text/event-stream\r\n"));
        drop(client);
        server.reaches(|control| &control.cancelled, 2 * ended + 1).await;
        // While text flows.
        let mut client = ask(path, "forever").await;
        client.read_until(text).await;
        drop(client);
        server.reaches(|control| &control.cancelled, 2 * ended + 2).await;
    }
    for (path, last) in [
        ("/v1/messages", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        ("/v1/responses", "event: response.completed\n"),
    ] {
        let mut client = ask(path, "say a").await;
        client.read_until(last).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_the_queue_frees_its_place() {
    let server = run(ServerOptions { queue_capacity: 1, ..Default::default() }).await;
    let mut running = server.ask("wait", true).await;
    running.read_until("assistant").await;
    let mut waiting = server.ask("say a", true).await;
    // Queued streams get their headers too.
    waiting.read_until("assistant").await;
    let mut third = server.ask("say b", false).await;
    third.read_until("rate_limit_exceeded").await;
    assert!(third.received.starts_with("HTTP/1.1 429 "));
    assert!(third.received.contains("retry-after: 5\r\n"));
    drop(waiting);
    // The server notices in its own time.
    let mut fourth = loop {
        let mut fourth = server.ask("say c", true).await;
        fourth.read_until("\r\n\r\n").await;
        if fourth.received.starts_with("HTTP/1.1 200 ") {
            break fourth;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    server.control.release();
    fourth.read_until("[DONE]").await;
    assert!(fourth.received.contains("\"content\":\"c\""));
    // Of the five requests two reached the model.
    assert_eq!(server.control.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_server_ends_answers_and_connections() {
    let server = run(ServerOptions::default()).await;
    let mut streaming = server.ask("forever", true).await;
    streaming.read_until("\"content\":\"x \"").await;
    let mut waiting = server.ask("say a", true).await;
    waiting.read_until("assistant").await;
    // A connection that is open without a request.
    let mut idle = Client {
        socket: TcpStream::connect(server.address).await.unwrap(),
        received: String::new(),
    };
    server.stop.send(()).unwrap();
    streaming.read_to_end().await;
    waiting.read_to_end().await;
    idle.read_to_end().await;
    assert!(streaming.received.contains("shutting_down") && streaming.received.contains("[DONE]"));
    assert!(waiting.received.contains("shutting_down"));
    timeout(LONG, server.serving).await.unwrap().unwrap().unwrap();
    assert_eq!(server.control.cancelled.load(Ordering::SeqCst), 1);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn other_machines_need_a_key() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = serve(listener, FakeModel::new().0, ServerOptions::default(), async {}).await;
    let message = served.unwrap_err().to_string();
    assert!(message.contains("set an API key"), "{message}");
}

/// A connection on which nothing has been said.
async fn connect(server: &Running) -> Client {
    let socket = TcpStream::connect(server.address).await.unwrap();
    Client { socket, received: String::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_closed_and_running_answers_are_not() {
    let idle = Duration::from_millis(300);
    let server = run(ServerOptions { idle, ..Default::default() }).await;
    // Nothing said, half a head, and a head that comes a byte at a time.
    let mut silent = connect(&server).await;
    let mut half = connect(&server).await;
    write_all(&half.socket, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n").await;
    let drip = connect(&server).await;
    let mut answered = connect(&server).await;
    let mut streaming = server.ask("wait", true).await;
    write_all(&answered.socket, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    answered.read_until("running").await;
    let dripping = async {
        while drip.socket.try_write(b"G").is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, dripping).await.unwrap();
    silent.read_to_end().await;
    half.read_to_end().await;
    assert!(!half.received.contains("200 OK"), "{}", half.received);
    // Between two requests it is idle, too.
    answered.read_to_end().await;
    // An answer may take as long as it takes.
    tokio::time::sleep(2 * idle).await;
    server.control.release();
    streaming.read_until("[DONE]").await;
    assert!(streaming.received.contains("\"content\":\"done\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_closed() {
    let idle = Duration::from_millis(300);
    let server = run(ServerOptions { idle, ..Default::default() }).await;
    let client = connect(&server).await;
    // More answers than the buffers of both sides hold: 30 MB.
    let request = format!("GET /page/style.css HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    let requests = request.repeat(6000);
    let asking = async {
        let mut rest = requests.as_bytes();
        while !rest.is_empty() {
            client.socket.writable().await.unwrap();
            match client.socket.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
        }
        false
    };
    // The server reads no more while it cannot write, so that even asking comes to a halt; then it closes.
    let closed = timeout(LONG, asking).await.unwrap();
    let taken = async {
        let (mut taken, mut buffer) = (0, vec![0; 1 << 16]);
        loop {
            client.socket.readable().await.unwrap();
            match client.socket.try_read(&mut buffer) {
                Ok(0) => return taken,
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return taken,
            }
        }
    };
    if !closed {
        // All requests went into buffers: the server gave up before it had answered them.
        tokio::time::sleep(4 * idle).await;
        assert!(timeout(LONG, taken).await.unwrap() < 6000 * 5000);
    }
    assert!(server.stop.send(()).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_are_bounded() {
    let server = run(ServerOptions::default()).await;
    let mut client = connect(&server).await;
    let head =
        format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    // The server may close before all of it is written.
    let _ = timeout(LONG, async {
        for piece in head.as_bytes().chunks(8192) {
            if client.socket.writable().await.is_err() || client.socket.try_write(piece).is_err() {
                break;
            }
        }
    })
    .await;
    client.read_until("HTTP/1.1 431 ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_model_is_opened_clients_learn_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = ServerOptions { api_key: Some("secret".into()), ..Default::default() };
    let (opened, on_opened) = oneshot::channel::<()>();
    let loading = tokio::spawn(async move {
        let opened = async {
            let _ = on_opened.await;
        };
        serve_while_loading(&listener, &options, opened).await.map(|()| (listener, options))
    });
    let ask = async |path: &str, key: &str| {
        let mut client =
            Client { socket: TcpStream::connect(address).await.unwrap(), received: String::new() };
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {key}\r\n\r\n");
        write_all(&client.socket, head.as_bytes()).await;
        client.read_to_end().await;
        client.received
    };
    let health = ask("/health", "").await;
    assert!(health.starts_with("HTTP/1.1 503 ") && health.contains("\"loading\""), "{health}");
    assert!(ask("/", "").await.starts_with("HTTP/1.1 200 OK"));
    assert!(ask("/v1/models", "").await.starts_with("HTTP/1.1 401 "));
    let models = ask("/v1/models", "secret").await;
    assert!(models.starts_with("HTTP/1.1 503 ") && models.contains("retry-after: 5"), "{models}");
    // Who is there in the middle of it does not hold it up.
    let _idle = TcpStream::connect(address).await.unwrap();
    opened.send(()).unwrap();
    let (listener, options) = timeout(LONG, loading).await.unwrap().unwrap().unwrap();
    // The same socket goes on with the model.
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, FakeModel::new().0, options, async {
        let _ = stopped.await;
    }));
    let mut client =
        Client { socket: TcpStream::connect(address).await.unwrap(), received: String::new() };
    write_all(&client.socket, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    client.read_until("\"ready\"").await;
    stop.send(()).unwrap();
    timeout(LONG, serving).await.unwrap().unwrap().unwrap();
}
