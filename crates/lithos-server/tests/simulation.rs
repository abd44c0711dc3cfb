//! Random clients at a server whose model answers several requests side by side: they arrive, stream, go away, send what is no request,
//! and try again. Whatever they do, answers are right, nothing stays behind, and the next request is answered.
//!
//! A seed decides what clients do; how their steps fall between those of the model's thread, the system does.
//! `LITHOS_SIMULATION_SEEDS=5000` runs more seeds, and `LITHOS_SIMULATION_FIRST=123` begins at one that failed.

#[allow(dead_code, reason = "not all of it is asked for here")]
mod client;
#[allow(dead_code, reason = "its scripts are for single requests")]
mod fake;
#[allow(dead_code, reason = "its servers have the fake model")]
mod fixture;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use client::{CHAT, DIALECTS, Seen, body, user};
use fixture::{LOOPBACK, post, read_json, read_text};
use futures_core::Stream;
use lithos_engine::{
    Completion, Event, FinishReason, GenerationId, Request as EngineRequest, Sampling, Timings,
    TokenId,
};
use lithos_protocol::Conversation;
use lithos_server::{Ended, ModelError, ModelInfo, Prompts, Server, ServerOptions, TextModel};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt;

const SLOTS: usize = 3;

/// Seeds of a usual run.
const SEEDS: u64 = 2_000;

/// Counts from one to the number that the last message has, a number a step; `panic` there panics in the middle of a step.
struct Counting {
    live: BTreeMap<GenerationId, (EngineRequest, Vec<TokenId>)>,
    admitted: u64,
    /// Requests that hold a slot, for the test to see.
    held: Arc<AtomicUsize>,
}

const PANIC: TokenId = TokenId(0);

fn number(token: TokenId) -> String {
    format!("{} ", token.0)
}

/// What is answered to a message that says `count`.
fn counted(count: u32) -> String {
    (1..=count).map(|next| number(TokenId(next))).collect()
}

impl TextModel for Counting {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: "lithos/fake".into(), context: 1000, created: Some(1_700_000_000) }
    }

    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError> {
        Ok(Box::new(Numbers))
    }

    fn slots(&self) -> usize {
        SLOTS
    }

    fn admit(&mut self, request: EngineRequest) -> Result<GenerationId, ModelError> {
        assert!(self.live.len() < SLOTS, "the server knows how many slots there are");
        self.admitted += 1;
        let id = GenerationId(self.admitted);
        self.live.insert(id, (request, Vec::new()));
        self.held.store(self.live.len(), Ordering::SeqCst);
        Ok(id)
    }

    fn step(&mut self, on_event: &mut dyn FnMut(GenerationId, Event<'_>)) -> Vec<Ended> {
        let mut ended = Vec::new();
        for (id, (request, tokens)) in &mut self.live {
            let last = *request.prompt.last().unwrap();
            let next = TokenId(tokens.len() as u32 + 1);
            let finish = if request.cancel.is_cancelled() {
                Some(FinishReason::Cancelled)
            } else if Some(tokens.len()) == request.max_tokens {
                Some(FinishReason::Length)
            } else if next > last && last != PANIC {
                Some(FinishReason::Stop)
            } else {
                None
            };
            if let Some(finish) = finish {
                ended.push((*id, finish));
                continue;
            }
            assert!(last != PANIC, "the model panics, as it was told to");
            tokens.push(next);
            on_event(*id, Event::Text(&number(next)));
        }
        let finished = ended.into_iter().map(|(id, finish)| {
            let (request, tokens) = self.live.remove(&id).unwrap();
            let completion = Completion {
                text: tokens.iter().copied().map(number).collect(),
                tokens,
                finish,
                prompt_tokens: request.prompt.len(),
                reused_tokens: 0,
                timings: Timings::default(),
                speculation: None,
            };
            (id, Ok(completion))
        });
        let finished = finished.collect();
        self.held.store(self.live.len(), Ordering::SeqCst);
        finished
    }

    fn abandon(&mut self) {
        self.live.clear();
        self.held.store(0, Ordering::SeqCst);
    }

    fn default_sampling(&self) -> Sampling {
        Sampling::greedy()
    }
}

struct Numbers;

impl Prompts for Numbers {
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError> {
        let text = conversation.messages.as_array().and_then(|m| m.last()?["content"].as_str());
        match text {
            Some("panic") => Ok(vec![PANIC]),
            Some(text) => Ok(vec![TokenId(text.parse().unwrap())]),
            None => Err(ModelError::Refused("there is no message".into())),
        }
    }

    fn opens_thought(&self, _prompt: &[TokenId]) -> bool {
        false
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        tokens.iter().copied().map(number).collect()
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Waits for the whole answer.
    Whole,
    /// Reads a stream to its end.
    Stream,
    /// Reads so many pieces of a stream and goes away.
    Leave(usize),
    /// Goes away before there is a status.
    Vanish,
    /// Sends what is no request.
    Malformed,
    /// Makes the model panic.
    Panic,
}

async fn ask(server: &Server, path: &str, content: &str, fields: Value) -> Response {
    // The queue is short: clients that are turned away try again.
    for _ in 0..100_000 {
        let request = post(path, &body(path, user(content), fields.clone()));
        let response = server.router().oneshot(request).await.unwrap();
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            return response;
        }
        assert!(response.headers().contains_key("retry-after"));
        tokio::task::yield_now().await;
    }
    panic!("the queue never has room");
}

