//! Worker threads that live as long as the backend, and the joins between them.
//!
//! A launch gives every worker the same job; inside it they join as often as it needs without returning to the host. The
//! calling thread is worker 0. Every wait is bounded: a join that does not complete in time ends the launch with an error
//! instead of hanging, and a worker that panics releases the others.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use thiserror::Error;

/// How long a join may take before the launch is given up. Far above the longest phase of the largest model.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Spins before a waiting thread offers its core to others.
const SPINS_BEFORE_YIELD: u32 = 4096;

/// How long a worker without a job stays awake. Longer than the host takes between two passes.
const AWAKE_WITHOUT_JOB: Duration = Duration::from_micros(500);

/// Why a launch did not complete.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LaunchError {
    /// A join did not complete in time.
    #[error("workers did not join within {} s", JOIN_TIMEOUT.as_secs())]
    Timeout,
    /// A task panicked.
    #[error("a task failed: {0}")]
    Panic(String),
}

/// Marker that a worker leaves its job early because the launch has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchFailed;

type Job<'j> = dyn Fn(usize) -> Result<(), LaunchFailed> + Sync + 'j;

/// A set of persistent workers.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What a job uses to join with the other workers of its launch.
pub struct Joiner<'w> {
    shared: &'w Shared,
    /// Joins that this worker has completed.
    joins: Cell<usize>,
}

struct Shared {
    count: usize,
    /// Number of the current launch; odd never, zero at the start.
    launch: AtomicU64,
    job: JobCell,
    /// Workers that have left the current launch.
    finished: AtomicUsize,
    /// Arrivals at joins since the launch began.
    arrived: OwnLine<AtomicUsize>,
    failed: AtomicBool,
    timed_out: AtomicBool,
    stop: AtomicBool,
    parked: Vec<AtomicBool>,
}

/// A value on a line of the cache of its own: what others write does not take it away from who reads it.
#[repr(align(128))]
struct OwnLine<T>(T);

/// The job of the current launch.
struct JobCell(std::cell::UnsafeCell<Option<*const Job<'static>>>);

// SAFETY: the cell is written by the host only while no launch runs, and read by workers after they have seen the launch's
// number, which the host publishes with release ordering after writing.
unsafe impl Sync for JobCell {}
// SAFETY: as above; the pointer is only used during the launch, while the job is borrowed by the host.
unsafe impl Send for JobCell {}

impl Workers {
    /// `count` workers, of which the calling thread is one.
    ///
    /// # Panics
    /// If the operating system cannot start a thread.
    pub fn new(count: usize) -> Self {
        let count = count.max(1);
        let shared = Arc::new(Shared {
            count,
            launch: AtomicU64::new(0),
            job: JobCell(std::cell::UnsafeCell::new(None)),
            finished: AtomicUsize::new(0),
            arrived: OwnLine(AtomicUsize::new(0)),
            failed: AtomicBool::new(false),
            timed_out: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: (0..count).map(|_| AtomicBool::new(false)).collect(),
        });
        let threads = (1..count)
            .map(|worker| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("lithos-worker-{worker}"))
                    .spawn(move || shared.serve(worker))
                    .expect("the operating system starts a thread")
            })
            .collect();
        Workers { shared, threads }
    }

    /// How many workers there are.
    pub fn count(&self) -> usize {
        self.shared.count
    }

    /// Runs `job` on every worker with its index, and returns when all have returned.
    ///
    /// # Errors
    /// [`LaunchError`] if a join timed out or a task panicked. The workers remain usable.
    pub fn launch(
        &mut self,
        job: impl Fn(usize, &Joiner<'_>) -> Result<(), LaunchFailed> + Sync,
    ) -> Result<(), LaunchError> {
        let shared = &*self.shared;
        let body = |worker: usize| job(worker, &Joiner { shared, joins: Cell::new(0) });
        let job: &Job<'_> = &body;
        shared.failed.store(false, Ordering::Relaxed);
        shared.timed_out.store(false, Ordering::Relaxed);
        shared.arrived.0.store(0, Ordering::Relaxed);
        shared.finished.store(0, Ordering::Relaxed);
        // SAFETY: no launch runs, so nothing reads the cell. The lifetime is extended only in name: this function does not
        // return before every worker has finished with the job.
        unsafe {
            *shared.job.0.get() =
                Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job));
        }
        shared.launch.fetch_add(1, Ordering::SeqCst);
        for (worker, thread) in self.threads.iter().enumerate() {
            if shared.parked[worker + 1].swap(false, Ordering::SeqCst) {
                thread.thread().unpark();
            }
        }
        let own = shared.run(0, job);
        let mut wait = Wait::new();
        while shared.finished.load(Ordering::Acquire) + 1 < shared.count {
            // Workers always leave: every wait of theirs is bounded, so this one needs no limit of its own.
            wait.pause();
        }
        if let Err(panic) = own {
            return Err(LaunchError::Panic(panic));
        }
        match (shared.failed.load(Ordering::Acquire), shared.timed_out.load(Ordering::Acquire)) {
            (false, _) => Ok(()),
            (true, true) => Err(LaunchError::Timeout),
            (true, false) => Err(LaunchError::Panic("see the message above".into())),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.launch.fetch_add(1, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            Thread::unpark(thread.thread());
            // A worker that panicked has reported already.
            let _ = thread.join();
        }
    }
}

