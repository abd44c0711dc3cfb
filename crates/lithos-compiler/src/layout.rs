//! The order in which weights are stored for the lanes that read them.
//!
//! A matrix is cut into tiles of [`TILE_ROWS`] output rows. A vector lane works on one output row, so what the 16 lanes
//! read together lies together, and all codes of a tile are contiguous over the columns: a worker that walks its tiles
//! reads one ascending stream. Block scales (and biases) keep their stored type and lie in a plane of their own, as
//! `[tile][block][16 rows]`. Nothing is widened, so a pass moves as many bytes as the file holds.
//!
//! Inside a tile the codes are ordered by type, so that decoding needs no shuffle and activations are read in their
//! natural order:
//!
//! | codes | order | meaning |
//! |---|---|---|
//! | F32, F16, E4M3 | `[column][row]` | one vector load per column |
//! | BF16 | `[column / 2][row][2]` | a 32-bit lane word is an even column (low half) and the next one (high half) |
//! | U4, E2M1 | `[column / 8][row]` words of 8 nibbles | nibble `j` of 16-bit half `w` is column `2 j + w` |
//! | I8 | `[column / 8][2][row]` words of 4 bytes | the bytes of word 0 are columns 0, 4, 1, 5, of word 1 columns 2, 6, 3, 7; codes are offset by 128 |
//!
//! The 4-bit order makes `word >> 4 j & 0x000F_000F` a pair of neighbouring columns `(2 j, 2 j + 1)` as two 16-bit
//! integers, which meets a pair of neighbouring activations in one multiply-add. Splitting a word of nibbles into low
//! and high nibbles gives exactly the two words of the I8 order, so both share the code that works on bytes.
//!
//! Rows are padded to whole tiles and columns to [`BLOCK_COLS`], with codes 0 and scales 0.

use std::ops::Range;

use lithos_format::{Blocks, Codes, Encoding, Matrix, ScaleType};

pub use crate::aligned::{AlignedBytes, Region};

/// Output rows of a tile.
pub const TILE_ROWS: usize = 16;

/// Columns are padded to a multiple of this, which is also the block in which activations share a scale.
pub const BLOCK_COLS: usize = 32;

/// What is added to an I8 code to store it as an unsigned byte.
pub const I8_OFFSET: u8 = 128;

/// Why a matrix has no packed form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The blocks are neither 16 columns nor a multiple of 32.
    #[error(
        "no weight layout for blocks of {0} columns: a block must have 16 columns or a multiple of 32"
    )]
    BlockCols(usize),
    /// Float codes with block scales.
    #[error(
        "no weight layout for {0:?} codes with block scales: only integer and E2M1 codes may have them"
    )]
    FloatBlocks(Codes),
    /// A bias beside E2M1 codes or E4M3 scales.
    #[error(
        "no weight layout for {0:?} codes with {1:?} scales and a bias: these are only known without one"
    )]
    Bias(Codes, ScaleType),
}

/// Where every code, scale and bias of a matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    rows: usize,
    cols: usize,
    encoding: Encoding,
}

/// Rows of a matrix as they are stored in a checkpoint; see [`Matrix`] for what each method means.
pub trait WeightSource: Sync {
    /// Columns of each row.
    fn cols(&self) -> usize;
    /// How codes become values.
    fn encoding(&self) -> Encoding;
    /// The factor of the whole matrix.
    fn tensor_scale(&self) -> f32;
    /// A row's codes, one per element, little endian.
    fn unpack_codes(&self, row: usize, out: &mut [u8]);
    /// The bits of a row's block scales.
    fn unpack_scales(&self, row: usize, out: &mut [u32]);
    /// The bits of a row's block biases.
    fn unpack_biases(&self, row: usize, out: &mut [u32]);
}

/// A matrix in its packed order.
#[derive(Debug)]
pub struct Packed {
    layout: Layout,
    tensor_scale: f32,
    codes: AlignedBytes,
    scales: AlignedBytes,
    biases: AlignedBytes,
}

