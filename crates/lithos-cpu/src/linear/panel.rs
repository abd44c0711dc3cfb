//! Several activation rows: a panel of a tile is decoded once into the first-level cache and meets every row there.

use std::marker::PhantomData;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::codes::{FloatCodes, IntegerCodes, Tile, activation_pair, load_scales};
use super::operand::RecordLayout;
use crate::simd::{Kernel, Simd};

/// Columns of a panel of integer codes: 16 KiB as pairs of 16-bit integers.
pub(super) const INTEGER_PANEL_COLS: usize = 512;
/// Columns of a panel of float codes: 16 KiB as `f32`.
pub(super) const FLOAT_PANEL_COLS: usize = 256;
/// Units of the largest integer panel.
const PANEL_UNITS: usize = INTEGER_PANEL_COLS / (BLOCK_COLS / 2);

/// A decoded panel.
#[repr(C, align(64))]
pub(super) struct Panel {
    /// `[column / 2][row]` pairs of 16-bit integers, or `[column][row]` floats.
    weights: [u8; INTEGER_PANEL_COLS * TILE_ROWS * 2],
    /// `[unit][row]`.
    scales: [f32; PANEL_UNITS * TILE_ROWS],
    /// `[unit][row]`.
    biases: [f32; PANEL_UNITS * TILE_ROWS],
}

/// Decodes columns `start..end` of a tile of integer codes.
pub(super) struct DecodeIntegers<C> {
    pub(super) tile: Tile,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) panel: *mut Panel,
    pub(super) codes: PhantomData<C>,
}

impl<C: IntegerCodes> Kernel for DecodeIntegers<C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.tile;
        let unit_cols = tile.unit_cols();
        // SAFETY: the columns are in the tile, at most a panel of them, and whole units; the panel is ours alone.
        unsafe {
            let mut to = (&raw mut (*self.panel).weights).cast::<u8>();
            for eight in self.start / 8..self.end / 8 {
                for pair in C::pairs(s, tile.codes.add(eight * C::BYTES)) {
                    s.store_i32(to, pair);
                    to = to.add(4 * TILE_ROWS);
                }
            }
            let mut scales = (&raw mut (*self.panel).scales).cast::<f32>();
            let mut biases = (&raw mut (*self.panel).biases).cast::<f32>();
            for unit in self.start / unit_cols..self.end / unit_cols {
                let group = unit * unit_cols / tile.group_cols;
                s.store(scales, load_scales(s, tile.scale_type, tile.scales_of(group)));
                scales = scales.add(TILE_ROWS);
                if tile.bias_type.is_some() {
                    s.store(biases, load_scales(s, tile.bias_type, tile.biases_of(group)));
                    biases = biases.add(TILE_ROWS);
                }
            }
        }
    }
}

/// Decodes columns `start..end` of a tile of float codes.
pub(super) struct DecodeFloats<C> {
    pub(super) tile: Tile,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) panel: *mut Panel,
    pub(super) codes: PhantomData<C>,
}

impl<C: FloatCodes> Kernel for DecodeFloats<C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the columns are in the tile and at most a panel of them; the panel is ours alone.
        unsafe {
            let mut to = (&raw mut (*self.panel).weights).cast::<f32>();
            for step in self.start / 2..self.end / 2 {
                for column in C::columns(s, self.tile.codes.add(step * C::BYTES)) {
                    s.store(to, column);
                    to = to.add(TILE_ROWS);
                }
            }
        }
    }
}

/// Adds a panel of integer codes times `ROWS` activation rows to their sums.
pub(super) struct MultiplyIntegers<const ROWS: usize, const UNIT: usize> {
    pub(super) panel: *const Panel,
    pub(super) has_bias: bool,
    pub(super) zero_point: i32,
    /// The panel's columns.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) record: RecordLayout,
    /// The first row's record.
    pub(super) rows: *const u8,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
}

impl<const ROWS: usize, const UNIT: usize> Kernel for MultiplyIntegers<ROWS, UNIT> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RecordLayout { stride, scales, scaled_sums, sums, half_sums } = self.record;
        let unit_sums = if UNIT == BLOCK_COLS { sums } else { half_sums };
        let zero_point = s.splat_i32(-self.zero_point);
        let first_unit = self.start / UNIT;
        // SAFETY: the panel holds the units of its columns, as do the records of all rows.
        unsafe {
            let mut weights = (&raw const (*self.panel).weights).cast::<u8>();
            let d_at = (&raw const (*self.panel).scales).cast::<f32>();
            let bias_at = (&raw const (*self.panel).biases).cast::<f32>();
            for unit in first_unit..self.end / UNIT {
                let q = self.rows.cast::<i16>().add(unit * UNIT);
                let row = |row: usize, at: usize| self.rows.add(row * stride + at);
                let mut total = [zero_point; ROWS];
                for (r, total) in total.iter_mut().enumerate() {
                    let sum = *row(r, unit_sums).cast::<i32>().add(unit);
                    *total = s.mul_i32(s.splat_i32(sum), zero_point);
                }
                for pair in 0..UNIT / 2 {
                    let w = s.load_i32(weights.add(4 * TILE_ROWS * pair));
                    for (r, total) in total.iter_mut().enumerate() {
                        let a = activation_pair(s, q.byte_add(r * stride).add(2 * pair));
                        *total = s.madd(*total, w, a);
                    }
                }
                weights = weights.add(2 * TILE_ROWS * UNIT);
                let block = unit * UNIT / BLOCK_COLS;
                let d = s.load(d_at.add((unit - first_unit) * TILE_ROWS));
                for (r, total) in total.iter().enumerate() {
                    let at = self.sums.add(r * TILE_ROWS);
                    let scale = s.splat(*row(r, scales).cast::<f32>().add(block));
                    let mut acc = s.fma(s.mul(s.to_f32(*total), d), scale, s.load(at));
                    if self.has_bias {
                        let bias = s.load(bias_at.add((unit - first_unit) * TILE_ROWS));
                        acc = s.fma(
                            bias,
                            s.splat(*row(r, scaled_sums).cast::<f32>().add(block)),
                            acc,
                        );
                    }
                    s.store(at, acc);
                }
            }
        }
    }
}

/// Adds a panel of float codes times `ROWS` activation rows to their sums.
pub(super) struct MultiplyFloats<const ROWS: usize> {
    pub(super) panel: *const Panel,
    /// The panel's columns.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Bytes from one row's record to the next.
    pub(super) stride: usize,
    /// The first row's record.
    pub(super) rows: *const u8,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
}

impl<const ROWS: usize> Kernel for MultiplyFloats<ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the panel and the records of all rows hold the columns; `sums` has 16 floats per row.
        unsafe {
            let weights = (&raw const (*self.panel).weights).cast::<f32>();
            let x = self.rows.cast::<f32>().add(self.start);
            let mut acc = [s.zero(); ROWS];
            for (row, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(self.sums.add(row * TILE_ROWS));
            }
            for col in 0..self.end - self.start {
                let w = s.load(weights.add(col * TILE_ROWS));
                for (row, acc) in acc.iter_mut().enumerate() {
                    let a = s.splat(*x.byte_add(row * self.stride).add(col));
                    *acc = s.fma(w, a, *acc);
                }
            }
            for (row, acc) in acc.iter().enumerate() {
                s.store(self.sums.add(row * TILE_ROWS), *acc);
            }
        }
    }
}
