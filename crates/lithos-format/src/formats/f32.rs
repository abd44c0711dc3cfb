//! Single precision: `weight` F32 [N, K].

use super::{Candidate, Layout, WEIGHT, WeightFormat, detect_plain, owned};
use crate::matrix::Codes;
use crate::{DType, FormatError, Matrix, OwnedTensor};

pub(super) struct F32;

impl WeightFormat for F32 {
    fn name(&self) -> &'static str {
        "f32"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        detect_plain(candidate, &DType::F32, Codes::F32)
    }

    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]) {
        matrix.copy_codes(row, out);
    }

    fn encode(
        &self,
        base: &str,
        cols: usize,
        values: &[f32],
    ) -> Result<Vec<OwnedTensor>, FormatError> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = vec![values.len() / cols, cols];
        Ok(vec![owned(base, WEIGHT, DType::F32, shape, bytes)])
    }
}
