//! The order of weights for processors whose 32 lanes load 16 bytes each.
//!
//! A matrix is cut into tiles of 16 output rows, a tile into units of 32 words of 16 bytes, one word a lane, so that a unit is 512 adjacent
//! bytes. Lane `4 g + q` holds eight bytes of row `g` and eight of row `g + 8`: the same columns, the `q`-th quarter of
//! the unit's. These are the rows and columns of a lane in the 16 x 8 products of NVIDIA's tensor cores, so codes are
//! decoded where they arrive, and a lane's columns are adjacent, so activations are read in their own order. Block scales lie
//! in a plane of their own, `[tile][block][rows 0, 8, 1, 9, ...]`. Codes of four-bit floats lie such that they are decoded two at a time. Columns and rows are padded with zeros to whole units and tiles.

use std::ops::Range;

use lithos_format::{Codes, Encoding, ScaleType};
use thiserror::Error;

use crate::layout::WeightSource;

/// Output rows of a tile.
pub const TILE_ROWS: usize = 16;

/// Bytes of a unit.
pub(crate) const UNIT_BYTES: usize = 512;

/// Why a matrix has no such order.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LaneLayoutError {
    /// A lane's columns would need several scales.
    #[error("no lane layout for blocks of {block} columns: a lane holds {lane} adjacent ones")]
    Blocks {
        /// Columns of a block.
        block: usize,
        /// Columns of a lane's word in one row.
        lane: usize,
    },
}

/// Where every code, scale and bias of a matrix lies. Planes follow one another: codes, scales, biases, each padded to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLayout {
    rows: usize,
    cols: usize,
    encoding: Encoding,
}

impl LaneLayout {
    /// The layout of a matrix of `rows` output features and `cols` input features.
    ///
    /// # Errors
    /// If block scales change within a lane's columns.
    pub fn new(rows: usize, cols: usize, encoding: Encoding) -> Result<Self, LaneLayoutError> {
        let layout = LaneLayout { rows, cols, encoding };
        match encoding.blocks {
            Some(blocks) if blocks.cols % layout.lane_cols() != 0 => {
                Err(LaneLayoutError::Blocks { block: blocks.cols, lane: layout.lane_cols() })
            }
            _ => Ok(layout),
        }
    }

    /// How codes become values.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The format in the kernels: the template arguments of those that read the matrix.
    pub fn format(&self) -> String {
        let blocks = self.encoding.blocks;
        format!(
            "{}, {}, {}",
            codes_name(self.encoding.codes),
            scales_name(blocks.map(|blocks| blocks.scale)),
            scales_name(blocks.and_then(|blocks| blocks.bias))
        )
    }

    /// Adjacent columns that a lane's word holds in one row.
    pub fn lane_cols(&self) -> usize {
        64 / self.encoding.codes.bits()
    }

    /// Tiles of output rows.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// Units of a tile.
    pub fn units(&self) -> usize {
        self.cols.div_ceil(4 * self.lane_cols())
    }

    /// Blocks of a row, with those of padded columns; 0 without blocks.
    pub fn blocks(&self) -> usize {
        let padded = self.units() * 4 * self.lane_cols();
        self.encoding.blocks.map_or(0, |blocks| padded.div_ceil(blocks.cols))
    }

    /// Bytes of the codes.
    pub fn code_bytes(&self) -> usize {
        self.tiles() * self.units() * UNIT_BYTES
    }

    /// Bytes of the block scales.
    pub fn scale_bytes(&self) -> usize {
        self.plane_bytes(self.encoding.blocks.map(|blocks| blocks.scale))
    }

    /// Bytes of the block biases.
    pub fn bias_bytes(&self) -> usize {
        self.plane_bytes(self.encoding.blocks.and_then(|blocks| blocks.bias))
    }

    fn plane_bytes(&self, element: Option<ScaleType>) -> usize {
        let bytes = element.map_or(0, ScaleType::bytes);
        (self.tiles() * self.blocks() * TILE_ROWS * bytes).next_multiple_of(16)
    }

