//! The gated delta rule.

use std::sync::Arc;

use lithos_compiler::{BufferId, PassKind, TaskKind};
use lithos_graph::ValueId;

use super::{Binder, Tasks, piece};
use crate::mixers::gdn::{GdnPart, GdnRows, GdnShape, gdn_decode, gdn_prefill};
use crate::pass::{Pass, WorkerMemory};
use crate::simd::LANES;

/// Tasks per worker below which a head's columns are split.
const TASKS_PER_WORKER: usize = 2;

/// A task is one slot, one value head and a slice of its columns.
pub(super) struct GatedDelta {
    qkv: BufferId,
    a: BufferId,
    b: BufferId,
    a_log: Arc<[f32]>,
    dt_bias: Arc<[f32]>,
    state: ValueId,
    output: BufferId,
    shape: GdnShape,
    /// Chunked form for many rows; recurrence and log for few.
    many_rows: bool,
}

impl GatedDelta {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::GatedDelta { qkv, a, b, a_log, dt_bias, state, key_heads, output } = kind
        else {
            unreachable!("a gated delta rule")
        };
        let Some(lithos_graph::StateKind::DeltaRule { heads, key_dim, value_dim }) =
            binder.graph.value(*state).state()
        else {
            unreachable!("validated: the delta rule updates its state")
        };
        GatedDelta {
            qkv: *qkv,
            a: *a,
            b: *b,
            a_log: binder.weights.array(*a_log),
            dt_bias: binder.weights.array(*dt_bias),
            state: *state,
            output: *output,
            shape: GdnShape {
                key_heads: *key_heads,
                value_heads: *heads,
                key_dim: *key_dim,
                value_dim: *value_dim,
            },
            many_rows: matches!(binder.schedule.pass, PassKind::Prefill { .. }),
        }
    }

    /// Slices of a head's columns: more only where there are few heads for the workers.
    fn slices(&self, workers: usize) -> usize {
        let lanes = self.shape.value_dim / LANES;
        (workers * TASKS_PER_WORKER).div_ceil(self.shape.value_heads).clamp(1, lanes)
    }
}

impl Tasks for GatedDelta {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.step.active().len() * self.shape.value_heads * self.slices(pass.workers)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let slices = self.slices(pass.workers);
        let per_slot = self.shape.value_heads * slices;
        let slot = &pass.step.active()[task / per_slot];
        let (value_head, slice) = (task % per_slot / slices, task % slices);
        let lanes = piece(self.shape.value_dim / LANES, slices, slice);
        let columns = lanes.start * LANES..lanes.end * LANES;
        let (first, rows) = (slot.first_row as usize, slot.rows as usize);
        let part = GdnPart {
            shape: self.shape,
            value_head,
            columns: columns.clone(),
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
        };
        let inputs = GdnRows {
            convolved: pass.rows(self.qkv, first, rows),
            a: pass.rows(self.a, first, rows),
            b: pass.rows(self.b, first, rows),
            first_position: slot.position as usize,
        };
        let pending = slot.state_position as usize;
        let out_start = value_head * self.shape.value_dim + columns.start;
        let out_columns = out_start..out_start + columns.len();
        // SAFETY: the task owns these columns of the head in the state and in the output; tasks of a pass share the log as
        // its handle asks, having the same rows and pending positions.
        let (mut out, (mut state, mut log)) = unsafe {
            (
                pass.rows_mut(self.output, first, rows, out_columns),
                pass.states.delta(self.state, slot.slot, value_head, columns.start, columns.len()),
            )
        };
        let scratch = &mut worker.scratch;
        if self.many_rows {
            gdn_prefill(pass.isa, part, inputs, pending, &mut state, &log, scratch, &mut out);
        } else {
            gdn_decode(pass.isa, part, inputs, pending, &mut state, &mut log, scratch, &mut out);
        }
    }
}
