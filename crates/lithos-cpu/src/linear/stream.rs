//! One activation row: the packed weights stream from memory once and are decoded in registers.

use std::marker::PhantomData;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::codes::{FloatCodes, IntegerCodes, Scales, Tile, TileStrides};
use super::operand::RecordLayout;
use crate::simd::{Kernel, Simd};

/// How far ahead of its reads a stream asks for cache lines, in bytes.
pub(super) const PREFETCH_AHEAD: usize = 2048;

/// The sums of neighbouring tiles of integer codes with one row. `K` is the type of their scales, and of their biases if they
/// have any.
pub(super) struct StreamIntegers<C, K, const BIAS: bool, const UNIT: usize> {
    /// The first tile.
    pub(super) tile: Tile,
    /// How many tiles.
    pub(super) tiles: usize,
    /// Bytes from one tile to the next, in each plane.
    pub(super) strides: TileStrides,
    /// The tile that is read after them.
    pub(super) then: Tile,
    pub(super) zero_point: i32,
    pub(super) record: RecordLayout,
    /// The row's record.
    pub(super) row: *const u8,
    /// 16 sums for each tile.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
    pub(super) scales: PhantomData<K>,
}

impl<C: IntegerCodes, K: Scales, const BIAS: bool, const UNIT: usize> Kernel
    for StreamIntegers<C, K, BIAS, UNIT>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for index in 0..self.tiles {
            let tile = self.strides.advance(self.tile, index);
            let last = index + 1 == self.tiles;
            let next = if last { self.then } else { self.strides.advance(tile, 1) };
            // SAFETY: the tiles lie behind one another, each with a place for its sums.
            unsafe { self.tile(s, tile, next, self.sums.add(index * TILE_ROWS)) };
        }
    }
}

impl<C: IntegerCodes, K: Scales, const BIAS: bool, const UNIT: usize>
    StreamIntegers<C, K, BIAS, UNIT>
{
    /// `next` is only asked for.
    ///
    /// # Safety
    /// The tile must have the record's columns, and there must be room for 16 sums.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: Tile, next: Tile, out: *mut f32) {
        let units_per_group = tile.group_cols / UNIT;
        let groups = tile.cols.div_ceil(tile.group_cols);
        let mut acc = s.zero();
        let mut unit = 0;
        let unit_bytes = UNIT / 8 * C::BYTES;
        let code_bytes = tile.cols / 8 * C::BYTES;
        let group_bytes = TILE_ROWS * K::bytes(tile.scale_type);
        let bias_bytes = TILE_ROWS * K::bytes(tile.bias_type);
        let unit_sums = if UNIT == BLOCK_COLS { self.record.sums } else { self.record.half_sums };
        // SAFETY: the tile and the record were made for the same padded columns; `unit` stays below their units, and
        // `unit / units_per_group` is a group of the tile.
        unsafe {
            let q = self.row.cast::<i16>();
            let scales = self.row.add(self.record.scales).cast::<f32>();
            let scaled_sums = self.row.add(self.record.scaled_sums).cast::<f32>();
            let unit_sums = self.row.add(unit_sums).cast::<i32>();
            for group in 0..groups {
                let at = group * group_bytes;
                let d = K::load(s, tile.scale_type, tile.scales.add(at));
                s.prefetch(ahead(
                    tile.scales,
                    next.scales,
                    at + PREFETCH_AHEAD / 4,
                    groups * group_bytes,
                ));
                let bias = if BIAS {
                    let at = group * bias_bytes;
                    s.prefetch(ahead(
                        tile.biases,
                        next.biases,
                        at + PREFETCH_AHEAD / 4,
                        groups * bias_bytes,
                    ));
                    Some(K::load(s, tile.bias_type, tile.biases.add(at)))
                } else {
                    None
                };
                for _ in 0..units_per_group {
                    let at = unit * unit_bytes;
                    let soon = ahead(tile.codes, next.codes, at + PREFETCH_AHEAD, code_bytes);
                    for line in 0..unit_bytes / 64 {
                        s.prefetch(soon.wrapping_add(64 * line));
                    }
                    let zero = s.splat_i32(0);
                    let offset = s.splat_i32((*unit_sums.add(unit)).wrapping_mul(-self.zero_point));
                    let mut sums = [offset, zero, zero];
                    for eight in 0..UNIT / 8 {
                        let activations = q.add(unit * UNIT + 8 * eight);
                        let at = tile.codes.add(at + eight * C::BYTES);
                        C::accumulate(s, &mut sums, at, activations);
                    }
                    let block = unit * UNIT / BLOCK_COLS;
                    let scaled = s.mul(s.to_f32(C::total(s, sums)), d);
                    acc = s.fma(scaled, s.splat(*scales.add(block)), acc);
                    if let Some(bias) = bias {
                        acc = s.fma(bias, s.splat(*scaled_sums.add(block)), acc);
                    }
                    unit += 1;
                }
            }
            s.store(out, acc);
        }
    }
}

/// The place `offset` bytes after `start`, where `bytes` bytes from there on are followed by those at `next`.
#[inline(always)]
fn ahead(start: *const u8, next: *const u8, offset: usize, bytes: usize) -> *const u8 {
    if offset < bytes { start.wrapping_add(offset) } else { next.wrapping_add(offset - bytes) }
}

/// The sums of `TILES` neighbouring tiles of float codes with one row.
pub(super) struct StreamFloats<C, const TILES: usize> {
    /// The first tile.
    pub(super) tile: Tile,
    /// Bytes of a tile's codes.
    pub(super) tile_bytes: usize,
    /// The row's record.
    pub(super) row: *const u8,
    /// 16 sums for each tile.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
}

impl<C: FloatCodes, const TILES: usize> Kernel for StreamFloats<C, TILES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut acc = [s.zero(); TILES];
        let x = self.row.cast::<f32>();
        // SAFETY: the tiles lie behind one another, and each has two columns per step, as has the row.
        unsafe {
            for step in 0..self.tile.cols / 2 {
                let a = [s.splat(*x.add(2 * step)), s.splat(*x.add(2 * step + 1))];
                for (tile, acc) in acc.iter_mut().enumerate() {
                    let at = self.tile.codes.add(tile * self.tile_bytes + step * C::BYTES);
                    s.prefetch(at.wrapping_add(PREFETCH_AHEAD));
                    let w = C::columns(s, at);
                    *acc = s.fma(w[0], a[0], *acc);
                    *acc = s.fma(w[1], a[1], *acc);
                }
            }
            for (tile, acc) in acc.iter().enumerate() {
                s.store(self.sums.add(tile * TILE_ROWS), *acc);
            }
        }
    }
}
