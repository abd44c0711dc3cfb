//! Two to sixteen activation rows: weights are decoded in registers and meet several rows there.

use std::hint::black_box;
use std::marker::PhantomData;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::codes::{FloatCodes, IntegerCodes, Scales, Tile, activation_pair};
use super::operand::RecordLayout;
use super::stream::PREFETCH_AHEAD;
use crate::simd::{Kernel, Simd};

/// The sums of one tile of integer codes with `ROWS` rows. `UNIT` columns are summed before they are scaled, at most a block of activations.
///
/// The zero point is taken off the weights, once for all rows; the panel's kernel takes it off the sums, which are the same integers.
pub(super) struct FewRowsIntegers<C, K, const ROWS: usize, const BIAS: bool, const UNIT: usize> {
    pub(super) tile: Tile,
    pub(super) zero_point: i32,
    pub(super) record: RecordLayout,
    /// The first row's record.
    pub(super) rows: *const u8,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
    pub(super) scales: PhantomData<K>,
}

impl<C: IntegerCodes, K: Scales, const ROWS: usize, const BIAS: bool, const UNIT: usize> Kernel
    for FewRowsIntegers<C, K, ROWS, BIAS, UNIT>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.tile;
        let units_per_group = tile.group_cols / UNIT;
        let zero_points = s.splat_i32(self.zero_point * 0x0001_0001);
        let mut acc = [s.zero(); ROWS];
        // SAFETY: the tile and the records were made for the same padded columns; the units stay below them, and there
        // is room for the sums of all rows.
        unsafe {
            let mut rows = [self.rows; ROWS];
            for (r, row) in rows.iter_mut().enumerate() {
                *row = row.add(r * self.record.stride);
            }
            if !S::HOLDS_BOTH_SUMS {
                self.sums.write_bytes(0, ROWS * TILE_ROWS);
            }
            let (mut at, mut unit) = (tile.codes, 0);
            for group in 0..tile.cols.div_ceil(tile.group_cols) {
                let d = K::load(s, tile.scale_type, tile.scales_of(group));
                let bias = if BIAS {
                    Some(K::load(s, tile.bias_type, tile.biases_of(group)))
                } else {
                    None
                };
                for _ in 0..units_per_group {
                    let mut total = [s.splat_i32(0); ROWS];
                    for eight in 0..UNIT / 8 {
                        s.prefetch(at.wrapping_add(PREFETCH_AHEAD));
                        for (pair, w) in C::pairs(s, at).into_iter().enumerate() {
                            let w = s.sub_halves(w, zero_points);
                            for (row, total) in rows.iter().zip(&mut total) {
                                let a = row.cast::<i16>().add(unit * UNIT + 8 * eight + 2 * pair);
                                *total = s.madd(*total, w, activation_pair(s, a));
                            }
                        }
                        at = at.add(C::BYTES);
                    }
                    let block = unit * UNIT / BLOCK_COLS;
                    if S::HOLDS_BOTH_SUMS {
                        for ((row, total), acc) in rows.iter().zip(total).zip(&mut acc) {
                            *acc = add_scaled(s, &self.record, *row, block, total, d, bias, *acc);
                        }
                    } else {
                        add_unit(s, &self.record, self.rows, block, total, d, bias, self.sums);
                    }
                    unit += 1;
                }
            }
            if S::HOLDS_BOTH_SUMS {
                for (r, acc) in acc.iter().enumerate() {
                    s.store(self.sums.add(r * TILE_ROWS), *acc);
                }
            }
        }
    }
}

/// What the sums of a unit begin with: minus the zero point times the sum of the activations.
///
/// # Safety
/// `rows` must be `ROWS` records that have this unit.
#[inline(always)]
pub(super) unsafe fn zero_point_sums<S: Simd, const ROWS: usize>(
    s: S,
    record: &RecordLayout,
    rows: *const u8,
    unit: usize,
    unit_cols: usize,
    zero_point: i32,
) -> [S::I; ROWS] {
    let sums = if unit_cols == BLOCK_COLS { record.sums } else { record.half_sums };
    let mut total = [s.splat_i32(0); ROWS];
    for (r, total) in total.iter_mut().enumerate() {
        // SAFETY: the caller's promise is the same.
        let sum = unsafe { *rows.add(r * record.stride + sums).cast::<i32>().add(unit) };
        *total = s.splat_i32(sum.wrapping_mul(-zero_point));
    }
    total
}

/// Adds the integer sums of one unit to the sums of `ROWS` rows.
///
/// # Safety
/// `rows` must be `ROWS` records that have this block, and `sums` 16 floats for each.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "always inlined; these are the registers of two kernels"
)]
pub(super) unsafe fn add_unit<S: Simd, const ROWS: usize>(
    s: S,
    record: &RecordLayout,
    rows: *const u8,
    block: usize,
    total: [S::I; ROWS],
    d: S::F,
    bias: Option<S::F>,
    sums: *mut f32,
) {
    // The sums are better left in the first-level cache: kept in registers, they would drive out the integers. The
    // compiler cannot see through this, so it leaves them there.
    let sums = black_box(sums);
    for (r, total) in total.iter().enumerate() {
        // SAFETY: the caller's promise is the same.
        unsafe {
            let (at, row) = (sums.add(r * TILE_ROWS), rows.add(r * record.stride));
            s.store(at, add_scaled(s, record, row, block, *total, d, bias, s.load(at)));
        }
    }
}

/// `acc` and the integer sum of one unit of one row, scaled.
///
/// # Safety
/// `row` must be a record that has this block.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "always inlined; these are registers of two kernels")]
unsafe fn add_scaled<S: Simd>(
    s: S,
    record: &RecordLayout,
    row: *const u8,
    block: usize,
    total: S::I,
    d: S::F,
    bias: Option<S::F>,
    acc: S::F,
) -> S::F {
    // SAFETY: the caller's promise is the same.
    unsafe {
        let scale = s.splat(*row.add(record.scales).cast::<f32>().add(block));
        let acc = s.fma(s.mul(s.to_f32(total), d), scale, acc);
        let Some(bias) = bias else { return acc };
        s.fma(bias, s.splat(*row.add(record.scaled_sums).cast::<f32>().add(block)), acc)
    }
}

/// The sums of one tile of float codes with `ROWS` rows.
pub(super) struct FewRowsFloats<C, const ROWS: usize> {
    pub(super) tile: Tile,
    /// Bytes from one row's record to the next.
    pub(super) stride: usize,
    /// The first row's record.
    pub(super) rows: *const u8,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
}

impl<C: FloatCodes, const ROWS: usize> Kernel for FewRowsFloats<C, ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut acc = [s.zero(); ROWS];
        // SAFETY: the tile and the records have two columns per step, and there is room for the sums of all rows.
        unsafe {
            for step in 0..self.tile.cols / 2 {
                let at = self.tile.codes.add(step * C::BYTES);
                s.prefetch(at.wrapping_add(PREFETCH_AHEAD));
                for (column, w) in C::columns(s, at).into_iter().enumerate() {
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x = self.rows.add(r * self.stride).cast::<f32>().add(2 * step + column);
                        *acc = s.fma(w, s.splat(*x), *acc);
                    }
                }
            }
            for (r, acc) in acc.iter().enumerate() {
                s.store(self.sums.add(r * TILE_ROWS), *acc);
            }
        }
    }
}
