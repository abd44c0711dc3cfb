//! Mixtures of experts: the choice of experts, their projections, and their sum.
//!
//! A task of a projection belongs to one expert and gathers the rows that chose it, so that its matrices are read once for all of
//! them, and those of other experts not at all.

use std::ops::Range;
use std::sync::Arc;

use lithos_compiler::layout::{Layout, Packed, TILE_ROWS};
use lithos_compiler::{BufferId, LinearInput, TaskKind};

use super::linear::{BYTES_PER_TASK, Source, TILES_PER_TASK};
use super::{Binder, Tasks, piece};
use crate::linear::{
    Epilogue, InputView, Operand, OperandKind, OutputView, linear, linear_gate_up,
};
use crate::mixers::mixture::{combine, route};
use crate::pass::{GatheredRows, Pass, WorkerMemory};

/// Columns that a task combines.
const COLUMNS_PER_TASK: usize = 512;

/// The experts of a row and their weights. A task is a row.
pub(super) struct Route {
    logits: BufferId,
    chosen: usize,
    routes: BufferId,
}

impl Route {
    pub(super) fn bind(_binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Route { logits, chosen, routes } = kind else {
            unreachable!("a choice of experts")
        };
        Route { logits: *logits, chosen: *chosen, routes: *routes }
    }
}

impl Tasks for Route {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.routes, task, 1, 0..2 * self.chosen) };
        let (experts, weights) = out.row_mut(0).split_at_mut(self.chosen);
        route(pass.isa, pass.rows(self.logits, task, 1).row(0), experts, weights);
    }
}

/// How the projections of a mixture are shared out: experts, and for each, nearly equal runs of tiles. Which experts there are
/// depends on what an earlier phase of the pass finds, so tasks are counted for as many as there can be; some find nothing to do.
struct Sharing {
    routes: BufferId,
    chosen: usize,
    experts: usize,
    tiles: usize,
    bytes: usize,
    many_rows: bool,
}

impl Sharing {
    fn new(
        (routes, chosen): (BufferId, usize),
        experts: &[Arc<Packed>],
        layouts: &[&Layout],
        many_rows: bool,
    ) -> Self {
        let bytes = layouts.iter().map(|layout| layout.bytes()).sum();
        Sharing {
            routes,
            chosen,
            experts: experts.len(),
            tiles: layouts[0].tiles(),
            bytes,
            many_rows,
        }
    }

    /// Experts at most that the pass's rows chose.
    fn units(&self, pass: &Pass<'_>) -> usize {
        (pass.row_count() * self.chosen).min(self.experts)
    }

    fn runs(&self, pass: &Pass<'_>) -> usize {
        let wanted = if self.many_rows {
            self.tiles.div_ceil(TILES_PER_TASK)
        } else {
            self.bytes.div_ceil(BYTES_PER_TASK)
        };
        let of_each = (2 * pass.workers).div_ceil(self.units(pass).max(1));
        wanted.max(of_each).clamp(1, self.tiles)
    }

    fn count(&self, pass: &Pass<'_>) -> usize {
        self.units(pass) * self.runs(pass)
    }

    /// The expert of a task, its tiles, and in `pairs` the rows that chose it: `row * chosen + place among the row's experts`.
    /// `None` if it has no rows, or other tasks have them.
    fn task(
        &self,
        pass: &Pass<'_>,
        task: usize,
        pairs: &mut Vec<usize>,
    ) -> Option<(usize, Range<usize>)> {
        let (runs, rows) = (self.runs(pass), pass.row_count());
        let (unit, tiles) = (task / runs, piece(self.tiles, runs, task % runs));
        let routes = pass.rows(self.routes, 0, rows);
        let expert_of = |pair: usize| routes.row(pair / self.chosen)[pair % self.chosen] as usize;
        // With fewer pairs than experts, a unit is the first pair of its expert.
        let by_pair = rows * self.chosen < self.experts;
        let expert = if by_pair { expert_of(unit) } else { unit };
        if by_pair && (0..unit).any(|pair| expert_of(pair) == expert) {
            return None;
        }
        pairs.clear();
        pairs.extend((0..rows * self.chosen).filter(|pair| expert_of(*pair) == expert));
        (!pairs.is_empty() && expert < self.experts).then_some((expert, tiles))
    }
}