/// Some consecutive tiles of a [`Packed`] matrix that one thread may fill.
#[derive(Debug)]
pub struct PackPart<'a> {
    layout: Layout,
    tiles: Range<usize>,
    codes: &'a mut [u8],
    scales: &'a mut [u8],
    biases: &'a mut [u8],
}

/// One row read back from a packed matrix, in the form of [`Matrix`]'s methods of these names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedRow {
    /// Codes, little endian.
    pub codes: Vec<u8>,
    /// Bits of the block scales.
    pub scales: Vec<u32>,
    /// Bits of the block biases.
    pub biases: Vec<u32>,
}

impl Layout {
    /// The layout of a matrix of `rows` output features and `cols` input features.
    ///
    /// # Errors
    /// If the encoding has a form that no kernel reads.
    pub fn for_encoding(
        rows: usize,
        cols: usize,
        encoding: &Encoding,
    ) -> Result<Self, LayoutError> {
        if let Some(Blocks { cols, scale, bias }) = encoding.blocks {
            if !is_integer(encoding.codes) {
                return Err(LayoutError::FloatBlocks(encoding.codes));
            }
            if cols != BLOCK_COLS / 2 && (cols == 0 || cols % BLOCK_COLS != 0) {
                return Err(LayoutError::BlockCols(cols));
            }
            if bias.is_some()
                && (encoding.codes == Codes::E2m1
                    || scale == ScaleType::E4m3
                    || bias == Some(ScaleType::E4m3))
            {
                return Err(LayoutError::Bias(encoding.codes, scale));
            }
        }
        Ok(Self { rows, cols, encoding: *encoding })
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How codes become values.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether codes are small integers (U4, I8, E2M1) rather than floats.
    pub fn is_integer(&self) -> bool {
        is_integer(self.encoding.codes)
    }

    /// Tiles of output rows, the last one perhaps padded.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// Columns with the padding to whole activation blocks.
    pub fn padded_cols(&self) -> usize {
        self.cols.next_multiple_of(BLOCK_COLS)
    }

    /// Bytes of a tile's codes.
    pub fn code_tile_bytes(&self) -> usize {
        self.padded_cols() * TILE_ROWS * self.encoding.codes.bits() / 8
    }

    /// Scales of a row with those of padded columns; 0 without blocks.
    pub fn padded_blocks(&self) -> usize {
        self.encoding.blocks.map_or(0, |blocks| self.padded_cols().div_ceil(blocks.cols))
    }

    /// Bytes of a tile's scales.
    pub fn scale_tile_bytes(&self) -> usize {
        self.padded_blocks()
            * TILE_ROWS
            * self.encoding.blocks.map_or(0, |blocks| blocks.scale.bytes())
    }

    /// Bytes of a tile's biases.
    pub fn bias_tile_bytes(&self) -> usize {
        let bias = self.encoding.blocks.and_then(|blocks| blocks.bias);
        self.padded_blocks() * TILE_ROWS * bias.map_or(0, ScaleType::bytes)
    }

    /// Bytes of the packed matrix: what one pass over it reads.
    pub fn bytes(&self) -> usize {
        self.tiles() * (self.code_tile_bytes() + self.scale_tile_bytes() + self.bias_tile_bytes())
    }

    /// Room for the packed matrix, to be filled through [`Packed::parts`].
    pub fn allocate(&self, tensor_scale: f32) -> Packed {
        self.allocate_in(&mut Region::zeroed(self.region_bytes()), tensor_scale)
    }

    /// As [`Layout::allocate`], in a region that holds other matrices too.
    pub fn allocate_in(&self, region: &mut Region, tensor_scale: f32) -> Packed {
        let [codes, scales, biases] = self.plane_bytes().map(|bytes| region.take(bytes));
        Packed { layout: *self, tensor_scale, codes, scales, biases }
    }

    /// What the packed matrix takes up in a region.
    pub fn region_bytes(&self) -> usize {
        let aligned = |bytes: usize| bytes.next_multiple_of(AlignedBytes::ALIGNMENT);
        self.plane_bytes().into_iter().map(aligned).sum()
    }

    /// Bytes of all codes, all scales and all biases.
    fn plane_bytes(&self) -> [usize; 3] {
        [self.code_tile_bytes(), self.scale_tile_bytes(), self.bias_tile_bytes()]
            .map(|bytes| self.tiles() * bytes)
    }
}

impl Packed {
    /// Packs all rows of `source` in one thread: row `r` of the packed matrix is row `row_map(r)` of `source`.
    ///
    /// # Errors
    /// If the encoding has a form that no kernel reads.
    ///
    /// # Panics
    /// If `row_map` names a row that `source` lacks.
    pub fn pack(
        rows: usize,
        source: &impl WeightSource,
        row_map: impl Fn(usize) -> usize,
    ) -> Result<Self, LayoutError> {
        let layout = Layout::for_encoding(rows, source.cols(), &source.encoding())?;
        let mut packed = layout.allocate(source.tensor_scale());
        for mut part in packed.parts(layout.tiles().max(1)) {
            part.fill(source, &row_map);
        }
        Ok(packed)
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The factor of the whole matrix.
    pub fn tensor_scale(&self) -> f32 {
        self.tensor_scale
    }

    /// All codes, tile after tile.
    pub fn codes(&self) -> &AlignedBytes {
        &self.codes
    }

    /// All block scales, tile after tile.
    pub fn scales(&self) -> &AlignedBytes {
        &self.scales
    }

    /// All block biases, tile after tile.
    pub fn biases(&self) -> &AlignedBytes {
        &self.biases
    }

    /// Splits the room into parts of at most `tiles` tiles, which several threads may fill at once.
    pub fn parts(&mut self, tiles: usize) -> Vec<PackPart<'_>> {
        let layout = self.layout;
        let tiles = tiles.max(1);
        let mut codes = self.codes.chunks_mut((tiles * layout.code_tile_bytes()).max(1));
        let mut scales = self.scales.chunks_mut((tiles * layout.scale_tile_bytes()).max(1));
        let mut biases = self.biases.chunks_mut((tiles * layout.bias_tile_bytes()).max(1));
        let starts = (0..layout.tiles()).step_by(tiles);
        starts
            .map(|start| PackPart {
                layout,
                tiles: start..(start + tiles).min(layout.tiles()),
                codes: codes.next().unwrap_or_default(),
                scales: scales.next().unwrap_or_default(),
                biases: biases.next().unwrap_or_default(),
            })
            .collect()
    }

