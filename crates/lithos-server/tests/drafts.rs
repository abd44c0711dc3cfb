//! What became of drafts is in the usage of every dialect, in one piece and as a stream.

mod fake;
#[allow(dead_code, reason = "its servers have the fake model as it is")]
mod fixture;

use axum::response::Response;
use fake::FakeModel;
use fixture::{LOOPBACK, post, read_json, read_text};
use lithos_engine::{Completion, Event, Request, Sampling, Speculation};
use lithos_server::{ModelError, ModelInfo, Prompts, Server, ServerOptions, TextModel};
use serde_json::{Value, json};
use tower::ServiceExt;

/// The fake model with a drafter.
struct Drafted(FakeModel);

impl TextModel for Drafted {
    fn info(&self) -> ModelInfo {
        self.0.info()
    }

    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError> {
        self.0.prompts()
    }

    fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Completion, ModelError> {
        let mut completion = self.0.generate(request, on_event)?;
        completion.speculation = Some(Speculation {
            source: "mtp",
            rounds: 4,
            tokens: 10,
            proposed: 9,
            accepted: 6,
            accepted_by_position: vec![4, 2],
            verify_len_hist: vec![0, 1, 1, 2],
            ..Speculation::default()
        });
        Ok(completion)
    }

    fn default_sampling(&self) -> Sampling {
        self.0.default_sampling()
    }
}

async fn ask(path: &str, stream: bool, drafted: bool) -> Response {
    let (model, _) = FakeModel::new();
    let (options, address) = (ServerOptions::default(), LOOPBACK.parse().unwrap());
    let server = match drafted {
        true => Server::start(Drafted(model), &options, address).unwrap(),
        false => Server::start(model, &options, address).unwrap(),
    };
    let mut body = match path {
        "/v1/responses" => json!({"input": "say so"}),
        _ => json!({"messages": [{"role": "user", "content": "say so"}], "max_tokens": 9}),
    };
    body["model"] = json!("lithos/fake");
    body["stream"] = json!(stream);
    if stream && path == "/v1/chat/completions" {
        body["stream_options"] = json!({"include_usage": true});
    }
    server.router().oneshot(post(path, &body)).await.unwrap()
}

/// The usages in the events of a stream that have one.
fn usages(wire: &str) -> Vec<Value> {
    let data = wire.lines().filter_map(|line| line.strip_prefix("data: "));
    let values = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let usage = |value: Value| {
        let holders = [&value["usage"], &value["response"]["usage"], &value["message"]["usage"]];
        holders.into_iter().find(|usage| usage.is_object()).cloned()
    };
    values.filter_map(usage).collect()
}

#[tokio::test]
async fn usage_says_what_became_of_drafts() {
    let wanted = json!({
        "source": "mtp",
        "rounds": 4,
        "tokens_per_round": 2.5,
        "proposed": 9,
        "accepted": 6,
        "accepted_by_position": [4, 2],
        "verify_len_hist": [0, 1, 1, 2],
    });
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses"] {
        let (_, answer) = read_json(ask(path, false, true).await).await;
        assert_eq!(answer["usage"]["speculation"], wanted, "{path}: {answer}");
        let wire = read_text(ask(path, true, true).await).await;
        let last = usages(&wire).pop().expect("the stream ends with a usage");
        assert_eq!(last["speculation"], wanted, "{path}: {wire}");
        // Without drafts there is nothing to say.
        let (_, answer) = read_json(ask(path, false, false).await).await;
        assert!(answer["usage"].is_object() && answer["usage"]["speculation"].is_null(), "{path}");
        assert!(!read_text(ask(path, true, false).await).await.contains("speculation"), "{path}");
    }
}
