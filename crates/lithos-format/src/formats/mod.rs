//! The storage formats of weight matrices: one file each, and one list.

mod affine_int4;
mod bf16;
mod f16;
mod f32;
mod fp8;
mod nvfp4;
mod q4_0;
mod q4_1;
mod q8_0;
mod unsupported;

use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::matrix::{Codes, Encoding, ScaleType, Storage};
use crate::{DType, FormatError, Matrix, OwnedTensor, Tensor};

pub use affine_int4::encode_affine_int4;

/// All formats. Adding one takes its file and a line here.
static FORMATS: [&dyn WeightFormat; 9] = [
    &f32::F32,
    &bf16::Bf16,
    &f16::F16,
    &fp8::Fp8,
    &nvfp4::Nvfp4,
    &affine_int4::AffineInt4,
    &q4_0::Q4_0,
    &q4_1::Q4_1,
    &q8_0::Q8_0,
];

/// The tensor that holds the codes, in the formats of this list.
const WEIGHT: &str = "weight";

/// One way to store a weight matrix.
pub(crate) trait WeightFormat: Sync {
    /// The name that users see.
    fn name(&self) -> &'static str;

    /// What follows `base.` in the names of the tensors of such a matrix, also of those that are ignored.
    fn suffixes(&self) -> &'static [&'static str];

    /// `None` if the tensors are not of this format; an error if they are, but do not fit each other.
    fn detect<'a>(&self, candidate: &Candidate<'a, '_>) -> Option<Result<Layout<'a>, FormatError>>;

    /// A row's codes, in column order, one or more whole bytes each. `out` has the right length.
    fn unpack_codes(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u8]);

    /// A row's block scales. `out` has the right length.
    fn unpack_scales(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u32]) {
        if let Some(blocks) = matrix.encoding.blocks {
            read_bits(blocks.scale, &matrix.row_of(matrix.storage.scales, row), out);
        }
    }

    /// A row's block biases. `out` has the right length.
    fn unpack_biases(&self, matrix: &Matrix<'_>, row: usize, out: &mut [u32]) {
        if let Some(bias) = matrix.encoding.blocks.and_then(|blocks| blocks.bias) {
            read_bits(bias, &matrix.row_of(matrix.storage.biases, row), out);
        }
    }

    /// The tensors that store finite `values`, row-major with `cols` columns, under `base`. Rounds to nearest.
    fn encode(
        &self,
        base: &str,
        cols: usize,
        values: &[f32],
    ) -> Result<Vec<OwnedTensor>, FormatError>;
}

/// What a format says about a matrix that it recognised.
pub(crate) struct Layout<'a> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) encoding: Encoding,
    pub(crate) tensor_scale: f32,
    pub(crate) storage: Storage<'a>,
}

/// The tensors that stand under one base name.
pub(crate) struct Candidate<'a, 'b> {
    checkpoint: &'a Checkpoint,
    base: &'b str,
    /// `base.weight`.
    pub(crate) weight: Tensor<'a>,
}

impl<'a> Candidate<'a, '_> {
    /// The tensor `base.suffix`.
    pub(crate) fn companion(&self, suffix: &str) -> Option<Tensor<'a>> {
        self.checkpoint.tensor(&format!("{}.{suffix}", self.base))
    }

    /// Whether tensors of other formats stand beside the weight, so that its plain values are not the matrix.
    pub(crate) fn has_scales(&self) -> bool {
        ["scales", "weight_scale", "weight_scale_inv", "weight_scale_2"]
            .iter()
            .any(|suffix| self.companion(suffix).is_some())
    }

    /// The weight's shape as rows and stored columns.
    pub(crate) fn matrix_shape(&self) -> Result<(usize, usize), FormatError> {
        match self.weight.shape {
            [rows, cols] if *rows > 0 && *cols > 0 => Ok((*rows, *cols)),
            shape => {
                Err(self
                    .wrong_shape(format!("shape {shape:?} is not a matrix of rows and columns")))
            }
        }
    }

    /// An entry of the checkpoint's quantization settings that applies to this matrix: its own, else the general one.
    pub(crate) fn quantization_setting(&self, key: &str) -> Option<&'a Value> {
        let settings = self.checkpoint.config()?.get("quantization")?;
        let own = settings.get(self.base).and_then(|own| own.get(key));
        own.or_else(|| settings.get(key))
    }

    pub(crate) fn wrong_shape(&self, cause: String) -> FormatError {
        FormatError::WrongShape {
            path: self.checkpoint.file_of(self.weight.name).to_owned(),
            tensor: self.weight.name.to_owned(),
            cause,
        }
    }

    pub(crate) fn unsupported(&self, found: impl Into<String>) -> FormatError {
        unsupported_error(self.checkpoint, self.weight.name, found.into())
    }

    /// Fails unless a companion of the weight has the shape that the weight calls for.
    pub(crate) fn expect_shape(
        &self,
        companion: &Tensor<'_>,
        expected: &[usize],
    ) -> Result<(), FormatError> {
        if companion.shape == expected {
            return Ok(());
        }
        Err(self.wrong_shape(format!(
            "shape {:?} calls for {:?} of shape {expected:?}, but that has shape {:?}",
            self.weight.shape, companion.name, companion.shape
        )))
    }

    /// The one number in a companion.
    pub(crate) fn scalar(&self, companion: &Tensor<'_>) -> Result<f32, FormatError> {
        match companion.to_f32()?.as_slice() {
            [value] if value.is_finite() => Ok(*value),
            [value] => Err(self.wrong_shape(format!("{:?} is {value}", companion.name))),
            _ => Err(self.wrong_shape(format!(
                "{:?} has shape {:?}, one number was expected",
                companion.name, companion.shape
            ))),
        }
    }
}

