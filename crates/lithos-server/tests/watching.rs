//! What a server tells of itself: `/health`, `/metrics`, and the page at `/`.

mod fake;
mod fixture;

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use fake::FakeModel;
use fixture::{Fixture, LOOPBACK, post, read_text};
use lithos_engine::{Speculation, Timings};
use lithos_server::{Resources, Server, ServerOptions};
use serde_json::json;
use tower::ServiceExt;

const FILES: [&str; 6] = [
    "/",
    "/page/style.css",
    "/page/chat.js",
    "/page/panel.js",
    "/page/server.js",
    "/page/icon.svg",
];

async fn get(server: &Server, path: &str) -> Response {
    let request = Request::get(path).header("host", LOOPBACK).body(Body::empty()).unwrap();
    server.router().oneshot(request).await.unwrap()
}

async fn ask(server: &Server, said: &str, stream: bool) -> Response {
    let body = json!({"messages": [{"role": "user", "content": said}], "stream": stream});
    let request = post("/v1/chat/completions", &body);
    server.router().oneshot(request).await.unwrap()
}

/// The value of a line of `/metrics`, by everything before it.
fn value(metrics: &str, line: &str) -> Option<f64> {
    metrics.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
}

async fn metrics(server: &Server) -> String {
    let response = get(server, "/metrics").await;
    assert_eq!(response.status(), StatusCode::OK);
    let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    read_text(response).await
}

async fn state(server: &Server) -> (StatusCode, String) {
    let response = get(server, "/health").await;
    let status = response.status();
    (status, read_text(response).await)
}

/// The fake model on a machine that is known, with times and drafts that are.
fn timed() -> FakeModel {
    let (mut model, _) = FakeModel::new();
    model.resources = Resources { memory: Some(7_000_000), read_per_pass: Some(1_000_000) };
    model.finish = |completion| {
        completion.reused_tokens = 3;
        completion.timings =
            Timings { prefill: Duration::from_millis(500), decode: Duration::from_secs(2) };
        completion.speculation = Some(Speculation {
            source: "copy",
            rounds: 2,
            tokens: completion.tokens.len() as u64 - 1,
            proposed: 5,
            accepted: 2,
            ..Speculation::default()
        });
    };
    model
}

#[tokio::test]
async fn what_an_answer_took_is_counted() {
    let options = ServerOptions { read_stream: Some(9_000_000), ..Default::default() };
    let model = timed();
    let server = Server::start(model, &options, LOOPBACK.parse().unwrap()).unwrap();
    let before = metrics(&server).await;
    assert_eq!(value(&before, "lithos_completion_tokens_total"), Some(0.0));
    assert_eq!(value(&before, "lithos_model_memory_bytes"), Some(7e6));
    assert_eq!(value(&before, "lithos_read_stream_bytes"), Some(9e6));
    for stream in [false, true] {
        // Five tokens; the prompt has one for each character.
        read_text(ask(&server, "say a b c d e", stream).await).await;
    }
    let after = metrics(&server).await;
    for (line, wanted) in [
        ("lithos_requests_total{route=\"/v1/chat/completions\",status=\"200\"}", 2.0),
        ("lithos_requests_total{route=\"/metrics\",status=\"200\"}", 1.0),
        ("lithos_prompt_tokens_total", 26.0),
        ("lithos_cached_tokens_total", 6.0),
        ("lithos_completion_tokens_total", 10.0),
        ("lithos_prefill_seconds_total", 1.0),
        ("lithos_decode_seconds_total", 4.0),
        ("lithos_inter_token_seconds_sum", 1.0),
        ("lithos_inter_token_seconds_count", 2.0),
        ("lithos_time_to_first_token_seconds_count", 2.0),
        ("lithos_queue_wait_seconds_count", 2.0),
        ("lithos_decode_passes_total{source=\"copy\"}", 4.0),
        ("lithos_decode_pass_tokens_total{source=\"copy\"}", 8.0),
        ("lithos_drafts_proposed_total{source=\"copy\"}", 10.0),
        ("lithos_drafts_accepted_total{source=\"copy\"}", 4.0),
        ("lithos_decode_read_bytes_total", 4e6),
        ("lithos_requests_running", 0.0),
        ("lithos_requests_waiting", 0.0),
    ] {
        assert_eq!(value(&after, line), Some(wanted), "{line} in {after}");
    }
    assert!(after.ends_with("# EOF\n"));
    assert!(after.contains("lithos_server_info{model=\"lithos/fake\",version="), "{after}");
}

#[tokio::test]
async fn what_was_not_measured_is_left_out() {
    let fixture = Fixture::new();
    let metrics = metrics(&fixture.server).await;
    for name in ["read_stream", "model_memory", "pass_read"] {
        assert!(!metrics.contains(name), "{metrics}");
    }
}

#[tokio::test]
async fn paths_of_strangers_make_no_new_lines() {
    let fixture = Fixture::new();
    for path in ["/a", "/b", "/v1/models/lithos/fake", "/v1/models/other"] {
        get(&fixture.server, path).await;
    }
    let metrics = metrics(&fixture.server).await;
    assert_eq!(
        value(&metrics, "lithos_requests_total{route=\"other\",status=\"404\"}"),
        Some(2.0),
        "{metrics}"
    );
    for (status, count) in [("200", 1.0), ("404", 1.0)] {
        let line =
            format!("lithos_requests_total{{route=\"/v1/models/{{*id}}\",status=\"{status}\"}}");
        assert_eq!(value(&metrics, &line), Some(count), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_tells_ready_busy_and_failing() {
    let fixture = Fixture::new();
    let server = &fixture.server;
    assert_eq!(
        state(server).await,
        (StatusCode::OK, r#"{"status":"ready","waiting":0,"running":0}"#.into())
    );
    let running = ask(server, "wait", true).await;
    let waiting = ask(server, "say a", true).await;
    assert_eq!(
        state(server).await,
        (StatusCode::OK, r#"{"status":"busy","waiting":1,"running":1}"#.into())
    );
    fixture.control.release();
    read_text(running).await;
    read_text(waiting).await;
    for failures in 1..=3 {
        let failed = ask(server, if failures == 2 { "panic" } else { "fail" }, false).await;
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
        // The thread says so before it takes the next request.
        let wanted = if failures < 3 { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        assert_eq!(state(server).await.0, wanted, "{failures}");
    }
    assert!(state(server).await.1.contains("failing"));
    // What is the request's own fault is none of the model's, and an answer sets all right.
    assert_eq!(ask(server, "refuse", false).await.status(), StatusCode::BAD_REQUEST);
    assert!(state(server).await.1.contains("failing"));
    read_text(ask(server, "say a", false).await).await;
    assert_eq!(state(server).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_page_may_load_nothing_but_itself() {
    let fixture =
        Fixture::with(ServerOptions { api_key: Some("secret".into()), ..Default::default() });
    for path in FILES {
        // Without a key: a browser has none before it has the page.
        let response = get(&fixture.server, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let text = read_text(response).await;
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{path}");
        for unsafe_way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!text.contains(unsafe_way), "{path}: {unsafe_way}");
        }
        // Neither a style nor a script stands in the HTML, since the policy would not let them act.
        assert!(!text.contains(" style=") && !text.contains("<style"), "{path}");
    }
    for path in ["/metrics", "/page/", "/page/other.js", "/v1/models"] {
        assert_eq!(get(&fixture.server, path).await.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
}