    /// Reads a row back, exactly as it was in the checkpoint.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn unpack_row(&self, row: usize) -> UnpackedRow {
        let layout = &self.layout;
        assert!(row < layout.rows, "row {row} of a matrix of {} rows", layout.rows);
        let (tile, lane) = (row / TILE_ROWS, row % TILE_ROWS);
        let tile_of = |plane: &'_ AlignedBytes, bytes: usize| {
            plane[tile * bytes..(tile + 1) * bytes].to_vec()
        };
        let codes = tile_of(&self.codes, layout.code_tile_bytes());
        let unpacked = (0..layout.cols)
            .flat_map(|col| read_code(layout.encoding.codes, &codes, col, lane))
            .collect();
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        if let Some(blocks) = layout.encoding.blocks {
            let stored = layout.cols / blocks.cols;
            let plane = tile_of(&self.scales, layout.scale_tile_bytes());
            scales = (0..stored)
                .map(|block| read_scale(&plane, blocks.scale.bytes(), block, lane))
                .collect();
            if let Some(bias) = blocks.bias {
                let plane = tile_of(&self.biases, layout.bias_tile_bytes());
                biases = (0..stored)
                    .map(|block| read_scale(&plane, bias.bytes(), block, lane))
                    .collect();
            }
        }
        UnpackedRow { codes: unpacked, scales, biases }
    }
}

