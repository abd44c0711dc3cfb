//! Reads a GGUF file. Nothing in it is believed: every count and length is held against the bytes that are left before
//! anything is allocated for it.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, GgufMetadata, MAGIC, MAX_DIMENSIONS, MetadataArray,
    MetadataValue, value_type,
};
use crate::checkpoint::{Place, StoredTensor};
use crate::mapped::MappedFile;
use crate::{DType, FormatError};

/// The fewest bytes of a metadata entry: an empty key, its type, a one-byte value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// The fewest bytes of a tensor description: an empty name, no dimensions, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;
/// The fewest bytes of a string: its length.
const MIN_STRING_BYTES: u64 = 8;

/// Items to reserve space for before any of them was read: a count that fits the file can still be a lie.
const MAX_RESERVED: usize = 1 << 12;

/// Reads metadata and tensor descriptions. The tensors come in the order of their bytes.
pub(crate) fn read(
    file: &MappedFile,
    file_index: usize,
) -> Result<(GgufMetadata, Vec<StoredTensor>), FormatError> {
    let mut cursor = Cursor { path: file.path(), bytes: file.bytes(), position: 0 };
    let (tensor_count, entry_count) = read_preamble(&mut cursor)?;
    let metadata = read_metadata(&mut cursor, entry_count)?;
    if let Some(parts) = metadata.optional("split.count", GgufMetadata::u64)?
        && parts > 1
    {
        return Err(cursor.malformed(format!(
            "this is one of {parts} parts of a split model: merge them into one file first (llama.cpp's gguf-split)"
        )));
    }
    let alignment = match metadata.optional(ALIGNMENT_KEY, GgufMetadata::u32)? {
        None => DEFAULT_ALIGNMENT,
        Some(value) if value.is_power_of_two() => value as usize,
        Some(value) => {
            return Err(cursor
                .malformed(format!("{ALIGNMENT_KEY} is {value}, which is not a power of two")));
        }
    };
    let mut described = Vec::with_capacity(tensor_count.min(MAX_RESERVED));
    let mut names = HashSet::with_capacity(tensor_count.min(MAX_RESERVED));
    for _ in 0..tensor_count {
        let tensor = read_description(&mut cursor)?;
        if !names.insert(tensor.name.clone()) {
            return Err(cursor.malformed(format!("tensor {:?} is listed twice", tensor.name)));
        }
        described.push(tensor);
    }
    let tensors = place(&cursor, described, alignment, file_index)?;
    Ok((metadata, tensors))
}

/// Magic, version and the two counts: tensors, metadata entries.
fn read_preamble(cursor: &mut Cursor<'_>) -> Result<(usize, usize), FormatError> {
    if !cursor.bytes.starts_with(&MAGIC) {
        return Err(cursor.malformed("not a GGUF file: it does not begin with \"GGUF\""));
    }
    cursor.position = MAGIC.len();
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => {}
        _ if version & 0xffff == 0 => {
            return Err(cursor.malformed(
                "a big-endian GGUF file: convert it to little endian (gguf's gguf-convert-endian)",
            ));
        }
        _ => {
            return Err(cursor.malformed(format!(
                "GGUF version {version} is not supported, only versions 2 and 3 are"
            )));
        }
    }
    let tensors = cursor.u64("the tensor count")?;
    let entries = cursor.u64("the metadata count")?;
    let tensors = cursor.count(tensors, MIN_TENSOR_BYTES, "tensors")?;
    let entries = cursor.count(entries, MIN_ENTRY_BYTES, "metadata entries")?;
    Ok((tensors, entries))
}

