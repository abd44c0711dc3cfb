//! The thread that owns the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use lithos_engine::{Completion, Event, FinishReason, Request};
use lithos_protocol::{ApiError, Ending, ThoughtParser, TokenCounts};
use tokio::sync::oneshot;

use crate::health::Health;
use crate::metrics::Metrics;
use crate::model::{Prompts, TextModel};
use crate::queue::{Job, JobEvent, JobQueue, shutting_down};

/// Starts the thread. The receiver gets word (or closes) when it has ended, after the queue was closed.
pub(crate) fn start(
    mut model: impl TextModel,
    prompts: Arc<dyn Prompts>,
    queue: Arc<JobQueue>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (ended, on_end) = oneshot::channel();
    thread::Builder::new().name("model".into()).spawn(move || {
        work(&mut model, prompts.as_ref(), &queue, &metrics, &health);
        drop(model);
        // Nobody may be waiting.
        let _ = ended.send(());
    })?;
    Ok(on_end)
}

fn work(
    model: &mut impl TextModel,
    prompts: &dyn Prompts,
    queue: &JobQueue,
    metrics: &Metrics,
    health: &Health,
) {
    // What a slot holds after a panic is unknown, so the next request starts from nothing.
    let mut reuse = true;
    while let Some(job) = queue.next() {
        metrics.waited(job.queued.elapsed());
        let answered =
            catch_unwind(AssertUnwindSafe(|| answer(model, prompts, &job, reuse, metrics)));
        reuse = answered.is_ok();
        let last = match answered {
            Ok(Ok(last)) => last,
            Ok(Err(error)) => JobEvent::Failed(error),
            Err(_) => {
                let message = "the model failed unexpectedly; the server's own output says why";
                JobEvent::Failed(ApiError::internal(message))
            }
        };
        match &last {
            JobEvent::Failed(error) if error.status == 500 => {
                health.failed();
                tracing::error!(error = %error, "the model failed");
            }
            JobEvent::Finished(..) => health.answered(),
            _ => {}
        }
        // Who has gone does not need to know.
        let _ = job.events.send(last);
    }
}

/// Answers one job; returns its last event.
fn answer(
    model: &mut impl TextModel,
    prompts: &dyn Prompts,
    job: &Job,
    reuse: bool,
    metrics: &Metrics,
) -> Result<JobEvent, ApiError> {
    let request = Request {
        prompt: job.prompt.clone(),
        sampling: job.sampling.clone(),
        max_tokens: job.max_tokens,
        stop: job.stop.clone(),
        ignore_end: job.ignore_end,
        reuse,
        cancel: job.cancel.clone(),
    };
    let mut started = false;
    let completion = model.generate(&request, &mut |event| {
        if !started {
            started = true;
            send(job, JobEvent::Started);
        }
        if let Event::Text(text) = event
            && !text.is_empty()
        {
            send(job, JobEvent::Text(text.to_owned()));
        }
    })?;
    metrics.completed(&completion);
    if let Some(counts) = model.prefixes() {
        metrics.prefixes(counts);
    }
    let ending = match completion.finish {
        FinishReason::Stop => stop_text(prompts, &job.stop, &completion)
            .map_or(Ending::Model, |stop| Ending::StopText(stop.to_owned())),
        FinishReason::Length => Ending::Limit,
        // Either the client has gone, and does not see this, or the server is going.
        FinishReason::Cancelled => return Err(shutting_down()),
    };
    let counts = TokenCounts {
        prompt: completion.prompt_tokens,
        cached: completion.reused_tokens,
        completion: completion.tokens.len(),
        thought: thought_tokens(prompts, job.opens_thought, &completion),
    };
    Ok(JobEvent::Finished(ending, counts, completion.speculation.map(Box::new)))
}

/// How many tokens of an answer are thought: those whose text reaches to its end.
fn thought_tokens(prompts: &dyn Prompts, opens_thought: bool, completion: &Completion) -> usize {
    let mut thoughts = ThoughtParser::new(opens_thought);
    thoughts.push(&completion.text);
    thoughts.finish();
    let bytes = thoughts.thought_bytes();
    if bytes == 0 {
        return 0;
    }
    // The text of a beginning grows with its tokens.
    let tokens = &completion.tokens;
    let (mut low, mut high) = (0, tokens.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if prompts.text(&tokens[..middle]).len() < bytes {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The stop text that ended an answer: the tokens have it, the text ends before it. `None` if the model ended it.
fn stop_text<'s>(
    prompts: &dyn Prompts,
    stops: &'s [String],
    completion: &Completion,
) -> Option<&'s str> {
    if stops.is_empty() {
        return None;
    }
    let text = prompts.text(&completion.tokens);
    let rest = text.strip_prefix(&completion.text)?;
    let found = stops.iter().map(String::as_str).filter(|stop| rest.starts_with(stop));
    // Of two that begin at one place the shorter is complete first.
    found.min_by_key(|stop| stop.len())
}

/// Sends an event, and ends the generation if nobody is there to read it.
fn send(job: &Job, event: JobEvent) {
    if job.events.send(event).is_err() {
        job.cancel.cancel();
    }
}
