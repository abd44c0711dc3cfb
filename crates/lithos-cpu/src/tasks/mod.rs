//! Task groups bound to weights: one file per task kind.

mod attention;
mod convolution;
mod delta;
mod elementwise;
mod experts;
mod gather;
mod linear;
mod norms;

use std::ops::Range;

use lithos_compiler::{Schedule, TaskGroup, TaskKind};
use lithos_graph::{Graph, Rotary, StateKind, ValueId};

use crate::ahead::Ahead;
use crate::pass::{Pass, ResolvedNorm, WorkerMemory};
use crate::weights::Weights;

/// The tasks of one group.
pub(crate) trait Tasks: Send + Sync {
    /// How many tasks the pass has.
    fn count(&self, pass: &Pass<'_>) -> usize;

    /// What a task reads from memory that earlier phases do not write.
    fn ahead(&self, _pass: &Pass<'_>, _task: usize) -> Ahead {
        Ahead::nothing()
    }

    /// Runs one task.
    ///
    /// # Safety
    /// Every index below [`Tasks::count`] runs at most once in its phase, in the phase that the schedule gives the group.
    unsafe fn run(&self, pass: &Pass<'_>, task: usize, worker: &mut WorkerMemory);
}

/// What binding needs to know.
pub(crate) struct Binder<'b> {
    pub(crate) graph: &'b Graph,
    pub(crate) schedule: &'b Schedule,
    pub(crate) weights: &'b std::sync::Arc<Weights>,
    /// Rotary embeddings of the program, found so far.
    pub(crate) rotaries: Vec<Rotary>,
    /// For each prepared operand, the places of its forms among the program's operands.
    pub(crate) prepared: Vec<linear::PreparedForms>,
    /// Keys of one attention range.
    pub(crate) range_keys: usize,
}

pub(crate) use linear::PreparedForms;

impl Binder<'_> {
    /// Binds a group.
    pub(crate) fn bind(&mut self, group: &TaskGroup) -> Box<dyn Tasks> {
        match &group.kind {
            TaskKind::Gather { .. } => Box::new(gather::Gather::bind(self, &group.kind)),
            TaskKind::Prepare { prepared } => Box::new(linear::Prepare::bind(self, *prepared)),
            TaskKind::Linear { .. } => Box::new(linear::Linear::bind(self, &group.kind)),
            TaskKind::GateUp { .. } => Box::new(linear::GateUp::bind(self, &group.kind)),
            TaskKind::StageHeads { .. } => Box::new(attention::StageHeads::bind(self, &group.kind)),
            TaskKind::AttendRange { .. } => {
                Box::new(attention::AttendRange::bind(self, &group.kind))
            }
            TaskKind::MergeRanges { .. } => {
                Box::new(attention::MergeRanges::bind(self, &group.kind))
            }
            TaskKind::Append { .. } => Box::new(attention::Append::bind(self, &group.kind)),
            TaskKind::AttendBlock { .. } => {
                Box::new(attention::AttendBlock::bind(self, &group.kind))
            }
            TaskKind::Convolve { .. } => Box::new(convolution::Convolve::bind(self, &group.kind)),
            TaskKind::GatedDelta { .. } => Box::new(delta::GatedDelta::bind(self, &group.kind)),
            TaskKind::GatedNorm { .. } => Box::new(norms::GatedNorm::bind(self, &group.kind)),
            TaskKind::Route { .. } => Box::new(experts::Route::bind(self, &group.kind)),
            TaskKind::ExpertGateUp { .. } => {
                Box::new(experts::ExpertGateUp::bind(self, &group.kind))
            }
            TaskKind::ExpertDown { .. } => Box::new(experts::ExpertDown::bind(self, &group.kind)),
            TaskKind::Combine { .. } => Box::new(experts::Combine::bind(self, &group.kind)),
            TaskKind::RmsNorm { .. } => Box::new(norms::PlainNorm::bind(self, &group.kind)),
            TaskKind::Rotate { .. } => Box::new(elementwise::Rotate::bind(self, &group.kind)),
            TaskKind::Concatenate { .. } => {
                Box::new(elementwise::Concatenate::bind(self, &group.kind))
            }
            TaskKind::Elementwise { .. } => {
                Box::new(elementwise::ElementwiseRows::bind(self, &group.kind))
            }
        }
    }

    fn norm(&self, norm: &lithos_compiler::Norm) -> ResolvedNorm {
        ResolvedNorm {
            weight: self.weights.array(norm.weight),
            epsilon: norm.epsilon,
            weight_offset: norm.weight_offset,
        }
    }

    /// Index of a rotary embedding among the program's.
    fn rotary(&mut self, rotary: &Rotary) -> usize {
        match self.rotaries.iter().position(|known| known == rotary) {
            Some(index) => index,
            None => {
                self.rotaries.push(rotary.clone());
                self.rotaries.len() - 1
            }
        }
    }

    fn key_value_shape(&self, state: ValueId) -> (usize, usize) {
        match self.graph.value(state).state() {
            Some(StateKind::KeyValue { heads, head_dim }) => (*heads, *head_dim),
            _ => unreachable!("validated: attention uses a key/value state"),
        }
    }
}

/// Part `index` of `whole` cut into `parts` nearly equal pieces.
pub(crate) fn piece(whole: usize, parts: usize, index: usize) -> Range<usize> {
    whole * index / parts..whole * (index + 1) / parts
}
