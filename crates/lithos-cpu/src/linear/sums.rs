//! From a kind of weights and a number of rows to the kernels that add up their products.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use lithos_compiler::layout::{BLOCK_COLS, Packed, TILE_ROWS};
use lithos_format::Codes;

use super::codes::{
    Bf16, E2m1, E4m3, F16, F32, FloatCodes, I8, IntegerCodes, Tile, U4, zero_point,
};
use super::operand::{Operand, OperandKind, RecordLayout};
use super::panel::{
    DecodeFloats, DecodeIntegers, FLOAT_PANEL_COLS, INTEGER_PANEL_COLS, MultiplyFloats,
    MultiplyIntegers, Panel,
};
use super::stream::{StreamFloats, StreamIntegers};
use crate::simd::{Isa, Kernel, Simd};

/// Tiles of float codes that one row streams at once, so that enough independent sums are in flight.
const TILES_AT_ONCE: usize = 4;

/// One matrix times some rows of an operand.
pub(super) struct Product<'a> {
    isa: Isa,
    packed: &'a Packed,
    record: RecordLayout,
    /// The first row's record.
    first_row: *const u8,
    rows: usize,
    zero_point: i32,
    rows_at_once: usize,
}

impl<'a> Product<'a> {
    pub(super) fn new(
        isa: Isa,
        packed: &'a Packed,
        operand: &Operand,
        rows: &Range<usize>,
    ) -> Self {
        let layout = packed.layout();
        let kind = OperandKind::of(layout);
        Self {
            isa,
            packed,
            record: kind.record(layout.padded_cols()),
            first_row: operand.record_of(kind, layout.padded_cols(), rows),
            rows: rows.len(),
            zero_point: zero_point(packed),
            rows_at_once: isa.run(RowsAtOnce),
        }
    }

    /// Writes the sums of `tiles` as `[tile][row][16]`.
    ///
    /// # Safety
    /// There must be room for them, and no other thread may write the operand's rows.
    pub(super) unsafe fn tiles(&self, tiles: Range<usize>, sums: *mut f32) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match self.packed.layout().encoding().codes {
                Codes::U4 => self.integer_tiles::<U4>(tiles, sums),
                Codes::I8 => self.integer_tiles::<I8>(tiles, sums),
                Codes::E2m1 => self.integer_tiles::<E2m1>(tiles, sums),
                Codes::F32 => self.float_tiles::<F32>(tiles, sums),
                Codes::F16 => self.float_tiles::<F16>(tiles, sums),
                Codes::Bf16 => self.float_tiles::<Bf16>(tiles, sums),
                Codes::E4m3 => self.float_tiles::<E4m3>(tiles, sums),
            }
        }
    }

    /// # Safety
    /// As for [`Self::tiles`].
    unsafe fn integer_tiles<C: IntegerCodes>(&self, tiles: Range<usize>, sums: *mut f32) {
        for (index, tile) in tiles.enumerate() {
            let tile = Tile::of(self.packed, tile);
            // SAFETY: the caller has room for the sums of every tile.
            let sums = unsafe { sums.add(index * self.rows * TILE_ROWS) };
            match (self.rows, tile.unit_cols()) {
                (1, BLOCK_COLS) => self.isa.run(self.stream::<C, BLOCK_COLS>(tile, sums)),
                (1, _) => self.isa.run(self.stream::<C, { BLOCK_COLS / 2 }>(tile, sums)),
                // SAFETY: as above.
                _ => unsafe { self.integer_panels::<C>(tile, sums) },
            }
        }
    }

    fn stream<C: IntegerCodes, const UNIT: usize>(
        &self,
        tile: Tile,
        sums: *mut f32,
    ) -> StreamIntegers<C, UNIT> {
        StreamIntegers {
            tile,
            zero_point: self.zero_point,
            record: self.record,
            row: self.first_row,
            sums,
            codes: PhantomData,
        }
    }

    /// # Safety
    /// There must be room for the sums of all rows at `sums`.
    unsafe fn integer_panels<C: IntegerCodes>(&self, tile: Tile, sums: *mut f32) {
        let mut panel = MaybeUninit::<Panel>::uninit();
        // SAFETY: the caller has room for the sums.
        unsafe { sums.write_bytes(0, self.rows * TILE_ROWS) };
        for start in (0..tile.cols).step_by(INTEGER_PANEL_COLS) {
            let end = (start + INTEGER_PANEL_COLS).min(tile.cols);
            self.isa.run(DecodeIntegers::<C> {
                tile,
                start,
                end,
                panel: panel.as_mut_ptr(),
                codes: PhantomData,
            });
            for rows in self.chunks() {
                let part = IntegerPart {
                    panel: panel.as_ptr(),
                    has_bias: tile.bias_type.is_some(),
                    zero_point: self.zero_point,
                    start,
                    end,
                    record: self.record,
                    // SAFETY: the operand has a record for each row.
                    rows: unsafe { self.first_row.add(rows.start * self.record.stride) },
                    // SAFETY: the caller has room for the sums.
                    sums: unsafe { sums.add(rows.start * TILE_ROWS) },
                };
                part.multiply(self.isa, rows.len(), tile.unit_cols());
            }
        }
    }

    /// # Safety
    /// As for [`Self::tiles`].
    unsafe fn float_tiles<C: FloatCodes>(&self, tiles: Range<usize>, sums: *mut f32) {
        let mut next = tiles.start;
        while next < tiles.end {
            let tile = Tile::of(self.packed, next);
            // SAFETY: the caller has room for the sums of every tile.
            let sums = unsafe { sums.add((next - tiles.start) * self.rows * TILE_ROWS) };
            let tile_bytes = self.packed.layout().code_tile_bytes();
            if self.rows > 1 {
                // SAFETY: as above.
                unsafe { self.float_panels::<C>(tile, sums) };
                next += 1;
            } else if tiles.end - next >= TILES_AT_ONCE {
                let row = self.first_row;
                self.isa.run(StreamFloats::<C, TILES_AT_ONCE> {
                    tile,
                    tile_bytes,
                    row,
                    sums,
                    codes: PhantomData,
                });
                next += TILES_AT_ONCE;
            } else {
                let row = self.first_row;
                self.isa.run(StreamFloats::<C, 1> {
                    tile,
                    tile_bytes,
                    row,
                    sums,
                    codes: PhantomData,
                });
                next += 1;
            }
        }
    }

    /// # Safety
    /// There must be room for the sums of all rows at `sums`.
    unsafe fn float_panels<C: FloatCodes>(&self, tile: Tile, sums: *mut f32) {
        let mut panel = MaybeUninit::<Panel>::uninit();
        // SAFETY: the caller has room for the sums.
        unsafe { sums.write_bytes(0, self.rows * TILE_ROWS) };
        for start in (0..tile.cols).step_by(FLOAT_PANEL_COLS) {
            let end = (start + FLOAT_PANEL_COLS).min(tile.cols);
            self.isa.run(DecodeFloats::<C> {
                tile,
                start,
                end,
                panel: panel.as_mut_ptr(),
                codes: PhantomData,
            });
            for rows in self.chunks() {
                let part = FloatPart {
                    panel: panel.as_ptr(),
                    start,
                    end,
                    stride: self.record.stride,
                    // SAFETY: the operand has a record for each row.
                    rows: unsafe { self.first_row.add(rows.start * self.record.stride) },
                    // SAFETY: the caller has room for the sums.
                    sums: unsafe { sums.add(rows.start * TILE_ROWS) },
                };
                part.multiply(self.isa, rows.len());
            }
        }
    }

    /// The rows in as few chunks as registers allow, of nearly equal size.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, count) = (self.rows, self.rows.div_ceil(self.rows_at_once));
        (0..count).map(move |chunk| chunk * rows / count..(chunk + 1) * rows / count)
    }
}

