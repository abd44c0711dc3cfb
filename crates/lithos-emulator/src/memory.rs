//! Buffers that kernels read and write.
//!
//! Each lies between pages that cannot be touched, so that even an unchecked run stops at a wild access instead of
//! going on with a neighbour's values. A buffer can track which of its bytes were ever written.

use crate::error::EmulatorError;
use std::ptr::NonNull;
use std::sync::Arc;

/// Untouchable bytes on both sides of a buffer.
const GUARD: usize = 1 << 20;
const PAGE: usize = 1 << 12;
/// What unwritten bytes hold: a NaN in every float format.
pub(crate) const POISON: u8 = 0xff;

/// The buffers of a program, kept from launch to launch.
#[derive(Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
}

/// A buffer of a [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(usize);

/// Bytes that are shared and only read, for instance a mapped checkpoint.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) length: usize,
    storage: Storage,
    /// One bit a byte, where unwritten bytes are tracked.
    pub(crate) written: Option<Bits>,
}

enum Storage {
    Owned(Pages),
    Shared(SharedBytes),
}

/// A set of byte offsets.
#[derive(Debug, Clone)]
pub(crate) struct Bits(Vec<u64>);

/// Mapped memory, the middle part of which can be used.
pub(crate) struct Pages {
    start: NonNull<u8>,
    mapped: usize,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer of zeros.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::OutOfMemory`].
    pub fn add_zeroed(&mut self, name: &str, length: usize) -> Result<BufferId, EmulatorError> {
        let pages = Pages::guarded(length, name)?;
        Ok(self.add(name, length, Storage::Owned(pages), None))
    }

    /// Adds a buffer that nobody has written: every byte is 0xff, a NaN in every float format, and checked runs
    /// report each read of a byte before its first write.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::OutOfMemory`].
    pub fn add_unwritten(&mut self, name: &str, length: usize) -> Result<BufferId, EmulatorError> {
        let pages = Pages::guarded(length, name)?;
        let id = self.add(name, length, Storage::Owned(pages), Some(Bits::empty(length)));
        self.bytes_mut(id).fill(POISON);
        Ok(id)
    }

    /// Adds a buffer with these bytes.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::OutOfMemory`].
    pub fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<BufferId, EmulatorError> {
        let id = self.add_zeroed(name, bytes.len())?;
        self.bytes_mut(id).copy_from_slice(bytes);
        Ok(id)
    }

    /// Adds bytes that are shared and not copied; kernels may only read them.
    pub fn add_shared(&mut self, name: &str, bytes: SharedBytes) -> BufferId {
        let length = bytes.as_ref().as_ref().len();
        self.add(name, length, Storage::Shared(bytes), None)
    }

    fn add(
        &mut self,
        name: &str,
        length: usize,
        storage: Storage,
        written: Option<Bits>,
    ) -> BufferId {
        self.buffers.push(Buffer { name: name.to_owned(), length, storage, written });
        BufferId(self.buffers.len() - 1)
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        let buffer = &self.buffers[id.0];
        match &buffer.storage {
            // SAFETY: the pages hold `length` bytes, and kernels run only while `self` is borrowed exclusively.
            Storage::Owned(pages) => unsafe {
                std::slice::from_raw_parts(pages.data(), buffer.length)
            },
            Storage::Shared(bytes) => bytes.as_ref().as_ref(),
        }
    }

    /// The bytes of a buffer, to be changed without marking them as written; empty for shared bytes.
    fn bytes_mut(&mut self, id: BufferId) -> &mut [u8] {
        let buffer = &mut self.buffers[id.0];
        match &buffer.storage {
            // SAFETY: the pages hold `length` bytes, and `self` is borrowed exclusively.
            Storage::Owned(pages) => unsafe {
                std::slice::from_raw_parts_mut(pages.data(), buffer.length)
            },
            Storage::Shared(_) => &mut [],
        }
    }

    /// Writes `bytes` at byte `offset`; they count as written. False, and nothing is done, where they do not fit or
    /// the buffer is shared.
    #[must_use]
    pub fn write(&mut self, id: BufferId, offset: usize, bytes: &[u8]) -> bool {
        let Some(end) = offset.checked_add(bytes.len()) else { return false };
        let Some(part) = self.bytes_mut(id).get_mut(offset..end) else { return false };
        part.copy_from_slice(bytes);
        if let Some(written) = &mut self.buffers[id.0].written {
            written.insert(offset, bytes.len());
        }
        true
    }

    /// Makes a whole buffer unwritten again, as before a launch whose outputs must all be new; tracked from here on.
    /// False, and nothing is done, where the buffer is shared.
    pub fn forget(&mut self, id: BufferId) -> bool {
        let length = self.buffers[id.0].length;
        self.forget_range(id, 0, length)
    }

    /// Makes `length` bytes from byte `offset` unwritten again; tracked from here on. False, and nothing is done,
    /// where the buffer is shared or has no such bytes.
    pub fn forget_range(&mut self, id: BufferId, offset: usize, length: usize) -> bool {
        if matches!(self.buffers[id.0].storage, Storage::Shared(_)) {
            return false;
        }
        let Some(end) = offset.checked_add(length) else { return false };
        let Some(part) = self.bytes_mut(id).get_mut(offset..end) else { return false };
        part.fill(POISON);
        let buffer = &mut self.buffers[id.0];
        let whole = buffer.length;
        buffer.written.get_or_insert_with(|| Bits::full(whole)).remove(offset, length);
        true
    }

    /// The floats of a buffer; none where its length is not a multiple of four.
    pub fn floats(&self, id: BufferId) -> Option<&[f32]> {
        bytemuck::try_cast_slice(self.bytes(id)).ok()
    }

    /// The name of a buffer.
    pub fn name(&self, id: BufferId) -> &str {
        &self.buffers[id.0].name
    }

    /// The length of a buffer in bytes.
    pub fn length(&self, id: BufferId) -> usize {
        self.buffers[id.0].length
    }

    /// The first byte that a checked run has not written, where that is tracked.
    pub fn first_unwritten(&self, id: BufferId) -> Option<usize> {
        let buffer = &self.buffers[id.0];
        buffer.written.as_ref()?.first_missing(0, buffer.length)
    }

    pub(crate) fn buffer(&self, id: BufferId) -> Option<&Buffer> {
        self.buffers.get(id.0)
    }

    pub(crate) fn take_written(&mut self, id: BufferId) -> Option<Bits> {
        self.buffers[id.0].written.take()
    }

    pub(crate) fn put_written(&mut self, id: BufferId, written: Option<Bits>) {
        self.buffers[id.0].written = written;
    }
}

