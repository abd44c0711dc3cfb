//! One weight matrix, whatever way it is stored: codes, scales, biases.

use std::borrow::Cow;
use std::fmt;

use crate::TensorBytes;
use crate::formats::WeightFormat;
use crate::numbers::{E2M1, bf16_to_f32, e4m3_to_f32, f16_to_f32};

/// What one stored weight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codes {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// FP8 E4M3.
    E4m3,
    /// Unsigned 4-bit integer.
    U4,
    /// Signed byte.
    I8,
    /// FP4 E2M1.
    E2m1,
}

impl Codes {
    /// Bits of one stored code.
    pub const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::I8 => 8,
            Self::U4 | Self::E2m1 => 4,
        }
    }

    /// Bytes of one code as [`Matrix::unpack_codes`] hands it out: 4-bit codes take a byte each.
    pub const fn bytes_unpacked(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::I8 | Self::U4 | Self::E2m1 => 1,
        }
    }

    /// The exact value of every unpacked code in `codes`, before zero point and scale.
    ///
    /// # Panics
    /// If `codes` does not hold `bytes_unpacked()` bytes for each element of `out`.
    pub fn values(self, codes: &[u8], out: &mut [f32]) {
        assert_eq!(codes.len(), out.len() * self.bytes_unpacked());
        match self {
            Self::F32 => convert(codes, out, f32::from_le_bytes),
            Self::F16 => convert(codes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
            Self::Bf16 => convert(codes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
            Self::E4m3 => convert(codes, out, |[b]| e4m3_to_f32(b)),
            Self::U4 => convert(codes, out, |[b]| f32::from(b)),
            Self::I8 => convert(codes, out, |b| f32::from(i8::from_le_bytes(b))),
            Self::E2m1 => convert(codes, out, |[b]| E2M1[usize::from(b & 15)]),
        }
    }
}

fn convert<const N: usize>(codes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (out, code) in out.iter_mut().zip(codes.as_chunks::<N>().0) {
        *out = value(*code);
    }
}

/// How a block's scale or bias is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleType {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// FP8 E4M3.
    E4m3,
}

impl ScaleType {
    /// Bytes of one scale.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 => 1,
        }
    }

    /// The exact value of a scale's raw bits, as [`Matrix::unpack_scales`] hands them out.
    #[inline]
    pub fn to_f32(self, bits: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(bits),
            Self::F16 => f16_to_f32(bits as u16),
            Self::Bf16 => bf16_to_f32(bits as u16),
            Self::E4m3 => e4m3_to_f32(bits as u8),
        }
    }
}

/// Runs of consecutive columns of a row that share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Columns per block; divides the matrix's columns.
    pub cols: usize,
    /// How the scale is stored.
    pub scale: ScaleType,
    /// How the bias is stored, where the format has one.
    pub bias: Option<ScaleType>,
}

/// Everything needed to turn unpacked codes into values:
/// `(code - zero_point) * scale * tensor_scale + bias`, where a missing scale is 1 and a missing bias 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// What one code is.
    pub codes: Codes,
    /// Subtracted from [`Codes::U4`] codes; 0 for all others.
    pub zero_point: u8,
    /// The blocks, or `None` if no scale varies within the matrix.
    pub blocks: Option<Blocks>,
}

/// The bytes of a matrix. Formats that interleave scales with codes leave `scales` and `biases` empty.
#[derive(Clone, Copy)]
pub(crate) struct Storage<'a> {
    pub(crate) codes: TensorBytes<'a>,
    pub(crate) scales: TensorBytes<'a>,
    pub(crate) biases: TensorBytes<'a>,
}

impl<'a> Storage<'a> {
    pub(crate) fn codes_only(codes: TensorBytes<'a>) -> Self {
        Self { codes, scales: TensorBytes::EMPTY, biases: TensorBytes::EMPTY }
    }
}

/// A weight matrix `[rows, cols]` as it is stored; a row holds the weights of one output feature.
#[derive(Clone)]
pub struct Matrix<'a> {
    pub(crate) format: &'static dyn WeightFormat,
    pub(crate) name: &'a str,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) encoding: Encoding,
    pub(crate) tensor_scale: f32,
    pub(crate) storage: Storage<'a>,
}

