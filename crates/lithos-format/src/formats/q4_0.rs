//! GGUF Q4_0 (ggml): blocks of 32 columns, each an f16 scale and 16 bytes; byte j holds the code of column j in its low
//! nibble and of column j + 16 in its high one; `value = (code - 8) * scale`.

use super::{Candidate, Layout, WEIGHT, WeightFormat, check_blocks, detect_gguf_blocks, owned};
use crate::matrix::{Blocks, Codes, Encoding, ScaleType};
use crate::numbers::{f16_to_f32, f32_to_f16};
use crate::{DType, FormatError, Matrix, OwnedTensor};

const COLS: usize = 32;
const BYTES: usize = 2 + 16;
const ZERO_POINT: u8 = 8;

pub(super) struct Q4_0;

impl WeightFormat for Q4_0 {
    fn name(&self) -> &'static str {
        "q4_0"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[WEIGHT]
    }

    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>> {
        let encoding = Encoding {
            codes: Codes::U4,
            zero_point: ZERO_POINT,
            blocks: Some(Blocks { cols: COLS, scale: ScaleType::F16, bias: None }),
        };
        detect_gguf_blocks(candidate, &DType::Q4_0, encoding)
    }

    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]) {
        let row = matrix.row_of(matrix.storage.codes, row);
        let blocks = row.chunks_exact(BYTES);
        for (out, block) in out.chunks_exact_mut(COLS).zip(blocks) {
            unpack_halves(&block[2..], out);
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
        Ok(vec![owned(base, WEIGHT, DType::Q4_0, shape, bytes)])
    }
}

/// As ggml does, the value of largest magnitude gets code 0, the end of the range that reaches further (-8).
fn encode_block(base: &str, block: &[f32], bytes: &mut Vec<u8>) -> Result<(), FormatError> {
    let largest = block
        .iter()
        .copied()
        .fold(0.0, |max: f32, value| if value.abs() > max.abs() { value } else { max });
    let bits = f32_to_f16(largest / -f32::from(ZERO_POINT));
    let scale = f16_to_f32(bits);
    if !scale.is_finite() {
        return Err(FormatError::encode(base, format!("{largest} is too large for an f16 scale")));
    }
    let mut codes = [ZERO_POINT; COLS];
    if scale != 0.0 {
        for (code, value) in codes.iter_mut().zip(block) {
            let steps = (value / scale).round_ties_even() + f32::from(ZERO_POINT);
            *code = steps.clamp(0.0, 15.0) as u8;
        }
    }
    bytes.extend(bits.to_le_bytes());
    pack_halves(&codes, bytes);
    Ok(())
}

/// Byte j holds codes j and j + 16. Q4_1 stores its codes in the same way.
pub(super) fn unpack_halves(packed: &[u8], out: &mut [u8]) {
    let (low, high) = out.split_at_mut(packed.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(packed) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// The inverse of [`unpack_halves`].
pub(super) fn pack_halves(codes: &[u8], bytes: &mut Vec<u8>) {
    let (low, high) = codes.split_at(codes.len() / 2);
    bytes.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
}