fn unsupported_error(checkpoint: &Checkpoint, tensor: &str, found: String) -> FormatError {
    FormatError::Unsupported {
        path: checkpoint.file_of(tensor).to_owned(),
        tensor: tensor.to_owned(),
        found,
    }
}

/// Finds the format of the matrix `base`.
pub(crate) fn detect<'a>(
    checkpoint: &'a Checkpoint,
    base: &str,
) -> Result<Matrix<'a>, FormatError> {
    let Some(weight) = checkpoint.tensor(&format!("{base}.{WEIGHT}")) else {
        return Err(match code_tensor(checkpoint, base) {
            Some((tensor, found)) => unsupported_error(checkpoint, tensor.name, found.to_owned()),
            None => FormatError::MissingTensor {
                path: checkpoint.path().to_owned(),
                name: format!("{base}.{WEIGHT}"),
            },
        });
    };
    let candidate = Candidate { checkpoint, base, weight };
    for format in FORMATS {
        if let Some(layout) = format.detect(&candidate) {
            let Layout { rows, cols, encoding, tensor_scale, storage } = layout?;
            return Ok(Matrix {
                format,
                name: candidate.weight.name,
                rows,
                cols,
                encoding,
                tensor_scale,
                storage,
            });
        }
    }
    Err(candidate.unsupported(unsupported::describe(&candidate)))
}

/// Reads a tensor `[count, rows, columns]` of plain numbers as one matrix of `count * rows` rows.
pub(crate) fn detect_stacked<'a>(
    checkpoint: &'a Checkpoint,
    name: &str,
) -> Result<Matrix<'a>, FormatError> {
    let Some(tensor) = checkpoint.tensor(name) else {
        let path = checkpoint.path().to_owned();
        return Err(FormatError::MissingTensor { path, name: name.to_owned() });
    };
    let (format, codes): (&'static dyn WeightFormat, Codes) = match tensor.dtype {
        DType::F32 => (&f32::F32, Codes::F32),
        DType::Bf16 => (&bf16::Bf16, Codes::Bf16),
        DType::F16 => (&f16::F16, Codes::F16),
        dtype => {
            let found = format!("a stack of matrices in {dtype}");
            return Err(unsupported_error(checkpoint, tensor.name, found));
        }
    };
    let &[count, rows, cols] = tensor.shape else {
        return Err(FormatError::WrongShape {
            path: checkpoint.file_of(name).to_owned(),
            tensor: name.to_owned(),
            cause: format!("shape {:?} is not a stack of matrices", tensor.shape),
        });
    };
    Ok(Matrix {
        format,
        name: tensor.name,
        rows: count * rows,
        cols,
        encoding: Encoding { codes, zero_point: 0, blocks: None },
        tensor_scale: 1.0,
        storage: Storage::codes_only(tensor.bytes),
    })
}

/// The tensor under `base` that holds codes, with the name of its format if that is never supported.
pub(crate) fn code_tensor<'a>(
    checkpoint: &'a Checkpoint,
    base: &str,
) -> Option<(Tensor<'a>, &'static str)> {
    std::iter::once((WEIGHT, ""))
        .chain(unsupported::CODE_TENSORS)
        .find_map(|(suffix, found)| Some((checkpoint.tensor(&format!("{base}.{suffix}"))?, found)))
}

