//! BF16 and E4M3 weights on processors that multiply pairs of BF16 values: one to sixteen rows, or more without tiles.
//!
//! Both parts of an activation ([`OperandKind::Float`](super::OperandKind::Float)) meet the same pair of weights, the low
//! part first.

use std::marker::PhantomData;

use lithos_compiler::layout::TILE_ROWS;

use super::codes::{Bf16Codes, Tile};
use super::operand::RecordLayout;
use super::panel::Panel;
use super::stream::PREFETCH_AHEAD;
use crate::simd::{Bf16Kernel, Bf16Pairs, Kernel, Simd};

/// The sums of `TILES` neighbouring tiles with one row.
pub(super) struct StreamPairs<C, const TILES: usize> {
    /// The first tile.
    pub(super) tile: Tile,
    /// Bytes of a tile's codes.
    pub(super) tile_bytes: usize,
    pub(super) record: RecordLayout,
    /// The row's record.
    pub(super) row: *const u8,
    /// 16 sums for each tile.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
}

impl<C: Bf16Codes, const TILES: usize> Bf16Kernel for StreamPairs<C, TILES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, P: Bf16Pairs<S>>(self, s: S, pairs: P) {
        // Steps whose codes are one cache line; the padded columns are whole lines of them.
        let steps_per_line = 64 / C::BYTES;
        let mut acc = [s.zero(); TILES];
        // SAFETY: the tiles lie behind one another, and each has two columns per step, as has each part of the row.
        unsafe {
            let high = self.row.add(self.record.high_parts).cast::<i32>();
            let low = self.row.add(self.record.low_parts).cast::<i32>();
            for line in 0..self.tile.cols / 2 / steps_per_line {
                for tile in 0..TILES {
                    let at = self.tile.codes.add(tile * self.tile_bytes + line * 64);
                    s.prefetch(at.wrapping_add(PREFETCH_AHEAD));
                }
                for step in line * steps_per_line..(line + 1) * steps_per_line {
                    let a = [s.splat_i32(*low.add(step)), s.splat_i32(*high.add(step))];
                    for (tile, acc) in acc.iter_mut().enumerate() {
                        let at = self.tile.codes.add(tile * self.tile_bytes + step * C::BYTES);
                        let w = C::pairs(s, at);
                        *acc = pairs.dot(s, *acc, w, a[0]);
                        *acc = pairs.dot(s, *acc, w, a[1]);
                    }
                }
            }
            for (tile, acc) in acc.iter().enumerate() {
                s.store(self.sums.add(tile * TILE_ROWS), *acc);
            }
        }
    }
}

/// The sums of one tile with `ROWS` rows.
pub(super) struct FewRowsPairs<C, const ROWS: usize> {
    pub(super) tile: Tile,
    pub(super) record: RecordLayout,
    /// The first row's record.
    pub(super) rows: *const u8,
    /// `[row][16]`.
    pub(super) sums: *mut f32,
    pub(super) codes: PhantomData<C>,
}

impl<C: Bf16Codes, const ROWS: usize> Bf16Kernel for FewRowsPairs<C, ROWS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, P: Bf16Pairs<S>>(self, s: S, pairs: P) {
        let mut acc = [s.zero(); ROWS];
        // SAFETY: the tile and the parts of each row have two columns per step, and there is room for the sums of all rows.
        unsafe {
            let high = self.rows.add(self.record.high_parts).cast::<i32>();
            let low = self.rows.add(self.record.low_parts).cast::<i32>();
            for step in 0..self.tile.cols / 2 {
                let at = self.tile.codes.add(step * C::BYTES);
                s.prefetch(at.wrapping_add(PREFETCH_AHEAD));
                let w = C::pairs(s, at);
                for part in [low, high] {
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let a = part.byte_add(r * self.record.stride).add(step);
                        *acc = pairs.dot(s, *acc, w, s.splat_i32(*a));
                    }
                }
            }
            for (r, acc) in acc.iter().enumerate() {
                s.store(self.sums.add(r * TILE_ROWS), *acc);
            }
        }
    }
}

/// Decodes columns `start..end` of a tile to pairs of BF16 values, `[column / 2][row]`: the order in which BF16 weights are
/// stored.
pub(super) struct DecodePairs<C> {
    pub(super) tile: Tile,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) panel: *mut Panel,
    pub(super) codes: PhantomData<C>,
}