    /// Bytes of the packed matrix.
    pub fn bytes(&self) -> usize {
        self.code_bytes() + self.scale_bytes() + self.bias_bytes()
    }

    /// Byte of the eight that hold `row`'s columns in quarter `quarter` (of all quarters of the row).
    fn word(&self, row: usize, quarter: usize) -> usize {
        let (tile, within) = (row / TILE_ROWS, row % TILE_ROWS);
        let unit = tile * self.units() + quarter / 4;
        let lane = within % 8 * 4 + quarter % 4;
        unit * UNIT_BYTES + lane * 16 + within / 8 * 8
    }

    /// Index in a plane of scales of a row's block.
    fn block(&self, row: usize, block: usize) -> usize {
        let (tile, within) = (row / TILE_ROWS, row % TILE_ROWS);
        (tile * self.blocks() + block) * TILE_ROWS + within % 8 * 2 + within / 8
    }

    /// Bytes that a tile takes in each plane: codes, scales, biases.
    pub fn tile_bytes(&self) -> [usize; 3] {
        let plane = |element: Option<ScaleType>| {
            self.blocks() * TILE_ROWS * element.map_or(0, ScaleType::bytes)
        };
        [
            self.units() * UNIT_BYTES,
            plane(self.encoding.blocks.map(|blocks| blocks.scale)),
            plane(self.encoding.blocks.and_then(|blocks| blocks.bias)),
        ]
    }

    /// Packs a matrix into `out`, which holds [`LaneLayout::bytes`] zeroed bytes.
    ///
    /// # Panics
    /// If `out` has another size.
    pub fn pack(&self, source: &dyn WeightSource, out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes(), "room for the packed matrix");
        let (codes, planes) = out.split_at_mut(self.code_bytes());
        let (scales, biases) = planes.split_at_mut(self.scale_bytes());
        self.pack_tiles(source, 0..self.tiles(), [codes, scales, biases]);
    }

    /// Packs some tiles of a matrix into zeroed parts of its planes that hold just these tiles, or more.
    ///
    /// # Panics
    /// If a part is smaller than its tiles.
    pub fn pack_tiles(
        &self,
        source: &dyn WeightSource,
        tiles: Range<usize>,
        planes: [&mut [u8]; 3],
    ) {
        let [codes_out, scales_out, biases_out] = planes;
        let codes = self.encoding.codes;
        let first = tiles.start * TILE_ROWS;
        let mut unpacked = vec![0; self.cols * codes.bytes_unpacked()];
        let stored_blocks =
            self.encoding.blocks.map_or(0, |blocks| self.cols.div_ceil(blocks.cols));
        let mut bits = vec![0; stored_blocks];
        let lane_bytes = self.lane_cols() * codes.bytes_unpacked();
        for row in first..self.rows.min(tiles.end * TILE_ROWS) {
            source.unpack_codes(row, &mut unpacked);
            for (quarter, columns) in unpacked.chunks(lane_bytes).enumerate() {
                let word = &mut codes_out[self.word(row - first, quarter)..][..8];
                if codes == Codes::E2m1 {
                    for (half_word, columns) in word.chunks_mut(4).zip(columns.chunks(8)) {
                        put_e2m1(columns, half_word);
                    }
                } else if codes.bits() == 4 {
                    for (byte, pair) in word.iter_mut().zip(columns.chunks(2)) {
                        *byte = pair.iter().rev().fold(0, |byte, code| byte << 4 | code & 15);
                    }
                } else {
                    word[..columns.len()].copy_from_slice(columns);
                }
            }
            let Some(blocks) = self.encoding.blocks else { continue };
            source.unpack_scales(row, &mut bits);
            self.put(row - first, &bits, blocks.scale, scales_out);
            if let Some(bias) = blocks.bias {
                source.unpack_biases(row, &mut bits);
                self.put(row - first, &bits, bias, biases_out);
            }
        }
    }

    fn put(&self, row: usize, bits: &[u32], element: ScaleType, plane: &mut [u8]) {
        let bytes = element.bytes();
        for (block, bits) in bits.iter().enumerate() {
            let at = self.block(row, block) * bytes;
            plane[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
        }
    }
}

