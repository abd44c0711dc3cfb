//! NVFP4 as NVIDIA's ModelOpt exports it: `weight` U8 [N, K/2], two E2M1 codes per byte, low nibble first;
//! `weight_scale` F8_E4M3 [N, K/16], row-major; `weight_scale_2`, one F32 for the matrix.
//! `value = e2m1(code) * e4m3(weight_scale) * weight_scale_2`. `input_scale` is ignored: activations are not quantized here.

use super::{
    Candidate, Layout, WEIGHT, WeightFormat, check_blocks, max_magnitude, owned, pack_nibbles,
    unpack_nibbles,
};
use crate::matrix::{Blocks, Codes, Encoding, ScaleType, Storage};
use crate::numbers::{E2M1_MAX, E4M3_MAX, e4m3_to_f32, f32_to_e2m1, f32_to_e4m3};
use crate::{DType, FormatError, Matrix, OwnedTensor, Tensor, TensorBytes};

const SCALE: &str = "weight_scale";
const TENSOR_SCALE: &str = "weight_scale_2";
const BLOCK: usize = 16;

pub(super) struct Nvfp4;

impl WeightFormat for Nvfp4 {
    fn name(&self) -> &'static str {
        "nvfp4"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT, SCALE, TENSOR_SCALE, "input_scale"]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        let scale = candidate.companion(SCALE)?;
        let tensor_scale = candidate.companion(TENSOR_SCALE)?;
        if candidate.weight.dtype != DType::U8
            || scale.dtype != DType::F8E4m3
            || tensor_scale.dtype != DType::F32
        {
            return None;
        }
        Some(layout(candidate, &scale, &tensor_scale))
    }

    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]) {
        unpack_nibbles(&matrix.row_of(matrix.storage.codes, row), out);
    }

    fn encode(
        &self,
        base: &str,
        cols: usize,
        values: &[f32],
    ) -> Result<Vec<OwnedTensor>, FormatError> {
        check_blocks(base, cols, BLOCK)?;
        let tensor_scale = match max_magnitude(values) / (E2M1_MAX * E4M3_MAX) {
            0.0 => 1.0,
            scale => scale,
        };
        let mut codes = Vec::with_capacity(values.len());
        let mut scales = Vec::with_capacity(values.len() / BLOCK);
        for block in values.chunks_exact(BLOCK) {
            let scale = block_scale(block, tensor_scale);
            let factor = e4m3_to_f32(scale) * tensor_scale;
            codes.extend(block.iter().map(|value| f32_to_e2m1(value / factor)));
            scales.push(scale);
        }
        let rows = values.len() / cols;
        Ok(vec![
            owned(base, WEIGHT, DType::U8, vec![rows, cols / 2], pack_nibbles(&codes)),
            owned(base, SCALE, DType::F8E4m3, vec![rows, cols / BLOCK], scales),
            OwnedTensor::from_f32(format!("{base}.{TENSOR_SCALE}"), &[], &[tensor_scale]),
        ])
    }
}

/// ModelOpt's rule: the block's largest magnitude becomes 6; the scale stays within what E4M3 can hold without being
/// zero; a block of zeros has scale 1.
fn block_scale(block: &[f32], tensor_scale: f32) -> u8 {
    const SMALLEST: f32 = 1.0 / 512.0;
    let scale = match max_magnitude(block) / (E2M1_MAX * tensor_scale) {
        0.0 => 1.0,
        scale => scale.clamp(SMALLEST, E4M3_MAX),
    };
    f32_to_e4m3(scale)
}

fn layout<'a>(
    candidate: &Candidate<'a, '_>,
    scale: &Tensor<'a>,
    tensor_scale: &Tensor<'a>,
) -> Result<Layout<'a>, FormatError> {
    let (rows, bytes) = candidate.matrix_shape()?;
    let cols = bytes * 2;
    if !cols.is_multiple_of(BLOCK) {
        return Err(candidate.wrong_shape(format!(
            "shape {:?} means {cols} columns, which are not whole blocks of {BLOCK}",
            candidate.weight.shape
        )));
    }
    candidate.expect_shape(scale, &[rows, cols / BLOCK])?;
    Ok(Layout {
        rows,
        cols,
        encoding: Encoding {
            codes: Codes::E2m1,
            zero_point: 0,
            blocks: Some(Blocks { cols: BLOCK, scale: ScaleType::E4m3, bias: None }),
        },
        tensor_scale: candidate.scalar(tensor_scale)?,
        storage: Storage {
            codes: candidate.weight.bytes,
            scales: scale.bytes,
            biases: TensorBytes::EMPTY,
        },
    })
}
