//! Many activation rows on the tile matrix unit of Intel processors (AMX), for integer codes.
//!
//! The unit multiplies bytes, so a fixed point activation goes in as `256 * high + low` with a signed high and an unsigned
//! low byte: two products give its exact integer sum. They are drained after every unit of columns, as scales demand, so
//! that the result has the same bits as that of every other kernel. Stable Rust has no intrinsics for tiles, hence the
//! assembly.

use std::arch::asm;
use std::marker::PhantomData;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::codes::{IntegerCodes, Tile};
use super::few_rows::add_unit;
use super::operand::RecordLayout;
use super::panel::Panel;
use crate::simd::{Kernel, Simd};

/// Rows that a tile register holds.
pub(super) const ROWS_PER_TILE: usize = 16;

/// Bytes of a tile register's row.
pub(super) const LINE: usize = 64;

/// Decodes columns `start..end` of a tile to bytes: `[column / 8][2][row]` words of four columns, as a tile register
/// wants its second operand.
pub(super) struct DecodeBytes<C> {
    pub(super) tile: Tile,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) panel: *mut Panel,
    pub(super) codes: PhantomData<C>,
}

impl<C: IntegerCodes> Kernel for DecodeBytes<C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the columns are in the tile, at most a panel of them, and whole units; the panel is ours alone.
        unsafe {
            let mut to = Panel::weights(self.panel);
            for eight in self.start / 8..self.end / 8 {
                for word in C::bytes(s, self.tile.codes.add(eight * C::BYTES)) {
                    s.store_i32(to, word);
                    to = to.add(LINE);
                }
            }
            Panel::decode_scales(self.panel, s, &self.tile, self.start, self.end);
        }
    }
}

/// Adds a panel of bytes times activation rows, at least [`ROWS_PER_TILE`] of them, to their sums.
pub(super) struct MultiplyTiles<const BIAS: bool> {
    pub(super) panel: *const Panel,
    pub(super) zero_point: i32,
    /// The panel's columns.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Columns whose products are summed before they are scaled.
    pub(super) unit_cols: usize,
    /// Columns of a row with padding.
    pub(super) padded_cols: usize,
    pub(super) record: RecordLayout,
    /// The first row's record.
    pub(super) rows: *const u8,
    pub(super) row_count: usize,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
}

/// Shapes of the tile registers, as `LDTILECFG` reads them.
#[repr(C, align(64))]
pub(super) struct TileConfiguration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    line_bytes: [u16; 16],
    lines: [u8; 16],
}

/// The two products of one unit and 16 rows: `[row][16]`.
#[repr(C, align(64))]
struct Products {
    high: [i32; ROWS_PER_TILE * TILE_ROWS],
    low: [i32; ROWS_PER_TILE * TILE_ROWS],
}

impl<const BIAS: bool> Kernel for MultiplyTiles<BIAS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        debug_assert!(self.row_count >= ROWS_PER_TILE);
        let configuration = TileConfiguration::for_unit(self.unit_cols);
        // SAFETY: this kernel only runs where tiles may be used; the configuration is valid and in memory.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, preserves_flags))
        };
        let mut products = Products::zeroed();
        for group in (0..self.row_count).step_by(ROWS_PER_TILE) {
            // The last group reaches back over rows that are done, rather than beyond the last row.
            let first = group.min(self.row_count - ROWS_PER_TILE);
            for unit in self.start / self.unit_cols..self.end / self.unit_cols {
                // SAFETY: the rows from `first` on are 16 records with this unit, as is the panel.
                unsafe {
                    self.multiply(first, unit, &mut products);
                    self.add(s, first, group - first, unit, &products);
                }
            }
        }
        // SAFETY: as above; it gives the tile state back, so that the thread's context is small again.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}

