//! From a kind of weights and a number of rows to the kernels that add up their products.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use lithos_compiler::layout::{BLOCK_COLS, Packed, TILE_ROWS};
use lithos_format::{Codes, ScaleType};

use super::FEW_ROWS;
#[cfg(target_arch = "x86_64")]
use super::bf16_pairs::{DecodePairs, FewRowsPairs, StreamPairs};
#[cfg(target_arch = "x86_64")]
use super::bf16_tiles::TileSums;
#[cfg(target_arch = "x86_64")]
use super::codes::Bf16Codes;
use super::codes::{
    AnyScales, Bf16, E2m1, E4m3, F16, F32, FloatCodes, I8, IntegerCodes, Scales, Tile, TileStrides,
    U4, zero_point,
};
use super::few_rows::{FewRowsFloats, FewRowsIntegers};
#[cfg(target_arch = "x86_64")]
use super::matrix_tiles::{DecodeBytes, MultiplyTiles};
use super::operand::{Operand, OperandKind, RecordLayout};
use super::panel::{
    DecodeFloats, DecodeIntegers, FLOAT_PANEL_COLS, MultiplyFloats, MultiplyIntegers,
    PAIR_PANEL_COLS, Panel,
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
    /// Whether the pass has more rows than a decode step, even if few of them are in this block.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "decides about tiles"))]
    many_rows: bool,
    zero_point: i32,
    has_bias: bool,
    rows_at_once: RowsAtOnce,
}

/// Some rows of a product and the place of their sums in one tile.
#[derive(Clone, Copy)]
struct Part {
    isa: Isa,
    tile: Tile,
    zero_point: i32,
    record: RecordLayout,
    rows: *const u8,
    sums: *mut f32,
}

/// Columns of a tile, decoded.
#[derive(Clone, Copy)]
struct Columns {
    panel: *const Panel,
    start: usize,
    end: usize,
}

/// How many rows the instruction set's registers hold.
#[derive(Clone, Copy, Default)]
struct RowsAtOnce {
    panel: usize,
    decode: usize,
    integers: usize,
}

/// Evaluates an expression with the number of rows as a constant.
macro_rules! with_rows {
    ($constant:ident = $rows:expr, one of [$($n:literal)*] => $body:expr) => {
        match $rows {
            $($n => {
                const $constant: usize = $n;
                $body
            })*
            rows => unreachable!("no kernel takes {rows} rows at once"),
        }
    };
}

impl<'a> Product<'a> {
    /// A matrix times `rows` of an operand, which belong to a pass of `pass_rows` rows.
    pub(super) fn new(
        isa: Isa,
        packed: &'a Packed,
        operand: &Operand,
        rows: &Range<usize>,
        pass_rows: usize,
    ) -> Self {
        let layout = packed.layout();
        let kind = OperandKind::of(layout);
        Self {
            isa,
            packed,
            record: kind.record(layout.padded_cols()),
            first_row: operand.record_of(kind, layout.padded_cols(), rows),
            rows: rows.len(),
            many_rows: pass_rows > FEW_ROWS,
            zero_point: zero_point(packed),
            has_bias: layout.bias_tile_bytes() > 0,
            rows_at_once: isa.run(RowsAtOnce::default()),
        }
    }