fn read_metadata(cursor: &mut Cursor<'_>, count: usize) -> Result<GgufMetadata, FormatError> {
    let mut metadata = GgufMetadata::new(cursor.path);
    for _ in 0..count {
        let key = cursor.string("a metadata key")?;
        let value_type = cursor.u32(&key)?;
        let value = read_value(cursor, &key, value_type)?;
        // Checked first, since the insertion takes the key away.
        if metadata.contains(&key) {
            return Err(cursor.malformed(format!("metadata key {key:?} is listed twice")));
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn read_value(
    cursor: &mut Cursor<'_>,
    key: &str,
    value_type: u32,
) -> Result<MetadataValue, FormatError> {
    use MetadataValue::{Array, Bool, F32, F64, Signed, String, Unsigned};
    Ok(match value_type {
        value_type::U8 => Unsigned(u8::from_le_bytes(cursor.array(key)?).into()),
        value_type::I8 => Signed(i8::from_le_bytes(cursor.array(key)?).into()),
        value_type::U16 => Unsigned(u16::from_le_bytes(cursor.array(key)?).into()),
        value_type::I16 => Signed(i16::from_le_bytes(cursor.array(key)?).into()),
        value_type::U32 => Unsigned(u32::from_le_bytes(cursor.array(key)?).into()),
        value_type::I32 => Signed(i32::from_le_bytes(cursor.array(key)?).into()),
        value_type::F32 => F32(f32::from_le_bytes(cursor.array(key)?)),
        value_type::BOOL => Bool(cursor.array::<1>(key)? != [0]),
        value_type::STRING => String(cursor.string(key)?),
        value_type::ARRAY => Array(read_array(cursor, key)?),
        value_type::U64 => Unsigned(u64::from_le_bytes(cursor.array(key)?)),
        value_type::I64 => Signed(i64::from_le_bytes(cursor.array(key)?)),
        value_type::F64 => F64(f64::from_le_bytes(cursor.array(key)?)),
        unknown => {
            return Err(cursor.malformed(format!(
                "metadata key {key:?} has type {unknown}, which GGUF does not define"
            )));
        }
    })
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<MetadataArray, FormatError> {
    use MetadataArray::{Bool, F32, F64, Signed, Unsigned};
    let element_type = cursor.u32(key)?;
    let count = cursor.u64(key)?;
    Ok(match element_type {
        value_type::U8 => Unsigned(cursor.many(key, count, |b| u8::from_le_bytes(b).into())?),
        value_type::I8 => Signed(cursor.many(key, count, |b| i8::from_le_bytes(b).into())?),
        value_type::U16 => Unsigned(cursor.many(key, count, |b| u16::from_le_bytes(b).into())?),
        value_type::I16 => Signed(cursor.many(key, count, |b| i16::from_le_bytes(b).into())?),
        value_type::U32 => Unsigned(cursor.many(key, count, |b| u32::from_le_bytes(b).into())?),
        value_type::I32 => Signed(cursor.many(key, count, |b| i32::from_le_bytes(b).into())?),
        value_type::F32 => F32(cursor.many(key, count, f32::from_le_bytes)?),
        value_type::BOOL => Bool(cursor.many(key, count, |b: [u8; 1]| b != [0])?),
        value_type::U64 => Unsigned(cursor.many(key, count, u64::from_le_bytes)?),
        value_type::I64 => Signed(cursor.many(key, count, i64::from_le_bytes)?),
        value_type::F64 => F64(cursor.many(key, count, f64::from_le_bytes)?),
        value_type::STRING => {
            let count = cursor.count(count, MIN_STRING_BYTES, key)?;
            let mut texts = Vec::with_capacity(count.min(MAX_RESERVED));
            for _ in 0..count {
                texts.push(cursor.string(key)?);
            }
            MetadataArray::String(texts)
        }
        value_type::ARRAY => {
            return Err(cursor.malformed(format!(
                "metadata key {key:?} holds arrays of arrays, which are not supported"
            )));
        }
        unknown => {
            return Err(cursor.malformed(format!(
                "metadata key {key:?} is an array of type {unknown}, which GGUF does not define"
            )));
        }
    })
}

/// A tensor as the file describes it, before its bytes are found.
struct Description {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    /// `None` for types whose block size is not known here.
    bytes: Option<u64>,
    offset: u64,
}

fn read_description(cursor: &mut Cursor<'_>) -> Result<Description, FormatError> {
    let name = cursor.string("a tensor name")?;
    let dimensions = cursor.u32(&name)? as usize;
    if dimensions > MAX_DIMENSIONS {
        return Err(cursor.malformed(format!(
            "tensor {name:?} claims {dimensions} dimensions, GGUF allows {MAX_DIMENSIONS}"
        )));
    }
    let mut shape = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        let size = cursor.u64(&name)?;
        shape.push(usize::try_from(size).map_err(|_| {
            cursor.malformed(format!("tensor {name:?} claims a dimension of {size}"))
        })?);
    }
    // GGUF lists the contiguous dimension first.
    shape.reverse();
    let type_id = cursor.u32(&name)?;
    let offset = cursor.u64(&name)?;
    let (dtype, block) = tensor_type(type_id);
    let bytes = match block {
        Some((elements, bytes)) => Some(byte_size(&shape, elements, bytes).map_err(|cause| {
            cursor.malformed(format!("tensor {name:?} ({dtype} {shape:?}): {cause}"))
        })?),
        None => None,
    };
    Ok(Description { name, dtype, shape, bytes, offset })
}

fn byte_size(shape: &[usize], block_elements: usize, block_bytes: usize) -> Result<u64, String> {
    let columns = shape.last().copied().unwrap_or(1);
    if !columns.is_multiple_of(block_elements) {
        return Err(format!("its {columns} columns are not whole blocks of {block_elements}"));
    }
    let elements = shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size as u64));
    elements
        .and_then(|count| (count / block_elements as u64).checked_mul(block_bytes as u64))
        .ok_or_else(|| "its size overflows 64 bits".to_owned())
}

/// ggml's type numbers, with elements and bytes per block where they are known.
fn tensor_type(type_id: u32) -> (DType, Option<(usize, usize)>) {
    let readable = match type_id {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::Q4_0,
        3 => DType::Q4_1,
        8 => DType::Q8_0,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::Bf16,
        _ => {
            let (name, block) = unread_type(type_id);
            return (DType::Other(name), block);
        }
    };
    let block = readable.block();
    (readable, block)
}

/// Types that are named in errors but not decoded.
fn unread_type(type_id: u32) -> (String, Option<(usize, usize)>) {
    let (name, block) = match type_id {
        6 => ("Q5_0", Some((32, 22))),
        7 => ("Q5_1", Some((32, 24))),
        9 => ("Q8_1", Some((32, 36))),
        10 => ("Q2_K", Some((256, 84))),
        11 => ("Q3_K", Some((256, 110))),
        12 => ("Q4_K", Some((256, 144))),
        13 => ("Q5_K", Some((256, 176))),
        14 => ("Q6_K", Some((256, 210))),
        15 => ("Q8_K", Some((256, 292))),
        16 => ("IQ2_XXS", None),
        17 => ("IQ2_XS", None),
        18 => ("IQ3_XXS", None),
        19 => ("IQ1_S", None),
        20 => ("IQ4_NL", Some((32, 18))),
        21 => ("IQ3_S", None),
        22 => ("IQ2_S", None),
        23 => ("IQ4_XS", None),
        29 => ("IQ1_M", None),
        34 => ("TQ1_0", None),
        35 => ("TQ2_0", None),
        39 => ("MXFP4", Some((32, 17))),
        _ => return (format!("number {type_id} (unknown to this version)"), None),
    };
    (name.to_owned(), block)
}

/// Turns offsets into byte ranges of the file, and refuses tensors that leave the file or overlap.
fn place(
    cursor: &Cursor<'_>,
    mut described: Vec<Description>,
    alignment: usize,
    file_index: usize,
) -> Result<Vec<StoredTensor>, FormatError> {
    let file_bytes = cursor.bytes.len() as u64;
    let data_start = (cursor.position as u64).next_multiple_of(alignment as u64);
    let data_bytes = file_bytes.saturating_sub(data_start);
    // An empty tensor shares its offset with the one after it, so it comes first.
    described.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    let offsets: Vec<u64> = described.iter().map(|tensor| tensor.offset).collect();
    let mut tensors = Vec::with_capacity(described.len());
    for (index, tensor) in described.into_iter().enumerate() {
        let following = offsets.get(index + 1).copied();
        let name = &tensor.name;
        if !tensor.offset.is_multiple_of(alignment as u64) {
            return Err(cursor.malformed(format!(
                "tensor {name:?} begins at offset {}, which is not a multiple of the alignment {alignment}",
                tensor.offset
            )));
        }
        let limit = following.unwrap_or(data_bytes).max(tensor.offset);
        let bytes = tensor.bytes.unwrap_or(limit - tensor.offset);
        let end = tensor.offset.checked_add(bytes);
        if end.is_none_or(|end| end > data_bytes) {
            return Err(cursor.malformed(format!(
                "tensor {name:?} needs {bytes} bytes at offset {}, but only {data_bytes} bytes of tensors are there: truncated, or not what it claims",
                tensor.offset
            )));
        }
        if let (Some(end), Some(following)) = (end, following)
            && end > following
        {
            return Err(
                cursor.malformed(format!("the bytes of tensor {name:?} overlap another tensor's"))
            );
        }
        tensors.push(StoredTensor {
            name: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
            place: Place::File {
                index: file_index,
                range: byte_range(data_start + tensor.offset, bytes),
            },
        });
    }
    Ok(tensors)
}

/// Both numbers were held against the length of a file in memory, so they fit. An empty tensor may stand behind the
/// file's end, so it gets no place at all.
fn byte_range(start: u64, bytes: u64) -> Range<usize> {
    if bytes == 0 {
        return 0..0;
    }
    start as usize..(start + bytes) as usize
}

/// Walks the bytes of the file; every step checks what is left.
struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn malformed(&self, cause: impl Into<String>) -> FormatError {
        FormatError::malformed(self.path, cause)
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    fn take(&mut self, bytes: u64, what: &str) -> Result<&'a [u8], FormatError> {
        if bytes > self.left() {
            return Err(self.malformed(format!(
                "truncated at byte {}: {what:?} needs {bytes} bytes, {} are left",
                self.position,
                self.left()
            )));
        }
        let start = self.position;
        self.position += bytes as usize;
        Ok(&self.bytes[start..self.position])
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn string(&mut self, what: &str) -> Result<String, FormatError> {
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(self.malformed(format!("{what:?} is not UTF-8: {error}"))),
        }
    }

    /// A claimed count, once that many items of at least `item_bytes` can be in the rest of the file.
    fn count(&self, claimed: u64, item_bytes: u64, what: &str) -> Result<usize, FormatError> {
        if claimed > self.left() / item_bytes {
            return Err(self.malformed(format!(
                "the file claims {claimed} items of {what:?}, but only {} bytes are left: truncated, or its counts are wrong",
                self.left()
            )));
        }
        Ok(claimed as usize)
    }

    fn many<const N: usize, T>(
        &mut self,
        what: &str,
        count: u64,
        convert: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, FormatError> {
        let count = self.count(count, N as u64, what)?;
        let bytes = self.take((count * N) as u64, what)?;
        let (chunks, _) = bytes.as_chunks::<N>();
        Ok(chunks.iter().map(|chunk| convert(*chunk)).collect())
    }
}
