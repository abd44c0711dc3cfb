//! Half precision: `weight` F16 [N, K].

use super::{Candidate, Layout, WEIGHT, WeightFormat, detect_plain, owned};
use crate::matrix::Codes;
use crate::numbers::f32_to_f16;
use crate::{DType, FormatError, Matrix, OwnedTensor};

pub(super) struct F16;

impl WeightFormat for F16 {
    fn name(&self) -> &'static str {
        "f16"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        detect_plain(candidate, &DType::F16, Codes::F16)
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
        let bytes = values.iter().flat_map(|value| f32_to_f16(*value).to_le_bytes()).collect();
        let shape = vec![values.len() / cols, cols];
        Ok(vec![owned(base, WEIGHT, DType::F16, shape, bytes)])
    }
}
