//! Writes a GGUF file of version 3.

use std::collections::HashSet;
use std::path::Path;

use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMENSIONS, MetadataArray, MetadataValue,
    value_type,
};
use crate::{DType, FormatError, OwnedTensor, TensorEntry};

/// Collects metadata and tensors, then writes them as one file.
///
/// Integers are stored as 32-bit types where they fit, as ggml's own tools do, else as 64-bit types.
#[derive(Debug, Default)]
pub struct Writer {
    metadata: Vec<(String, MetadataValue)>,
    tensors: Vec<OwnedTensor>,
    alignment: Option<u32>,
}

impl Writer {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Aligns tensors to a power of two other than 32, and records it in the metadata.
    pub fn alignment(&mut self, bytes: u32) -> &mut Self {
        self.alignment = Some(bytes);
        self
    }

    /// Adds any metadata value.
    pub fn value(&mut self, key: &str, value: MetadataValue) -> &mut Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a text.
    pub fn string(&mut self, key: &str, text: &str) -> &mut Self {
        self.value(key, MetadataValue::String(text.to_owned()))
    }

    /// Adds an unsigned integer.
    pub fn integer(&mut self, key: &str, value: u64) -> &mut Self {
        self.value(key, MetadataValue::Unsigned(value))
    }

    /// Adds a single precision number.
    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.value(key, MetadataValue::F32(value))
    }

    /// Adds a truth value.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.value(key, MetadataValue::Bool(value))
    }

    /// Adds several texts.
    pub fn string_array(&mut self, key: &str, texts: &[impl AsRef<str>]) -> &mut Self {
        let texts = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        self.value(key, MetadataValue::Array(MetadataArray::String(texts)))
    }

    /// Adds several signed integers.
    pub fn integer_array(&mut self, key: &str, values: &[i64]) -> &mut Self {
        self.value(key, MetadataValue::Array(MetadataArray::Signed(values.to_vec())))
    }

    /// Adds several single precision numbers.
    pub fn f32_array(&mut self, key: &str, values: &[f32]) -> &mut Self {
        self.value(key, MetadataValue::Array(MetadataArray::F32(values.to_vec())))
    }

    /// Adds a tensor, with its row-major shape.
    pub fn tensor(&mut self, (name, dtype, shape, bytes): TensorEntry<'_>) -> &mut Self {
        self.tensors.push(OwnedTensor {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            bytes: bytes.to_vec(),
        });
        self
    }

    /// The whole file.
    ///
    /// # Errors
    /// [`FormatError::Encode`] for a repeated name, a type that GGUF does not have, or bytes that are not as long as
    /// type and shape say.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut keys = HashSet::new();
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        let entries = self.metadata.len() + usize::from(self.alignment.is_some());
        out.extend((entries as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            if !keys.insert(key) {
                return Err(FormatError::encode(key, "two entries have this key"));
            }
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        if let Some(alignment) = self.alignment {
            put_string(&mut out, ALIGNMENT_KEY);
            put_value(&mut out, &MetadataValue::Unsigned(alignment.into()));
        }
        let alignment = self.alignment.map_or(DEFAULT_ALIGNMENT, |value| value as usize);
        if !alignment.is_power_of_two() {
            return Err(FormatError::encode(
                ALIGNMENT_KEY,
                format!("{alignment} is not a power of two"),
            ));
        }
        self.put_descriptions(&mut out, alignment)?;
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(alignment), 0);
            out.extend(&tensor.bytes);
        }
        out.resize(out.len().next_multiple_of(alignment), 0);
        Ok(out)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// As [`Writer::to_bytes`], and [`FormatError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), FormatError> {
        let bytes = self.to_bytes()?;
        std::fs::write(path, bytes).map_err(|source| FormatError::io(path, source))
    }

    fn put_descriptions(&self, out: &mut Vec<u8>, alignment: usize) -> Result<(), FormatError> {
        let mut names = HashSet::new();
        let mut offset = 0;
        for tensor in &self.tensors {
            let OwnedTensor { name, dtype, shape, bytes } = tensor;
            if !names.insert(name) {
                return Err(FormatError::encode(name, "two tensors have this name"));
            }
            let Some(type_id) = type_id(dtype) else {
                return Err(FormatError::encode(name, format!("GGUF has no type {dtype}")));
            };
            if dtype.bytes(shape) != Some(bytes.len()) || shape.len() > MAX_DIMENSIONS {
                return Err(FormatError::encode(
                    name,
                    format!("{} bytes for {dtype} {shape:?}", bytes.len()),
                ));
            }
            put_string(out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for size in shape.iter().rev() {
                out.extend((*size as u64).to_le_bytes());
            }
            out.extend(type_id.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + bytes.len()).next_multiple_of(alignment);
        }
        Ok(())
    }
}