impl Joiner<'_> {
    /// Waits until every worker has arrived. What each wrote before is visible to all after.
    ///
    /// # Errors
    /// [`LaunchFailed`] if another worker failed or did not arrive in time; the job must then return.
    pub fn join(&self) -> Result<(), LaunchFailed> {
        self.join_while(|| false)
    }

    /// As [`Joiner::join`]. A worker that waits calls `meanwhile` again and again, until that returns `false`.
    ///
    /// # Errors
    /// As [`Joiner::join`].
    pub fn join_while(&self, mut meanwhile: impl FnMut() -> bool) -> Result<(), LaunchFailed> {
        let shared = self.shared;
        let joins = self.joins.get() + 1;
        self.joins.set(joins);
        let all = joins * shared.count;
        let arrived = &shared.arrived.0;
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 >= all {
            return self.alive();
        }
        let (mut wait, mut busy) = (Wait::new(), true);
        while arrived.load(Ordering::Acquire) < all {
            self.alive()?;
            busy = busy && meanwhile();
            if busy {
                continue;
            }
            if wait.pause() > JOIN_TIMEOUT {
                shared.timed_out.store(true, Ordering::Release);
                shared.failed.store(true, Ordering::Release);
                return Err(LaunchFailed);
            }
        }
        self.alive()
    }

    fn alive(&self) -> Result<(), LaunchFailed> {
        if self.shared.failed.load(Ordering::Relaxed) { Err(LaunchFailed) } else { Ok(()) }
    }
}

impl Shared {
    /// A worker's life: wait for a launch, run its job, again.
    fn serve(&self, worker: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_launch(worker, seen);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the host wrote the job before it published the launch, and keeps it alive until all have finished.
            let job = unsafe { (*self.job.0.get()).map(|job| &*job) };
            if let Some(job) = job {
                // The panic's message has been printed by the panic hook; the launch reports the failure.
                let _ = self.run(worker, job);
            }
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    fn run(&self, worker: usize, job: &Job<'_>) -> Result<(), String> {
        match catch_unwind(AssertUnwindSafe(|| job(worker))) {
            Ok(_) => Ok(()),
            Err(panic) => {
                self.failed.store(true, Ordering::Release);
                Err(message_of(panic.as_ref()))
            }
        }
    }

    fn next_launch(&self, worker: usize, seen: u64) -> u64 {
        let mut wait = Wait::new();
        loop {
            let launch = self.launch.load(Ordering::Acquire);
            if launch != seen {
                return launch;
            }
            if wait.pause() > AWAKE_WITHOUT_JOB {
                self.parked[worker].store(true, Ordering::SeqCst);
                // A launch published before the flag was set would not wake this thread: look again.
                if self.launch.load(Ordering::SeqCst) == seen {
                    std::thread::park();
                }
                self.parked[worker].store(false, Ordering::SeqCst);
            }
        }
    }
}

/// Waiting that spins first, then yields.
struct Wait {
    spins: u32,
    since: Option<Instant>,
}

impl Wait {
    fn new() -> Self {
        Wait { spins: 0, since: None }
    }

    /// One pause; returns how long the wait has taken since it stopped spinning.
    fn pause(&mut self) -> Duration {
        if self.spins < SPINS_BEFORE_YIELD {
            self.spins += 1;
            std::hint::spin_loop();
            return Duration::ZERO;
        }
        std::thread::yield_now();
        self.since.get_or_insert_with(Instant::now).elapsed()
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_sees_what_others_wrote_before_a_join() {
        let mut workers = Workers::new(3);
        for round in 1..200usize {
            let cells: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
            workers
                .launch(|worker, joiner| {
                    cells[worker].store(round, Ordering::Relaxed);
                    joiner.join()?;
                    assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) == round));
                    joiner.join()
                })
                .expect("completes");
        }
    }

    #[test]
    fn a_panic_ends_the_launch_and_the_workers_go_on() {
        let mut workers = Workers::new(2);
        let result = workers.launch(|worker, joiner| {
            assert!(worker != 1, "worker 1 fails on purpose");
            joiner.join()
        });
        assert!(matches!(result, Err(LaunchError::Panic(_))), "{result:?}");
        workers.launch(|_, joiner| joiner.join()).expect("the next launch completes");
    }

    #[test]
    fn parked_workers_wake() {
        let mut workers = Workers::new(2);
        for _ in 0..3 {
            std::thread::sleep(AWAKE_WITHOUT_JOB * 4);
            workers.launch(|_, joiner| joiner.join()).expect("completes");
        }
    }
}
