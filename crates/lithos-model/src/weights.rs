//! A checkpoint as the interpreter's weight store: every weight decoded to f32 where it is asked for.

use std::collections::HashMap;

use lithos_format::{Checkpoint, Matrix};
use lithos_graph::{Graph, WeightForm, WeightSource, WeightStore};

use crate::model::ModelError;

/// Decodes weights of a checkpoint for [`lithos_graph::Interpreter`].
pub struct CheckpointWeights<'a> {
    matrices: HashMap<String, Matrix<'a>>,
    arrays: HashMap<String, Vec<f32>>,
}

impl<'a> CheckpointWeights<'a> {
    /// Opens every weight that the graph names.
    ///
    /// # Errors
    /// [`ModelError::Format`] for a weight that is missing or cannot be decoded.
    pub fn new(checkpoint: &'a Checkpoint, graph: &Graph) -> Result<Self, ModelError> {
        let mut weights = CheckpointWeights { matrices: HashMap::new(), arrays: HashMap::new() };
        for source in graph.weights().filter_map(|id| graph.value(id).weight()) {
            let name = source.tensor.clone();
            match source.form {
                WeightForm::Matrix(_) => {
                    let matrix = checkpoint.matrix(&name)?;
                    weights.matrices.insert(name, matrix);
                }
                WeightForm::Array => {
                    let array = array(checkpoint, &name)?;
                    weights.arrays.insert(name, array);
                }
            }
        }
        Ok(weights)
    }

    /// The matrix behind a base name that the graph uses.
    pub fn matrix(&self, name: &str) -> Option<&Matrix<'a>> {
        self.matrices.get(name)
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
        let matrix = self.matrices.get(&source.tensor).expect("opened with the graph");
        matrix.decode_row(source.rows.source_row(row), out);
    }

    fn array(&self, source: &WeightSource) -> Vec<f32> {
        self.arrays.get(&source.tensor).expect("opened with the graph").clone()
    }
}
