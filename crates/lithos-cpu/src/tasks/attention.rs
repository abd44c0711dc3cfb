//! Attention: staging of heads, ranges and their merge for few rows, blocks for many.

use std::ops::Range;

use lithos_compiler::{BufferId, HeadStage, MAX_DECODE_ROWS, SlotRows, TaskKind};
use lithos_graph::{Reach, ValueId};

use super::{Binder, Tasks};
use crate::ahead::Ahead;
use crate::mixers::activation::multiply_sigmoid;
use crate::mixers::attention::{
    Queries, attend_block, attend_range, merge_partials, partial_width, prefetch_keys,
};
use crate::mixers::kv::PAGE_TOKENS;
use crate::mixers::norm::rms_norm_heads;
use crate::mixers::rotary::rotate;
use crate::mixers::{Heads, Rows, RowsMut};
use crate::pass::{Pass, ResolvedNorm, WorkerMemory};

/// Rows that a staging task takes.
const ROWS_PER_STAGE: usize = 16;

/// (Row, query head) pairs that a block task takes: their sums stay in the second-level cache.
const PAIRS_PER_BLOCK: usize = 96;

/// A head stage, resolved.
struct Stage {
    buffer: BufferId,
    norm: Option<ResolvedNorm>,
    rotary: Option<usize>,
}

impl Stage {
    fn bind(binder: &mut Binder<'_>, stage: &HeadStage) -> Self {
        Stage {
            buffer: stage.buffer,
            norm: stage.norm.as_ref().map(|norm| binder.norm(norm)),
            rotary: stage.rotary.as_ref().map(|rotary| binder.rotary(rotary)),
        }
    }

    /// Norms and turns heads in place; row 0 of `rows` is row `first` of the pass.
    fn apply(&self, pass: &Pass<'_>, rows: &mut RowsMut<'_>, heads: Heads, first: usize) {
        if let Some(norm) = &self.norm {
            rms_norm_heads(pass.isa, norm.as_norm(), rows, heads);
        }
        if let Some(rotary) = self.rotary {
            rotate(pass.isa, &pass.angles[rotary], first, rows, heads);
        }
    }
}

/// How many keys each row of a slot sees.
fn visible(slot: &SlotRows, rows: Range<usize>, reach: Reach) -> Vec<usize> {
    rows.map(|row| seen(slot, row, reach)).collect()
}

/// How many keys a row of a slot sees.
fn seen(slot: &SlotRows, row: usize, reach: Reach) -> usize {
    slot.position as usize
        + match reach {
            Reach::Own => row + 1,
            Reach::Pass => slot.rows as usize,
        }
}

/// Few rows: a task is one slot, one key/value head and one range of keys.
pub(super) struct AttendRange {
    q: Stage,
    k: Stage,
    v: BufferId,
    state: ValueId,
    scale: f32,
    reach: Reach,
    partials: BufferId,
    key_value_heads: usize,
    group: usize,
    head_dim: usize,
    range_keys: usize,
    max_ranges: usize,
}

impl AttendRange {
    pub(super) fn bind(binder: &mut Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::AttendRange { q, k, v, state, scale, reach, partials } = kind else {
            unreachable!("attention over ranges")
        };
        let (key_value_heads, head_dim) = binder.key_value_shape(*state);
        let heads = binder.schedule.buffer(q.buffer).width / head_dim;
        AttendRange {
            q: Stage::bind(binder, q),
            k: Stage::bind(binder, k),
            v: *v,
            state: *state,
            scale: *scale,
            reach: *reach,
            partials: *partials,
            key_value_heads,
            group: heads / key_value_heads,
            head_dim,
            range_keys: binder.range_keys,
            max_ranges: binder.schedule.attention_ranges,
        }
    }

    /// The slot, key/value head and range of a task.
    fn part<'p>(&self, pass: &Pass<'p>, mut task: usize) -> Option<(&'p SlotRows, usize, usize)> {
        for slot in pass.step.active() {
            let tasks = self.key_value_heads * self.ranges(slot);
            if task < tasks {
                return Some((slot, task % self.key_value_heads, task / self.key_value_heads));
            }
            task -= tasks;
        }
        None
    }

    fn ranges(&self, slot: &SlotRows) -> usize {
        ((slot.position + slot.rows) as usize).div_ceil(self.range_keys)
    }

    /// Stages and appends those of the pass's keys that fall in the range.
    ///
    /// # Safety
    /// The task owns the head's new positions in the range.
    unsafe fn append(
        &self,
        pass: &Pass<'_>,
        slot: &SlotRows,
        head: usize,
        keys: &Range<usize>,
        staging: &mut Vec<f32>,
    ) {
        let position = slot.position as usize;
        let first = keys.start.max(position);
        let end = keys.end.min(position + slot.rows as usize);
        if first >= end {
            return;
        }
        let row = slot.first_row as usize + first - position;
        let (count, dim) = (end - first, self.head_dim);
        let columns = |buffer| pass.rows(buffer, row, count).columns(head * dim, dim);
        staging.resize((count * dim).max(staging.len()), 0.0);
        let mut staged = RowsMut::new(staging, count, dim, dim);
        copy(columns(self.k.buffer), &mut staged);
        self.k.apply(pass, &mut staged, Heads::dense(1, dim), row);
        // SAFETY: by the caller.
        let mut pool = unsafe { pass.states.pool(self.state) };
        let table = pass.states.page_table(slot.slot);
        pool.write_rows(head, table, first, staged.as_rows(), columns(self.v));
    }
}

