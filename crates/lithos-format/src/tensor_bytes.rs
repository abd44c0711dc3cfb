//! A tensor's bytes: stored in a file, or computed where they are needed.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Bytes that are computed instead of stored: a function of their place in the tensor, and of nothing else.
pub trait GeneratedBytes: fmt::Debug + Send + Sync {
    /// Writes the tensor's bytes from `offset` on. The bytes are the same for any split into calls, in any order and
    /// on any thread.
    fn copy_to(&self, offset: usize, out: &mut [u8]);
}

/// The raw little-endian bytes of a tensor, not aligned to anything.
#[derive(Clone, Copy)]
pub enum TensorBytes<'a> {
    /// As they lie in a mapped file or in the program.
    Stored(&'a [u8]),
    /// Computed by `source` whenever they are read.
    Generated {
        /// What computes them.
        source: &'a dyn GeneratedBytes,
        /// How many there are.
        len: usize,
    },
}

impl<'a> TensorBytes<'a> {
    pub(crate) const EMPTY: TensorBytes<'static> = TensorBytes::Stored(&[]);

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Stored(bytes) => bytes.len(),
            Self::Generated { len, .. } => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes: borrowed where they are stored.
    pub fn all(&self) -> Cow<'a, [u8]> {
        self.range(0..self.len())
    }

    /// Some of the bytes: borrowed where they are stored.
    ///
    /// # Panics
    /// If the range is not within the tensor.
    pub fn range(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        match self {
            Self::Stored(bytes) => Cow::Borrowed(&bytes[range]),
            Self::Generated { .. } => {
                let mut out = vec![0; range.len()];
                self.copy_to(range.start, &mut out);
                Cow::Owned(out)
            }
        }
    }

    /// Writes the bytes from `offset` on.
    ///
    /// # Panics
    /// If the tensor ends before `out` does.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        match self {
            Self::Stored(bytes) => out.copy_from_slice(&bytes[offset..offset + out.len()]),
            Self::Generated { source, len } => {
                assert!(offset + out.len() <= *len, "bytes past the end of a tensor of {len}");
                source.copy_to(offset, out);
            }
        }
    }
}

impl fmt::Debug for TensorBytes<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Stored(_) => "stored",
            Self::Generated { .. } => "generated",
        };
        write!(formatter, "{} bytes, {kind}", self.len())
    }
}