impl<const BIAS: bool> MultiplyTiles<BIAS> {
    /// Both products of a unit with 16 rows.
    ///
    /// # Safety
    /// Tiles must be configured for the unit; 16 records must begin at row `first`.
    #[inline(always)]
    unsafe fn multiply(&self, first: usize, unit: usize, products: &mut Products) {
        // SAFETY: the tile loads read 16 lines of `unit_cols` bytes from the records' byte planes, one record apart, and
        // `unit_cols / 4` lines of 64 bytes from the panel; the stores write 16 lines of 64 bytes to each product.
        unsafe {
            let high = self
                .rows
                .add(first * self.record.stride + self.record.bytes + unit * self.unit_cols);
            let weights = Panel::weights(self.panel);
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm4, [{weights} + {line}*1]",
                "tileloadd tmm2, [{high} + {stride}*1]",
                "tdpbsud tmm0, tmm2, tmm4",
                "tileloadd tmm3, [{low} + {stride}*1]",
                "tdpbuud tmm1, tmm3, tmm4",
                "tilestored [{to_high} + {line}*1], tmm0",
                "tilestored [{to_low} + {line}*1], tmm1",
                weights = in(reg) weights.add((unit * self.unit_cols - self.start) * TILE_ROWS),
                high = in(reg) high,
                low = in(reg) high.add(self.padded_cols),
                stride = in(reg) self.record.stride,
                line = in(reg) LINE,
                to_high = in(reg) products.high.as_mut_ptr(),
                to_low = in(reg) products.low.as_mut_ptr(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Adds the products of a unit with the rows from `first + skip` on to their sums.
    ///
    /// # Safety
    /// As for [`Self::multiply`].
    #[inline(always)]
    unsafe fn add<S: Simd>(
        &self,
        s: S,
        first: usize,
        skip: usize,
        unit: usize,
        products: &Products,
    ) {
        let unit_sums =
            if self.unit_cols == BLOCK_COLS { self.record.sums } else { self.record.half_sums };
        // SAFETY: the caller's promise is the same.
        unsafe {
            let in_panel = unit - self.start / self.unit_cols;
            let (d, bias) = Panel::scales::<S, BIAS>(self.panel, s, in_panel);
            for row in skip..ROWS_PER_TILE {
                let record = self.rows.add((first + row) * self.record.stride);
                let sum = *record.add(unit_sums).cast::<i32>().add(unit);
                let high = s.load_i32(products.high.as_ptr().add(row * TILE_ROWS).cast());
                let low = s.load_i32(products.low.as_ptr().add(row * TILE_ROWS).cast());
                let offset = s.splat_i32(sum.wrapping_mul(-self.zero_point));
                let total = s.add_i32(s.shl::<8>(high), s.add_i32(low, offset));
                let sums = self.sums.add((first + row) * TILE_ROWS);
                let block = unit * self.unit_cols / BLOCK_COLS;
                add_unit::<S, 1>(s, &self.record, record, block, [total], d, bias, sums);
            }
        }
    }
}

impl TileConfiguration {
    /// Registers 0 and 1: products; 2 and 3: activations; 4: weights.
    #[inline(always)]
    fn for_unit(unit_cols: usize) -> Self {
        let (mut line_bytes, mut lines) = ([0; 16], [0; 16]);
        for product in 0..2 {
            (line_bytes[product], lines[product]) = (LINE as u16, ROWS_PER_TILE as u8);
            (line_bytes[2 + product], lines[2 + product]) = (unit_cols as u16, ROWS_PER_TILE as u8);
        }
        (line_bytes[4], lines[4]) = (LINE as u16, (unit_cols / 4) as u8);
        Self { palette: 1, start_row: 0, reserved: [0; 14], line_bytes, lines }
    }

    /// Registers 0 to 3: sums of `rows` rows; 4: weights of 32 columns as pairs; 5 to 7: activations of as many columns.
    pub(super) fn for_floats(rows: usize) -> Self {
        let (mut line_bytes, mut lines) = ([0; 16], [0; 16]);
        for register in 0..8 {
            (line_bytes[register], lines[register]) = (LINE as u16, rows as u8);
        }
        lines[4] = (BLOCK_COLS / 2) as u8;
        Self { palette: 1, start_row: 0, reserved: [0; 14], line_bytes, lines }
    }
}

impl Products {
    #[inline(always)]
    fn zeroed() -> Self {
        Self { high: [0; ROWS_PER_TILE * TILE_ROWS], low: [0; ROWS_PER_TILE * TILE_ROWS] }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use lithos_compiler::layout::{AlignedBytes, Layout};
    use lithos_format::{Blocks, Codes, Encoding, ScaleType};

    use super::super::codes::{I8, U4};
    use super::super::operand::{OperandKind, ToFixed16};
    use super::*;
    use crate::simd::Isa;

    const COLS: usize = 64;

    /// What `TDPBSUD` and `TDPBUUD` give for one row and lane, by their definition: four bytes of a 32-bit element of each
    /// operand are multiplied, for all elements of the row and lines of the second operand.
    fn products(high: &[u8], low: &[u8], panel: &[u8], lane: usize) -> (i32, i32) {
        let (mut high_sum, mut low_sum) = (0, 0);
        for (line, weights) in panel.chunks(LINE).enumerate().take(high.len() / 4) {
            for byte in 0..4 {
                let w = i32::from(weights[4 * lane + byte]);
                high_sum += i32::from(high[4 * line + byte] as i8) * w;
                low_sum += i32::from(low[4 * line + byte]) * w;
            }
        }
        (high_sum, low_sum)
    }

    fn check<C: IntegerCodes>(codes: Codes) {
        let blocks = Some(Blocks { cols: 32, scale: ScaleType::F16, bias: None });
        let layout = Layout::for_encoding(16, COLS, &Encoding { codes, zero_point: 0, blocks });
        let mut packed = layout.expect("a layout that kernels read").allocate(1.0);
        struct Numbers(Encoding);
        impl lithos_compiler::layout::WeightSource for Numbers {
            fn cols(&self) -> usize {
                COLS
            }
            fn encoding(&self) -> Encoding {
                self.0
            }
            fn tensor_scale(&self) -> f32 {
                1.0
            }
            fn unpack_codes(&self, row: usize, out: &mut [u8]) {
                let mask = if self.0.codes == Codes::U4 { 15 } else { 255 };
                for (col, code) in out.iter_mut().enumerate() {
                    *code = (row * 37 + col * 101 + col * col * row) as u8 & mask;
                }
            }
            fn unpack_scales(&self, _row: usize, out: &mut [u32]) {
                out.fill(0x3C00);
            }
            fn unpack_biases(&self, _row: usize, _out: &mut [u32]) {}
        }
        let source = Numbers(packed.layout().encoding());
        packed.parts(1)[0].fill(&source, &|row| row);

        let x: [f32; COLS] = std::array::from_fn(|col| ((col * 7919) % 1001) as f32 - 500.0);
        let record = OperandKind::Fixed16.record(COLS);
        let mut row = AlignedBytes::zeroed(record.stride);
        let to = row.as_mut_ptr();
        Isa::detect().run(ToFixed16 {
            x: x.as_ptr(),
            cols: COLS,
            padded_cols: COLS,
            record,
            to,
            bytes: true,
        });
        let mut panel = MaybeUninit::<Panel>::zeroed();
        let tile = Tile::of(&packed, 0);
        let panel_at = panel.as_mut_ptr();
        Isa::detect().run(DecodeBytes::<C> {
            tile,
            start: 0,
            end: COLS,
            panel: panel_at,
            codes: PhantomData,
        });
        // SAFETY: the panel is initialised, and holds 16 bytes for each column.
        let panel =
            unsafe { std::slice::from_raw_parts(Panel::weights(panel_at), COLS * TILE_ROWS) };

        for lane in 0..TILE_ROWS {
            let mut codes = packed.unpack_row(lane).codes;
            if source.0.codes == Codes::I8 {
                codes.iter_mut().for_each(|code| *code ^= 128);
            }
            let want: i32 = (0..COLS)
                .map(|col| {
                    i32::from(i16::from_le_bytes([row[2 * col], row[2 * col + 1]]))
                        * i32::from(codes[col])
                })
                .sum();
            let (high, low) = row[record.bytes..][..2 * COLS].split_at(COLS);
            let (high, low) = products(high, low, panel, lane);
            assert_eq!(256 * high + low, want, "lane {lane}");
        }
    }

    #[test]
    fn bytes_of_weights_and_activations_meet_in_the_same_order() {
        check::<U4>(Codes::U4);
        check::<I8>(Codes::I8);
    }
}