/// Where a task's output goes before it is put to its rows: rows of the columns of its tiles.
fn view(
    pass: &Pass<'_>,
    layout: &Layout,
    out: &mut Vec<f32>,
    rows: usize,
    tiles: &Range<usize>,
) -> OutputView {
    let width = tiles.len() * TILE_ROWS;
    out.resize((rows * width).max(out.len()), 0.0);
    // The view begins before the memory, so that tiles keep their numbers, and has the rows of the pass, which decide the order of
    // additions.
    let start = out.as_mut_ptr().wrapping_sub(tiles.start * TILE_ROWS);
    // SAFETY: only these tiles of these rows are written.
    unsafe { OutputView::from_raw(start, pass.row_count(), layout.rows(), width) }
}

/// Puts a task's output to the parts of its rows that belong to the expert.
///
/// # Safety
/// The task owns these columns of these parts.
unsafe fn scatter(
    pass: &Pass<'_>,
    output: BufferId,
    layout: &Layout,
    out: &[f32],
    pairs: &[usize],
    tiles: &Range<usize>,
) {
    let (width, first) = (tiles.len() * TILE_ROWS, tiles.start * TILE_ROWS);
    let columns = width.min(layout.rows() - first);
    for (row, pair) in out.chunks(width).zip(pairs) {
        let to = pass.row_start(output, 0).wrapping_add(pair * layout.rows() + first);
        // SAFETY: parts lie one behind the other in the buffer; the caller owns these columns.
        unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to, columns) };
    }
}

/// `silu(gate x) * up x` of chosen experts. A task is an expert and a run of tiles.
pub(super) struct ExpertGateUp {
    source: Source,
    kind: OperandKind,
    gates: Vec<Arc<Packed>>,
    ups: Vec<Arc<Packed>>,
    output: BufferId,
    sharing: Sharing,
}

impl ExpertGateUp {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::ExpertGateUp { input, routes, chosen, gates, ups, output } = kind else {
            unreachable!("gated projections of experts")
        };
        let (gates, ups) = (binder.weights.experts(*gates), binder.weights.experts(*ups));
        let layouts = [gates[0].layout(), ups[0].layout()];
        let kind = OperandKind::of(layouts[0]);
        let many_rows = matches!(input, LinearInput::Prepared(_));
        ExpertGateUp {
            source: Source::bind(binder, input, kind),
            kind,
            sharing: Sharing::new((*routes, *chosen), &gates, &layouts, many_rows),
            gates,
            ups,
            output: *output,
        }
    }
}

impl Tasks for ExpertGateUp {
    fn count(&self, pass: &Pass<'_>) -> usize {
        self.sharing.count(pass)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let mut gathered = std::mem::take(&mut worker.gathered);
        let GatheredRows { pairs, out, .. } = &mut gathered;
        if let Some((expert, tiles)) = self.sharing.task(pass, task, pairs) {
            let (gate, up) = (&self.gates[expert], &self.ups[expert]);
            let (layout, rows) = (gate.layout(), pairs.len());
            let view = view(pass, layout, out, rows, &tiles);
            let all = self.source.operand(pass, worker, self.kind, (0, pass.row_count()));
            let operand = gathered.operand.with_room(rows, layout.cols());
            for (place, pair) in gathered.pairs.iter().enumerate() {
                let from = pair / self.sharing.chosen;
                // SAFETY: the operand is this worker's own, and that of all rows is complete.
                unsafe { operand.copy_row(self.kind, layout.padded_cols(), all, from, place) };
            }
            // SAFETY: the task owns these tiles of these rows' parts, and the operand is complete.
            unsafe {
                linear_gate_up(pass.isa, gate, up, operand, 0..rows, tiles.clone(), view);
                scatter(pass, self.output, layout, &gathered.out, &gathered.pairs, &tiles);
            }
        }
        worker.gathered = gathered;
    }
}

