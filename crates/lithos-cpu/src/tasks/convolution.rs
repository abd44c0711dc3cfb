//! Causal convolution and its history.

use lithos_compiler::{BufferId, MAX_DECODE_ROWS, TaskKind};
use lithos_graph::{OpKind, ValueId};

use super::{Binder, Tasks};
use crate::mixers::Rows;
use crate::mixers::convolution::{convolve, store_history};
use crate::pass::{Pass, WorkerMemory};

/// Channels that a task takes.
const CHANNELS_PER_TASK: usize = 512;

/// A task is one slot and a range of channels: convolves its rows, then puts them into the history.
pub(super) struct Convolve {
    input: BufferId,
    /// `[taps, channels]`, the checkpoint's order turned.
    taps: Vec<f32>,
    state: ValueId,
    output: BufferId,
    channels: usize,
    width: usize,
}

impl Convolve {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Convolve { input, weight, state, output } = kind else {
            unreachable!("a convolution")
        };
        let updates = |op: &&lithos_graph::Op| op.updates.contains(state);
        let width = match binder.graph.ops.iter().find(updates).map(|op| &op.kind) {
            Some(OpKind::Convolution { width }) => *width,
            _ => unreachable!("validated: a convolution updates its history"),
        };
        let stored = binder.weights.array(*weight);
        let channels = stored.len() / width;
        let mut taps = vec![0.0; stored.len()];
        for channel in 0..channels {
            for tap in 0..width {
                taps[tap * channels + channel] = stored[channel * width + tap];
            }
        }
        Convolve { input: *input, taps, state: *state, output: *output, channels, width }
    }

    fn parts(&self) -> usize {
        self.channels.div_ceil(CHANNELS_PER_TASK)
    }
}

impl Tasks for Convolve {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.step.active().len() * self.parts()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        let slot = &pass.step.active()[task / self.parts()];
        let start = task % self.parts() * CHANNELS_PER_TASK;
        let width = (self.channels - start).min(CHANNELS_PER_TASK);
        let (first, rows) = (slot.first_row as usize, slot.rows as usize);
        debug_assert!(rows <= MAX_DECODE_ROWS || pass.step.active().len() == 1);
        let u = pass.rows(self.input, first, rows).columns(start, width);
        let taps = Rows::new(&self.taps, self.width, self.channels, self.channels);
        // SAFETY: the task owns these channels of the slot, in the output and in the history.
        unsafe {
            let mut out = pass.rows_mut(self.output, first, rows, start..start + width);
            let position = slot.position as usize;
            let history = pass.states.history_rows(self.state, slot.slot, start, width);
            convolve(pass.isa, taps.columns(start, width), u, position, history, &mut out);
            let mut history = pass.states.history(self.state, slot.slot, start, width);
            store_history(u, position, &mut history);
        }
    }
}
