//! The safetensors container: an 8-byte length, a JSON header, then the tensors' bytes without gaps.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, SafeTensorError, View};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::checkpoint::{Place, StoredTensor};
use crate::mapped::MappedFile;
use crate::{DType, FormatError, TensorEntry};

const LENGTH_BYTES: usize = 8;

/// Reads the header of a mapped file. The tensors come in the order of their bytes.
pub(crate) fn read_header(
    file: &MappedFile,
    file_index: usize,
) -> Result<Vec<StoredTensor>, FormatError> {
    let bytes = file.bytes();
    let header = header_text(file)?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| {
        FormatError::malformed(file.path(), describe(&error, bytes.len(), header.len()))
    })?;
    reject_duplicates(file.path(), header)?;
    let data_start = LENGTH_BYTES + header.len();
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else {
            continue;
        };
        let (start, end) = info.data_offsets;
        tensors.push(StoredTensor {
            dtype: from_safetensors(info.dtype),
            shape: info.shape.clone(),
            place: Place::File { index: file_index, range: data_start + start..data_start + end },
            name,
        });
    }
    Ok(tensors)
}

/// The header's bytes, after its length has been checked against the file.
fn header_text(file: &MappedFile) -> Result<&[u8], FormatError> {
    let bytes = file.bytes();
    let malformed = |cause: String| FormatError::malformed(file.path(), cause);
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(malformed(format!(
            "truncated: {} bytes are too few for a safetensors file",
            bytes.len()
        )));
    };
    let length = u64::from_le_bytes(*length);
    match usize::try_from(length) {
        Ok(size) if size <= rest.len() => Ok(&rest[..size]),
        _ => Err(malformed(format!(
            "the header claims {length} bytes, but only {} follow its length: truncated, or not a safetensors file",
            rest.len()
        ))),
    }
}

fn describe(error: &SafeTensorError, file_bytes: usize, header_bytes: usize) -> String {
    match error {
        SafeTensorError::HeaderTooLarge => {
            format!(
                "the header claims {header_bytes} bytes, more than the 100 MB that the format allows"
            )
        }
        SafeTensorError::InvalidHeader(error) => format!("the header is not UTF-8: {error}"),
        SafeTensorError::InvalidHeaderDeserialization(error) => {
            format!("the header is not a valid safetensors header: {error}")
        }
        SafeTensorError::InvalidOffset(name) => format!(
            "the bytes of tensor {name:?} overlap another tensor's or leave a gap before them"
        ),
        SafeTensorError::MetadataIncompleteBuffer => format!(
            "the tensors that the header lists do not end at the file's end ({file_bytes} bytes): truncated, or bytes were added"
        ),
        SafeTensorError::TensorInvalidInfo => {
            "a tensor's byte range is not as long as its shape and type say".to_owned()
        }
        other => other.to_string(),
    }
}

/// JSON allows a key twice and the parser keeps the last: which tensor is meant would be a guess.
fn reject_duplicates(path: &Path, header: &[u8]) -> Result<(), FormatError> {
    let keys: HeaderKeys = serde_json::from_slice(header)
        .map_err(|error| FormatError::malformed(path, format!("bad header: {error}")))?;
    match keys.repeated {
        Some(name) => {
            Err(FormatError::malformed(path, format!("the header lists tensor {name:?} twice")))
        }
        None => Ok(()),
    }
}

struct HeaderKeys {
    repeated: Option<String>,
}

impl<'de> Deserialize<'de> for HeaderKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderKeysVisitor)
    }
}

struct HeaderKeysVisitor;

impl<'de> Visitor<'de> for HeaderKeysVisitor {
    type Value = HeaderKeys;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with one entry per tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderKeys, A::Error> {
        let mut seen = HashSet::new();
        let mut repeated = None;
        while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            if let Some(again) = seen.replace(key) {
                repeated.get_or_insert(again);
            }
        }
        Ok(HeaderKeys { repeated })
    }
}

fn from_safetensors(dtype: Dtype) -> DType {
    match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::U16 => DType::U16,
        Dtype::I16 => DType::I16,
        Dtype::U32 => DType::U32,
        Dtype::I32 => DType::I32,
        Dtype::U64 => DType::U64,
        Dtype::I64 => DType::I64,
        Dtype::F8_E4M3 => DType::F8E4m3,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => DType::Other(other.to_string()),
    }
}

fn to_safetensors(dtype: &DType) -> Option<Dtype> {
    Some(match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::U16 => Dtype::U16,
        DType::I16 => Dtype::I16,
        DType::U32 => Dtype::U32,
        DType::I32 => Dtype::I32,
        DType::U64 => Dtype::U64,
        DType::I64 => Dtype::I64,
        DType::F8E4m3 => Dtype::F8_E4M3,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::Q4_0 | DType::Q4_1 | DType::Q8_0 | DType::Other(_) => return None,
    })
}

struct EntryView<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl View for EntryView<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes one safetensors file, by way of a sibling that takes the place of `path` when it is complete.
///
/// # Errors
/// [`FormatError::Encode`] for a repeated name, a type that safetensors does not have (GGUF blocks), or bytes that are
/// not as long as type and shape say; [`FormatError::Malformed`] if the file cannot be written.
pub fn write_safetensors(path: &Path, tensors: &[TensorEntry<'_>]) -> Result<(), FormatError> {
    let mut names = HashSet::new();
    let mut views = Vec::with_capacity(tensors.len());
    for (name, dtype, shape, bytes) in tensors {
        if !names.insert(*name) {
            return Err(FormatError::encode(name, "two tensors have this name"));
        }
        let Some(stored) = to_safetensors(dtype) else {
            return Err(FormatError::encode(name, format!("safetensors has no type {dtype}")));
        };
        if dtype.bytes(shape) != Some(bytes.len()) {
            return Err(FormatError::encode(
                name,
                format!("{} bytes for {dtype} {shape:?}", bytes.len()),
            ));
        }
        views.push((*name, EntryView { dtype: stored, shape, bytes }));
    }
    safetensors::serialize_to_file(views, None, path).map_err(|error| match error {
        SafeTensorError::IoError(source) => FormatError::io(path, source),
        other => FormatError::malformed(path, other.to_string()),
    })
}
