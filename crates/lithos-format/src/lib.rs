//! Number formats and checkpoints: safetensors directories and GGUF files, with exact decoding of each matrix.
//!
//! [`Checkpoint::open`] maps the files of a model; a [`Folder`] may also be part of the program, and the tensors of
//! [`Checkpoint::generated`] are computed where they are needed. [`Checkpoint::tensor`] gives any tensor as it is stored;
//! [`Checkpoint::matrix`] finds out how one weight matrix is stored and decodes its rows. Each storage format is one file
//! in `formats/`; [`encode_matrix`] writes a matrix in any of them.

mod checkpoint;
mod error;
mod folder;
mod formats;
pub mod gguf;
mod mapped;
mod matrix;
pub mod numbers;
mod safetensors;
mod tensor;
mod tensor_bytes;

pub use checkpoint::{Checkpoint, Container, GeneratedTensor};
pub use error::FormatError;
pub use folder::{EmbeddedFile, Folder};
pub use formats::{encode_affine_int4, encode_matrix, format_names};
pub use gguf::GgufMetadata;
pub use matrix::{Blocks, Codes, Encoding, Matrix, ScaleType};
pub use safetensors::write_safetensors;
pub use tensor::{DType, OwnedTensor, Tensor, TensorEntry};
pub use tensor_bytes::{GeneratedBytes, TensorBytes};
