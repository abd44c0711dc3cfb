//! The thread that owns the model.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use lithos_engine::{Completion, Event, FinishReason, GenerationId, Request};
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

/// A job that the model has taken on.
struct Running {
    job: Job,
    /// Whether its client knows that it has begun.
    started: bool,
}

/// Jobs that the model has taken on.
type RunningJobs = HashMap<GenerationId, Running>;

fn work(
    model: &mut impl TextModel,
    prompts: &dyn Prompts,
    queue: &JobQueue,
    metrics: &Metrics,
    health: &Health,
) {
    let mut running = RunningJobs::new();
    let end = |job: &Job, last: JobEvent| {
        match &last {
            JobEvent::Failed(error) if error.status == 500 => {
                health.failed();
                tracing::error!(error = %error, "the model failed");
            }
            JobEvent::Finished(..) => health.answered(),
            _ => {}
        }
        queue.ended(job);
        // Who has gone does not need to know.
        let _ = job.events.send(last);
    };
    loop {
        let mut next = match running.len() {
            0 => match queue.next() {
                Some(job) => Some(job),
                None => return,
            },
            some if some < model.slots() => queue.next_if_any(),
            _ => None,
        };
        let worked = catch_unwind(AssertUnwindSafe(|| match &next {
            Some(job) => {
                metrics.waited(job.queued.elapsed());
                let admitted = model.admit(request(job));
                let Some(job) = next.take() else { return };
                match admitted {
                    Ok(id) => _ = running.insert(id, Running { job, started: false }),
                    Err(error) => end(&job, JobEvent::Failed(error.into())),
                }
            }
            None => {
                for (id, completion) in model.step(&mut |id, event| tell(&mut running, id, event)) {
                    let Some(Running { job, .. }) = running.remove(&id) else { continue };
                    let last = completion.map_err(ApiError::from).and_then(|completion| {
                        metrics.completed(&completion);
                        if let Some(counts) = model.prefixes() {
                            metrics.prefixes(counts);
                        }
                        last_event(prompts, &job, completion)
                    });
                    end(&job, last.unwrap_or_else(JobEvent::Failed));
                }
            }
        }));
        if worked.is_err() {
            // What the slots hold is unknown: none of their answers can go on.
            model.abandon();
            for job in running.drain().map(|(_, running)| running.job).chain(next) {
                let message = "the model failed unexpectedly; the server's own output says why";
                end(&job, JobEvent::Failed(ApiError::internal(message)));
            }
        }
    }
}

fn request(job: &Job) -> Request {
    Request {
        prompt: job.prompt.clone(),
        sampling: job.sampling.clone(),
        max_tokens: job.max_tokens,
        stop: job.stop.clone(),
        ignore_end: job.ignore_end,
        reuse: true,
        constraint: job.constraint.clone(),
        cancel: job.cancel.clone(),
    }
}

/// Tells a client what has happened, and ends the generation if nobody is there to hear it.
fn tell(running: &mut RunningJobs, id: GenerationId, event: Event<'_>) {
    let Some(Running { job, started }) = running.get_mut(&id) else { return };
    let send = |event| {
        if job.events.send(event).is_err() {
            job.cancel.cancel();
        }
    };
    if !*started {
        *started = true;
        send(JobEvent::Started);
    }
    if let Event::Text(text) = event
        && !text.is_empty()
    {
        send(JobEvent::Text(text.to_owned()));
    }
}

/// The last event of a job that came to this.
fn last_event(
    prompts: &dyn Prompts,
    job: &Job,
    completion: Completion,
) -> Result<JobEvent, ApiError> {
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
