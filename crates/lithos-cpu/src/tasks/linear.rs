//! Projections.

use std::ops::Range;
use std::sync::Arc;

use lithos_compiler::layout::{Layout, Packed};
use lithos_compiler::{BufferId, LinearInput, PreparedId, RowSet, TaskKind};

use super::attention::Merge;
use super::{Binder, Tasks, piece};
use crate::ahead::Ahead;
use crate::linear::{Epilogue, Operand, OperandKind, ROWS_PER_BLOCK, linear, linear_gate_up};
use crate::pass::{Pass, ResolvedNorm, WorkerMemory, prepare};

/// Bytes of weights that a task reads in a pass of few rows. Small tasks share out evenly, but each ends a stream and begins
/// another one: with a quarter of this a pass takes 7 % longer.
pub(super) const BYTES_PER_TASK: usize = 192 << 10;

/// Tiles that a task multiplies in a pass of many rows.
pub(super) const TILES_PER_TASK: usize = 12;

/// Rows that a task prepares.
const ROWS_PER_PREPARATION: usize = 16;

/// Where a prepared operand's forms are among the program's operands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreparedForms {
    pub(crate) fixed16: Option<usize>,
    pub(crate) float: Option<usize>,
}

impl PreparedForms {
    fn place(self, kind: OperandKind) -> usize {
        let place = match kind {
            OperandKind::Fixed16 => self.fixed16,
            OperandKind::Float => self.float,
        };
        place.expect("a place for every form that a reader needs")
    }
}

/// An input, resolved.
pub(super) enum Source {
    Inline { buffer: BufferId, norm: Option<ResolvedNorm> },
    Merged(Merge),
    Prepared { place: usize },
}

impl Source {
    pub(super) fn bind(binder: &Binder<'_>, input: &LinearInput, kind: OperandKind) -> Self {
        match input {
            LinearInput::Inline { buffer, norm } => Source::Inline {
                buffer: *buffer,
                norm: norm.as_ref().map(|norm| binder.norm(norm)),
            },
            LinearInput::Merged { partials, gate, state, reach } => {
                Source::Merged(Merge::bind(binder, *partials, *gate, *state, *reach))
            }
            LinearInput::Prepared(id) => {
                Source::Prepared { place: binder.prepared[id.index()].place(kind) }
            }
        }
    }

    pub(super) fn operand<'o>(
        &self,
        pass: &'o Pass<'_>,
        worker: &'o mut WorkerMemory,
        kind: OperandKind,
        rows: (usize, usize),
    ) -> &'o Operand {
        match self {
            Source::Inline { buffer, norm } => {
                worker.operand(pass, *buffer, norm.as_ref(), kind, rows)
            }
            Source::Merged(merge) => {
                let ((first, count), width) = (rows, merge.width());
                worker.computed_operand(pass, merge.partials(), kind, (count, width), |out| {
                    for row in 0..count {
                        merge.row(pass, first + row, &mut out.part_mut(row, 1));
                    }
                })
            }
            Source::Prepared { place } => &pass.prepared[*place],
        }
    }
}

/// How a projection's output is shared out: blocks of rows, and in each, nearly equal runs of tiles.
struct Sharing {
    tiles: usize,
    bytes: usize,
    many_rows: bool,
}

impl Sharing {
    fn new(layouts: &[&Layout], many_rows: bool) -> Self {
        let bytes = layouts.iter().map(|layout| layout.bytes()).sum();
        Sharing { tiles: layouts[0].tiles(), bytes, many_rows }
    }

    /// Runs of tiles: a multiple of the workers, so that all finish together.
    fn runs(&self, workers: usize) -> usize {
        let wanted = if self.many_rows {
            self.tiles.div_ceil(TILES_PER_TASK)
        } else {
            self.bytes.div_ceil(BYTES_PER_TASK)
        };
        wanted.next_multiple_of(workers).clamp(1, self.tiles)
    }

    fn count(&self, rows: usize, workers: usize) -> usize {
        rows.div_ceil(self.block()) * self.runs(workers)
    }

    fn task(&self, task: usize, rows: usize, workers: usize) -> (Range<usize>, Range<usize>) {
        let runs = self.runs(workers);
        let first = task / runs * self.block();
        (first..(first + self.block()).min(rows), piece(self.tiles, runs, task % runs))
    }

    /// A task's weights, where few rows leave it waiting for them.
    fn ahead(&self, matrices: &[&Packed], task: usize, rows: usize, workers: usize) -> Ahead {
        if self.many_rows {
            return Ahead::nothing();
        }
        let (_, tiles) = self.task(task, rows, workers);
        let mut ahead = Ahead::of_steps(tiles.len());
        for packed in matrices {
            let layout = packed.layout();
            for (plane, bytes) in [
                (packed.codes(), layout.code_tile_bytes()),
                (packed.scales(), layout.scale_tile_bytes()),
                (packed.biases(), layout.bias_tile_bytes()),
            ] {
                ahead.push(plane.as_ptr().wrapping_add(tiles.start * bytes), bytes);
            }
        }
        ahead
    }