/// Puts up to eight E2M1 codes into four bytes, so that the bits of a half's upper byte take few operations to find: byte `i` holds
/// column `i` with its sign in bit 7 and the rest in bits 3 to 1, and column `i + 4` with the rest in bits 6 to 4 and the sign in bit 0.
fn put_e2m1(columns: &[u8], out: &mut [u8]) {
    let code = |column: usize| columns.get(column).map_or(0, |code| code & 15);
    for (i, byte) in out.iter_mut().enumerate() {
        let (first, last) = (code(i), code(i + 4));
        *byte = (first & 8) << 4 | (first & 7) << 1 | (last & 7) << 4 | last >> 3;
    }
}

/// Number of the codes in the kernels (`CODES_*` of `codes.h`).
fn codes_name(codes: Codes) -> &'static str {
    match codes {
        Codes::F32 => "CODES_F32",
        Codes::F16 => "CODES_F16",
        Codes::Bf16 => "CODES_BF16",
        Codes::E4m3 => "CODES_E4M3",
        Codes::U4 => "CODES_U4",
        Codes::I8 => "CODES_I8",
        Codes::E2m1 => "CODES_E2M1",
    }
}

/// Name of a scale's type in the kernels (`SCALES_*` of `codes.h`).
fn scales_name(scales: Option<ScaleType>) -> &'static str {
    match scales {
        None => "SCALES_NONE",
        Some(ScaleType::F32) => "SCALES_F32",
        Some(ScaleType::F16) => "SCALES_F16",
        Some(ScaleType::Bf16) => "SCALES_BF16",
        Some(ScaleType::E4m3) => "SCALES_E4M3",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lithos_format::Blocks;

    use super::*;

    fn encoding(codes: Codes, blocks: Option<usize>) -> Encoding {
        let blocks =
            blocks.map(|cols| Blocks { cols, scale: ScaleType::F16, bias: Some(ScaleType::F16) });
        Encoding { codes, zero_point: 0, blocks }
    }

    #[test]
    fn every_word_and_scale_has_a_place_of_its_own() {
        for (codes, block) in [
            (Codes::F32, None),
            (Codes::Bf16, None),
            (Codes::E4m3, None),
            (Codes::I8, Some(32)),
            (Codes::U4, Some(64)),
            (Codes::E2m1, Some(16)),
        ] {
            let layout = LaneLayout::new(40, 192, encoding(codes, block)).expect("a layout");
            let quarters = 192 / layout.lane_cols();
            let words: HashSet<usize> = (0..40)
                .flat_map(|row| (0..quarters).map(move |quarter| (row, quarter)))
                .map(|(row, quarter)| layout.word(row, quarter))
                .collect();
            assert_eq!(words.len(), 40 * quarters);
            assert!(words.iter().all(|at| at % 8 == 0 && at + 8 <= layout.code_bytes()));
            let blocks = block.map_or(0, |cols| 192 / cols);
            let scales: HashSet<usize> = (0..40)
                .flat_map(|row| (0..blocks).map(move |block| (row, block)))
                .map(|(row, block)| layout.block(row, block))
                .collect();
            assert_eq!(scales.len(), 40 * blocks);
            assert!(scales.iter().all(|at| at * 2 + 2 <= layout.scale_bytes()));
        }
    }

    #[test]
    fn scales_that_change_within_a_lane_are_refused() {
        let error = LaneLayout::new(16, 64, encoding(Codes::E2m1, Some(8))).expect_err("refused");
        assert_eq!(error, LaneLayoutError::Blocks { block: 8, lane: 16 });
    }
}
