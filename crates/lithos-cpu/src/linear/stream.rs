//! One activation row: the packed weights stream from memory once and are decoded in registers.

use std::marker::PhantomData;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::codes::{FloatCodes, IntegerCodes, Tile, TileStrides, load_scales};
use super::operand::RecordLayout;
use crate::simd::{Kernel, Simd};

/// How far ahead of its reads a stream asks for cache lines, in bytes.
pub(super) const PREFETCH_AHEAD: usize = 2048;

/// The sums of neighbouring tiles of integer codes with one row.
pub(super) struct StreamIntegers<C, const BIAS: bool, const UNIT: usize> {
    /// The first tile.
    pub(super) tile: Tile,
    /// How many tiles.
    pub(super) tiles: usize,
    /// Bytes from one tile to the next, in each plane.
    pub(super) strides: TileStrides,
    pub(super) zero_point: i32,
    pub(super) record: RecordLayout,
    /// The row's record.
    pub(super) row: *const u8,
    /// 16 sums for each tile.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
}

impl<C: IntegerCodes, const BIAS: bool, const UNIT: usize> Kernel
    for StreamIntegers<C, BIAS, UNIT>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for index in 0..self.tiles {
            let tile = self.strides.advance(self.tile, index);
            // SAFETY: the tiles lie behind one another, each with a place for its sums.
            unsafe { self.tile(s, tile, self.sums.add(index * TILE_ROWS)) };
        }
    }
}

impl<C: IntegerCodes, const BIAS: bool, const UNIT: usize> StreamIntegers<C, BIAS, UNIT> {
    /// # Safety
    /// The tile must have the record's columns, and there must be room for 16 sums.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, s: S, tile: Tile, out: *mut f32) {
        let units_per_group = tile.group_cols / UNIT;
        let mut acc = s.zero();
        let (mut unit, units) = (0, tile.cols / UNIT);
        let unit_bytes = UNIT / 8 * C::BYTES;
        let zero_point = s.splat_i32(-self.zero_point);
        let unit_sums = if UNIT == BLOCK_COLS { self.record.sums } else { self.record.half_sums };
        // SAFETY: the tile and the record were made for the same padded columns; `unit` stays below their units, and
        // `unit / units_per_group` is a group of the tile.
        unsafe {
            let q = self.row.cast::<i16>();
            let scales = self.row.add(self.record.scales).cast::<f32>();
            let scaled_sums = self.row.add(self.record.scaled_sums).cast::<f32>();
            let unit_sums = self.row.add(unit_sums).cast::<i32>();
            let mut group = 0;
            while unit < units {
                let d = load_scales(s, tile.scale_type, tile.scales_of(group));
                s.prefetch(tile.scales_of(group).wrapping_add(PREFETCH_AHEAD / 4));
                let bias = if BIAS {
                    s.prefetch(tile.biases_of(group).wrapping_add(PREFETCH_AHEAD / 4));
                    Some(load_scales(s, tile.bias_type, tile.biases_of(group)))
                } else {
                    None
                };
                for _ in 0..units_per_group {
                    let at = tile.codes.add(unit * unit_bytes);
                    for line in 0..unit_bytes / 64 {
                        s.prefetch(at.wrapping_add(PREFETCH_AHEAD + 64 * line));
                    }
                    let zero = s.splat_i32(0);
                    let offset = s.mul_i32(s.splat_i32(*unit_sums.add(unit)), zero_point);
                    let mut sums = [offset, zero, zero];
                    for eight in 0..UNIT / 8 {
                        let activations = q.add(unit * UNIT + 8 * eight);
                        C::accumulate(s, &mut sums, at.add(eight * C::BYTES), activations);
                    }
                    let block = unit * UNIT / BLOCK_COLS;
                    let scaled = s.mul(s.to_f32(C::total(s, sums)), d);
                    acc = s.fma(scaled, s.splat(*scales.add(block)), acc);
                    if let Some(bias) = bias {
                        acc = s.fma(bias, s.splat(*scaled_sums.add(block)), acc);
                    }
                    unit += 1;
                }
                group += 1;
            }
            s.store(out, acc);
        }
    }
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