/// What can follow `base.` in the name of a tensor that belongs to a matrix. Each suffix comes once.
pub(crate) fn companion_suffixes() -> impl Iterator<Item = &'static str> {
    let mut suffixes: Vec<&str> =
        FORMATS.iter().flat_map(|format| format.suffixes()).copied().collect();
    suffixes.sort_unstable();
    suffixes.dedup();
    suffixes.into_iter()
}

/// The names of all formats, as [`Matrix::format`] gives them and [`encode_matrix`] takes them.
pub fn format_names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name())
}

/// Stores a row-major matrix of `cols` columns in the named format and returns its tensors, named `base.weight` and so
/// on. Every value is rounded to the nearest that the format can hold with the scales that the encoder chose.
///
/// # Errors
/// [`FormatError::Encode`] for an unknown format, values that are not finite or not whole rows, and columns that are
/// not whole blocks.
pub fn encode_matrix(
    format: &str,
    base: &str,
    cols: usize,
    values: &[f32],
) -> Result<Vec<OwnedTensor>, FormatError> {
    let Some(encoder) = FORMATS.iter().find(|known| known.name() == format) else {
        let known: Vec<_> = format_names().collect();
        return Err(FormatError::encode(
            base,
            format!("there is no format {format:?}, only {}", known.join(", ")),
        ));
    };
    check_values(base, cols, values)?;
    encoder.encode(base, cols, values)
}

fn check_values(base: &str, cols: usize, values: &[f32]) -> Result<(), FormatError> {
    if cols == 0 || values.is_empty() || !values.len().is_multiple_of(cols) {
        return Err(FormatError::encode(
            base,
            format!("{} values are not rows of {cols} columns", values.len()),
        ));
    }
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(FormatError::encode(base, format!("{value} is not finite"))),
        None => Ok(()),
    }
}

/// Fails unless rows are whole blocks.
fn check_blocks(base: &str, cols: usize, block: usize) -> Result<(), FormatError> {
    if cols.is_multiple_of(block) {
        return Ok(());
    }
    Err(FormatError::encode(base, format!("{cols} columns are not whole blocks of {block}")))
}

fn owned(base: &str, suffix: &str, dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> OwnedTensor {
    OwnedTensor { name: format!("{base}.{suffix}"), dtype, shape, bytes }
}

fn read_bits(scale: ScaleType, bytes: &[u8], out: &mut [u32]) {
    match scale {
        ScaleType::F32 => widen(bytes, out, u32::from_le_bytes),
        ScaleType::F16 | ScaleType::Bf16 => widen(bytes, out, |b| u16::from_le_bytes(b).into()),
        ScaleType::E4m3 => widen(bytes, out, |b| u8::from_le_bytes(b).into()),
    }
}

fn widen<const N: usize>(bytes: &[u8], out: &mut [u32], bits: impl Fn([u8; N]) -> u32) {
    for (out, chunk) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *out = bits(*chunk);
    }
}

/// Two codes per byte, low nibble first, in column order.
fn unpack_nibbles(packed: &[u8], out: &mut [u8]) {
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        *pair = [byte & 15, byte >> 4];
    }
}

/// The inverse of [`unpack_nibbles`].
fn pack_nibbles(codes: &[u8]) -> Vec<u8> {
    let (pairs, _) = codes.as_chunks::<2>();
    pairs.iter().map(|[low, high]| low | high << 4).collect()
}

/// A matrix of plain numbers: no blocks, no scale.
fn detect_plain<'a>(
    candidate: &Candidate<'a, '_>,
    dtype: &DType,
    codes: Codes,
) -> Option<Result<Layout<'a>, FormatError>> {
    if candidate.weight.dtype != *dtype || candidate.has_scales() {
        return None;
    }
    Some(candidate.matrix_shape().map(|(rows, cols)| Layout {
        rows,
        cols,
        encoding: Encoding { codes, zero_point: 0, blocks: None },
        tensor_scale: 1.0,
        storage: Storage::codes_only(candidate.weight.bytes),
    }))
}

/// A GGUF matrix: its tensor's type says everything.
fn detect_gguf_blocks<'a>(
    candidate: &Candidate<'a, '_>,
    dtype: &DType,
    encoding: Encoding,
) -> Option<Result<Layout<'a>, FormatError>> {
    if candidate.weight.dtype != *dtype {
        return None;
    }
    Some(candidate.matrix_shape().map(|(rows, cols)| Layout {
        rows,
        cols,
        encoding,
        tensor_scale: 1.0,
        storage: Storage::codes_only(candidate.weight.bytes),
    }))
}

/// The largest magnitude.
fn max_magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |max, value| max.max(value.abs()))
}
