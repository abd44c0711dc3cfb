//! One answer of a model, written as it comes.

use indicatif::ProgressBar;
use lithos_engine::{Completion, Engine, Event, Request};

use crate::interrupt::{self, Again};
use crate::output;

/// Whether an answer is written while it is generated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// Each piece as soon as it is certain.
    Pieces,
    /// Not at all: the caller wants the whole.
    Silent,
}

/// Generates an answer. Ctrl-C ends it.
///
/// # Errors
/// What [`Engine::generate`] says, or that standard output cannot be written.
pub fn stream(
    engine: &mut Engine,
    request: &Request,
    streaming: Streaming,
    again: Again,
) -> anyhow::Result<Completion> {
    let _armed = interrupt::arm(&request.cancel, again);
    let mut failure = None;
    let mut progress = PromptProgress::default();
    let completion = engine.generate(request, &mut |event| match event {
        Event::Prefill { done, total } => progress.show(done, total),
        Event::Text(text) => {
            if streaming == Streaming::Pieces && failure.is_none() {
                failure = output::print_model_text(text).err();
            }
            if failure.is_some() {
                // Nobody reads on, so nothing more is computed.
                request.cancel.cancel();
            }
        }
    });
    progress.clear();
    match failure {
        Some(failure) => Err(failure),
        None => Ok(completion?),
    }
}

/// The line that says how fast an answer was, for a terminal.
pub fn speed_line(completion: &Completion) -> String {
    let taken_in = completion.prompt_tokens - completion.reused_tokens;
    let prefill = completion.timings.prefill_tokens_per_second(taken_in);
    let count = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what} token{plural}")
    };
    let mut line = format!("{} at {prefill:.1} tokens/s", count(taken_in, "prompt"));
    line += &format!(", {}", count(completion.tokens.len(), "generated"));
    if completion.tokens.len() > 1 {
        let decode = completion.timings.decode_tokens_per_second(completion.tokens.len());
        line += &format!(" at {decode:.1} tokens/s");
    }
    if let Some(drafts) = completion.speculation.as_ref().filter(|drafts| drafts.accepted > 0) {
        line += &format!(", {:.2} a pass", drafts.tokens_per_round());
    }
    line
}

/// A bar for prompts of several chunks.
#[derive(Default)]
struct PromptProgress(Option<ProgressBar>);

impl PromptProgress {
    fn show(&mut self, done: usize, total: usize) {
        if done == total {
            self.clear();
        } else {
            let bar = self.0.get_or_insert_with(|| output::bar("reading", total, "tokens"));
            bar.set_position(done as u64);
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}