impl Buffer {
    /// The address of the first byte, for kernels to use.
    pub(crate) fn address(&self) -> *mut u8 {
        match &self.storage {
            Storage::Owned(pages) => pages.data(),
            Storage::Shared(bytes) => bytes.as_ref().as_ref().as_ptr().cast_mut(),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.storage, Storage::Shared(_))
    }
}

impl Bits {
    pub(crate) fn empty(length: usize) -> Self {
        Self(vec![0; length.div_ceil(64)])
    }

    fn full(length: usize) -> Self {
        Self(vec![!0; length.div_ceil(64)])
    }

    /// The words that hold `length` bits from `start`, each with a mask of them.
    fn words(start: usize, length: usize) -> impl Iterator<Item = (usize, u64)> {
        let end = start + length;
        (start / 64..end.div_ceil(64)).map(move |word| {
            let low = start.saturating_sub(word * 64);
            let high = (end - word * 64).min(64);
            let mask = if high - low == 64 { !0 } else { ((1 << (high - low)) - 1) << low };
            (word, mask)
        })
    }

    pub(crate) fn insert(&mut self, start: usize, length: usize) {
        for (word, mask) in Self::words(start, length) {
            self.0[word] |= mask;
        }
    }

    pub(crate) fn remove(&mut self, start: usize, length: usize) {
        for (word, mask) in Self::words(start, length) {
            self.0[word] &= !mask;
        }
    }

