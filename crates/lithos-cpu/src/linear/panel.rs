//! Many activation rows: a panel of a tile is decoded once into the first-level cache and meets every row there.

use std::marker::PhantomData;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::codes::{FloatCodes, IntegerCodes, Tile, activation_pair, load_scales};
use super::few_rows::{add_unit, zero_point_sums};
use super::operand::RecordLayout;
use crate::simd::{Kernel, Simd};

/// Columns of a panel of integer codes, 16 KiB as pairs of 16-bit integers, or of pairs of BF16 values.
pub(super) const PAIR_PANEL_COLS: usize = 512;
/// Columns of a panel of float codes: 16 KiB as `f32`.
pub(super) const FLOAT_PANEL_COLS: usize = 256;
/// Units of the largest integer panel.
const PANEL_UNITS: usize = PAIR_PANEL_COLS / (BLOCK_COLS / 2);

/// A decoded panel.
#[repr(C, align(64))]
pub(super) struct Panel {
    /// `[column / 2][row]` pairs of 16-bit integers or BF16 values, or `[column][row]` floats.
    weights: [u8; PAIR_PANEL_COLS * TILE_ROWS * 2],
    /// `[unit][row]`.
    scales: [f32; PANEL_UNITS * TILE_ROWS],
    /// `[unit][row]`.
    biases: [f32; PANEL_UNITS * TILE_ROWS],
}

impl Panel {
    /// Where the weights are.
    ///
    /// # Safety
    /// `panel` must point to a panel, which may be uninitialised.
    #[inline(always)]
    pub(super) unsafe fn weights(panel: *const Self) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        unsafe { (&raw const (*panel).weights).cast::<u8>().cast_mut() }
    }

    /// Decodes the scales and biases of the units in columns `start..end` of a tile.
    ///
    /// # Safety
    /// `panel` must point to a panel that is the caller's alone; the columns must be in the tile and at most a panel.
    #[inline(always)]
    pub(super) unsafe fn decode_scales<S: Simd>(
        panel: *mut Self,
        s: S,
        tile: &Tile,
        start: usize,
        end: usize,
    ) {
        let unit_cols = tile.unit_cols();
        // SAFETY: the caller's promise is the same.
        unsafe {
            let mut scales = (&raw mut (*panel).scales).cast::<f32>();
            let mut biases = (&raw mut (*panel).biases).cast::<f32>();
            for unit in start / unit_cols..end / unit_cols {
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

    /// The decoded scales and, where there are any, biases of the panel's unit `unit`.
    ///
    /// # Safety
    /// The unit's scales (and biases) must have been decoded.
    #[inline(always)]
    pub(super) unsafe fn scales<S: Simd, const BIAS: bool>(
        panel: *const Self,
        s: S,
        unit: usize,
    ) -> (S::F, Option<S::F>) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            let scales = (&raw const (*panel).scales).cast::<f32>().add(unit * TILE_ROWS);
            let biases = (&raw const (*panel).biases).cast::<f32>().add(unit * TILE_ROWS);
            (s.load(scales), if BIAS { Some(s.load(biases)) } else { None })
        }
    }
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
        // SAFETY: the columns are in the tile, at most a panel of them, and whole units; the panel is ours alone.
        unsafe {
            let mut to = Panel::weights(self.panel);
            for eight in self.start / 8..self.end / 8 {
                for pair in C::pairs(s, tile.codes.add(eight * C::BYTES)) {
                    s.store_i32(to, pair);
                    to = to.add(4 * TILE_ROWS);
                }
            }
            Panel::decode_scales(self.panel, s, &tile, self.start, self.end);
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
            let mut to = Panel::weights(self.panel).cast::<f32>();
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
pub(super) struct MultiplyIntegers<const ROWS: usize, const BIAS: bool> {
    pub(super) panel: *const Panel,
    pub(super) zero_point: i32,
    /// The panel's columns.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Columns whose products are summed before they are scaled.
    pub(super) unit_cols: usize,
    pub(super) record: RecordLayout,
    /// The first row's record.
    pub(super) rows: *const u8,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
}

impl<const ROWS: usize, const BIAS: bool> Kernel for MultiplyIntegers<ROWS, BIAS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let unit_cols = self.unit_cols;
        let first_unit = self.start / unit_cols;
        // SAFETY: the panel holds the units of its columns, as do the records of all rows.
        unsafe {
            let mut weights = Panel::weights(self.panel).cast_const();
            for unit in first_unit..self.end / unit_cols {
                let q = self.rows.cast::<i16>().add(unit * unit_cols);
                let mut total = zero_point_sums::<S, ROWS>(
                    s,
                    &self.record,
                    self.rows,
                    unit,
                    unit_cols,
                    self.zero_point,
                );
                // Eight columns are written out, so that the rows' addresses are computed once for them.
                for eight in 0..unit_cols / 8 {
                    let q = q.add(8 * eight);
                    for pair in 0..4 {
                        let w = s.load_i32(weights.add(4 * TILE_ROWS * pair));
                        for (r, total) in total.iter_mut().enumerate() {
                            let a = q.byte_add(r * self.record.stride).add(2 * pair);
                            *total = s.madd(*total, w, activation_pair(s, a));
                        }
                    }
                    weights = weights.add(16 * TILE_ROWS);
                }
                let (d, bias) = Panel::scales::<S, BIAS>(self.panel, s, unit - first_unit);
                add_unit(
                    s,
                    &self.record,
                    self.rows,
                    unit * unit_cols / BLOCK_COLS,
                    total,
                    d,
                    bias,
                    self.sums,
                );
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
            let weights = Panel::weights(self.panel).cast_const().cast::<f32>();
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
