//! The queue between connections and the model's thread: first in, first out, bounded.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lithos_engine::{Cancel, Constraint, Sampling, Speculation, TokenId};
use lithos_protocol::{ApiError, Ending, TokenCounts};
use tokio::sync::mpsc::UnboundedSender;

/// One request for the model.
pub(crate) struct Job {
    pub(crate) prompt: Vec<TokenId>,
    /// Whether the prompt ends inside a thought.
    pub(crate) opens_thought: bool,
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_end: bool,
    /// The form that the answer is held to.
    pub(crate) constraint: Option<Constraint>,
    /// When it was put into the queue.
    pub(crate) queued: Instant,
    /// Set when nobody waits for the answer any more.
    pub(crate) cancel: Cancel,
    /// Where the answer goes. It holds at most the text of one context, so it needs no bound of its own, and a slow client does
    /// not hold up the model.
    pub(crate) events: UnboundedSender<JobEvent>,
}

/// What a client learns of its request.
#[derive(Debug)]
pub(crate) enum JobEvent {
    /// The model has begun with the prompt.
    Started,
    /// More of the answer.
    Text(String),
    /// The answer is complete.
    Finished(Ending, TokenCounts, Option<Box<Speculation>>),
    /// There is no answer, or no more of it.
    Failed(ApiError),
}

/// Jobs that wait, and the one that runs.
pub(crate) struct JobQueue {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    running: Option<Cancel>,
    closed: bool,
}

impl JobQueue {
    /// A queue in which `capacity` jobs may wait while one runs.
    pub(crate) fn new(capacity: usize) -> Self {
        JobQueue { capacity, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a job at the end.
    ///
    /// # Errors
    /// 429 if the queue is full, 503 if it is closed.
    pub(crate) fn push(&self, job: Job) -> Result<(), ApiError> {
        let mut state = self.lock();
        if state.closed {
            return Err(shutting_down());
        }
        // Whoever went away while waiting takes no place.
        state.waiting.retain(|job| !job.cancel.is_cancelled());
        let free = if state.running.is_some() { self.capacity } else { self.capacity + 1 };
        if state.waiting.len() >= free {
            return Err(full(state.waiting.len()));
        }
        state.waiting.push_back(job);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next job; `None` once the queue is closed. The job before it counts as done.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        state.running = None;
        loop {
            if state.closed {
                return None;
            }
            match state.waiting.pop_front() {
                Some(job) if job.cancel.is_cancelled() => {}
                Some(job) => {
                    state.running = Some(job.cancel.clone());
                    return Some(job);
                }
                None => {
                    let woken = self.changed.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Jobs that wait, and jobs that run.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let state = self.lock();
        let waiting = state.waiting.iter().filter(|job| !job.cancel.is_cancelled()).count();
        (waiting, usize::from(state.running.is_some()))
    }

    /// Ends everything: the running job is cancelled, waiting ones are turned away, and no more are taken.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(running) = &state.running {
            running.cancel();
        }
        for job in state.waiting.drain(..) {
            // Who has gone does not need to know.
            let _ = job.events.send(JobEvent::Failed(shutting_down()));
        }
        self.changed.notify_all();
    }

    /// Nothing is left half done under the lock, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of requests that meet the end of the server.
pub(crate) fn shutting_down() -> ApiError {
    ApiError::new(503, "server_error", "the server is shutting down").with_code("shutting_down")
}

fn full(waiting: usize) -> ApiError {
    let message = format!("the server is busy: {waiting} requests are waiting; try again later");
    ApiError::new(429, "rate_limit_error", message).with_code("rate_limit_exceeded")
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    fn prompt(name: &str) -> Vec<TokenId> {
        name.bytes().map(|byte| TokenId(byte.into())).collect()
    }

    fn job(name: &str) -> (Job, Cancel, UnboundedReceiver<JobEvent>) {
        let (events, receiver) = unbounded_channel();
        let cancel = Cancel::default();
        let job = Job {
            prompt: prompt(name),
            opens_thought: false,
            sampling: Sampling::greedy(),
            max_tokens: None,
            stop: Vec::new(),
            ignore_end: false,
            constraint: None,
            queued: Instant::now(),
            cancel: cancel.clone(),
            events,
        };
        (job, cancel, receiver)
    }

    fn push(queue: &JobQueue, name: &str) -> Result<Cancel, ApiError> {
        let (job, cancel, _receiver) = job(name);
        queue.push(job).map(|()| cancel)
    }

    #[test]
    fn jobs_come_out_in_order_and_never_more_than_fit() {
        let queue = JobQueue::new(2);
        for name in ["a", "b", "c"] {
            push(&queue, name).unwrap();
        }
        assert_eq!(push(&queue, "d").unwrap_err().status, 429);
        assert_eq!(queue.lengths(), (3, 0));
        assert_eq!(queue.next().unwrap().prompt, prompt("a"));
        assert_eq!(queue.lengths(), (2, 1));
        // One runs and two wait.
        assert_eq!(push(&queue, "d").unwrap_err().status, 429);
        assert_eq!(queue.next().unwrap().prompt, prompt("b"));
        push(&queue, "d").unwrap();
        assert_eq!(queue.next().unwrap().prompt, prompt("c"));
        assert_eq!(queue.next().unwrap().prompt, prompt("d"));
    }

    #[test]
    fn who_goes_away_frees_the_place_and_is_not_run() {
        let queue = JobQueue::new(0);
        let first = push(&queue, "a").unwrap();
        assert!(push(&queue, "b").is_err());
        first.cancel();
        push(&queue, "b").unwrap();
        assert_eq!(queue.next().unwrap().prompt, prompt("b"));
    }

    #[test]
    fn closing_cancels_and_turns_away() {
        let queue = JobQueue::new(4);
        let running = push(&queue, "a").unwrap();
        let _job = queue.next().unwrap();
        let (waiting, _, mut events) = job("b");
        queue.push(waiting).unwrap();
        queue.close();
        assert!(running.is_cancelled());
        assert!(matches!(events.try_recv(), Ok(JobEvent::Failed(error)) if error.status == 503));
        assert!(queue.next().is_none());
        assert_eq!(push(&queue, "c").unwrap_err().status, 503);
    }
}
