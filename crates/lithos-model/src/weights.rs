//! A checkpoint as the interpreter's weight store: every weight decoded to f32 where it is asked for.

use std::collections::HashMap;

use lithos_format::Checkpoint;
use lithos_graph::{Graph, StoredWeight, WeightForm, WeightSource, WeightStore};

use crate::model::ModelError;

/// Decodes weights of a checkpoint for [`lithos_graph::Interpreter`].
pub struct CheckpointWeights<'a> {
    /// By tensor, and then by the first row that the weight takes from it: two weights may be parts of one tensor.
    matrices: HashMap<String, Vec<(usize, StoredWeight<'a>)>>,
    arrays: HashMap<String, Vec<f32>>,
}

impl<'a> CheckpointWeights<'a> {
    /// Opens every weight that the graph names.
    ///
    /// # Errors
    /// [`ModelError::Format`] for a weight that is missing or cannot be decoded.
    pub fn new(checkpoint: &'a Checkpoint, graph: &Graph) -> Result<Self, ModelError> {
        let mut weights = CheckpointWeights { matrices: HashMap::new(), arrays: HashMap::new() };
        for value in graph.weights().map(|id| graph.value(id)) {
            let Some(source) = value.weight() else { continue };
            let name = source.tensor.clone();
            match source.form {
                WeightForm::Matrix(_) | WeightForm::Experts(_) => {
                    if let Some(stored) = StoredWeight::open(checkpoint, value)? {
                        let parts = weights.matrices.entry(name).or_default();
                        parts.push((source.rows.source_row(0), stored));
                    }
                }
                WeightForm::Array => {
                    let array = array(checkpoint, &name)?;
                    weights.arrays.insert(name, array);
                }
            }
        }
        Ok(weights)
    }
}

/// Decodes a small tensor to f32.
pub(crate) fn array(checkpoint: &Checkpoint, name: &str) -> Result<Vec<f32>, ModelError> {
    let tensor = checkpoint.tensor(name).ok_or_else(|| ModelError::MissingTensor {
        file: checkpoint.path().to_path_buf(),
        tensor: name.to_string(),
    })?;
    Ok(tensor.to_f32()?)
}

impl WeightStore for CheckpointWeights<'_> {
    fn matrix_row(&self, source: &WeightSource, row: usize, out: &mut [f32]) {
        let parts = self.matrices.get(&source.tensor).expect("opened with the graph");
        let first = source.rows.source_row(0);
        let part = parts.iter().find(|(row, _)| *row == first).expect("opened with the graph");
        let (matrix, row) = part.1.row(row);
        matrix.decode_row(row, out);
    }

    fn array(&self, source: &WeightSource) -> Vec<f32> {
        self.arrays.get(&source.tensor).expect("opened with the graph").clone()
    }
}
