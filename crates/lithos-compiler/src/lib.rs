//! From a graph to a schedule.
//!
//! [`Schedule::compile`] lowers a [`lithos_graph::Graph`] to groups of tasks (a norm becomes the prologue of the projections that
//! read it, a residual their epilogue), puts groups that do not conflict in a phase, phases in regions as the [`Fusion`]
//! level says, and lays every intermediate buffer out by its lifetime. The same schedule runs on every target; a target
//! brings task bodies only.

mod aligned;
pub mod device;
pub mod layout;
mod lower;
mod memory;
mod phases;
mod regions;
mod schedule;
mod step;
mod task;
mod verify;

pub use regions::Fusion;
pub use schedule::{CompileError, MergeIn, Options, PassKind, Region, Schedule};
pub use step::{
    ADJUST_BIAS, ADJUST_COUNTS, ADJUST_MASK, Choice, MAX_DECODE_ROWS, MAX_ENDS, MAX_SLOTS,
    OUTPUT_CHOICES, OUTPUT_LOGITS, SlotRows, StepState,
};
pub use task::{
    Access, Buffer, BufferId, BufferRows, Elementwise, HeadStage, LinearInput, Norm, Place,
    Prepared, PreparedId, RowSet, TaskGroup, TaskKind, route_words,
};
pub use verify::ScheduleError;
