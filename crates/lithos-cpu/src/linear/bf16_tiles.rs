//! More than sixteen rows of a pass with BF16 and E4M3 weights on the tile matrix unit of Intel processors (AMX).
//!
//! The unit adds products of BF16 pairs in single precision, 16 rows times 16 outputs times 32 columns at a time. As sums
//! need no scales before their end, they stay in tile registers. Four groups of rows share each load of weights, which also
//! keeps enough independent sums in flight.

use std::arch::asm;

use lithos_compiler::layout::{BLOCK_COLS, TILE_ROWS};

use super::ROWS_PER_BLOCK;
use super::matrix_tiles::{LINE, ROWS_PER_TILE, TileConfiguration};
use super::operand::RecordLayout;
use super::sums::chunks;

/// Groups of rows whose sums are in tile registers at once.
const GROUPS_AT_ONCE: usize = 4;
/// Groups of a block of rows.
const GROUPS: usize = ROWS_PER_BLOCK / ROWS_PER_TILE;
/// Floats of a group's sums.
const GROUP_SUMS: usize = ROWS_PER_TILE * TILE_ROWS;

/// The sums of one tile of weights with a block of rows, while they are added up.
#[repr(C, align(64))]
pub(super) struct TileSums {
    /// `[group][row][16]`.
    sums: [f32; GROUPS * GROUP_SUMS],
    /// The first row's record.
    rows: *const u8,
    row_count: usize,
    record: RecordLayout,
}