impl<C: Bf16Codes> Kernel for DecodePairs<C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the columns are in the tile and at most a panel of them; the panel is ours alone.
        unsafe {
            let mut to = Panel::weights(self.panel);
            for step in self.start / 2..self.end / 2 {
                s.store_i32(to, C::pairs(s, self.tile.codes.add(step * C::BYTES)));
                to = to.add(4 * TILE_ROWS);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use lithos_compiler::layout::{AlignedBytes, Packed, WeightSource};
    use lithos_format::{Codes, Encoding};

    use super::super::codes::{Bf16, E4m3, output_factor};
    use super::super::operand::{OperandKind, ToBf16Parts};
    use super::*;
    use crate::simd::{Bf16InSoftware, Isa, Portable};

    pub(in super::super) const COLS: usize = 96;
    pub(in super::super) const TILES: usize = 4;

    struct Numbers(Codes);

    impl WeightSource for Numbers {
        fn cols(&self) -> usize {
            COLS
        }
        fn encoding(&self) -> Encoding {
            Encoding { codes: self.0, zero_point: 0, blocks: None }
        }
        fn tensor_scale(&self) -> f32 {
            1.0
        }
        fn unpack_codes(&self, row: usize, out: &mut [u8]) {
            match self.0 {
                Codes::E4m3 => {
                    for (col, code) in out.iter_mut().enumerate() {
                        *code = (row * 37 + col * 101) as u8;
                        *code ^= u8::from(*code & 0x7F == 0x7F);
                    }
                }
                _ => {
                    for (col, code) in out.chunks_mut(2).enumerate() {
                        let x = ((row * 7919 + col * 104_729) % 2003) as f32 - 1000.0;
                        code.copy_from_slice(&half::bf16::from_f32(x).to_le_bytes());
                    }
                }
            }
        }
        fn unpack_scales(&self, _row: usize, _out: &mut [u32]) {}
        fn unpack_biases(&self, _row: usize, _out: &mut [u32]) {}
    }

    /// Four tiles of these codes.
    pub(in super::super) fn weights(codes: Codes) -> Packed {
        Packed::pack(TILES * TILE_ROWS, &Numbers(codes), |row| row).expect("kernels read it")
    }

    /// The values of a packed row, up to the output factor.
    pub(in super::super) fn values(packed: &Packed, row: usize) -> Vec<f32> {
        let mut values = vec![0.0; COLS];
        let encoding = packed.layout().encoding();
        encoding.codes.values(&packed.unpack_row(row).codes, &mut values);
        values.iter_mut().for_each(|value| *value /= output_factor(packed));
        values
    }

    pub(in super::super) fn activation(row: usize, col: usize) -> f32 {
        ((row * 31 + col * 7919) % 10_007) as f32 / 977.0 - 5.0
    }

    /// Records of `rows` rows with both parts.
    pub(in super::super) fn records(rows: usize) -> (AlignedBytes, RecordLayout) {
        let record = OperandKind::Float.record(COLS);
        let mut area = AlignedBytes::zeroed(rows * record.stride);
        for row in 0..rows {
            for col in 0..COLS {
                let at = row * record.stride + 4 * col;
                area[at..at + 4].copy_from_slice(&activation(row, col).to_le_bytes());
            }
            // SAFETY: the record is in the area.
            let to = unsafe { area.as_mut_ptr().add(row * record.stride) };
            Isa::detect().run(ToBf16Parts { padded_cols: COLS, record, to });
        }
        (area, record)
    }

    /// The sum of a row and an output feature in the order of the kernels.
    fn in_order(weights: &[f32], row: usize) -> f32 {
        let split = |col: usize| {
            let a = activation(row, col);
            let high = half::bf16::from_f32(a).to_f32();
            [half::bf16::from_f32(a - high).to_f32(), high]
        };
        let mut acc = 0f32;
        for col in (0..COLS).step_by(2) {
            let (even, odd) = (split(col), split(col + 1));
            for part in 0..2 {
                acc = weights[col + 1].mul_add(odd[part], acc);
                acc = weights[col].mul_add(even[part], acc);
            }
        }
        acc
    }

    fn check<C: Bf16Codes>(codes: Codes) {
        const ROWS: usize = 3;
        let packed = weights(codes);
        let (area, record) = records(ROWS);
        let mut few = [0f32; ROWS * TILE_ROWS];
        let mut one = [0f32; TILES * TILE_ROWS];
        FewRowsPairs::<C, ROWS> {
            tile: Tile::of(&packed, 1),
            record,
            rows: area.as_ptr(),
            sums: few.as_mut_ptr(),
            codes: PhantomData,
        }
        .run(Portable, Bf16InSoftware);
        StreamPairs::<C, TILES> {
            tile: Tile::of(&packed, 0),
            tile_bytes: packed.layout().code_tile_bytes(),
            record,
            row: area.as_ptr(),
            sums: one.as_mut_ptr(),
            codes: PhantomData,
        }
        .run(Portable, Bf16InSoftware);
        for (feature, got) in one.into_iter().enumerate() {
            let want = in_order(&values(&packed, feature), 0);
            assert_eq!(got.to_bits(), want.to_bits(), "{codes:?} output {feature} of one row");
        }
        for (index, got) in few.into_iter().enumerate() {
            let (row, lane) = (index / TILE_ROWS, index % TILE_ROWS);
            let want = in_order(&values(&packed, TILE_ROWS + lane), row);
            assert_eq!(got.to_bits(), want.to_bits(), "{codes:?} row {row} lane {lane}");
        }
    }

    #[test]
    fn one_row_and_few_rows_add_in_the_same_order() {
        check::<Bf16>(Codes::Bf16);
        check::<E4m3>(Codes::E4m3);
    }

    #[test]
    fn two_parts_are_within_a_part_in_two_to_the_seventeen() {
        let (area, record) = records(5);
        for row in 0..5 {
            for col in 0..COLS {
                let part = |offset: usize| {
                    let at = row * record.stride + offset + 2 * col;
                    half::bf16::from_le_bytes([area[at], area[at + 1]]).to_f64()
                };
                let sum = part(record.high_parts) + part(record.low_parts);
                let want = f64::from(activation(row, col));
                assert!((sum - want).abs() <= want.abs() / f64::from(1 << 17), "{want}: {sum}");
            }
        }
    }
}
