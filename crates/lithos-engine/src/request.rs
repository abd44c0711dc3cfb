//! What a caller asks for and what it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lithos_model::text::TokenId;
use serde::Serialize;

use crate::sampling::Sampling;
use crate::speculation::Speculation;

/// One generation.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole prompt.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Tokens to generate at most; `None` for all that the context has room for.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation. They are not part of the output.
    pub stop: Vec<String>,
    /// Go on past end-of-text tokens.
    pub ignore_end: bool,
    /// Go on from the longest kept prefix of the prompt, and keep prefixes of it. The answer is the same.
    pub reuse: bool,
    /// Ends the generation at the next round when set.
    pub cancel: Cancel,
}

impl Request {
    /// A request with defaults: greedy, until an end-of-text token.
    pub fn new(prompt: Vec<TokenId>) -> Self {
        Request {
            prompt,
            sampling: Sampling::greedy(),
            max_tokens: None,
            stop: Vec::new(),
            ignore_end: false,
            reuse: false,
            cancel: Cancel::default(),
        }
    }
}

/// A flag that ends a generation from another thread, at the next round.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the generation to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happens during a generation.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'e> {
    /// Prompt tokens taken in so far.
    Prefill {
        /// Taken in.
        done: usize,
        /// In all.
        total: usize,
    },
    /// Text that is certain: no stop text and no unfinished character can still begin in it.
    Text(&'e str),
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end-of-text token or a stop text.
    Stop,
    /// The limit of tokens, or the end of the context.
    Length,
    /// The caller cancelled.
    Cancelled,
}

/// A finished generation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Generated tokens, with the end-of-text token if there was one.
    pub tokens: Vec<TokenId>,
    /// Generated text.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, taken from a kept prefix.
    pub reused_tokens: usize,
    /// How long it took.
    pub timings: Timings,
    /// What became of drafts, where there were any to be.
    pub speculation: Option<Speculation>,
}

/// Durations of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Taking in the prompt, up to the first token.
    pub prefill: Duration,
    /// All rounds after the first token.
    pub decode: Duration,
}

impl Timings {
    /// Prompt tokens per second, of those that were taken in.
    pub fn prefill_tokens_per_second(&self, tokens: usize) -> f64 {
        per_second(tokens, self.prefill)
    }

    /// Tokens per second of the rounds after the first token.
    pub fn decode_tokens_per_second(&self, generated: usize) -> f64 {
        per_second(generated.saturating_sub(1), self.decode)
    }
}

fn per_second(count: usize, duration: Duration) -> f64 {
    if duration.is_zero() { 0.0 } else { count as f64 / duration.as_secs_f64() }
}
