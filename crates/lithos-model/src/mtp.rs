//! Multi-token prediction layers (DeepSeek-V3, arXiv 2412.19437, section 2.2, as Qwen3.5 has them): one layer beside the model that
//! predicts the token after the next one.
//!
//! For position t with the target's row h_t after its last norm and the token x_(t+1) that is known to follow:
//! y = layer(fc [norm(E x_(t+1)); norm(h_t)]) at position t, h'_t = norm(y), and the target's head gives logits of x_(t+2). Drafts go on
//! from there: (x_(t+2), h'_t) at position t + 1, and so on. The layer has keys and values of its own, of every position; those of tokens
//! that were accepted are made from the target's rows.

use std::path::Path;

use lithos_format::Checkpoint;
use lithos_graph::{Graph, GraphBuilder, OpKind, Part};

use crate::architectures;
use crate::model::{Model, ModelError, left_out};

/// A multi-token prediction layer that was added to a model.
pub struct Further {
    /// The pass over tokens and the rows before them. It shares values, states among them, with the model's graph.
    pub block: Graph,
    /// What becomes of rows between passes.
    pub norms: FurtherNorms,
}

/// The norms whose output a pass of the layer takes in.
#[derive(Clone, Debug)]
pub struct FurtherNorms {
    /// The target's last.
    pub target: RowNorm,
    /// The layer's own last.
    pub own: RowNorm,
}

/// A root mean square norm of one row.
#[derive(Clone, Debug)]
pub struct RowNorm {
    weight: Vec<f32>,
    epsilon: f32,
}

impl RowNorm {
    /// Width of a row.
    pub fn width(&self) -> usize {
        self.weight.len()
    }

    /// Appends the norm of a row: `x / sqrt(mean(x^2) + epsilon)` times the weight.
    pub fn append(&self, row: &[f32], out: &mut Vec<f32>) {
        let squares: f32 = row.iter().map(|x| x * x).sum();
        let factor = (squares / row.len() as f32 + self.epsilon).sqrt().recip();
        out.extend(row.iter().zip(&self.weight).map(|(x, w)| x * factor * w));
    }

    /// The norm at the head of a graph.
    fn of_head(graph: &Graph, checkpoint: &Checkpoint) -> Result<Self, ModelError> {
        let norms = graph.ops.iter().rev().filter(|op| op.scope.part == Part::Head);
        let norm = norms.into_iter().find_map(|op| match op.kind {
            OpKind::RmsNorm { epsilon, weight_offset } => {
                let source = graph.value(op.inputs[1]).weight()?;
                Some((source.tensor.as_str(), epsilon, weight_offset))
            }
            _ => None,
        });
        let Some((tensor, epsilon, offset)) = norm else { return Err(missing(checkpoint.path())) };
        let mut weight = crate::weights::array(checkpoint, tensor)?;
        weight.iter_mut().for_each(|weight| *weight += offset);
        Ok(RowNorm { weight, epsilon })
    }
}

/// Adds the multi-token prediction layer of a model to it.
///
/// # Errors
/// [`ModelError::NoFurther`] if it has none; otherwise names the tensor that does not fit, before weights are read.
pub fn attach(model: Model) -> Result<(Model, Further), ModelError> {
    let Model { checkpoint, mut graph, .. } = model;
    let file = || checkpoint.path();
    if !checkpoint.has_matrix("mtp.fc") {
        return Err(missing(file()));
    }
    let mut builder = GraphBuilder::continuing(&graph);
    let block = architectures::further(&checkpoint, &graph, &mut builder);
    let mut block = block.ok_or_else(|| missing(file()))??;
    graph.values = builder.values().to_vec();
    block.values.clone_from(&graph.values);
    graph.validate()?;
    block.validate()?;
    let norms = FurtherNorms {
        target: RowNorm::of_head(&graph, &checkpoint)?,
        own: RowNorm::of_head(&block, &checkpoint)?,
    };
    let notices = left_out(&checkpoint, &graph);
    Ok((Model { checkpoint, graph, notices }, Further { block, norms }))
}

fn missing(file: &Path) -> ModelError {
    ModelError::NoFurther { file: file.to_path_buf() }
}