/// Projections by chosen experts of what each found. A task is an expert and a run of tiles.
pub(super) struct ExpertDown {
    input: BufferId,
    kind: OperandKind,
    downs: Vec<Arc<Packed>>,
    output: BufferId,
    sharing: Sharing,
}

impl ExpertDown {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::ExpertDown { input, routes, chosen, downs, output } = kind else {
            unreachable!("projections of experts")
        };
        let downs = binder.weights.experts(*downs);
        let many_rows = binder.schedule.pass != lithos_compiler::PassKind::Decode;
        ExpertDown {
            input: *input,
            kind: OperandKind::of(downs[0].layout()),
            sharing: Sharing::new((*routes, *chosen), &downs, &[downs[0].layout()], many_rows),
            downs,
            output: *output,
        }
    }
}

impl Tasks for ExpertDown {
    fn count(&self, pass: &Pass<'_>) -> usize {
        self.sharing.count(pass)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let GatheredRows { pairs, out, operand } = &mut worker.gathered;
        let Some((expert, tiles)) = self.sharing.task(pass, task, pairs) else { return };
        let down = &self.downs[expert];
        let (layout, rows) = (down.layout(), pairs.len());
        let operand = operand.with_room(rows, layout.cols());
        for (place, pair) in pairs.iter().enumerate() {
            let start = pass.row_start(self.input, 0).wrapping_add(pair * layout.cols());
            // SAFETY: the operand is this worker's own, and its input is not written during the phase.
            unsafe { prepare_row(pass, self.kind, start, layout.cols(), operand, place) };
        }
        let view = view(pass, layout, out, rows, &tiles);
        // SAFETY: the task owns these tiles of these rows' parts, and the operand is complete.
        unsafe {
            linear(pass.isa, down, operand, 0..rows, tiles.clone(), view, Epilogue::Store);
            scatter(pass, self.output, layout, out, pairs, &tiles);
        }
    }
}

/// Brings the floats at `start` into operand form, as row `place`.
///
/// # Safety
/// There are `columns` floats that no other thread writes, and no other thread uses this row of the operand.
unsafe fn prepare_row(
    pass: &Pass<'_>,
    kind: OperandKind,
    start: *const f32,
    columns: usize,
    operand: &Operand,
    place: usize,
) {
    // The view begins `place` rows before, so that row numbers of input and operand agree; only the row is read.
    let start = start.wrapping_sub(place * columns);
    // SAFETY: the caller's promise is the same.
    unsafe {
        let view = InputView::from_raw(start, place + 1, columns, columns);
        operand.prepare_rows(pass.isa, kind, view, place..place + 1);
    }
}

/// The weighted sum of a row's experts and the gated shared expert. A task is a row and some of its columns.
pub(super) struct Combine {
    experts: BufferId,
    routes: BufferId,
    chosen: usize,
    shared: BufferId,
    gate: BufferId,
    output: BufferId,
    add: bool,
}

impl Combine {
    pub(super) fn bind(_binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Combine { experts, routes, chosen, shared, gate, output, add } = kind else {
            unreachable!("a sum of experts")
        };
        Combine {
            experts: *experts,
            routes: *routes,
            chosen: *chosen,
            shared: *shared,
            gate: *gate,
            output: *output,
            add: *add,
        }
    }
}

impl Tasks for Combine {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count() * pass.width(self.output).div_ceil(COLUMNS_PER_TASK)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        let width = pass.width(self.output);
        let parts = width.div_ceil(COLUMNS_PER_TASK);
        let (row, columns) = (task / parts, piece(width, parts, task % parts));
        let experts = pass.rows(self.experts, row, 1).row(0).chunks(width);
        // SAFETY: the task owns these columns of its row.
        let mut out = unsafe { pass.rows_mut(self.output, row, 1, columns.clone()) };
        let out = out.row_mut(0);
        if !self.add {
            out.fill(0.0);
        }
        combine(
            pass.isa,
            experts.map(|expert| &expert[columns.clone()]),
            &pass.rows(self.routes, row, 1).row(0)[self.chosen..2 * self.chosen],
            &pass.rows(self.shared, row, 1).row(0)[columns.clone()],
            pass.rows(self.gate, row, 1).row(0)[0],
            out,
        );
    }
}
