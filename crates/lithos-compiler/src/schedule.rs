//! The schedule: groups, phases, regions and the memory plan of one kind of pass.

use std::ops::Range;

use thiserror::Error;

use lithos_graph::{Graph, Part, ValueId};

use crate::lower;
use crate::memory;
use crate::phases::phases;
use crate::regions::{Fusion, regions};
use crate::step::MAX_DECODE_ROWS;
use crate::task::{
    Buffer, BufferId, BufferRows, LinearInput, Prepared, RowSet, TaskGroup, TaskKind,
};
use crate::verify::ScheduleError;

/// Which kind of pass a schedule serves. Both are lowered from the same graph; a row's arithmetic may differ between them,
/// never within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    /// Up to [`MAX_DECODE_ROWS`] rows of any slots.
    Decode,
    /// Up to `chunk` rows of one slot.
    Prefill {
        /// Rows at most.
        chunk: usize,
    },
}

impl PassKind {
    /// Rows at most.
    pub fn max_rows(self) -> usize {
        match self {
            PassKind::Decode => MAX_DECODE_ROWS,
            PassKind::Prefill { chunk } => chunk,
        }
    }
}

/// Where partial results of attention are merged. The merged values are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeIn {
    /// In a phase of their own: once for all workers.
    Phase,
    /// In the projections that read them, where nothing else does: every worker does it for itself, which saves a join.
    Readers,
}

/// What to compile.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The kind of pass.
    pub pass: PassKind,
    /// Where regions are cut.
    pub fusion: Fusion,
    /// Ranges of keys that a row's attention is split into at most.
    pub attention_ranges: usize,
    /// Elements that the target keeps with a partial attention result beside the weighted values.
    pub partial_header: usize,
    /// Where they are merged.
    pub merge_in: MergeIn,
}

/// One launch: a run of phases, with a join of all workers between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Indices into [`Schedule::phases`].
    pub phases: Range<usize>,
}

/// Everything that a backend needs to run one kind of pass, apart from task bodies.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The kind of pass.
    pub pass: PassKind,
    /// Where regions are cut.
    pub fusion: Fusion,
    /// Intermediate buffers, placed in the arena.
    pub buffers: Vec<Buffer>,
    /// Operands prepared once for many rows.
    pub prepared: Vec<Prepared>,
    /// Buffers that are given with each pass, beside its tokens.
    pub inputs: Vec<BufferId>,
    /// Groups in an order in which they can run.
    pub groups: Vec<TaskGroup>,
    /// Ranges of groups that may run at once.
    pub phases: Vec<Range<usize>>,
    /// Launches.
    pub regions: Vec<Region>,
    /// First phase of the head, which runs for the rows that want logits.
    pub head: usize,
    /// Logits of those rows.
    pub logits: BufferId,
    /// Size of the arena in bytes.
    pub arena: usize,
    /// Ranges of keys that a row's attention is split into at most.
    pub attention_ranges: usize,
}

/// A graph that cannot be scheduled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CompileError {
    /// An operation that no task kind computes in this arrangement.
    #[error("cannot schedule operation `{op}` of layer {layer:?}: {problem}")]
    Unsupported {
        /// Kind of the operation.
        op: &'static str,
        /// Its layer.
        layer: Option<usize>,
        /// What does not fit.
        problem: String,
    },
    /// A schedule that contradicts its own effects: a fault of the compiler.
    #[error(transparent)]
    Verify(#[from] ScheduleError),
}

impl Schedule {
    /// Compiles a graph.
    ///
    /// # Errors
    /// [`CompileError`] for a graph with an arrangement that no task kind computes.
    pub fn compile(graph: &Graph, options: Options) -> Result<Schedule, CompileError> {
        let lowered = lower::lower(graph, options)?;
        let (groups, mut buffers) = (lowered.groups, lowered.buffers);
        let mut phases = phases(&groups);
        let regions = regions(&groups, &mut phases, options.fusion);
        let lifetimes = memory::lifetimes(&buffers, &lowered.inputs, &groups, &phases);
        let arena = memory::plan(&mut buffers, lifetimes, |rows| match rows {
            BufferRows::Pass => options.pass.max_rows(),
            BufferRows::Logit => MAX_DECODE_ROWS,
        });
        let head = phases
            .iter()
            .position(|phase| groups[phase.start].scope.part == Part::Head)
            .unwrap_or(phases.len());
        let schedule = Schedule {
            pass: options.pass,
            fusion: options.fusion,
            buffers,
            prepared: lowered.prepared,
            inputs: lowered.inputs,
            groups,
            phases,
            regions,
            head,
            logits: lowered.logits,
            arena,
            attention_ranges: options.attention_ranges,
        };
        schedule.verify(graph)?;
        Ok(schedule)
    }

    /// A buffer.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// What the head reads before its norm.
    pub fn head_input(&self) -> Option<BufferId> {
        self.groups.iter().rev().find_map(|group| match &group.kind {
            TaskKind::Linear {
                input: LinearInput::Inline { buffer, .. },
                rows: RowSet::Logit,
                ..
            } => Some(*buffer),
            _ => None,
        })
    }

    /// Groups that multiply matrices: all but the gather of a table.
    pub fn streamed_groups(&self) -> impl Iterator<Item = &TaskGroup> {
        self.groups.iter().filter(|group| !matches!(group.kind, TaskKind::Gather { .. }))
    }

    /// Matrices that the pass multiplies, without the gathered table.
    pub fn streamed_matrices(&self) -> Vec<ValueId> {
        self.streamed_groups().flat_map(|group| group.kind.matrices()).collect()
    }
}