impl PackPart<'_> {
    /// The tiles of this part.
    pub fn tiles(&self) -> Range<usize> {
        self.tiles.clone()
    }

    /// Packs this part's rows: row `r` of the packed matrix is row `row_map(r)` of `source`.
    ///
    /// # Panics
    /// If `source` has other columns or another encoding than the layout, or `row_map` names a row that it lacks.
    pub fn fill(&mut self, source: &impl WeightSource, row_map: &impl Fn(usize) -> usize) {
        let layout = self.layout;
        assert_eq!((source.cols(), source.encoding()), (layout.cols, layout.encoding));
        let code_bytes = layout.encoding.codes.bytes_unpacked();
        let stride = layout.padded_cols() * code_bytes;
        let mut codes = vec![0; TILE_ROWS * stride];
        let stored = layout.encoding.blocks.map_or(0, |blocks| layout.cols / blocks.cols);
        let mut scales = vec![0; stored];
        for (index, tile) in self.tiles.clone().enumerate() {
            codes.fill(0);
            for lane in 0..TILE_ROWS.min(layout.rows - tile * TILE_ROWS) {
                let row = row_map(tile * TILE_ROWS + lane);
                source.unpack_codes(row, &mut codes[lane * stride..][..layout.cols * code_bytes]);
                if let Some(blocks) = layout.encoding.blocks {
                    source.unpack_scales(row, &mut scales);
                    let plane = &mut self.scales[index * layout.scale_tile_bytes()..];
                    write_scales(plane, blocks.scale.bytes(), lane, &scales);
                    if let Some(bias) = blocks.bias {
                        source.unpack_biases(row, &mut scales);
                        let plane = &mut self.biases[index * layout.bias_tile_bytes()..];
                        write_scales(plane, bias.bytes(), lane, &scales);
                    }
                }
            }
            let bytes = layout.code_tile_bytes();
            pack_codes(
                layout.encoding.codes,
                &codes,
                stride,
                &mut self.codes[index * bytes..][..bytes],
            );
        }
    }
}

impl WeightSource for Matrix<'_> {
    fn cols(&self) -> usize {
        self.cols()
    }
    fn encoding(&self) -> Encoding {
        self.encoding()
    }
    fn tensor_scale(&self) -> f32 {
        self.tensor_scale()
    }
    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        self.unpack_codes(row, out);
    }
    fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        self.unpack_scales(row, out);
    }
    fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        self.unpack_biases(row, out);
    }
}

fn is_integer(codes: Codes) -> bool {
    matches!(codes, Codes::U4 | Codes::I8 | Codes::E2m1)
}

/// Writes a tile: `codes` holds 16 rows of `stride` bytes, one code per element.
fn pack_codes(kind: Codes, codes: &[u8], stride: usize, out: &mut [u8]) {
    match kind {
        Codes::F32 => interleave::<4>(codes, stride, out),
        // A BF16 word is two neighbouring elements of a row, as are four bytes.
        Codes::Bf16 => interleave::<4>(codes, stride, out),
        Codes::F16 => interleave::<2>(codes, stride, out),
        Codes::E4m3 => interleave::<1>(codes, stride, out),
        Codes::U4 | Codes::E2m1 => {
            let (words, _) = out.as_chunks_mut::<4>();
            for (index, word) in words.iter_mut().enumerate() {
                *word = pack_nibbles(eight(codes, stride, index));
            }
        }
        Codes::I8 => {
            let (groups, _) = out.as_chunks_mut::<{ 8 * TILE_ROWS }>();
            for (group, words) in groups.iter_mut().enumerate() {
                let (low, high) = words.split_at_mut(4 * TILE_ROWS);
                for lane in 0..TILE_ROWS {
                    let c =
                        eight(codes, stride, group * TILE_ROWS + lane).map(|code| code ^ I8_OFFSET);
                    low[4 * lane..][..4].copy_from_slice(&[c[0], c[4], c[1], c[5]]);
                    high[4 * lane..][..4].copy_from_slice(&[c[2], c[6], c[3], c[7]]);
                }
            }
        }
    }
}

/// The 8 columns that word `index` of a tile of 4-bit codes holds: words are ordered by group of columns, then row.
fn eight(codes: &[u8], stride: usize, index: usize) -> [u8; 8] {
    let at = (index % TILE_ROWS) * stride + index / TILE_ROWS * 8;
    let mut columns = [0; 8];
    columns.copy_from_slice(&codes[at..at + 8]);
    columns
}

