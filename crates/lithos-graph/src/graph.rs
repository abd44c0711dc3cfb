//! The graph: values, and operations in execution order.

use crate::op::Op;
use crate::value::{Value, ValueId};

/// A model as operations over values.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Architecture name, `qwen3_5` for instance.
    pub architecture: String,
    /// All values.
    pub values: Vec<Value>,
    /// Operations, in an order in which they can run.
    pub ops: Vec<Op>,
    /// The pass's token ids.
    pub tokens: ValueId,
    /// Logits `[T, vocabulary]`.
    pub logits: ValueId,
    /// Sizes that the engine needs to know.
    pub limits: Limits,
}

/// Sizes of a model that the engine needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of the embedding table: valid token ids are below it.
    pub vocabulary: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// Layers.
    pub layers: usize,
}

impl Graph {
    /// The value behind an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Ids of all weights.
    pub fn weights(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.ids().filter(|id| self.value(*id).weight().is_some())
    }

    /// Ids of all states.
    pub fn states(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.ids().filter(|id| self.value(*id).state().is_some())
    }

    /// How many operations read a value.
    pub fn uses(&self, id: ValueId) -> usize {
        self.ops.iter().flat_map(|op| &op.inputs).filter(|input| **input == id).count()
    }

    fn ids(&self) -> impl Iterator<Item = ValueId> + '_ {
        (0..self.values.len()).map(|index| ValueId(index as u32))
    }
}
