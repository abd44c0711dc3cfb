//! The tasks of a phase, shared out among the workers.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tasks::piece;

/// Which tasks of a phase have been taken. Every worker has a part of them, one behind the other, so that it reads what lies
/// one behind the other in memory; a worker that has done its part takes tasks from the end of others'.
pub(crate) struct Queue {
    parts: Vec<Part>,
}

/// Tasks taken from the front of a part (low half) and from its end (high half). A line of the cache of its own.
#[repr(align(64))]
#[derive(Default)]
struct Part(AtomicU64);

const FROM_END: u64 = 1 << 32;

impl Queue {
    pub(crate) fn new(workers: usize) -> Self {
        Queue { parts: (0..workers).map(|_| Part::default()).collect() }
    }

    /// Makes a worker's part full again, for a phase that no worker has begun.
    pub(crate) fn refill(&self, worker: usize) {
        self.parts[worker].0.store(0, Ordering::Relaxed);
    }

    /// The part of a worker, of `tasks` tasks in all.
    pub(crate) fn part(&self, worker: usize, tasks: usize) -> Range<usize> {
        piece(tasks, self.parts.len(), worker)
    }

    /// The next task of `tasks` for a worker, if any is left. Every task is given out once.
    pub(crate) fn take(&self, worker: usize, tasks: usize) -> Option<usize> {
        let own = self.part(worker, tasks);
        if let Some((front, _)) = self.draw(worker, own.len(), 1) {
            return Some(own.start + front);
        }
        (1..self.parts.len()).find_map(|step| {
            let other = (worker + step) % self.parts.len();
            let part = self.part(other, tasks);
            let (_, end) = self.draw(other, part.len(), FROM_END)?;
            Some(part.end - 1 - end)
        })
    }

    /// How many tasks of a part had been taken from its front and its end when this one was, or `None` if it was empty. Any
    /// two that are given out are different: the sum of both numbers grows with every draw and stays below the part's tasks.
    fn draw(&self, part: usize, tasks: usize, side: u64) -> Option<(usize, usize)> {
        let part = &self.parts[part].0;
        let counts = |taken: u64| ((taken % FROM_END) as usize, (taken / FROM_END) as usize);
        let (front, end) = counts(part.load(Ordering::Relaxed));
        if front + end >= tasks {
            return None;
        }
        let (front, end) = counts(part.fetch_add(side, Ordering::Relaxed));
        (front + end < tasks).then_some((front, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_taken_once() {
        for (workers, tasks) in [(1, 7), (2, 0), (2, 1), (3, 2), (3, 1000), (4, 10_001)] {
            let queue = Queue::new(workers);
            let taken: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
            std::thread::scope(|scope| {
                for worker in 0..workers {
                    let (queue, taken) = (&queue, &taken);
                    scope.spawn(move || {
                        while let Some(task) = queue.take(worker, tasks) {
                            taken[task].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert!(taken.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_worker_takes_its_part_forwards_and_others_backwards() {
        let queue = Queue::new(2);
        let taken: Vec<usize> = std::iter::from_fn(|| queue.take(1, 6)).collect();
        assert_eq!(taken, [3, 4, 5, 2, 1, 0]);
        queue.refill(0);
        assert_eq!(queue.take(0, 6), Some(0));
        assert_eq!(queue.take(1, 6), Some(2));
    }
}
