//! Operations by element that are groups of their own.

use lithos_compiler::{BufferId, Elementwise, TaskKind};

use super::{Binder, Tasks};
use crate::mixers::activation::{add, multiply_sigmoid, silu_multiply};
use crate::mixers::rotary::rotate;
use crate::mixers::{Heads, RowsMut};
use crate::pass::{Pass, WorkerMemory};

/// An operation of two inputs. A task is a row.
pub(super) struct ElementwiseRows {
    op: Elementwise,
    a: BufferId,
    b: BufferId,
    output: BufferId,
}

impl ElementwiseRows {
    pub(super) fn bind(_binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Elementwise { op, a, b, output } = kind else {
            unreachable!("an elementwise operation")
        };
        ElementwiseRows { op: *op, a: *a, b: *b, output: *output }
    }
}

impl Tasks for ElementwiseRows {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        let width = pass.width(self.output);
        // SAFETY: the task owns its row.
        let mut out: RowsMut<'_> = unsafe { pass.rows_mut(self.output, task, 1, 0..width) };
        let (a, b) = (pass.rows(self.a, task, 1), pass.rows(self.b, task, 1));
        match self.op {
            Elementwise::SiluMultiply => silu_multiply(pass.isa, a, b, &mut out),
            Elementwise::Add => {
                out.row_mut(0).copy_from_slice(a.row(0));
                add(pass.isa, &mut out, b);
            }
            Elementwise::SigmoidMultiply => {
                out.row_mut(0).copy_from_slice(a.row(0));
                let heads = Heads::dense(1, width);
                multiply_sigmoid(pass.isa, &mut out, heads, b, heads);
            }
        }
    }
}

/// Rows beside each other. A task is a row.
pub(super) struct Concatenate {
    inputs: Vec<BufferId>,
    output: BufferId,
}

impl Concatenate {
    pub(super) fn bind(_binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Concatenate { inputs, output } = kind else { unreachable!("rows") };
        Concatenate { inputs: inputs.clone(), output: *output }
    }
}

impl Tasks for Concatenate {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.output, task, 1, 0..pass.width(self.output)) };
        let mut first = 0;
        for input in &self.inputs {
            let width = pass.width(*input);
            out.row_mut(0)[first..first + width].copy_from_slice(pass.rows(*input, task, 1).row(0));
            first += width;
        }
    }
}

/// A rotation. A task is a row.
pub(super) struct Rotate {
    input: BufferId,
    head_dim: usize,
    rotary: usize,
    output: BufferId,
}

impl Rotate {
    pub(super) fn bind(binder: &mut Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Rotate { input, head_dim, rotary, output } = kind else {
            unreachable!("a rotation")
        };
        let rotary = binder.rotary(rotary);
        Rotate { input: *input, head_dim: *head_dim, rotary, output: *output }
    }
}

impl Tasks for Rotate {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        let width = pass.width(self.output);
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.output, task, 1, 0..width) };
        out.row_mut(0).copy_from_slice(pass.rows(self.input, task, 1).row(0));
        let heads = Heads::dense(width / self.head_dim, self.head_dim);
        rotate(pass.isa, &pass.angles[self.rotary], task, &mut out, heads);
    }
}