impl<'a> Matrix<'a> {
    /// The name of the tensor that holds the codes.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The format's name, one of [`format_names`](crate::format_names).
    pub fn format(&self) -> &'static str {
        self.format.name()
    }

    /// How codes become values.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The factor of the whole matrix, 1.0 when there is none.
    pub fn tensor_scale(&self) -> f32 {
        self.tensor_scale
    }

    /// Bytes of codes, scales and biases as they are stored.
    pub fn bytes(&self) -> u64 {
        let Storage { codes, scales, biases } = self.storage;
        (codes.len() + scales.len() + biases.len()) as u64
    }

    /// Blocks in a row; 0 without blocks.
    pub fn blocks_per_row(&self) -> usize {
        self.encoding.blocks.map_or(0, |blocks| self.cols / blocks.cols)
    }

    /// A row's codes in column order, [`Codes::bytes_unpacked`] bytes each, little endian. E2M1 and U4 codes are
    /// 0..=15, I8 codes are two's complement bytes.
    ///
    /// # Panics
    /// If there is no such row, or `out` is not `cols() * bytes_unpacked()` bytes.
    pub fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        self.check_row(row);
        assert_eq!(out.len(), self.cols * self.encoding.codes.bytes_unpacked());
        self.format.unpack_codes(self, row, out);
    }

    /// The raw bits of a row's block scales, in the low bits, see [`ScaleType::to_f32`].
    ///
    /// # Panics
    /// If there is no such row, or `out` is not [`Matrix::blocks_per_row`] long.
    pub fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        self.check_row(row);
        assert_eq!(out.len(), self.blocks_per_row());
        self.format.unpack_scales(self, row, out);
    }

    /// The raw bits of a row's block biases; nothing is written if the format has none.
    ///
    /// # Panics
    /// If there is no such row, or the format has biases and `out` is not [`Matrix::blocks_per_row`] long.
    pub fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        self.check_row(row);
        if self.encoding.blocks.is_some_and(|blocks| blocks.bias.is_some()) {
            assert_eq!(out.len(), self.blocks_per_row());
            self.format.unpack_biases(self, row, out);
        }
    }

    /// A row's values: `(code - zero_point) * scale * tensor_scale + bias`, each step in f32, from left to right.
    ///
    /// # Panics
    /// If there is no such row, or `out` is not `cols()` long.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.cols);
        let mut codes = vec![0; self.cols * self.encoding.codes.bytes_unpacked()];
        self.unpack_codes(row, &mut codes);
        self.encoding.codes.values(&codes, out);
        let Some(blocks) = self.encoding.blocks else {
            if self.tensor_scale != 1.0 {
                out.iter_mut().for_each(|value| *value *= self.tensor_scale);
            }
            return;
        };
        let mut scales = vec![0; self.blocks_per_row()];
        let mut biases = vec![0; self.blocks_per_row()];
        self.unpack_scales(row, &mut scales);
        self.unpack_biases(row, &mut biases);
        let zero_point = f32::from(self.encoding.zero_point);
        for (block, values) in out.chunks_exact_mut(blocks.cols).enumerate() {
            let scale = blocks.scale.to_f32(scales[block]);
            for value in values.iter_mut() {
                *value = (*value - zero_point) * scale * self.tensor_scale;
            }
            if let Some(bias_type) = blocks.bias {
                let bias = bias_type.to_f32(biases[block]);
                values.iter_mut().for_each(|value| *value += bias);
            }
        }
    }

    /// All values, row-major.
    pub fn decode(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        if self.cols > 0 {
            for (row, out) in values.chunks_exact_mut(self.cols).enumerate() {
                self.decode_row(row, out);
            }
        }
        values
    }

    fn check_row(&self, row: usize) {
        assert!(row < self.rows, "row {row} of a matrix of {} rows", self.rows);
    }

    /// The part of a plane (codes, scales or biases) that belongs to a row.
    pub(crate) fn row_of(&self, plane: TensorBytes<'a>, row: usize) -> Cow<'a, [u8]> {
        let stride = plane.len() / self.rows;
        plane.range(row * stride..(row + 1) * stride)
    }

    /// A row of codes that are stored as they are unpacked.
    pub(crate) fn copy_codes(&self, row: usize, out: &mut [u8]) {
        self.storage.codes.copy_to(row * out.len(), out);
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Matrix")
            .field("name", &self.name)
            .field("format", &self.format())
            .field("rows", &self.rows)
            .field("cols", &self.cols)
            .field("tensor_scale", &self.tensor_scale)
            .finish_non_exhaustive()
    }
}
