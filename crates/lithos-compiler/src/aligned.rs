//! Memory that kernels stream from: aligned, zeroed, and taken from one region where many pieces are read one after the other.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Zeroed bytes that begin at a multiple of [`AlignedBytes::ALIGNMENT`], untouched until they are written.
#[derive(Debug)]
pub struct AlignedBytes {
    start: *mut u8,
    len: usize,
    /// Keeps the memory alive. Pieces of one region are disjoint.
    _block: Arc<Block>,
}

/// A block of memory that pieces are taken from, so that they lie behind one another and may share large pages.
///
/// A pass reads every weight once: with small pages, and a block for every matrix, it would pay for a page walk every few
/// kilobytes.
#[derive(Debug)]
pub struct Region {
    block: Arc<Block>,
    used: usize,
}

/// The memory of a region. Only its address is used after it was made; contents belong to the pieces.
#[derive(Debug)]
struct Block {
    start: *mut u8,
    /// The allocation, never touched through this field again.
    storage: Vec<u8>,
    len: usize,
}

// SAFETY: a block is only an owner; contents are reached through pieces, which are disjoint.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}
// SAFETY: a piece is a unique reference to its bytes.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access to a piece only reads.
unsafe impl Sync for AlignedBytes {}

impl Block {
    fn zeroed(len: usize, alignment: usize) -> Self {
        let mut storage = vec![0u8; len + alignment];
        let offset = storage.as_ptr().align_offset(alignment);
        let start = storage.as_mut_ptr().wrapping_add(offset);
        Block { start, storage, len }
    }
}

impl Region {
    /// Where a region starts: a large page of common processors.
    pub const ALIGNMENT: usize = 2 << 20;

    /// Room for `bytes` bytes in all, each piece rounded up to [`AlignedBytes::ALIGNMENT`].
    pub fn zeroed(bytes: usize) -> Self {
        Region { block: Arc::new(Block::zeroed(bytes, Self::ALIGNMENT)), used: 0 }
    }

    /// The region's address and size, for advice to the operating system.
    pub fn span(&self) -> (*mut u8, usize) {
        debug_assert!(self.block.len <= self.block.storage.len());
        (self.block.start, self.block.len)
    }

    /// The next piece. One that does not fit any more gets memory of its own.
    pub fn take(&mut self, len: usize) -> AlignedBytes {
        if self.used + len > self.block.len {
            return AlignedBytes::zeroed(len);
        }
        let start = self.block.start.wrapping_add(self.used);
        self.used += len.next_multiple_of(AlignedBytes::ALIGNMENT);
        AlignedBytes { start, len, _block: Arc::clone(&self.block) }
    }
}

impl AlignedBytes {
    /// What the first byte's address is a multiple of: a cache line.
    pub const ALIGNMENT: usize = 64;

    /// `len` zero bytes. The operating system gives the pages only when they are first written.
    pub fn zeroed(len: usize) -> Self {
        let block = Arc::new(Block::zeroed(len, Self::ALIGNMENT));
        AlignedBytes { start: block.start, len, _block: block }
    }
}

impl Default for AlignedBytes {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside the block, which lives as long as the piece; no other piece covers these bytes.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the piece is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_zeroed_and_disjoint() {
        let mut region = Region::zeroed(64 * 5);
        let mut pieces: Vec<AlignedBytes> =
            [100, 1, 64, 0, 9000].iter().map(|len| region.take(*len)).collect();
        for (index, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.iter().all(|byte| *byte == 0));
            assert_eq!(piece.as_ptr().addr() % AlignedBytes::ALIGNMENT, 0);
            piece.fill(index as u8 + 1);
        }
        drop(region);
        for (index, piece) in pieces.iter().enumerate() {
            assert!(piece.iter().all(|byte| *byte == index as u8 + 1));
        }
        assert_eq!(pieces[1].as_ptr().addr() - pieces[0].as_ptr().addr(), 128);
    }
}
