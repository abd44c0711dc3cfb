//! A file's bytes where they lie: mapped read-only into memory, part of the program, or held in memory.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::FormatError;

#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Map(Mmap),
    Held(Cow<'static, [u8]>),
}

impl MappedFile {
    pub(crate) fn open(path: &Path) -> Result<Self, FormatError> {
        let failed = |source| FormatError::io(path, source);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(FormatError::malformed(path, "not a regular file"));
        }
        if metadata.len() == 0 {
            return Err(FormatError::malformed(path, "the file is empty"));
        }
        // SAFETY: the map is read-only. As with every mapped file, another process that truncates or rewrites it while
        // it is in use can change the bytes or stop this process; checkpoints are published whole and not edited.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Self { path: path.to_owned(), bytes: Bytes::Map(map) })
    }

    /// Bytes that are part of the program or held in memory; `path` is for messages.
    pub(crate) fn held(path: PathBuf, bytes: Cow<'static, [u8]>) -> Self {
        Self { path, bytes: Bytes::Held(bytes) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Map(map) => map,
            Bytes::Held(bytes) => bytes,
        }
    }

    /// Drops the resident pages of a byte range; reading them again brings them back from the file. The program's own
    /// pages are left to the system.
    #[cfg(unix)]
    pub(crate) fn release(&self, range: Range<usize>) {
        let Bytes::Map(map) = &self.bytes else { return };
        if range.is_empty() {
            return;
        }
        // SAFETY: the map is read-only and backed by a file, so a dropped page holds nothing that the file does not
        // hold, and the next access maps the same bytes again. The call checks the range against the map.
        let released = unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
        // Only resident size depends on it, so a refusal is not worth an error.
        drop(released);
    }

    #[cfg(not(unix))]
    pub(crate) fn release(&self, _range: Range<usize>) {}
}
