//! Weights of a checkpoint into the places of a program.

use std::collections::HashMap;

use lithos_format::{Checkpoint, Encoding, FormatError, Matrix};
use lithos_graph::{Graph, RowMap, ValueId};
use thiserror::Error;

use super::places::WeightPlaces;
use crate::layout::WeightSource;

/// Why weights could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    Missing(String),
}

/// A stored matrix with its rows in the order of the graph's value.
struct Ordered<'a> {
    matrix: &'a Matrix<'a>,
    rows: &'a RowMap,
}

impl WeightSource for Ordered<'_> {
    fn cols(&self) -> usize {
        self.matrix.cols()
    }

    fn encoding(&self) -> Encoding {
        self.matrix.encoding()
    }

    fn tensor_scale(&self) -> f32 {
        self.matrix.tensor_scale()
    }

    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        self.matrix.unpack_codes(self.rows.source_row(row), out);
    }

    fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        self.matrix.unpack_scales(self.rows.source_row(row), out);
    }

    fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        self.matrix.unpack_biases(self.rows.source_row(row), out);
    }
}

impl WeightPlaces {
    /// Packs all weights into `out`, which holds [`WeightPlaces::bytes`] zeroed bytes, and returns the factor of each matrix.
    ///
    /// # Errors
    /// [`LoadError`] names the tensor.
    pub fn load(
        &self,
        checkpoint: &Checkpoint,
        graph: &Graph,
        out: &mut [u8],
    ) -> Result<HashMap<ValueId, f32>, LoadError> {
        let mut factors = HashMap::new();
        for (id, (offset, layout)) in &self.matrices {
            let Some(source) = graph.value(*id).weight() else { continue };
            let matrix = checkpoint.matrix(&source.tensor)?;
            factors.insert(*id, matrix.tensor_scale());
            let ordered = Ordered { matrix: &matrix, rows: &source.rows };
            layout.pack(&ordered, &mut out[*offset..][..layout.bytes()]);
        }
        for (id, (offset, elements)) in &self.arrays {
            let Some(source) = graph.value(*id).weight() else { continue };
            let tensor = checkpoint
                .tensor(&source.tensor)
                .ok_or_else(|| LoadError::Missing(source.tensor.clone()))?;
            let values = tensor.to_f32()?;
            write_floats(&mut out[*offset..][..elements * 4], &values);
        }
        for (offset, rotary) in &self.rotaries {
            let frequencies: Vec<f32> =
                rotary.frequencies().into_iter().map(|frequency| frequency as f32).collect();
            write_floats(&mut out[*offset..][..frequencies.len() * 4], &frequencies);
        }
        Ok(factors)
    }
}

fn write_floats(out: &mut [u8], values: &[f32]) {
    for (out, value) in out.chunks_exact_mut(4).zip(values) {
        out.copy_from_slice(&value.to_le_bytes());
    }
}
