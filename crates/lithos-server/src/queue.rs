//! The queue between connections and the model's thread: bounded, and first in, first out; but the turns of an agent go before what the same
//! agent asks beside them, such as a title for the conversation.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lithos_engine::{Cancel, Constraint, Sampling, Speculation, TokenId};
use lithos_protocol::{ApiError, Ending, TokenCounts};
use tokio::sync::mpsc::UnboundedSender;

/// How often a job can be overtaken, so that no stream of others keeps it waiting.
const MOST_OVERTAKEN: u32 = 4;

/// One request for the model.
pub(crate) struct Job {
    /// Who asks, as far as it can be told.
    pub(crate) client: u64,
    /// Whether it is a turn of an agent: tools are on offer.
    pub(crate) turn: bool,
    /// How many jobs that came later went before it.
    pub(crate) overtaken: u32,
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

/// Jobs that wait, and those that run.
pub(crate) struct JobQueue {
    capacity: usize,
    slots: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    running: Vec<Cancel>,
    closed: bool,
}

impl State {
    /// Takes the next job that somebody still waits for.
    fn take(&mut self) -> Option<Job> {
        loop {
            let place = self.next()?;
            let job = self.waiting.remove(place)?;
            if !job.cancel.is_cancelled() {
                self.running.push(job.cancel.clone());
                return Some(job);
            }
        }
    }

    /// The place of the next job: the first, or a turn of the same client that came later.
    fn next(&mut self) -> Option<usize> {
        let first = self.waiting.front()?;
        if first.turn || first.overtaken == MOST_OVERTAKEN {
            return Some(0);
        }
        let goes_before = |job: &Job| job.turn && job.client == first.client;
        let Some(place) = self.waiting.iter().position(goes_before) else { return Some(0) };
        for overtaken in self.waiting.range_mut(..place) {
            overtaken.overtaken += 1;
        }
        Some(place)
    }
}

impl JobQueue {
    /// A queue in which `capacity` jobs may wait while `slots` run.
    pub(crate) fn new(capacity: usize, slots: usize) -> Self {
        JobQueue { capacity, slots, state: Mutex::default(), changed: Condvar::new() }
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
        let free = self.capacity + self.slots.saturating_sub(state.running.len());
        if state.waiting.len() >= free {
            return Err(full(state.waiting.len()));
        }
        state.waiting.push_back(job);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next job; `None` once the queue is closed.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            match state.take() {
                Some(job) => return Some(job),
                None => {
                    let woken = self.changed.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The next job, if one waits.
    pub(crate) fn next_if_any(&self) -> Option<Job> {
        self.lock().take()
    }

    /// A job that was taken has ended.
    pub(crate) fn ended(&self, job: &Job) {
        self.lock().running.retain(|cancel| !cancel.is(&job.cancel));
    }

    /// Jobs that wait, and jobs that run.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let state = self.lock();
        let waiting = state.waiting.iter().filter(|job| !job.cancel.is_cancelled()).count();
        (waiting, state.running.len())
    }

    /// Jobs that can run side by side.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Ends everything: running jobs are cancelled, waiting ones are turned away, and no more are taken.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.running.iter().for_each(Cancel::cancel);
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
            client: 0,
            turn: false,
            overtaken: 0,
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
        let queue = JobQueue::new(2, 1);
        for name in ["a", "b", "c"] {
            push(&queue, name).unwrap();
        }
        assert_eq!(push(&queue, "d").unwrap_err().status, 429);
        assert_eq!(queue.lengths(), (3, 0));
        let a = queue.next().unwrap();
        assert_eq!(a.prompt, prompt("a"));
        assert_eq!(queue.lengths(), (2, 1));
        // One runs and two wait.
        assert_eq!(push(&queue, "d").unwrap_err().status, 429);
        queue.ended(&a);
        assert_eq!(queue.next().unwrap().prompt, prompt("b"));
        push(&queue, "d").unwrap();
        assert_eq!(queue.next().unwrap().prompt, prompt("c"));
        assert_eq!(queue.next().unwrap().prompt, prompt("d"));
        assert!(queue.next_if_any().is_none());
        assert_eq!(queue.lengths(), (0, 3));
    }

    #[test]
    fn as_many_run_as_there_are_slots() {
        let queue = JobQueue::new(1, 2);
        for name in ["a", "b", "c"] {
            push(&queue, name).unwrap();
        }
        assert_eq!(push(&queue, "d").unwrap_err().status, 429);
        let (a, _b) = (queue.next().unwrap(), queue.next_if_any().unwrap());
        assert_eq!(push(&queue, "d").unwrap_err().status, 429);
        queue.ended(&a);
        push(&queue, "d").unwrap();
        assert_eq!(queue.lengths(), (2, 1));
    }

    #[test]
    fn turns_go_before_what_the_same_client_asks_beside_them() {
        let queue = JobQueue::new(20, 1);
        let push = |name: &str, client, turn| {
            let (job, ..) = job(name);
            queue.push(Job { client, turn, ..job }).unwrap();
        };
        let next = || {
            let job = queue.next().unwrap();
            queue.ended(&job);
            job.prompt
        };
        push("title", 1, false);
        push("other", 2, true);
        push("turn", 1, true);
        assert_eq!([next(), next(), next()], ["turn", "title", "other"].map(prompt));
        // Nobody waits for ever.
        push("title", 1, false);
        for name in ["a", "b", "c", "d", "e"] {
            push(name, 1, true);
        }
        let order = [next(), next(), next(), next(), next(), next()];
        assert_eq!(order, ["a", "b", "c", "d", "title", "e"].map(prompt));
    }

    #[test]
    fn who_goes_away_frees_the_place_and_is_not_run() {
        let queue = JobQueue::new(0, 1);
        let first = push(&queue, "a").unwrap();
        assert!(push(&queue, "b").is_err());
        first.cancel();
        push(&queue, "b").unwrap();
        assert_eq!(queue.next().unwrap().prompt, prompt("b"));
    }

    #[test]
    fn closing_cancels_and_turns_away() {
        let queue = JobQueue::new(4, 1);
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
