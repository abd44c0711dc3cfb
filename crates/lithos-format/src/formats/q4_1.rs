//! GGUF Q4_1 (ggml): blocks of 32 columns, each an f16 scale, an f16 minimum and 16 bytes of codes in Q4_0's order;
//! `value = code * scale + minimum`.

use super::q4_0::{pack_halves, unpack_halves};
use super::{Candidate, Layout, WEIGHT, WeightFormat, check_blocks, detect_gguf_blocks, owned};
use crate::matrix::{Blocks, Codes, Encoding, ScaleType};
use crate::numbers::{f16_to_f32, f32_to_f16};
use crate::{DType, FormatError, Matrix, OwnedTensor};

const COLS: usize = 32;
const BYTES: usize = 2 + 2 + 16;

pub(super) struct Q4_1;

impl WeightFormat for Q4_1 {
    fn name(&self) -> &'static str {
        "q4_1"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        let encoding = Encoding {
            codes: Codes::U4,
            zero_point: 0,
            blocks: Some(Blocks { cols: COLS, scale: ScaleType::F16, bias: Some(ScaleType::F16) }),
        };
        detect_gguf_blocks(candidate, &DType::Q4_1, encoding)
    }

    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]) {
        let row = matrix.row_of(matrix.storage.codes, row);
        let blocks = row.chunks_exact(BYTES);
        for (out, block) in out.chunks_exact_mut(COLS).zip(blocks) {
            unpack_halves(&block[4..], out);
        }
    }

    fn unpack_scales(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u32]) {
        let row = matrix.row_of(matrix.storage.codes, row);
        let blocks = row.chunks_exact(BYTES);
        for (out, block) in out.iter_mut().zip(blocks) {
            *out = u16::from_le_bytes([block[0], block[1]]).into();
        }
    }

    fn unpack_biases(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u32]) {
        let row = matrix.row_of(matrix.storage.codes, row);
        let blocks = row.chunks_exact(BYTES);
        for (out, block) in out.iter_mut().zip(blocks) {
            *out = u16::from_le_bytes([block[2], block[3]]).into();
        }
    }

    fn encode(
        &self,
        base: &str,
        cols: usize,
        values: &[f32],
    ) -> Result<Vec<OwnedTensor>, FormatError> {
        check_blocks(base, cols, COLS)?;
        let mut bytes = Vec::with_capacity(values.len() / COLS * BYTES);
        for block in values.chunks_exact(COLS) {
            encode_block(base, block, &mut bytes)?;
        }
        let shape = vec![values.len() / cols, cols];
        Ok(vec![owned(base, WEIGHT, DType::Q4_1, shape, bytes)])
    }
}

fn encode_block(base: &str, block: &[f32], bytes: &mut Vec<u8>) -> Result<(), FormatError> {
    let min = block.iter().copied().fold(f32::INFINITY, f32::min);
    let max = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (scale_bits, min_bits) = (f32_to_f16(max / 15.0 - min / 15.0), f32_to_f16(min));
    let (scale, stored_min) = (f16_to_f32(scale_bits), f16_to_f32(min_bits));
    if !scale.is_finite() || !stored_min.is_finite() {
        return Err(FormatError::encode(
            base,
            format!("values from {min} to {max} are too large for f16 scales"),
        ));
    }
    let mut codes = [0; COLS];
    if scale != 0.0 {
        for (code, value) in codes.iter_mut().zip(block) {
            let steps = ((value - stored_min) / scale).round_ties_even();
            *code = steps.clamp(0.0, 15.0) as u8;
        }
    }
    bytes.extend(scale_bits.to_le_bytes());
    bytes.extend(min_bits.to_le_bytes());
    pack_halves(&codes, bytes);
    Ok(())
}
