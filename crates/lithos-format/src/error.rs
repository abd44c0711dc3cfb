//! What can go wrong when a checkpoint is opened, read or written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::DType;

/// Why a checkpoint, a tensor or a metadata value could not be used.
///
/// Every message is one line that names the file, the thing in it and the cause, and where it helps, what to do.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused to open, map, read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A path that holds nothing that can be opened as a model.
    #[error("{}: {cause}", path.display())]
    NoModel {
        /// The path that was given.
        path: PathBuf,
        /// What is missing or in the way, and what to do.
        cause: String,
    },
    /// A file whose content breaks the rules of its own format: truncated, overlapping, lying about its size.
    #[error("{}: {cause}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which rule is broken, and where.
        cause: String,
    },
    /// A tensor that was asked for is not in the checkpoint.
    #[error("{}: there is no tensor {name:?}", path.display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor's full name.
        name: String,
    },
    /// A weight is stored in a way that exists, but that this engine does not read.
    #[error("{}: tensor {tensor:?}: {found} is not supported", path.display())]
    Unsupported {
        /// The file that holds the tensor.
        path: PathBuf,
        /// The tensor's full name.
        tensor: String,
        /// What was found, in the words of the format's makers.
        found: String,
    },
    /// Two tensors that belong together do not fit each other, or one has an impossible shape.
    #[error("{}: tensor {tensor:?}: {cause}", path.display())]
    WrongShape {
        /// The file that holds the tensor.
        path: PathBuf,
        /// The tensor's full name.
        tensor: String,
        /// Both shapes, and what was expected.
        cause: String,
    },
    /// Plain numbers were asked for, but the tensor is stored in blocks or in a type that is not read.
    #[error("tensor {tensor:?} has type {dtype}, plain numbers are needed here")]
    NotPlain {
        /// The tensor's full name.
        tensor: String,
        /// Its type.
        dtype: DType,
    },
    /// A GGUF metadata key that is needed is absent.
    #[error("{}: metadata key {key:?} is missing", path.display())]
    MissingKey {
        /// The GGUF file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A GGUF metadata key holds another type, or a value outside the range of the type asked for.
    #[error("{}: metadata key {key:?} holds {found}, expected {expected}", path.display())]
    WrongKeyType {
        /// The GGUF file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The type or value that the file holds.
        found: String,
        /// What was asked for.
        expected: &'static str,
    },
    /// Values that cannot be written in the format that was asked for.
    #[error("cannot encode {name:?}: {cause}")]
    Encode {
        /// The tensor or matrix that was to be written.
        name: String,
        /// Why it cannot be.
        cause: String,
    },
}

impl FormatError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn no_model(path: &Path, cause: impl Into<String>) -> Self {
        Self::NoModel { path: path.to_owned(), cause: one_line(cause.into()) }
    }

    pub(crate) fn malformed(path: &Path, cause: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), cause: one_line(cause.into()) }
    }

    pub(crate) fn encode(name: &str, cause: impl Into<String>) -> Self {
        Self::Encode { name: name.to_owned(), cause: one_line(cause.into()) }
    }
}

/// Escapes control characters, since a message may quote text that comes from a hostile file.
fn one_line(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_control() {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "{}", character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}