/// Nibble `j` of half `w` is column `2 j + w`.
fn pack_nibbles(c: [u8; 8]) -> [u8; 4] {
    [c[0] | c[2] << 4, c[4] | c[6] << 4, c[1] | c[3] << 4, c[5] | c[7] << 4]
}

/// Transposes 16 rows of `N`-byte elements to `[element][row]`.
fn interleave<const N: usize>(codes: &[u8], stride: usize, out: &mut [u8]) {
    let (elements, _) = out.as_chunks_mut::<N>();
    for (index, element) in elements.iter_mut().enumerate() {
        let at = (index % TILE_ROWS) * stride + index / TILE_ROWS * N;
        element.copy_from_slice(&codes[at..at + N]);
    }
}

fn write_scales(plane: &mut [u8], bytes: usize, lane: usize, scales: &[u32]) {
    for (block, bits) in scales.iter().enumerate() {
        let at = (block * TILE_ROWS + lane) * bytes;
        plane[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
    }
}

fn read_scale(plane: &[u8], bytes: usize, block: usize, lane: usize) -> u32 {
    let at = (block * TILE_ROWS + lane) * bytes;
    let mut bits = [0; 4];
    bits[..bytes].copy_from_slice(&plane[at..at + bytes]);
    u32::from_le_bytes(bits)
}

/// One code of a tile, as the bytes that [`Matrix::unpack_codes`] would give.
fn read_code(kind: Codes, tile: &[u8], col: usize, lane: usize) -> Vec<u8> {
    let element = |bytes: usize, index: usize| tile[index * bytes..(index + 1) * bytes].to_vec();
    match kind {
        Codes::F32 => element(4, col * TILE_ROWS + lane),
        Codes::F16 => element(2, col * TILE_ROWS + lane),
        Codes::E4m3 => element(1, col * TILE_ROWS + lane),
        Codes::Bf16 => element(2, (col / 2 * TILE_ROWS + lane) * 2 + col % 2),
        Codes::U4 | Codes::E2m1 => {
            let (half, nibble) = (col % 2, col % 8 / 2);
            let byte = tile[(col / 8 * TILE_ROWS + lane) * 4 + half * 2 + nibble / 2];
            vec![byte >> (nibble % 2 * 4) & 15]
        }
        Codes::I8 => {
            let (word, byte) = (col % 4 / 2, col % 2 * 2 + col % 8 / 4);
            vec![tile[((col / 8 * 2 + word) * TILE_ROWS + lane) * 4 + byte] ^ I8_OFFSET]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes, scales and biases that differ everywhere.
    struct Numbered {
        cols: usize,
        encoding: Encoding,
    }

    impl WeightSource for Numbered {
        fn cols(&self) -> usize {
            self.cols
        }
        fn encoding(&self) -> Encoding {
            self.encoding
        }
        fn tensor_scale(&self) -> f32 {
            0.5
        }
        fn unpack_codes(&self, row: usize, out: &mut [u8]) {
            let mask = if self.encoding.codes.bits() == 4 { 15 } else { 255 };
            for (index, code) in out.iter_mut().enumerate() {
                *code = ((row * 7919 + index * 104_729) >> 3) as u8 & mask;
            }
        }
        fn unpack_scales(&self, row: usize, out: &mut [u32]) {
            let mask = u32::MAX >> (32 - 8 * self.encoding.blocks.unwrap().scale.bytes());
            for (block, scale) in out.iter_mut().enumerate() {
                *scale = (row as u32 * 1_000_003 + block as u32 * 977 + 1) & mask;
            }
        }
        fn unpack_biases(&self, row: usize, out: &mut [u32]) {
            for (block, bias) in out.iter_mut().enumerate() {
                *bias = (row as u32 * 31 + block as u32 * 17 + 5) & 0xFFFF;
            }
        }
    }

    fn encodings() -> Vec<Encoding> {
        let plain = |codes| Encoding { codes, zero_point: 0, blocks: None };
        let blocks = |codes, cols, scale, bias| Encoding {
            codes,
            zero_point: 0,
            blocks: Some(Blocks { cols, scale, bias }),
        };
        vec![
            plain(Codes::F32),
            plain(Codes::F16),
            plain(Codes::Bf16),
            plain(Codes::E4m3),
            plain(Codes::I8),
            blocks(Codes::U4, 32, ScaleType::F16, Some(ScaleType::F16)),
            blocks(Codes::U4, 64, ScaleType::Bf16, Some(ScaleType::Bf16)),
            blocks(Codes::I8, 32, ScaleType::F32, None),
            blocks(Codes::E2m1, 16, ScaleType::E4m3, None),
        ]
    }

    #[test]
    fn packing_is_a_bijection() {
        for encoding in encodings() {
            let step = encoding.blocks.map_or(2, |blocks| blocks.cols);
            for (rows, cols) in [(1, step), (16, 3 * step), (37, 5 * step), (64, 4 * step)] {
                let source = Numbered { cols, encoding };
                let packed = Packed::pack(rows, &source, |row| rows - 1 - row).unwrap();
                assert!(packed.codes().as_ptr().addr().is_multiple_of(AlignedBytes::ALIGNMENT));
                for row in 0..rows {
                    let read = packed.unpack_row(row);
                    let mut codes = vec![0; read.codes.len()];
                    let mut scales = vec![0; read.scales.len()];
                    let mut biases = vec![0; read.biases.len()];
                    source.unpack_codes(rows - 1 - row, &mut codes);
                    source.unpack_scales_if_any(rows - 1 - row, &mut scales, &mut biases);
                    assert_eq!(codes.len(), cols * encoding.codes.bytes_unpacked());
                    assert_eq!(
                        scales.len(),
                        encoding.blocks.map_or(0, |blocks| cols / blocks.cols)
                    );
                    assert_eq!(
                        read,
                        UnpackedRow { codes, scales, biases },
                        "{encoding:?} row {row}"
                    );
                }
            }
        }
    }

    impl Numbered {
        fn unpack_scales_if_any(&self, row: usize, scales: &mut [u32], biases: &mut [u32]) {
            if self.encoding.blocks.is_some() {
                self.unpack_scales(row, scales);
                self.unpack_biases(row, biases);
            }
        }
    }

    #[test]
    fn filling_in_parts_equals_filling_at_once() {
        for encoding in encodings() {
            let source = Numbered { cols: 128, encoding };
            let whole = Packed::pack(100, &source, |row| row).unwrap();
            let mut in_parts = whole.layout().allocate(0.5);
            for mut part in in_parts.parts(3) {
                part.fill(&source, &|row| row);
            }
            assert_eq!(whole.codes()[..], in_parts.codes()[..]);
            assert_eq!(whole.scales()[..], in_parts.scales()[..]);
            assert_eq!(whole.biases()[..], in_parts.biases()[..]);
        }
    }

    #[test]
    fn packed_bytes_are_the_stored_bytes() {
        let q4_0 = Encoding {
            codes: Codes::U4,
            zero_point: 8,
            blocks: Some(Blocks { cols: 32, scale: ScaleType::F16, bias: None }),
        };
        let layout = Layout::for_encoding(1536, 576, &q4_0).unwrap();
        assert_eq!(layout.bytes(), 1536 * 576 / 32 * 18);
    }

    #[test]
    fn forms_without_a_kernel_are_refused() {
        let refuse = |codes, cols, scale, bias| {
            let encoding =
                Encoding { codes, zero_point: 0, blocks: Some(Blocks { cols, scale, bias }) };
            Layout::for_encoding(16, 960, &encoding).unwrap_err()
        };
        assert_eq!(refuse(Codes::U4, 24, ScaleType::F16, None), LayoutError::BlockCols(24));
        assert_eq!(
            refuse(Codes::Bf16, 32, ScaleType::F16, None),
            LayoutError::FloatBlocks(Codes::Bf16)
        );
        let bias = Some(ScaleType::F16);
        assert_eq!(
            refuse(Codes::E2m1, 32, ScaleType::F16, bias),
            LayoutError::Bias(Codes::E2m1, ScaleType::F16)
        );
    }
}