/// How many rows the instruction set's registers hold.
struct RowsAtOnce;

impl Kernel for RowsAtOnce {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> usize {
        S::GEMM_ROWS
    }
}

/// [`MultiplyIntegers`] before its number of rows is a constant.
struct IntegerPart {
    panel: *const Panel,
    has_bias: bool,
    zero_point: i32,
    start: usize,
    end: usize,
    record: RecordLayout,
    rows: *const u8,
    sums: *mut f32,
}

impl IntegerPart {
    fn multiply(self, isa: Isa, rows: usize, unit_cols: usize) {
        match unit_cols {
            BLOCK_COLS => self.by_rows::<BLOCK_COLS>(isa, rows),
            _ => self.by_rows::<{ BLOCK_COLS / 2 }>(isa, rows),
        }
    }

    fn by_rows<const UNIT: usize>(self, isa: Isa, rows: usize) {
        match rows {
            1 => self.run::<1, UNIT>(isa),
            2 => self.run::<2, UNIT>(isa),
            3 => self.run::<3, UNIT>(isa),
            4 => self.run::<4, UNIT>(isa),
            5 => self.run::<5, UNIT>(isa),
            6 => self.run::<6, UNIT>(isa),
            7 => self.run::<7, UNIT>(isa),
            8 => self.run::<8, UNIT>(isa),
            9 => self.run::<9, UNIT>(isa),
            10 => self.run::<10, UNIT>(isa),
            11 => self.run::<11, UNIT>(isa),
            12 => self.run::<12, UNIT>(isa),
            _ => unreachable!("chunks have 1 to GEMM_ROWS <= 12 rows"),
        }
    }

    fn run<const ROWS: usize, const UNIT: usize>(self, isa: Isa) {
        let Self { panel, has_bias, zero_point, start, end, record, rows, sums } = self;
        isa.run(MultiplyIntegers::<ROWS, UNIT> {
            panel,
            has_bias,
            zero_point,
            start,
            end,
            record,
            rows,
            sums,
        });
    }
}

/// [`MultiplyFloats`] before its number of rows is a constant.
struct FloatPart {
    panel: *const Panel,
    start: usize,
    end: usize,
    stride: usize,
    rows: *const u8,
    sums: *mut f32,
}

impl FloatPart {
    fn multiply(self, isa: Isa, rows: usize) {
        match rows {
            1 => self.run::<1>(isa),
            2 => self.run::<2>(isa),
            3 => self.run::<3>(isa),
            4 => self.run::<4>(isa),
            5 => self.run::<5>(isa),
            6 => self.run::<6>(isa),
            7 => self.run::<7>(isa),
            8 => self.run::<8>(isa),
            9 => self.run::<9>(isa),
            10 => self.run::<10>(isa),
            11 => self.run::<11>(isa),
            12 => self.run::<12>(isa),
            _ => unreachable!("chunks have 1 to GEMM_ROWS <= 12 rows"),
        }
    }

    fn run<const ROWS: usize>(self, isa: Isa) {
        let Self { panel, start, end, stride, rows, sums } = self;
        isa.run(MultiplyFloats::<ROWS> { panel, start, end, stride, rows, sums });
    }
}
