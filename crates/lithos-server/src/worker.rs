//! The thread that owns the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use lithos_engine::{Event, FinishReason as EngineFinish, Request};
use lithos_protocol::ApiError;
use lithos_protocol::chat_completions::{FinishReason, Usage};
use tokio::sync::oneshot;

use crate::model::TextModel;
use crate::queue::{Job, JobEvent, JobQueue, shutting_down};

/// Starts the thread. The receiver gets word (or closes) when it has ended, after the queue was closed.
pub(crate) fn start(
    mut model: impl TextModel,
    queue: Arc<JobQueue>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (ended, on_end) = oneshot::channel();
    thread::Builder::new().name("model".into()).spawn(move || {
        work(&mut model, &queue);
        drop(model);
        // Nobody may be waiting.
        let _ = ended.send(());
    })?;
    Ok(on_end)
}

fn work(model: &mut impl TextModel, queue: &JobQueue) {
    // What a slot holds after a panic is unknown, so the next request starts from nothing.
    let mut reuse = true;
    while let Some(job) = queue.next() {
        let answered = catch_unwind(AssertUnwindSafe(|| answer(model, &job, reuse)));
        reuse = answered.is_ok();
        let last = match answered {
            Ok(Ok(last)) => last,
            Ok(Err(error)) => JobEvent::Failed(error),
            Err(_) => {
                let message = "the model failed unexpectedly; the server's own output says why";
                JobEvent::Failed(ApiError::internal(message))
            }
        };
        if let JobEvent::Failed(error) = &last
            && error.status == 500
        {
            tracing::error!(error = %error, "the model failed");
        }
        // Who has gone does not need to know.
        let _ = job.events.send(last);
    }
}

/// Answers one job; returns its last event.
fn answer(model: &mut impl TextModel, job: &Job, reuse: bool) -> Result<JobEvent, ApiError> {
    let prompt = model.encode_chat(&job.messages, &job.template_variables)?;
    let request = Request {
        prompt,
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
    let usage =
        Usage::new(completion.prompt_tokens, completion.reused_tokens, completion.tokens.len());
    match completion.finish {
        EngineFinish::Stop => Ok(JobEvent::Finished(FinishReason::Stop, usage)),
        EngineFinish::Length => Ok(JobEvent::Finished(FinishReason::Length, usage)),
        // Either the client has gone, and does not see this, or the server is going.
        EngineFinish::Cancelled => Err(shutting_down()),
    }
}

/// Sends an event, and ends the generation if nobody is there to read it.
fn send(job: &Job, event: JobEvent) {
    if job.events.send(event).is_err() {
        job.cancel.cancel();
    }
}