    pub(crate) fn first_missing(&self, start: usize, length: usize) -> Option<usize> {
        Self::words(start, length).find_map(|(word, mask)| {
            let missing = !self.0[word] & mask;
            (missing != 0).then(|| word * 64 + missing.trailing_zeros() as usize)
        })
    }
}

impl Pages {
    /// `length` usable bytes of zeros between guards.
    pub(crate) fn guarded(length: usize, purpose: &str) -> Result<Self, EmulatorError> {
        let usable = length.max(1).div_ceil(PAGE) * PAGE;
        let pages = Self::reserve(usable + 2 * GUARD, purpose)?;
        pages.protect(0, GUARD, libc::PROT_NONE, purpose)?;
        pages.protect(GUARD + usable, GUARD, libc::PROT_NONE, purpose)?;
        Ok(pages)
    }

    /// `length` bytes of zeros, taken from the system where they are first touched.
    pub(crate) fn reserve(length: usize, purpose: &str) -> Result<Self, EmulatorError> {
        // SAFETY: a new private mapping; nothing is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let failed = || out_of_memory(length, purpose);
        if start == libc::MAP_FAILED {
            return Err(failed());
        }
        let start = NonNull::new(start.cast()).ok_or_else(failed)?;
        Ok(Self { start, mapped: length })
    }

    /// Changes what may be done with a part.
    pub(crate) fn protect(
        &self,
        offset: usize,
        length: usize,
        protection: libc::c_int,
        purpose: &str,
    ) -> Result<(), EmulatorError> {
        assert!(offset + length <= self.mapped);
        // SAFETY: the range lies within this mapping.
        let result =
            unsafe { libc::mprotect(self.start.as_ptr().add(offset).cast(), length, protection) };
        if result == 0 { Ok(()) } else { Err(out_of_memory(length, purpose)) }
    }

    /// The first usable byte of guarded pages.
    pub(crate) fn data(&self) -> *mut u8 {
        // SAFETY: guarded pages are longer than a guard.
        unsafe { self.start.as_ptr().add(GUARD) }
    }

    /// The first byte of the mapping.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The length of the mapping.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever holds an address into it holds `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

// SAFETY: plain memory that is owned by the value; shared references only read.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

fn out_of_memory(bytes: usize, purpose: &str) -> EmulatorError {
    EmulatorError::OutOfMemory {
        bytes,
        purpose: purpose.to_owned(),
        source: std::io::Error::last_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_written_bytes() {
        let mut memory = Memory::new();
        let id = memory.add_unwritten("x", 300).unwrap();
        assert_eq!(memory.first_unwritten(id), Some(0));
        assert!(memory.write(id, 0, &[1; 130]));
        assert_eq!(memory.first_unwritten(id), Some(130));
        assert!(memory.write(id, 131, &[1; 169]));
        assert_eq!(memory.first_unwritten(id), Some(130));
        assert!(!memory.write(id, 200, &[1; 101]));
        assert!(memory.write(id, 130, &[7]));
        assert_eq!(memory.first_unwritten(id), None);
        assert!(memory.forget_range(id, 64, 64));
        assert_eq!(memory.first_unwritten(id), Some(64));
        assert_eq!(memory.bytes(id)[63..65], [1, POISON]);
    }

    #[test]
    fn shared_bytes_stay() {
        let mut memory = Memory::new();
        let id = memory.add_shared("weights", Arc::new(vec![1_u8, 2, 3]));
        assert!(!memory.write(id, 0, &[9]));
        assert!(!memory.forget(id));
        assert_eq!(memory.bytes(id), [1, 2, 3]);
    }
}
