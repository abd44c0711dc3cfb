//! The GGUF container (ggml's `docs/gguf.md`), versions 2 and 3, little endian.

mod metadata;
mod reader;
mod writer;

pub use metadata::{GgufMetadata, MetadataArray, MetadataValue};
pub(crate) use reader::read;
pub use writer::Writer;

const MAGIC: [u8; 4] = *b"GGUF";

/// Where tensors begin when `general.alignment` does not say otherwise.
const DEFAULT_ALIGNMENT: usize = 32;

const ALIGNMENT_KEY: &str = "general.alignment";

/// ggml's limit on dimensions.
const MAX_DIMENSIONS: usize = 4;

/// The numbers that the format gives to metadata types.
mod value_type {
    pub(super) const U8: u32 = 0;
    pub(super) const I8: u32 = 1;
    pub(super) const U16: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const STRING: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
    pub(super) const I64: u32 = 11;
    pub(super) const F64: u32 = 12;
}