impl Tasks for AttendRange {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.step.active().iter().map(|slot| self.key_value_heads * self.ranges(slot)).sum()
    }

    fn ahead(&self, pass: &Pass<'_>, task: usize) -> Ahead {
        let Some((slot, head, range)) = self.part(pass, task) else { return Ahead::nothing() };
        // SAFETY: nothing is read or written through the handle.
        let pool = unsafe { pass.states.pool(self.state) };
        let end = ((range + 1) * self.range_keys).min((slot.position + slot.rows) as usize);
        let pages = range * self.range_keys / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS);
        let mut ahead = Ahead::of_steps(1);
        for page in &pass.states.page_table(slot.slot)[pages] {
            // The values lie behind the keys.
            ahead.push(pool.keys(*page, head), 2 * pool.geometry().half_bytes());
        }
        ahead
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let Some((slot, head, range)) = self.part(pass, task) else { return };
        let keys = range * self.range_keys..(range + 1) * self.range_keys;
        let table = pass.states.page_table(slot.slot);
        // SAFETY: positions of the range are written by this task only, before it reads them.
        let pool = unsafe { pass.states.pool(self.state) };
        // Staging takes about as long as the first keys take to arrive.
        prefetch_keys(pass.isa, &pool, head, table[keys.start / PAGE_TOKENS]);
        // SAFETY: each new position falls in one range, and the head's task of that range writes it.
        unsafe { self.append(pass, slot, head, &keys, &mut worker.staging) };

        let (first, rows) = (slot.first_row as usize, slot.rows as usize);
        let (dim, width) = (self.head_dim, self.group * self.head_dim);
        worker.staging.resize((rows * width).max(worker.staging.len()), 0.0);
        let mut staged = RowsMut::new(&mut worker.staging, rows, width, width);
        copy(pass.rows(self.q.buffer, first, rows).columns(head * width, width), &mut staged);
        let heads = Heads::dense(self.group, dim);
        self.q.apply(pass, &mut staged, heads, first);

        let visible = visible(slot, 0..rows, self.reach);
        let queries =
            Queries { rows: staged.as_rows(), heads, visible: &visible, scale: self.scale };
        let record = partial_width(dim);
        let block = (head * self.max_ranges + range) * MAX_DECODE_ROWS;
        let start =
            pass.row_start(self.partials, 0).wrapping_add((block + first) * self.group * record);
        // SAFETY: the block of this head and range is this task's, and lies inside the buffer, which has
        // room for the rows of the largest pass in every block.
        let mut partials =
            unsafe { RowsMut::from_raw_parts(start, rows * self.group, record, record) };
        let end = keys.end.min((slot.position + slot.rows) as usize);
        // A worker takes tasks in their order.
        let then = self.part(pass, task + 1).map(|(slot, head, range)| {
            let page = range * self.range_keys / PAGE_TOKENS;
            pool.keys(pass.states.page_table(slot.slot)[page], head)
        });
        attend_range(
            pass.isa,
            &pool,
            head,
            table,
            queries,
            keys.start..end,
            then,
            &mut worker.scratch,
            &mut partials,
        );
    }
}

/// The merge of partial results, and the output gate.
pub(super) struct Merge {
    partials: BufferId,
    gate: Option<BufferId>,
    reach: Reach,
    key_value_heads: usize,
    group: usize,
    head_dim: usize,
    range_keys: usize,
    max_ranges: usize,
}

impl Merge {
    pub(super) fn bind(
        binder: &Binder<'_>,
        partials: BufferId,
        gate: Option<BufferId>,
        state: ValueId,
        reach: Reach,
    ) -> Self {
        let (key_value_heads, head_dim) = binder.key_value_shape(state);
        let max_ranges = binder.schedule.attention_ranges;
        let heads = binder.schedule.buffer(partials).width / max_ranges / partial_width(head_dim);
        Merge {
            partials,
            gate,
            reach,
            key_value_heads,
            group: heads / key_value_heads,
            head_dim,
            range_keys: binder.range_keys,
            max_ranges,
        }
    }

    /// What it reads.
    pub(super) fn partials(&self) -> BufferId {
        self.partials
    }

