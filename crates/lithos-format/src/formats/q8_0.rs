//! GGUF Q8_0 (ggml): blocks of 32 columns, each an f16 scale and 32 signed bytes; `value = code * scale`.

use super::{
    Candidate, Layout, WEIGHT, WeightFormat, check_blocks, detect_gguf_blocks, max_magnitude, owned,
};
use crate::matrix::{Blocks, Codes, Encoding, ScaleType};
use crate::numbers::{f16_to_f32, f32_to_f16};
use crate::{DType, FormatError, Matrix, OwnedTensor};

const COLS: usize = 32;
const BYTES: usize = 2 + COLS;

pub(super) struct Q8_0;

impl WeightFormat for Q8_0 {
    fn name(&self) -> &'static str {
        "q8_0"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        let encoding = Encoding {
            codes: Codes::I8,
            zero_point: 0,
            blocks: Some(Blocks { cols: COLS, scale: ScaleType::F16, bias: None }),
        };
        detect_gguf_blocks(candidate, &DType::Q8_0, encoding)
    }

    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]) {
        let row = matrix.row_of(matrix.storage.codes, row);
        let blocks = row.chunks_exact(BYTES);
        for (out, block) in out.chunks_exact_mut(COLS).zip(blocks) {
            out.copy_from_slice(&block[2..]);
        }
    }

    fn unpack_scales(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u32]) {
        let row = matrix.row_of(matrix.storage.codes, row);
        let blocks = row.chunks_exact(BYTES);
        for (out, block) in out.iter_mut().zip(blocks) {
            *out = u16::from_le_bytes([block[0], block[1]]).into();
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
        Ok(vec![owned(base, WEIGHT, DType::Q8_0, shape, bytes)])
    }
}

fn encode_block(base: &str, block: &[f32], bytes: &mut Vec<u8>) -> Result<(), FormatError> {
    let largest = max_magnitude(block);
    let bits = f32_to_f16(largest / 127.0);
    let scale = f16_to_f32(bits);
    if !scale.is_finite() {
        return Err(FormatError::encode(base, format!("{largest} is too large for an f16 scale")));
    }
    bytes.extend(bits.to_le_bytes());
    bytes.extend(block.iter().map(|value| {
        if scale == 0.0 {
            return 0;
        }
        (value / scale).round_ties_even().clamp(-127.0, 127.0) as i8 as u8
    }));
    Ok(())
}