fn type_id(dtype: &DType) -> Option<u32> {
    Some(match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::Q4_0 => 2,
        DType::Q4_1 => 3,
        DType::Q8_0 => 8,
        DType::I8 => 24,
        DType::I16 => 25,
        DType::I32 => 26,
        DType::I64 => 27,
        DType::F64 => 28,
        DType::Bf16 => 30,
        DType::Bool
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::F8E4m3
        | DType::Other(_) => return None,
    })
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &MetadataValue) {
    match value {
        MetadataValue::Unsigned(value) => match u32::try_from(*value) {
            Ok(value) => put(out, value_type::U32, &value.to_le_bytes()),
            Err(_) => put(out, value_type::U64, &value.to_le_bytes()),
        },
        MetadataValue::Signed(value) => match i32::try_from(*value) {
            Ok(value) => put(out, value_type::I32, &value.to_le_bytes()),
            Err(_) => put(out, value_type::I64, &value.to_le_bytes()),
        },
        MetadataValue::F32(value) => put(out, value_type::F32, &value.to_le_bytes()),
        MetadataValue::F64(value) => put(out, value_type::F64, &value.to_le_bytes()),
        MetadataValue::Bool(value) => put(out, value_type::BOOL, &[u8::from(*value)]),
        MetadataValue::String(text) => {
            out.extend(value_type::STRING.to_le_bytes());
            put_string(out, text);
        }
        MetadataValue::Array(array) => {
            out.extend(value_type::ARRAY.to_le_bytes());
            put_array(out, array);
        }
    }
}

fn put(out: &mut Vec<u8>, value_type: u32, bytes: &[u8]) {
    out.extend(value_type.to_le_bytes());
    out.extend(bytes);
}

fn put_array(out: &mut Vec<u8>, array: &MetadataArray) {
    match array {
        MetadataArray::Unsigned(values) => {
            if values.iter().all(|value| u32::try_from(*value).is_ok()) {
                put_items(out, value_type::U32, values, |value| (*value as u32).to_le_bytes());
            } else {
                put_items(out, value_type::U64, values, |value| value.to_le_bytes());
            }
        }
        MetadataArray::Signed(values) => {
            if values.iter().all(|value| i32::try_from(*value).is_ok()) {
                put_items(out, value_type::I32, values, |value| (*value as i32).to_le_bytes());
            } else {
                put_items(out, value_type::I64, values, |value| value.to_le_bytes());
            }
        }
        MetadataArray::F32(values) => {
            put_items(out, value_type::F32, values, |value| value.to_le_bytes());
        }
        MetadataArray::F64(values) => {
            put_items(out, value_type::F64, values, |value| value.to_le_bytes());
        }
        MetadataArray::Bool(values) => {
            put_items(out, value_type::BOOL, values, |value| [u8::from(*value)]);
        }
        MetadataArray::String(texts) => {
            put(out, value_type::STRING, &(texts.len() as u64).to_le_bytes());
            for text in texts {
                put_string(out, text);
            }
        }
    }
}

fn put_items<T, const N: usize>(
    out: &mut Vec<u8>,
    value_type: u32,
    items: &[T],
    bytes: impl Fn(&T) -> [u8; N],
) {
    put(out, value_type, &(items.len() as u64).to_le_bytes());
    for item in items {
        out.extend(bytes(item));
    }
}
