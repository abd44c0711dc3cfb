//! Affine 4-bit groups as MLX writes them: `weight` U32 [N, K/8], eight codes per word, lowest nibble first; `scales` and
//! `biases` [N, K/g] for groups of g = 32, 64 or 128 columns; `value = code * scale + bias`.

use super::{
    Candidate, Layout, WEIGHT, WeightFormat, check_blocks, check_values, owned, pack_nibbles,
    unpack_nibbles,
};
use crate::matrix::{Blocks, Codes, Encoding, ScaleType, Storage};
use crate::numbers::{f32_to_bf16, f32_to_f16};
use crate::{DType, FormatError, Matrix, OwnedTensor, Tensor};

const SCALES: &str = "scales";
const BIASES: &str = "biases";
const CODES_PER_WORD: usize = 8;
const GROUPS: [usize; 3] = [32, 64, 128];

pub(super) struct AffineInt4;

impl WeightFormat for AffineInt4 {
    fn name(&self) -> &'static str {
        "int4-affine"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT, SCALES, BIASES]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        let scales = candidate.companion(SCALES)?;
        let biases = candidate.companion(BIASES)?;
        if candidate.weight.dtype != DType::U32 {
            return None;
        }
        let blocks = (scale_type(&scales)?, scale_type(&biases)?);
        Some(layout(candidate, &scales, &biases, blocks))
    }

    /// A little-endian word's bytes hold its nibbles in column order.
    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]) {
        unpack_nibbles(&matrix.row_of(matrix.storage.codes, row), out);
    }

    fn encode(
        &self,
        base: &str,
        cols: usize,
        values: &[f32],
    ) -> Result<Vec<OwnedTensor>, FormatError> {
        let group = if cols.is_multiple_of(64) { 64 } else { 32 };
        encode_affine_int4(base, cols, values, group, ScaleType::Bf16)
    }
}

fn scale_type(tensor: &Tensor<'_>) -> Option<ScaleType> {
    match tensor.dtype {
        DType::F32 => Some(ScaleType::F32),
        DType::F16 => Some(ScaleType::F16),
        DType::Bf16 => Some(ScaleType::Bf16),
        _ => None,
    }
}

fn layout<'a>(
    candidate: &Candidate<'a, '_>,
    scales: &Tensor<'a>,
    biases: &Tensor<'a>,
    (scale, bias): (ScaleType, ScaleType),
) -> Result<Layout<'a>, FormatError> {
    // Shapes alone do not tell 4 bits in groups of 64 from 8 bits in groups of 32; the configuration does.
    if let Some(bits) = candidate.quantization_setting("bits")
        && bits.as_u64() != Some(4)
    {
        return Err(candidate
            .unsupported(format!("the MLX affine layout with {bits} bits (only 4 are read)")));
    }
    let (rows, words) = candidate.matrix_shape()?;
    let cols = words * CODES_PER_WORD;
    let group = match scales.shape {
        [_, groups] if *groups > 0 && cols.is_multiple_of(*groups) => cols / groups,
        _ => 0,
    };
    if !GROUPS.contains(&group) {
        return Err(candidate.wrong_shape(format!(
            "shape {:?} means {cols} columns, which do not fit {:?} of shape {:?} in groups of 32, 64 or 128",
            candidate.weight.shape, scales.name, scales.shape
        )));
    }
    if let Some(configured) = candidate.quantization_setting("group_size")
        && configured.as_u64() != Some(group as u64)
    {
        return Err(candidate.wrong_shape(format!(
            "config.json says groups of {configured}, but shape {:?} and {:?} of shape {:?} mean groups of {group} at 4 bits",
            candidate.weight.shape, scales.name, scales.shape
        )));
    }
    candidate.expect_shape(scales, &[rows, cols / group])?;
    candidate.expect_shape(biases, &[rows, cols / group])?;
    Ok(Layout {
        rows,
        cols,
        encoding: Encoding {
            codes: Codes::U4,
            zero_point: 0,
            blocks: Some(Blocks { cols: group, scale, bias: Some(bias) }),
        },
        tensor_scale: 1.0,
        storage: Storage {
            codes: candidate.weight.bytes,
            scales: scales.bytes,
            biases: biases.bytes,
        },
    })
}

/// Stores a row-major matrix of `cols` columns as affine 4-bit groups of `group` columns, with scales and biases of the
/// given type. The smallest value of a group becomes code 0 and its bias, the largest code 15.
///
/// # Errors
/// [`FormatError::Encode`] for values that are not finite or not whole rows, another group than 32, 64 or 128, columns
/// that are not whole groups, and [`ScaleType::E4m3`].
pub fn encode_affine_int4(
    base: &str,
    cols: usize,
    values: &[f32],
    group: usize,
    scale: ScaleType,
) -> Result<Vec<OwnedTensor>, FormatError> {
    check_values(base, cols, values)?;
    if !GROUPS.contains(&group) {
        return Err(FormatError::encode(
            base,
            format!("groups of {group} columns, only 32, 64 and 128 are possible"),
        ));
    }
    check_blocks(base, cols, group)?;
    let mut codes = Vec::with_capacity(values.len());
    let (mut scales, mut biases) = (Vec::new(), Vec::new());
    for block in values.chunks_exact(group) {
        let min = block.iter().copied().fold(f32::INFINITY, f32::min);
        let max = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // Codes are chosen for the rounded scale and bias, since those are what a reader gets.
        let step = put_scale(&mut scales, scale, max / 15.0 - min / 15.0);
        let bias = put_scale(&mut biases, scale, min);
        let (Some(step), Some(bias)) = (step, bias) else {
            return Err(FormatError::encode(
                base,
                format!("{scale:?} cannot hold the scale of values from {min} to {max}"),
            ));
        };
        codes.extend(block.iter().map(|value| code(*value, step, bias)));
    }
    let dtype = match scale {
        ScaleType::F32 => DType::F32,
        ScaleType::F16 => DType::F16,
        ScaleType::Bf16 | ScaleType::E4m3 => DType::Bf16,
    };
    let rows = values.len() / cols;
    let words = vec![rows, cols / CODES_PER_WORD];
    let groups = vec![rows, cols / group];
    Ok(vec![
        owned(base, WEIGHT, DType::U32, words, pack_nibbles(&codes)),
        owned(base, SCALES, dtype.clone(), groups.clone(), scales),
        owned(base, BIASES, dtype, groups, biases),
    ])
}

fn code(value: f32, step: f32, bias: f32) -> u8 {
    if step == 0.0 {
        return 0;
    }
    ((value - bias) / step).round_ties_even().clamp(0.0, 15.0) as u8
}

/// Appends a number and returns it as it will be read, or `None` if the type cannot hold it.
fn put_scale(out: &mut Vec<u8>, scale: ScaleType, value: f32) -> Option<f32> {
    let bits = match scale {
        ScaleType::F32 => value.to_bits(),
        ScaleType::F16 => f32_to_f16(value).into(),
        ScaleType::Bf16 => f32_to_bf16(value).into(),
        ScaleType::E4m3 => return None,
    };
    out.extend(&bits.to_le_bytes()[..scale.bytes()]);
    Some(scale.to_f32(bits)).filter(|value| value.is_finite())
}