    /// Writes the sums of `tiles` as `[tile][row][16]`.
    ///
    /// # Safety
    /// There must be room for them, and no other thread may write the operand's rows.
    pub(super) unsafe fn tiles(&self, tiles: Range<usize>, sums: *mut f32, then: Option<Tile>) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match (self.packed.layout().encoding().codes, self.has_bias) {
                (Codes::U4, false) => self.integer_tiles::<U4, false>(tiles, sums, then),
                (Codes::U4, true) => self.integer_tiles::<U4, true>(tiles, sums, then),
                (Codes::I8, false) => self.integer_tiles::<I8, false>(tiles, sums, then),
                (Codes::I8, true) => self.integer_tiles::<I8, true>(tiles, sums, then),
                (Codes::E2m1, _) => self.integer_tiles::<E2m1, false>(tiles, sums, then),
                #[cfg(target_arch = "x86_64")]
                (Codes::Bf16, _) if self.isa.has_bf16_pairs() => {
                    self.bf16_tiles::<Bf16>(tiles, sums)
                }
                #[cfg(target_arch = "x86_64")]
                (Codes::E4m3, _) if self.isa.has_bf16_pairs() => {
                    self.bf16_tiles::<E4m3>(tiles, sums)
                }
                (Codes::F32, _) => self.float_tiles::<F32>(tiles, sums),
                (Codes::F16, _) => self.float_tiles::<F16>(tiles, sums),
                (Codes::Bf16, _) => self.float_tiles::<Bf16>(tiles, sums),
                (Codes::E4m3, _) => self.float_tiles::<E4m3>(tiles, sums),
            }
        }
    }

    /// # Safety
    /// As for [`Self::tiles`].
    unsafe fn integer_tiles<C: IntegerCodes, const BIAS: bool>(
        &self,
        tiles: Range<usize>,
        sums: *mut f32,
        then: Option<Tile>,
    ) {
        if self.rows == 1 && !tiles.is_empty() {
            let tile = Tile::of(self.packed, tiles.start);
            // SAFETY: the caller has room for the sums of every tile.
            let part = unsafe { self.part(tile, sums, 0) };
            let strides = TileStrides::of(self.packed);
            let then = then.unwrap_or(strides.advance(tile, tiles.len()));
            let count = tiles.len();
            let same = tile.bias_type.is_none() || tile.bias_type == tile.scale_type;
            let whole_blocks = tile.unit_cols() == BLOCK_COLS;
            const HALF: usize = BLOCK_COLS / 2;
            // The usual scales have kernels of their own.
            return match (tile.scale_type.filter(|_| same), whole_blocks) {
                (Some(ScaleType::F16), true) => {
                    part.stream_integers::<C, F16, BIAS, BLOCK_COLS>(count, strides, then)
                }
                (Some(ScaleType::Bf16), true) => {
                    part.stream_integers::<C, Bf16, BIAS, BLOCK_COLS>(count, strides, then)
                }
                (Some(ScaleType::E4m3), false) => {
                    part.stream_integers::<C, E4m3, BIAS, HALF>(count, strides, then)
                }
                (_, true) => {
                    part.stream_integers::<C, AnyScales, BIAS, BLOCK_COLS>(count, strides, then)
                }
                (_, false) => {
                    part.stream_integers::<C, AnyScales, BIAS, HALF>(count, strides, then)
                }
            };
        }
        for (index, tile) in tiles.enumerate() {
            let tile = Tile::of(self.packed, tile);
            // SAFETY: the caller has room for the sums of every tile.
            let part = unsafe { self.part(tile, sums.add(index * self.rows * TILE_ROWS), 0) };
            match self.rows {
                0 => {}
                1..=FEW_ROWS => {
                    for rows in chunks(self.rows, self.rows_at_once.integers) {
                        // SAFETY: as above.
                        let part = unsafe { self.part(tile, part.sums, rows.start) };
                        with_rows!(ROWS = rows.len(), one of [1 2 3 4 5] => part.few_rows_integers::<C, BIAS, ROWS>());
                    }
                }
                #[cfg(target_arch = "x86_64")]
                _ if self.isa.has_tiles() => self.integer_matrix_tiles::<C, BIAS>(part),
                _ => self.integer_panels::<C, BIAS>(part),
            }
        }
    }

    fn integer_panels<C: IntegerCodes, const BIAS: bool>(&self, whole: Part) {
        let mut panel = MaybeUninit::<Panel>::uninit();
        let tile = whole.tile;
        // SAFETY: there is room for the sums of all rows.
        unsafe { whole.sums.write_bytes(0, self.rows * TILE_ROWS) };
        for start in (0..tile.cols).step_by(PAIR_PANEL_COLS) {
            let end = (start + PAIR_PANEL_COLS).min(tile.cols);
            self.isa.run(DecodeIntegers::<C> {
                tile,
                start,
                end,
                panel: panel.as_mut_ptr(),
                codes: PhantomData,
            });
            let columns = Columns { panel: panel.as_ptr(), start, end };
            for rows in chunks(self.rows, self.rows_at_once.panel) {
                // SAFETY: as above.
                let part = unsafe { self.part(tile, whole.sums, rows.start) };
                with_rows!(ROWS = rows.len(), one of [1 2 3 4 5 6 7 8 9 10 11 12] => part.multiply_integers::<BIAS, ROWS>(columns));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn integer_matrix_tiles<C: IntegerCodes, const BIAS: bool>(&self, whole: Part) {
        let mut panel = MaybeUninit::<Panel>::uninit();
        let Part { isa, tile, zero_point, record, rows, sums } = whole;
        // SAFETY: there is room for the sums of all rows.
        unsafe { sums.write_bytes(0, self.rows * TILE_ROWS) };
        for start in (0..tile.cols).step_by(PAIR_PANEL_COLS) {
            let end = (start + PAIR_PANEL_COLS).min(tile.cols);
            isa.run(DecodeBytes::<C> {
                tile,
                start,
                end,
                panel: panel.as_mut_ptr(),
                codes: PhantomData,
            });
            isa.run(MultiplyTiles::<BIAS> {
                panel: panel.as_ptr(),
                zero_point,
                start,
                end,
                unit_cols: tile.unit_cols(),
                padded_cols: tile.cols,
                record,
                rows,
                row_count: self.rows,
                sums,
            });
        }
    }

    /// # Safety
    /// As for [`Self::tiles`].
    unsafe fn float_tiles<C: FloatCodes>(&self, tiles: Range<usize>, sums: *mut f32) {
        let mut next = tiles.start;
        while next < tiles.end {
            let tile = Tile::of(self.packed, next);
            // SAFETY: the caller has room for the sums of every tile.
            let part = unsafe {
                self.part(tile, sums.add((next - tiles.start) * self.rows * TILE_ROWS), 0)
            };
            let mut done = 1;
            match self.rows {
                0 => {}
                1 if tiles.end - next >= TILES_AT_ONCE => {
                    part.stream_floats::<C, TILES_AT_ONCE>(self.packed.layout().code_tile_bytes());
                    done = TILES_AT_ONCE;
                }
                1 => part.stream_floats::<C, 1>(0),
                2..=FEW_ROWS => {
                    for rows in chunks(self.rows, self.rows_at_once.decode) {
                        // SAFETY: as above.
                        let part = unsafe { self.part(tile, part.sums, rows.start) };
                        with_rows!(ROWS = rows.len(), one of [1 2 3 4 5 6 7 8] => part.few_rows_floats::<C, ROWS>());
                    }
                }
                _ => self.float_panels::<C>(part),
            }
            next += done;
        }
    }

    fn float_panels<C: FloatCodes>(&self, whole: Part) {
        let mut panel = MaybeUninit::<Panel>::uninit();
        let tile = whole.tile;
        // SAFETY: there is room for the sums of all rows.
        unsafe { whole.sums.write_bytes(0, self.rows * TILE_ROWS) };
        for start in (0..tile.cols).step_by(FLOAT_PANEL_COLS) {
            let end = (start + FLOAT_PANEL_COLS).min(tile.cols);
            self.isa.run(DecodeFloats::<C> {
                tile,
                start,
                end,
                panel: panel.as_mut_ptr(),
                codes: PhantomData,
            });
            let columns = Columns { panel: panel.as_ptr(), start, end };
            for rows in chunks(self.rows, self.rows_at_once.panel) {
                // SAFETY: as above.
                let part = unsafe { self.part(tile, whole.sums, rows.start) };
                with_rows!(ROWS = rows.len(), one of [1 2 3 4 5 6 7 8 9 10 11 12] => part.multiply_floats::<ROWS>(columns));
            }
        }
    }

    /// # Safety
    /// As for [`Self::tiles`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn bf16_tiles<C: Bf16Codes>(&self, tiles: Range<usize>, sums: *mut f32) {
        let in_matrix_tiles = self.many_rows && self.isa.has_tiles();
        let mut next = tiles.start;
        while next < tiles.end {
            let tile = Tile::of(self.packed, next);
            // SAFETY: the caller has room for the sums of every tile.
            let part = unsafe {
                self.part(tile, sums.add((next - tiles.start) * self.rows * TILE_ROWS), 0)
            };
            let mut done = 1;
            match self.rows {
                0 => {}
                rows if in_matrix_tiles => part.bf16_matrix_tiles::<C>(rows),
                1 if tiles.end - next >= TILES_AT_ONCE => {
                    part.stream_pairs::<C, TILES_AT_ONCE>(self.packed.layout().code_tile_bytes());
                    done = TILES_AT_ONCE;
                }
                1 => part.stream_pairs::<C, 1>(0),
                _ => {
                    for rows in chunks(self.rows, self.rows_at_once.decode) {
                        // SAFETY: as above.
                        let part = unsafe { self.part(tile, part.sums, rows.start) };
                        with_rows!(ROWS = rows.len(), one of [2 3 4 5 6 7 8] => part.few_rows_pairs::<C, ROWS>());
                    }
                }
            }
            next += done;
        }
    }

    /// Where a tile's planes start; it may be past the last one, to be asked for and not read.
    pub(super) fn place(&self, tile: usize) -> Tile {
        TileStrides::of(self.packed).advance(Tile::of(self.packed, 0), tile)
    }

    /// The rows from `row` on.
    ///
    /// # Safety
    /// `sums` must be the sums of all rows of the tile, and `row` one of them.
    unsafe fn part(&self, tile: Tile, sums: *mut f32, row: usize) -> Part {
        Part {
            isa: self.isa,
            tile,
            zero_point: self.zero_point,
            record: self.record,
            // SAFETY: the operand has a record for each row.
            rows: unsafe { self.first_row.add(row * self.record.stride) },
            // SAFETY: the caller's promise is the same.
            sums: unsafe { sums.add(row * TILE_ROWS) },
        }
    }
}

impl Part {
    fn stream_integers<C: IntegerCodes, K: Scales, const BIAS: bool, const UNIT: usize>(
        self,
        tiles: usize,
        strides: TileStrides,
        then: Tile,
    ) {
        let Self { isa, tile, zero_point, record, rows: row, sums } = self;
        isa.run(StreamIntegers::<C, K, BIAS, UNIT> {
            tile,
            tiles,
            strides,
            then,
            zero_point,
            record,
            row,
            sums,
            codes: PhantomData,
            scales: PhantomData,
        });
    }

    fn few_rows_integers<C: IntegerCodes, const BIAS: bool, const ROWS: usize>(self) {
        const HALF: usize = BLOCK_COLS / 2;
        match (self.tile.scale_type, self.tile.unit_cols() == BLOCK_COLS) {
            // The scales of NVFP4 have a kernel of their own: there are twice as many.
            (Some(ScaleType::E4m3), false) => self.scaled_rows::<C, E4m3, BIAS, ROWS, HALF>(),
            (_, false) => self.scaled_rows::<C, AnyScales, BIAS, ROWS, HALF>(),
            (_, true) => self.scaled_rows::<C, AnyScales, BIAS, ROWS, BLOCK_COLS>(),
        }
    }

    fn scaled_rows<
        C: IntegerCodes,
        K: Scales,
        const BIAS: bool,
        const ROWS: usize,
        const UNIT: usize,
    >(
        self,
    ) {
        let Self { isa, tile, zero_point, record, rows, sums } = self;
        isa.run(FewRowsIntegers::<C, K, ROWS, BIAS, UNIT> {
            tile,
            zero_point,
            record,
            rows,
            sums,
            codes: PhantomData,
            scales: PhantomData,
        });
    }

    fn multiply_integers<const BIAS: bool, const ROWS: usize>(
        self,
        Columns { panel, start, end }: Columns,
    ) {
        let Self { isa, tile, zero_point, record, rows, sums } = self;
        let unit_cols = tile.unit_cols();
        isa.run(MultiplyIntegers::<ROWS, BIAS> {
            panel,
            zero_point,
            start,
            end,
            unit_cols,
            record,
            rows,
            sums,
        });
    }

    fn stream_floats<C: FloatCodes, const TILES: usize>(self, tile_bytes: usize) {
        let Self { isa, tile, rows: row, sums, .. } = self;
        isa.run(StreamFloats::<C, TILES> { tile, tile_bytes, row, sums, codes: PhantomData });
    }

    fn few_rows_floats<C: FloatCodes, const ROWS: usize>(self) {
        let Self { isa, tile, record, rows, sums, .. } = self;
        isa.run(FewRowsFloats::<C, ROWS> {
            tile,
            stride: record.stride,
            rows,
            sums,
            codes: PhantomData,
        });
    }

    #[cfg(target_arch = "x86_64")]
    fn stream_pairs<C: Bf16Codes, const TILES: usize>(self, tile_bytes: usize) {
        let Self { isa, tile, record, rows: row, sums, .. } = self;
        isa.run_bf16(StreamPairs::<C, TILES> {
            tile,
            tile_bytes,
            record,
            row,
            sums,
            codes: PhantomData,
        });
    }

    #[cfg(target_arch = "x86_64")]
    fn few_rows_pairs<C: Bf16Codes, const ROWS: usize>(self) {
        let Self { isa, tile, record, rows, sums, .. } = self;
        isa.run_bf16(FewRowsPairs::<C, ROWS> { tile, record, rows, sums, codes: PhantomData });
    }

    #[cfg(target_arch = "x86_64")]
    fn bf16_matrix_tiles<C: Bf16Codes>(self, row_count: usize) {
        let Self { isa, tile, record, rows, sums, .. } = self;
        let mut panel = MaybeUninit::<Panel>::uninit();
        let panel_cols = if C::STORED_AS_PAIRS { tile.cols.max(1) } else { PAIR_PANEL_COLS };
        // SAFETY: the instruction set has tiles, and there are records and room for the sums of all rows; the weights of all
        // columns are in the tile or, as pairs, in the panel.
        unsafe {
            let mut tile_sums = TileSums::begin(rows, row_count, record);
            for start in (0..tile.cols).step_by(panel_cols) {
                let end = (start + panel_cols).min(tile.cols);
                let mut weights = tile.codes;
                if !C::STORED_AS_PAIRS {
                    let panel = panel.as_mut_ptr();
                    isa.run(DecodePairs::<C> { tile, start, end, panel, codes: PhantomData });
                    weights = Panel::weights(panel);
                }
                tile_sums.add(weights, start, end);
            }
            tile_sums.finish(sums);
        }
    }

    fn multiply_floats<const ROWS: usize>(self, Columns { panel, start, end }: Columns) {
        let Self { isa, record, rows, sums, .. } = self;
        isa.run(MultiplyFloats::<ROWS> { panel, start, end, stride: record.stride, rows, sums });
    }
}

impl Kernel for RowsAtOnce {
    type Output = Self;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Self {
        Self { panel: S::PANEL_ROWS, decode: S::DECODE_ROWS, integers: S::INTEGER_ROWS }
    }
}

/// Rows in as few chunks of at most `most` as possible, of nearly equal size.
pub(super) fn chunks(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(most);
    (0..count).map(move |chunk| chunk * rows / count..(chunk + 1) * rows / count)
}
