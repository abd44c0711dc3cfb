//! Validation: every operation fits its inputs, every value is written before it is read, effects are declared.

use std::collections::HashSet;

use thiserror::Error;

use crate::graph::Graph;
use crate::op::{Op, OpKind};
use crate::value::{DType, Dimension, StateKind, ValueId, ValueKind, WeightForm};

/// A graph that does not hold together.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("graph: operation {index} ({kind}): {problem}")]
pub struct GraphError {
    /// Index of the operation.
    pub index: usize,
    /// Its kind.
    pub kind: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl Graph {
    /// Checks shapes, order and effects.
    ///
    /// # Errors
    /// [`GraphError`] for the first operation that reads a value before it is written, writes a value twice, has inputs
    /// that do not fit its kind, or changes a state without saying so.
    pub fn validate(&self) -> Result<(), GraphError> {
        let mut written: HashSet<ValueId> = HashSet::new();
        for (index, op) in self.ops.iter().enumerate() {
            let fail = |problem: String| GraphError { index, kind: op.kind.name(), problem };
            for input in &op.inputs {
                let value = self.value(*input);
                if matches!(value.kind, ValueKind::Produced) && !written.contains(input) {
                    return Err(fail(format!("reads `{}` before it is written", value.name)));
                }
            }
            for output in &op.outputs {
                let value = self.value(*output);
                if !matches!(value.kind, ValueKind::Produced) || !written.insert(*output) {
                    return Err(fail(format!("`{}` cannot be written here", value.name)));
                }
            }
            self.check(op).map_err(fail)?;
        }
        if !written.contains(&self.logits) {
            let problem = "no operation writes the logits".to_string();
            return Err(GraphError { index: self.ops.len(), kind: "end", problem });
        }
        Ok(())
    }

    fn check(&self, op: &Op) -> Result<(), String> {
        let arity = match op.kind {
            OpKind::Rotary { .. } | OpKind::Route { .. } => 1,
            OpKind::Convolution { .. } | OpKind::GatedNorm { .. } => 3,
            OpKind::Combine { .. } => 4,
            OpKind::Experts { .. } => 5,
            OpKind::GatedDelta { .. } => 6,
            OpKind::Concatenate => op.inputs.len().max(1),
            _ => 2,
        };
        if op.inputs.len() != arity {
            return Err(format!("takes {arity} inputs, has {}", op.inputs.len()));
        }
        let width = |position: usize| self.value(op.inputs[position]).width();
        let output = op.outputs.first().map(|id| self.value(*id).width());
        let equal = |what: &str, left: usize, right: usize| {
            if left == right { Ok(()) } else { Err(format!("{what}: {left} against {right}")) }
        };
        let divides = |what: &str, part: usize, whole: usize| {
            if part > 0 && whole.is_multiple_of(part) {
                Ok(())
            } else {
                Err(format!("{what}: {part} does not divide {whole}"))
            }
        };
        match &op.kind {
            OpKind::Embedding => {
                if self.value(op.inputs[1]).dtype != DType::Token {
                    return Err("the second input must be token ids".into());
                }
            }
            OpKind::RmsNorm { .. } => divides("norm width", width(1), width(0))?,
            OpKind::Linear => {
                let rows = output.unwrap_or(0).max(1);
                equal("columns of the matrix against the input", width(1) / rows, width(0))?;
            }
            OpKind::Add | OpKind::SiluMultiply | OpKind::SigmoidMultiply => {
                equal("widths of both inputs", width(0), width(1))?;
            }
            OpKind::Rotary { head_dim, rotary } => {
                divides("head size", *head_dim, width(0))?;
                if rotary.dim > *head_dim || !rotary.dim.is_multiple_of(2) {
                    return Err(format!("rotary size {} in heads of {head_dim}", rotary.dim));
                }
            }
            OpKind::AppendKeyValue => {
                let state = self.updated(op)?;
                let StateKind::KeyValue { heads, head_dim } = state else {
                    return Err("must update a key/value state".into());
                };
                equal("key width", width(0), heads * head_dim)?;
                equal("value width", width(1), heads * head_dim)?;
            }
            OpKind::Attention { heads, key_value_heads, head_dim, .. } => {
                equal("query width", width(0), heads * head_dim)?;
                divides("key/value heads", *key_value_heads, *heads)?;
            }
            OpKind::Concatenate => {
                let widths = (0..op.inputs.len()).map(width).sum();
                equal("width of all inputs", widths, output.unwrap_or(0))?;
            }
            OpKind::Convolution { width: taps } => {
                equal("taps times channels", width(1), taps * width(0))?;
                if !matches!(self.updated(op)?, StateKind::ConvolutionHistory { .. }) {
                    return Err("must update a convolution history".into());
                }
            }
            OpKind::GatedDelta { key_heads, value_heads, key_dim, value_dim } => {
                let qkv = 2 * key_heads * key_dim + value_heads * value_dim;
                equal("width of q, k and v", width(0), qkv)?;
                for (position, name) in [(1, "a"), (2, "b"), (3, "a_log"), (4, "dt_bias")] {
                    equal(name, width(position), *value_heads)?;
                }
                divides("key heads", *key_heads, *value_heads)?;
                if !matches!(self.updated(op)?, StateKind::DeltaRule { .. }) {
                    return Err("must update a delta-rule state".into());
                }
            }
            OpKind::GatedNorm { .. } => {
                equal("widths of o and z", width(0), width(1))?;
                divides("norm width", width(2), width(0))?;
            }
            OpKind::Route { chosen } => {
                if *chosen == 0 || *chosen > width(0) {
                    return Err(format!("chooses {chosen} of {} experts", width(0)));
                }
                equal("width of the routes", output.unwrap_or(0), 2 * chosen)?;
            }
            OpKind::Experts { chosen } => {
                let [gates, ups, downs] = [2, 3, 4].map(|position| self.experts(op, position));
                let (gates, downs) = (gates?, downs?);
                if gates != ups? || downs != [gates[0], gates[2], gates[1]] {
                    return Err("matrices of the experts do not fit each other".into());
                }
                equal("columns of the gates against the input", gates[2], width(0))?;
                equal("width of the routes", width(1), 2 * chosen)?;
                equal("outputs of all experts", output.unwrap_or(0), chosen * downs[1])?;
            }
            OpKind::Combine { chosen } => {
                equal("width of the routes", width(1), 2 * chosen)?;
                equal("width of the experts", width(0), chosen * width(2))?;
                equal("width of the gate", width(3), 1)?;
            }
        }
        Ok(())
    }

    /// Extents of an input that is a weight of experts.
    fn experts(&self, op: &Op, position: usize) -> Result<[usize; 3], String> {
        let value = self.value(op.inputs[position]);
        match (value.weight().map(|source| source.form), value.shape.as_slice()) {
            (
                Some(WeightForm::Experts(_)),
                &[Dimension::Fixed(experts), Dimension::Fixed(rows), Dimension::Fixed(columns)],
            ) => Ok([experts, rows, columns]),
            _ => Err(format!("`{}` must be matrices of experts", value.name)),
        }
    }

    fn updated(&self, op: &Op) -> Result<&StateKind, String> {
        match op.updates.as_slice() {
            [state] => {
                self.value(*state).state().ok_or_else(|| "updates a value that is no state".into())
            }
            _ => Err("must update exactly one state".into()),
        }
    }
}