    /// Elements of a merged row.
    pub(super) fn width(&self) -> usize {
        self.key_value_heads * self.group * self.head_dim
    }

    /// Merges each head's ranges of a row of the pass in ascending order, then gates: writes one row.
    pub(super) fn row(&self, pass: &Pass<'_>, row: usize, out: &mut RowsMut<'_>) {
        let owner = |slot: &&SlotRows| {
            (slot.first_row as usize..(slot.first_row + slot.rows) as usize).contains(&row)
        };
        let Some(slot) = pass.step.active().iter().find(owner) else { return };
        // Only the ranges that this row sees: a row's sums do not depend on the rows beside it.
        let keys = seen(slot, row - slot.first_row as usize, self.reach);
        let ranges = keys.div_ceil(self.range_keys);
        let (dim, record) = (self.head_dim, partial_width(self.head_dim));
        let heads = self.key_value_heads * self.group;
        let stride = MAX_DECODE_ROWS * self.group * record;
        for head in 0..heads {
            let block = head / self.group * self.max_ranges * MAX_DECODE_ROWS;
            let first = (block + row) * self.group + head % self.group;
            let start = pass.row_start(self.partials, 0).wrapping_add(first * record);
            // SAFETY: written in the phase before, inside the buffer.
            let partials = unsafe { Rows::from_raw_parts(start, ranges, record, stride) };
            merge_partials(pass.isa, partials, &mut out.row_mut(0)[head * dim..][..dim]);
        }
        if let Some(gate) = self.gate {
            let heads = Heads::dense(heads, dim);
            multiply_sigmoid(pass.isa, out, heads, pass.rows(gate, row, 1), heads);
        }
    }
}

/// A merge in a phase of its own. A task is a row.
pub(super) struct MergeRanges {
    merge: Merge,
    output: BufferId,
}

impl MergeRanges {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::MergeRanges { partials, gate, state, reach, output } = kind else {
            unreachable!("a merge of ranges")
        };
        let merge = Merge::bind(binder, *partials, *gate, *state, *reach);
        MergeRanges { merge, output: *output }
    }
}

impl Tasks for MergeRanges {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count()
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, _worker: &mut WorkerMemory) {
        // SAFETY: the task owns its row.
        let mut out = unsafe { pass.rows_mut(self.output, task, 1, 0..self.merge.width()) };
        self.merge.row(pass, task, &mut out);
    }
}

/// Many rows: stages queries in place, stages and appends keys and values. A task is a block of rows.
pub(super) struct StageHeads {
    q: Stage,
    k: Stage,
    v: BufferId,
    state: ValueId,
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
}

impl StageHeads {
    pub(super) fn bind(binder: &mut Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::StageHeads { q, k, v, state } = kind else {
            unreachable!("a staging of heads")
        };
        let (key_value_heads, head_dim) = binder.key_value_shape(*state);
        StageHeads {
            q: Stage::bind(binder, q),
            k: Stage::bind(binder, k),
            v: *v,
            state: *state,
            heads: binder.schedule.buffer(q.buffer).width / head_dim,
            key_value_heads,
            head_dim,
        }
    }
}

impl Tasks for StageHeads {
    fn count(&self, pass: &Pass<'_>) -> usize {
        pass.row_count().div_ceil(ROWS_PER_STAGE)
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let (slot, dim) = (&pass.step.slots[0], self.head_dim);
        let first = task * ROWS_PER_STAGE;
        let rows = (pass.row_count() - first).min(ROWS_PER_STAGE);
        // SAFETY: the task owns these rows.
        let mut q = unsafe { pass.rows_mut(self.q.buffer, first, rows, 0..self.heads * dim) };
        self.q.apply(pass, &mut q, Heads::dense(self.heads, dim), first);

        let width = self.key_value_heads * dim;
        worker.staging.resize((rows * width).max(worker.staging.len()), 0.0);
        let mut staged = RowsMut::new(&mut worker.staging, rows, width, width);
        copy(pass.rows(self.k.buffer, first, rows), &mut staged);
        self.k.apply(pass, &mut staged, Heads::dense(self.key_value_heads, dim), first);
        // SAFETY: the task owns the positions of its rows.
        let mut pool = unsafe { pass.states.pool(self.state) };
        let table = pass.states.page_table(slot.slot);
        let v = pass.rows(self.v, first, rows);
        for head in 0..self.key_value_heads {
            pool.write_rows(
                head,
                table,
                slot.position as usize + first,
                staged.as_rows().columns(head * dim, dim),
                v.columns(head * dim, dim),
            );
        }
    }
}

/// Stages and appends keys and values that no attention of the pass reads. A task is a block of rows of a slot.
pub(super) struct Append {
    k: Stage,
    v: BufferId,
    state: ValueId,
    key_value_heads: usize,
    head_dim: usize,
}