/// Adds all columns of a run to the sums of the groups that are listed, each with the tile registers of its sums and its
/// activations, and the place of its sums.
///
/// Registers 0 to 3 hold sums, 4 the weights, and 5 to 7 activations. The low parts of all groups come before the high ones,
/// so that a product need not wait for the one before it.
macro_rules! add_columns {
    ($run:expr; $($group:ident = $index:literal with $sums:literal $part:literal at $offset:literal),+) => {
        asm!(
            $(concat!("tileloadd ", $sums, ", [{sums} + {line}*1 + ", $offset, "]"),)+
            "2:",
            "tileloadd tmm4, [{weights} + {line}*1]",
            $(
                concat!("add {", stringify!($group), "}, {low}"),
                concat!("tileloadd ", $part, ", [{", stringify!($group), "} + {stride}*1]"),
                concat!("sub {", stringify!($group), "}, {low}"),
                concat!("tdpbf16ps ", $sums, ", ", $part, ", tmm4"),
            )+
            $(
                concat!("tileloadd ", $part, ", [{", stringify!($group), "} + {stride}*1]"),
                concat!("add {", stringify!($group), "}, 64"),
                concat!("tdpbf16ps ", $sums, ", ", $part, ", tmm4"),
            )+
            "add {weights}, 1024",
            "dec {steps}",
            "jnz 2b",
            $(concat!("tilestored [{sums} + {line}*1 + ", $offset, "], ", $sums),)+
            weights = inout(reg) $run.weights => _,
            steps = inout(reg) $run.steps => _,
            $($group = inout(reg) $run.groups[$index] => _,)+
            low = in(reg) $run.low,
            stride = in(reg) $run.stride,
            line = in(reg) LINE,
            sums = in(reg) $run.sums,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// Neighbouring columns of a tile times up to [`GROUPS_AT_ONCE`] groups of rows.
struct Run {
    /// `[column / 2][16]` pairs.
    weights: *const u8,
    /// Blocks of 32 columns, at least one.
    steps: usize,
    /// Where the high parts of these columns are in each group's first record.
    groups: [*const u8; GROUPS_AT_ONCE],
    /// Bytes from the high parts to the low ones.
    low: usize,
    /// Bytes from one row's record to the next.
    stride: usize,
    /// `[group][row][16]`.
    sums: *mut f32,
}

impl TileSums {
    /// Sums of zero for `row_count` rows, at most [`ROWS_PER_BLOCK`], and tile registers of that shape.
    ///
    /// # Safety
    /// The processor must have tiles with BF16, and `rows` point to the rows' records. [`Self::finish`] must follow in the same
    /// thread, with no other use of tiles before it.
    pub(super) unsafe fn begin(rows: *const u8, row_count: usize, record: RecordLayout) -> Self {
        assert!((1..=ROWS_PER_BLOCK).contains(&row_count), "{row_count} rows of a block");
        let configuration = TileConfiguration::for_floats(row_count.min(ROWS_PER_TILE));
        // SAFETY: the caller vouches for the processor; the configuration is valid and in memory.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, preserves_flags))
        };
        Self { sums: [0.0; GROUPS * GROUP_SUMS], rows, row_count, record }
    }

    /// Adds columns `start..end`, whole blocks of 32, whose weights are `[column / 2][16]` pairs.
    ///
    /// # Safety
    /// As for [`Self::begin`], and the weights and records must have these columns.
    pub(super) unsafe fn add(&mut self, weights: *const u8, start: usize, end: usize) {
        let steps = (end - start) / BLOCK_COLS;
        if steps == 0 {
            return;
        }
        let count = self.row_count.div_ceil(ROWS_PER_TILE);
        for chunk in chunks(count, GROUPS_AT_ONCE) {
            let mut run = Run {
                weights,
                steps,
                groups: [std::ptr::null(); GROUPS_AT_ONCE],
                low: self.record.low_parts - self.record.high_parts,
                stride: self.record.stride,
                sums: self.sums[chunk.start * GROUP_SUMS..].as_mut_ptr(),
            };
            for (at, group) in run.groups.iter_mut().zip(chunk.clone()) {
                let offset =
                    self.first_row(group) * run.stride + self.record.high_parts + 2 * start;
                // SAFETY: the records have these rows and columns.
                *at = unsafe { self.rows.add(offset) };
            }
            // SAFETY: the loads read 16 lines of 64 bytes, one record apart, from each part of each group's rows, and as many
            // one behind another from the weights, for every step; the sums have 1 KiB for each group.
            unsafe { run.add(chunk.len()) };
        }
    }

    /// Writes the sums as `[row][16]`, and gives the tile state back, so that the thread's context is small again.
    ///
    /// # Safety
    /// There must be room for the sums of all rows; the processor must have tiles.
    pub(super) unsafe fn finish(self, to: *mut f32) {
        // SAFETY: the caller vouches for the processor.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
        let floats = self.row_count.min(ROWS_PER_TILE) * TILE_ROWS;
        for group in 0..self.row_count.div_ceil(ROWS_PER_TILE) {
            let sums = &self.sums[group * GROUP_SUMS..][..floats];
            // SAFETY: the group's rows are in the room. Those it shares with the one before have the same bits in both.
            unsafe {
                let to = to.add(self.first_row(group) * TILE_ROWS);
                std::ptr::copy_nonoverlapping(sums.as_ptr(), to, floats);
            }
        }
    }

    /// The first row of a group. The last group reaches back over rows of the one before it, rather than beyond the last row.
    fn first_row(&self, group: usize) -> usize {
        (group * ROWS_PER_TILE).min(self.row_count.saturating_sub(ROWS_PER_TILE))
    }
}

impl Run {
    /// Adds this run's columns for the first `groups` groups.
    ///
    /// # Safety
    /// Tiles must be configured for the rows of a group; weights, records and sums must be valid for all columns.
    unsafe fn add(&self, groups: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match groups {
                1 => add_columns!(self; a = 0 with "tmm0" "tmm5" at 0),
                2 => add_columns!(
                    self; a = 0 with "tmm0" "tmm5" at 0, b = 1 with "tmm1" "tmm6" at 1024
                ),
                3 => add_columns!(
                    self; a = 0 with "tmm0" "tmm5" at 0, b = 1 with "tmm1" "tmm6" at 1024,
                    c = 2 with "tmm2" "tmm7" at 2048
                ),
                _ => add_columns!(
                    self; a = 0 with "tmm0" "tmm5" at 0, b = 1 with "tmm1" "tmm6" at 1024,
                    c = 2 with "tmm2" "tmm7" at 2048, d = 3 with "tmm3" "tmm5" at 3072
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;
    use std::mem::MaybeUninit;

    use lithos_format::Codes;

    use super::super::bf16_pairs::DecodePairs;
    use super::super::bf16_pairs::tests::{COLS, activation, records, values, weights};
    use super::super::codes::{Bf16, Bf16Codes, E4m3, Tile};
    use super::super::panel::Panel;
    use super::*;
    use crate::simd::Isa;

    /// What `TDPBF16PS` adds for one row and lane, by its definition but in double precision: two values of a 32-bit element
    /// of each operand are multiplied, for all elements of the row and lines of the second operand.
    fn product(part: &[u8], panel: &[u8], lane: usize) -> f64 {
        let value = |bytes: &[u8]| half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64();
        let mut sum = 0.0;
        for (line, weights) in panel.chunks(LINE).enumerate() {
            for half in 0..2 {
                let w = value(&weights[4 * lane + 2 * half..]);
                sum += w * value(&part[4 * line + 2 * half..]);
            }
        }
        sum
    }

    fn check<C: Bf16Codes>(codes: Codes) {
        let packed = weights(codes);
        let (area, record) = records(2);
        let mut panel = MaybeUninit::<Panel>::zeroed();
        let panel_at = panel.as_mut_ptr();
        let tile = Tile::of(&packed, 0);
        Isa::detect().run(DecodePairs::<C> {
            tile,
            start: 0,
            end: COLS,
            panel: panel_at,
            codes: PhantomData,
        });
        // SAFETY: the panel is initialised, and holds 32 bytes for each column.
        let panel =
            unsafe { std::slice::from_raw_parts(Panel::weights(panel_at), COLS * TILE_ROWS * 2) };
        if C::STORED_AS_PAIRS {
            assert_eq!(panel, &packed.codes()[..panel.len()], "decoding changes what is decoded");
        }
        for row in 0..2 {
            let part = |at: usize| &area[row * record.stride + at..][..2 * COLS];
            for lane in 0..TILE_ROWS {
                let got = product(part(record.high_parts), panel, lane)
                    + product(part(record.low_parts), panel, lane);
                let terms = values(&packed, lane)
                    .into_iter()
                    .enumerate()
                    .map(|(col, w)| f64::from(w) * f64::from(activation(row, col)));
                let (sum, size) =
                    terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + f64::abs(term)));
                assert!(
                    (got - sum).abs() <= size / 1e5,
                    "{codes:?} {row} {lane}: {got}, not {sum}"
                );
            }
        }
    }

    #[test]
    fn pairs_of_weights_and_activations_meet_in_the_same_order() {
        check::<Bf16>(Codes::Bf16);
        check::<E4m3>(Codes::E4m3);
    }

    #[test]
    fn groups_cover_all_rows_and_no_others() {
        let record = super::super::operand::OperandKind::Float.record(COLS);
        for row_count in 1..=ROWS_PER_BLOCK {
            let sums = TileSums {
                sums: [0.0; GROUPS * GROUP_SUMS],
                rows: std::ptr::null(),
                row_count,
                record,
            };
            let mut covered = vec![false; row_count];
            for group in 0..row_count.div_ceil(ROWS_PER_TILE) {
                let first = sums.first_row(group);
                covered[first..first + row_count.min(ROWS_PER_TILE)].fill(true);
            }
            assert!(covered.iter().all(|row| *row), "{row_count} rows");
        }
    }
}
