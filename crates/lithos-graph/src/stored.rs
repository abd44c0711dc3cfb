//! Matrix weights as the checkpoint stores them: one matrix, or one for each expert.

use lithos_format::{Checkpoint, FormatError, Matrix};

use crate::value::{Dimension, RowMap, Value, WeightForm};

/// The rows of a matrix weight, wherever they are stored. Row `r` of experts is row `r % rows` of expert `r / rows`.
#[derive(Debug)]
pub struct StoredWeight<'a> {
    matrices: Vec<Matrix<'a>>,
    map: RowMap,
    experts: usize,
    rows: usize,
    columns: usize,
}

impl<'a> StoredWeight<'a> {
    /// Opens a weight; `None` for a value that is no matrix weight.
    ///
    /// # Errors
    /// [`FormatError`] for a tensor that is missing or in a format that is not read.
    pub fn open(checkpoint: &'a Checkpoint, value: &Value) -> Result<Option<Self>, FormatError> {
        let Some(source) = value.weight() else { return Ok(None) };
        let extents: Vec<usize> = value.shape.iter().map(extent).collect();
        let (experts, rows, columns) = match (source.form, extents.as_slice()) {
            (WeightForm::Matrix(_), &[rows, columns]) => (1, rows, columns),
            (WeightForm::Experts(_), &[experts, rows, columns]) => (experts, rows, columns),
            _ => return Ok(None),
        };
        let stacked = matches!(source.form, WeightForm::Experts(_)) && !source.is_per_expert();
        let open = |name: &String| match stacked {
            true => checkpoint.stacked_matrix(name),
            false => checkpoint.matrix(name),
        };
        let matrices = source.stored_names(experts).iter().map(open).collect::<Result<_, _>>()?;
        let map = source.rows.clone();
        Ok(Some(StoredWeight { matrices, map, experts, rows, columns }))
    }

    /// The matrices that are stored.
    pub fn matrices(&self) -> &[Matrix<'a>] {
        &self.matrices
    }

    /// How many experts there are; 1 for a matrix that is none of a mixture.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows of the matrix, or of an expert's.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Where a row of the value is stored: the matrix, and its row.
    pub fn row(&self, row: usize) -> (&Matrix<'a>, usize) {
        match self.matrices.as_slice() {
            [matrix] => (matrix, self.map.source_row(row)),
            matrices => (&matrices[row / self.rows], self.map.source_row(row % self.rows)),
        }
    }

    /// The factor of an expert's matrix.
    pub fn tensor_scale(&self, expert: usize) -> f32 {
        self.row(expert * self.rows).0.tensor_scale()
    }

    /// Bytes of the rows that the value has: two values may be parts of one matrix.
    pub fn bytes(&self) -> u64 {
        let stored: u64 = self.matrices.iter().map(Matrix::bytes).sum();
        let elements: usize =
            self.matrices.iter().map(|matrix| matrix.rows() * matrix.cols()).sum();
        let used = self.experts * self.rows * self.columns;
        (stored as f64 * used as f64 / elements.max(1) as f64) as u64
    }
}

fn extent(dimension: &Dimension) -> usize {
    match dimension {
        Dimension::Fixed(extent) => *extent,
        Dimension::Rows => 0,
    }
}
