//! FP8 with one scale, as NVIDIA's ModelOpt exports it: `weight` F8_E4M3 [N, K] and `weight_scale`, one number;
//! `value = e4m3(code) * weight_scale`. Activation and cache scales are ignored: activations are not quantized here.

use super::{Candidate, Layout, WEIGHT, WeightFormat, max_magnitude, owned};
use crate::matrix::{Codes, Encoding, Storage};
use crate::numbers::{E4M3_MAX, f32_to_e4m3};
use crate::{DType, FormatError, Matrix, OwnedTensor, Tensor};

const SCALE: &str = "weight_scale";

pub(super) struct Fp8;

impl WeightFormat for Fp8 {
    fn name(&self) -> &'static str {
        "fp8"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT, SCALE, "input_scale", "k_scale", "v_scale"]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        let scale = candidate.companion(SCALE)?;
        let one_number =
            scale.elements() == 1 && matches!(scale.dtype, DType::F32 | DType::Bf16 | DType::F16);
        if candidate.weight.dtype != DType::F8E4m3 || !one_number {
            return None;
        }
        Some(layout(candidate, &scale))
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
        let scale = match max_magnitude(values) / E4M3_MAX {
            0.0 => 1.0,
            scale => scale,
        };
        let codes = values.iter().map(|value| f32_to_e4m3(value / scale)).collect();
        let shape = vec![values.len() / cols, cols];
        Ok(vec![
            owned(base, WEIGHT, DType::F8E4m3, shape, codes),
            OwnedTensor::from_f32(format!("{base}.{SCALE}"), &[], &[scale]),
        ])
    }
}

fn layout<'a>(
    candidate: &Candidate<'a, '_>,
    scale: &Tensor<'a>,
) -> Result<Layout<'a>, FormatError> {
    let (rows, cols) = candidate.matrix_shape()?;
    Ok(Layout {
        rows,
        cols,
        encoding: Encoding { codes: Codes::E4m3, zero_point: 0, blocks: None },
        tensor_scale: candidate.scalar(scale)?,
        storage: Storage::codes_only(candidate.weight.bytes),
    })
}
