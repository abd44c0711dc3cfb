//! Norms that are groups of their own.

use lithos_compiler::{BufferId, TaskKind};

use super::{Binder, Tasks};
use crate::mixers::Heads;
use crate::mixers::norm::{gated_rms_norm, rms_norm_heads_into};
use crate::pass::{Pass, ResolvedNorm, WorkerMemory};

/// Norm per head, then a SiLU gate. A task is a row.
pub(super) struct GatedNorm {
    input: BufferId,
    gate: BufferId,
    norm: ResolvedNorm,
    output: BufferId,
}

impl GatedNorm {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::GatedNorm { input, gate, norm, output } = kind else {
            unreachable!("a gated norm")
        };
        GatedNorm { input: *input, gate: *gate, norm: binder.norm(norm), output: *output }
    }
}

impl Tasks for GatedNorm {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        let (width, dim) = (pass.width(self.output), self.norm.weight.len());
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.output, task, 1, 0..width) };
        let (o, z) = (pass.rows(self.input, task, 1), pass.rows(self.gate, task, 1));
        gated_rms_norm(
            pass.isa,
            self.norm.as_norm(),
            Heads::dense(width / dim, dim),
            o,
            z,
            &mut out,
        );
    }
}

/// A plain norm. A task is a row.
pub(super) struct PlainNorm {
    input: BufferId,
    norm: ResolvedNorm,
    output: BufferId,
}

impl PlainNorm {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::RmsNorm { input, norm, output } = kind else { unreachable!("a norm") };
        PlainNorm { input: *input, norm: binder.norm(norm), output: *output }
    }
}

impl Tasks for PlainNorm {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        let (width, dim) = (pass.width(self.output), self.norm.weight.len());
        let heads = Heads::dense(width / dim, dim);
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.output, task, 1, 0..width) };
        let x = pass.rows(self.input, task, 1);
        rms_norm_heads_into(pass.isa, self.norm.as_norm(), x, heads, &mut out, heads);
    }
}