impl Append {
    pub(super) fn bind(binder: &mut Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::Append { k, v, state } = kind else { unreachable!("keys and values") };
        let (key_value_heads, head_dim) = binder.key_value_shape(*state);
        Append { k: Stage::bind(binder, k), v: *v, state: *state, key_value_heads, head_dim }
    }
}

impl Tasks for Append {
    fn count(&self, pass: &Pass<'_>) -> usize {
        let blocks = |slot: &SlotRows| (slot.rows as usize).div_ceil(ROWS_PER_STAGE);
        pass.step.active().iter().map(blocks).sum()
    }

    unsafe fn run(&self, pass: &Pass<'_>, mut task: usize, worker: &mut WorkerMemory) {
        for slot in pass.step.active() {
            let blocks = (slot.rows as usize).div_ceil(ROWS_PER_STAGE);
            if task >= blocks {
                task -= blocks;
                continue;
            }
            let (dim, within) = (self.head_dim, task * ROWS_PER_STAGE);
            let rows = (slot.rows as usize - within).min(ROWS_PER_STAGE);
            let first = slot.first_row as usize + within;
            let width = self.key_value_heads * dim;
            worker.staging.resize((rows * width).max(worker.staging.len()), 0.0);
            let mut staged = RowsMut::new(&mut worker.staging, rows, width, width);
            copy(pass.rows(self.k.buffer, first, rows), &mut staged);
            self.k.apply(pass, &mut staged, Heads::dense(self.key_value_heads, dim), first);
            // SAFETY: the task owns the positions of its rows.
            let mut pool = unsafe { pass.states.pool(self.state) };
            let (table, v) = (pass.states.page_table(slot.slot), pass.rows(self.v, first, rows));
            let position = slot.position as usize + within;
            for head in 0..self.key_value_heads {
                let [k, v] = [staged.as_rows(), v].map(|rows| rows.columns(head * dim, dim));
                pool.write_rows(head, table, position, k, v);
            }
            return;
        }
    }
}

/// Many rows: a task is one key/value head and a block of rows.
pub(super) struct AttendBlock {
    q: BufferId,
    state: ValueId,
    scale: f32,
    gate: Option<BufferId>,
    output: BufferId,
    key_value_heads: usize,
    group: usize,
    head_dim: usize,
}

impl AttendBlock {
    pub(super) fn bind(binder: &Binder<'_>, kind: &TaskKind) -> Self {
        let TaskKind::AttendBlock { q, state, scale, gate, output } = kind else {
            unreachable!("attention over blocks")
        };
        let (key_value_heads, head_dim) = binder.key_value_shape(*state);
        AttendBlock {
            q: *q,
            state: *state,
            scale: *scale,
            gate: *gate,
            output: *output,
            key_value_heads,
            group: binder.schedule.buffer(*q).width / head_dim / key_value_heads,
            head_dim,
        }
    }

    fn rows_per_block(&self) -> usize {
        (PAIRS_PER_BLOCK / self.group).max(1)
    }
}

impl Tasks for AttendBlock {
    fn count(&self, pass: &Pass<'_>) -> usize {
        self.key_value_heads * pass.row_count().div_ceil(self.rows_per_block())
    }

    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory) {
        let slot = &pass.step.slots[0];
        let block = self.rows_per_block();
        let blocks = pass.row_count().div_ceil(block);
        // Later rows see more keys: they go first, and workers that have fewer take over from the end of that part.
        let (head, block_index) =
            (task % self.key_value_heads, blocks - 1 - task / self.key_value_heads);
        let first = block_index * block;
        let rows = (pass.row_count() - first).min(block);
        let width = self.group * self.head_dim;
        let columns = head * width..(head + 1) * width;
        let heads = Heads::dense(self.group, self.head_dim);
        let visible = visible(slot, first..first + rows, Reach::Own);
        let queries = Queries {
            rows: pass.rows(self.q, first, rows).columns(columns.start, width),
            heads,
            visible: &visible,
            scale: self.scale,
        };
        // SAFETY: the task owns its head's columns of its rows, and nothing writes keys in this phase.
        let (mut out, pool) = unsafe {
            (pass.rows_mut(self.output, first, rows, columns.clone()), pass.states.pool(self.state))
        };
        let table = pass.states.page_table(slot.slot);
        attend_block(pass.isa, &pool, head, table, queries, &mut worker.scratch, &mut out, heads);
        if let Some(gate) = self.gate {
            let gate = pass.rows(gate, first, rows).columns(columns.start, width);
            multiply_sigmoid(pass.isa, &mut out, heads, gate, heads);
        }
    }
}

fn copy(from: Rows<'_>, to: &mut RowsMut<'_>) {
    for row in 0..from.rows() {
        to.row_mut(row).copy_from_slice(from.row(row));
    }
}
