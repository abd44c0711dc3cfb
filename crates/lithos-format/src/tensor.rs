//! One stored tensor: its type, its shape, its bytes.

use std::fmt;

use crate::numbers::{bf16_to_f32, e4m3_to_f32, f16_to_f32};
use crate::{FormatError, TensorBytes};

/// The type of a tensor's elements, or of its blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DType {
    /// One byte, zero or one.
    Bool,
    /// Unsigned byte. Also holds pairs of 4-bit codes.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer. Also holds eight 4-bit codes.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// FP8 with four exponent bits, see [`e4m3_to_f32`](crate::numbers::e4m3_to_f32).
    F8E4m3,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// GGUF block of 32 columns: f16 scale, 16 bytes of 4-bit codes.
    Q4_0,
    /// GGUF block of 32 columns: f16 scale, f16 minimum, 16 bytes of 4-bit codes.
    Q4_1,
    /// GGUF block of 32 columns: f16 scale, 32 signed bytes.
    Q8_0,
    /// A type that is recognised, or only numbered, but not read; the name its format gives it.
    Other(String),
}

impl DType {
    /// Elements per block and bytes per block (1 element for plain types); `None` for [`DType::Other`].
    pub fn block(&self) -> Option<(usize, usize)> {
        Some(match self {
            Self::Bool | Self::U8 | Self::I8 | Self::F8E4m3 => (1, 1),
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => (1, 2),
            Self::U32 | Self::I32 | Self::F32 => (1, 4),
            Self::U64 | Self::I64 | Self::F64 => (1, 8),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q8_0 => (32, 34),
            Self::Other(_) => return None,
        })
    }

    /// Bytes of a tensor of this type and shape. `None` if the type is not read, if the last dimension is not whole
    /// blocks, or if the count overflows.
    pub fn bytes(&self, shape: &[usize]) -> Option<usize> {
        let (elements, bytes) = self.block()?;
        let (last, outer) = match shape.split_last() {
            Some((last, outer)) => (*last, outer),
            None => (1, shape),
        };
        if last % elements != 0 {
            return None;
        }
        outer
            .iter()
            .try_fold(last / elements, |count, size| count.checked_mul(*size))?
            .checked_mul(bytes)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bool => "BOOL",
            Self::U8 => "U8",
            Self::I8 => "I8",
            Self::U16 => "U16",
            Self::I16 => "I16",
            Self::U32 => "U32",
            Self::I32 => "I32",
            Self::U64 => "U64",
            Self::I64 => "I64",
            Self::F8E4m3 => "F8_E4M3",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
            Self::Other(name) => name,
        })
    }
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone)]
pub struct Tensor<'a> {
    /// The full name.
    pub name: &'a str,
    /// The type of its elements or blocks.
    pub dtype: DType,
    /// Row-major shape: the last dimension is contiguous. A scalar has none. GGUF's reversed order is turned around.
    pub shape: &'a [usize],
    /// The raw little-endian bytes.
    pub bytes: TensorBytes<'a>,
}

impl Tensor<'_> {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        // Checked against the file when it was opened, so the product does not overflow.
        self.shape.iter().product()
    }

    /// All elements as `f32`, row-major. Exact for F32, F16, BF16, F8_E4M3 and integers up to 24 bits; F64 and larger
    /// integers are rounded.
    ///
    /// # Errors
    /// [`FormatError::NotPlain`] for block types: those are matrices, see [`Checkpoint::matrix`](crate::Checkpoint::matrix).
    pub fn to_f32(&self) -> Result<Vec<f32>, FormatError> {
        let bytes = &*self.bytes.all();
        Ok(match self.dtype {
            DType::F32 => read(bytes, f32::from_le_bytes),
            DType::F16 => read(bytes, |b| f16_to_f32(u16::from_le_bytes(b))),
            DType::Bf16 => read(bytes, |b| bf16_to_f32(u16::from_le_bytes(b))),
            DType::F64 => read(bytes, |b| f64::from_le_bytes(b) as f32),
            DType::F8E4m3 => read(bytes, |[b]| e4m3_to_f32(b)),
            DType::Bool | DType::U8 => read(bytes, |[b]| f32::from(b)),
            DType::I8 => read(bytes, |b| f32::from(i8::from_le_bytes(b))),
            DType::U16 => read(bytes, |b| f32::from(u16::from_le_bytes(b))),
            DType::I16 => read(bytes, |b| f32::from(i16::from_le_bytes(b))),
            DType::U32 => read(bytes, |b| u32::from_le_bytes(b) as f32),
            DType::I32 => read(bytes, |b| i32::from_le_bytes(b) as f32),
            DType::U64 => read(bytes, |b| u64::from_le_bytes(b) as f32),
            DType::I64 => read(bytes, |b| i64::from_le_bytes(b) as f32),
            DType::Q4_0 | DType::Q4_1 | DType::Q8_0 | DType::Other(_) => {
                return Err(FormatError::NotPlain {
                    tensor: self.name.to_owned(),
                    dtype: self.dtype.clone(),
                });
            }
        })
    }
}

fn read<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

/// A tensor in memory, ready to be written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedTensor {
    /// The full name.
    pub name: String,
    /// The type of its elements or blocks.
    pub dtype: DType,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Little-endian bytes.
    pub bytes: Vec<u8>,
}

impl OwnedTensor {
    /// An F32 tensor of the given row-major values.
    pub fn from_f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        Self {
            name: name.into(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    /// The entry that the writers take.
    pub fn entry(&self) -> TensorEntry<'_> {
        (&self.name, self.dtype.clone(), &self.shape, &self.bytes)
    }
}

/// Name, type, row-major shape and bytes of a tensor to be written.
pub type TensorEntry<'a> = (&'a str, DType, &'a [usize], &'a [u8]);