    fn block(&self) -> usize {
        ROWS_PER_BLOCK
    }
}

/// Rows of the pass that a group works on: the first, and how many.
fn row_range(pass: &Pass<'_>, rows: RowSet) -> (usize, usize) {
    match rows {
        RowSet::Pass => (0, pass.row_count()),
        RowSet::Logit => (pass.step.logit_first_row as usize, pass.step.logit_rows as usize),
    }
}

/// A projection. A task is a block of rows and a run of tiles.
pub(super) struct Linear {
    source: Source,
    kind: OperandKind,
    packed: Arc<Packed>,
    output: BufferId,
    epilogue: Epilogue,
    rows: RowSet,
    sharing: Sharing,
}

impl Linear {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Linear { input, weight, output, add, rows } = kind else {
            unreachable!("a projection")
        };
        let packed = binder.weights.matrix(*weight);
        let kind = OperandKind::of(packed.layout());
        let many_rows = matches!(input, LinearInput::Prepared(_));
        Linear {
            source: Source::bind(binder, input, kind),
            kind,
            sharing: Sharing::new(&[packed.layout()], many_rows),
            packed,
            output: *output,
            epilogue: if *add { Epilogue::Add } else { Epilogue::Store },
            rows: *rows,
        }
    }
}

impl Tasks for Linear {
    fn count(&self, pass: &Pass<'_>) -> usize {
        self.sharing.count(row_range(pass, self.rows).1, pass.workers)
    }

    fn ahead(&self, pass: &Pass<'_>, task: usize) -> Ahead {
        self.sharing.ahead(&[&self.packed], task, row_range(pass, self.rows).1, pass.workers)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let (first, count) = row_range(pass, self.rows);
        let (rows, tiles) = self.sharing.task(task, count, pass.workers);
        let operand = self.source.operand(pass, worker, self.kind, (first, count));
        let out = pass.output(self.output, count);
        // SAFETY: the task owns these tiles of these rows, and the operand is complete.
        unsafe { linear(pass.isa, &self.packed, operand, rows, tiles, out, self.epilogue) };
    }
}

/// `silu(gate x) * up x`. Tasks as of [`Linear`].
pub(super) struct GateUp {
    source: Source,
    kind: OperandKind,
    gate: Arc<Packed>,
    up: Arc<Packed>,
    output: BufferId,
    sharing: Sharing,
}

impl GateUp {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::GateUp { input, gate, up, output } = kind else {
            unreachable!("a gated projection")
        };
        let (gate, up) = (binder.weights.matrix(*gate), binder.weights.matrix(*up));
        let kind = OperandKind::of(gate.layout());
        let many_rows = matches!(input, LinearInput::Prepared(_));
        GateUp {
            source: Source::bind(binder, input, kind),
            kind,
            sharing: Sharing::new(&[gate.layout(), up.layout()], many_rows),
            gate,
            up,
            output: *output,
        }
    }
}

impl Tasks for GateUp {
    fn count(&self, pass: &Pass<'_>) -> usize {
        self.sharing.count(pass.row_count(), pass.workers)
    }

    fn ahead(&self, pass: &Pass<'_>, task: usize) -> Ahead {
        self.sharing.ahead(&[&self.gate, &self.up], task, pass.row_count(), pass.workers)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let count = pass.row_count();
        let (rows, tiles) = self.sharing.task(task, count, pass.workers);
        let operand = self.source.operand(pass, worker, self.kind, (0, count));
        let out = pass.output(self.output, count);
        // SAFETY: the task owns these tiles of these rows, and the operand is complete.
        unsafe { linear_gate_up(pass.isa, &self.gate, &self.up, operand, rows, tiles, out) };
    }
}

/// Brings rows into the forms that projections need. A task is a block of rows.
pub(super) struct Prepare {
    buffer: BufferId,
    norm: Option<ResolvedNorm>,
    forms: PreparedForms,
}

impl Prepare {
    pub(super) fn bind(binder: &Binder<'_>, id: PreparedId) -> Self {
        let prepared = &binder.schedule.prepared[id.index()];
        Prepare {
            buffer: prepared.buffer,
            norm: prepared.norm.as_ref().map(|norm| binder.norm(norm)),
            forms: binder.prepared[id.index()],
        }
    }
}

impl Tasks for Prepare {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count().div_ceil(ROWS_PER_PREPARATION)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let first = task * ROWS_PER_PREPARATION;
        let count = (pass.row_count() - first).min(ROWS_PER_PREPARATION);
        let x = pass.rows(self.buffer, first, count);
        let forms =
            [(OperandKind::Fixed16, self.forms.fixed16), (OperandKind::Float, self.forms.float)];
        for (kind, place) in forms {
            if let Some(place) = place {
                let (norm, operand) = (self.norm.as_ref(), &pass.prepared[place]);
                // SAFETY: the task owns these rows of the operand.
                unsafe {
                    prepare(pass.isa, kind, x, norm, &mut worker.staging, operand, first);
                }
            }
        }
    }
}
