//! Memory that a worker asks for before the task that reads it begins.

use crate::simd::{Isa, Kernel, Simd};

/// Bytes that memory delivers at once.
const LINE: usize = 64;

/// Lines asked for at a time: few, since what asks looks in between whether it may go on.
const LINES_AT_ONCE: usize = 4;

/// Lines that a task finds asked for when it begins: it prepares its input meanwhile, and asks for the others as it goes.
const LINES_TO_BEGIN: usize = 32;

/// Streams of one task at most: codes, scales and biases of two matrices.
const MOST_STREAMS: usize = 6;

/// What a task reads, in about the order in which it reads it: a step of every stream, then the next step of each.
///
/// It holds addresses only, and asking for memory reads nothing: what is there may be written meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    streams: [Stream; MOST_STREAMS],
    count: usize,
    steps: usize,
    /// The next line: its step, its stream and its bytes from the start of the step.
    step: usize,
    stream: usize,
    offset: usize,
    /// Lines asked for.
    requested: usize,
}

/// Memory that is read from its start on.
#[derive(Clone, Copy)]
struct Stream {
    start: *const u8,
    /// Bytes of a step.
    bytes: usize,
}

impl Ahead {
    /// Nothing to ask for.
    pub(crate) fn nothing() -> Self {
        let stream = Stream { start: std::ptr::null(), bytes: 0 };
        Ahead {
            streams: [stream; MOST_STREAMS],
            count: 0,
            steps: 0,
            step: 0,
            stream: 0,
            offset: 0,
            requested: 0,
        }
    }

    /// Streams of so many steps.
    pub(crate) fn of_steps(steps: usize) -> Self {
        Ahead { steps, ..Self::nothing() }
    }

    /// Adds a stream, unless it is empty or there are too many already.
    pub(crate) fn push(&mut self, start: *const u8, bytes_of_a_step: usize) {
        if bytes_of_a_step > 0 && self.count < MOST_STREAMS {
            self.streams[self.count] = Stream { start, bytes: bytes_of_a_step };
            self.count += 1;
        }
    }

    /// Whether nothing is left to ask for.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 || self.step >= self.steps
    }

    /// Asks for the first lines, as far as it was not done.
    pub(crate) fn begin(&mut self, isa: Isa) {
        while self.requested < LINES_TO_BEGIN && self.request(isa) {}
    }

    /// Asks for a few lines; returns whether there are more.
    pub(crate) fn request(&mut self, isa: Isa) -> bool {
        for _ in 0..LINES_AT_ONCE {
            if self.is_empty() {
                return false;
            }
            let Stream { start, bytes } = self.streams[self.stream];
            isa.run(Line(start.wrapping_add(self.step * bytes + self.offset)));
            self.requested += 1;
            self.offset += LINE;
            if self.offset >= bytes {
                (self.offset, self.stream) = (0, self.stream + 1);
                if self.stream == self.count {
                    (self.stream, self.step) = (0, self.step + 1);
                }
            }
        }
        true
    }
}

struct Line(*const u8);

impl Kernel for Line {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        s.prefetch(self.0);
    }
}