/// A client with a random manner. Answers that a panic may have ended are not looked at.
async fn client(server: &Server, seed: u64, panics: bool) {
    let mut random = StdRng::seed_from_u64(seed);
    let path = DIALECTS[random.random_range(0..DIALECTS.len())];
    let count = random.random_range(1..30u32);
    let manner = match random.random_range(0..10) {
        0..3 => Manner::Whole,
        3..6 => Manner::Stream,
        6..8 => Manner::Leave(random.random_range(0..5)),
        8 => Manner::Vanish,
        _ if panics => Manner::Panic,
        _ => Manner::Malformed,
    };
    for _ in 0..random.random_range(0..20) {
        tokio::task::yield_now().await;
    }
    let streamed = json!({"stream": true});
    match manner {
        Manner::Whole => {
            let (status, answer) =
                read_json(ask(server, path, &count.to_string(), json!({})).await).await;
            if !panics {
                assert_eq!(status, StatusCode::OK, "{manner:?} {path}: {answer}");
                assert_eq!(Seen::of_answer(path, &answer).text, counted(count));
            }
        }
        Manner::Stream => {
            let response = ask(server, path, &count.to_string(), streamed).await;
            let status = response.status();
            let wire = read_text(response).await;
            if !panics {
                assert_eq!(status, StatusCode::OK, "{manner:?} {path}: {wire}");
                assert_eq!(Seen::of_stream(path, &wire).text, counted(count));
            }
        }
        Manner::Leave(pieces) => {
            let response = ask(server, path, &count.to_string(), streamed).await;
            let mut stream = response.into_body().into_data_stream();
            for _ in 0..pieces {
                if poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await.is_none() {
                    break;
                }
            }
        }
        Manner::Vanish => {
            let content = count.to_string();
            let asking = ask(server, path, &content, json!({}));
            let _ = tokio::time::timeout(Duration::from_micros(count.into()), asking).await;
        }
        Manner::Malformed => {
            let broken = ["{", "[]", "{\"messages\": 5}", "nonsense", "{\"stream\": \"x\"}"];
            let text = broken[random.random_range(0..broken.len())];
            let request = Request::post(path)
                .header("host", LOOPBACK)
                .header("content-type", "application/json")
                .body(Body::from(text))
                .unwrap();
            let status = server.router().oneshot(request).await.unwrap().status();
            assert!(status.is_client_error(), "{path} {text}: {status}");
        }
        Manner::Panic => drop(read_text(ask(server, path, "panic", json!({})).await).await),
    }
}

async fn simulate(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let held = Arc::new(AtomicUsize::new(0));
    let model = Counting { live: BTreeMap::new(), admitted: 0, held: held.clone() };
    let options = ServerOptions { queue_capacity: random.random_range(0..4), ..Default::default() };
    let server = Server::start(model, &options, LOOPBACK.parse().unwrap()).unwrap();
    let panics = seed % 10 == 9;
    let server = Arc::new(server);
    let mut clients = JoinSet::new();
    for number in 0..random.random_range(1..9u64) {
        let server = server.clone();
        clients.spawn(async move { client(&server, seed * 100 + number, panics).await });
    }
    clients.join_all().await;
    // Those who left may still hold a slot for a step.
    for waited in 0.. {
        let request = Request::get("/health").header("host", LOOPBACK).body(Body::empty()).unwrap();
        let (_, state) = read_json(server.router().oneshot(request).await.unwrap()).await;
        if state["waiting"] == 0 && state["running"] == 0 {
            break;
        }
        assert!(waited < 5_000, "still there: {state}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(held.load(Ordering::SeqCst), 0, "no slot is held");
    let (status, answer) = read_json(ask(&server, CHAT, "5", json!({})).await).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(Seen::of_answer(CHAT, &answer).text, counted(5));
}

#[test]
fn whatever_clients_do_nothing_stays_behind() {
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let first = given("LITHOS_SIMULATION_FIRST").unwrap_or(0);
    let seeds = given("LITHOS_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Panics that are told to happen need no report.
    std::panic::set_hook(Box::new(|info| {
        if info.payload_as_str().is_none_or(|text| !text.contains("as it was told to")) {
            eprintln!("{info}");
        }
    }));
    for seed in first..first + seeds {
        let simulated = std::panic::AssertUnwindSafe(|| runtime.block_on(simulate(seed)));
        if let Err(failed) = std::panic::catch_unwind(simulated) {
            eprintln!("seed {seed} failed: LITHOS_SIMULATION_FIRST={seed} runs it first");
            std::panic::resume_unwind(failed);
        }
    }
}
