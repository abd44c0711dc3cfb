//! What an engine did when, for those who want to see it.

use std::time::{Duration, Instant};

use crate::engine::Engine;

/// A part of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What was done: `prefill`, `draft`, `verify`, `accept`, `pass`, `choose`, or `device` for rounds that a device runs by itself.
    pub name: &'static str,
    /// When it began.
    pub start: Instant,
    /// How long it took.
    pub took: Duration,
    /// Tokens that it took in, proposed, or chose.
    pub tokens: usize,
}

/// Spans, where they are asked for.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<Vec<Span>>);

impl Trace {
    /// From then until now.
    pub(crate) fn since(&mut self, name: &'static str, start: Instant, tokens: usize) {
        self.add(Span { name, start, took: start.elapsed(), tokens });
    }

    pub(crate) fn add(&mut self, span: Span) {
        if let Some(spans) = &mut self.0 {
            spans.push(span);
        }
    }
}

impl Engine {
    /// Begins to note what later generations do, or ends it.
    pub fn set_trace(&mut self, on: bool) {
        self.trace = Trace(on.then(Vec::new));
    }

    /// What was noted since the last time, in order.
    pub fn take_trace(&mut self) -> Vec<Span> {
        self.trace.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
