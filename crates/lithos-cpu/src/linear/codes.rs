//! Decoding of packed weights in registers, one type per kind of code.

use lithos_compiler::layout::{BLOCK_COLS, I8_OFFSET, Packed, TILE_ROWS};
use lithos_format::{Codes, ScaleType};

use crate::simd::{E4M3_SCALE, Simd};

/// Integer codes: 8 columns of a tile at a time, always as unsigned integers with a zero point.
pub(super) trait IntegerCodes {
    /// Bytes of 8 columns of a tile.
    const BYTES: usize;

    /// The 8 columns as bytes: columns 0, 4, 1, 5 of each row in the first word and 2, 6, 3, 7 in the second.
    ///
    /// # Safety
    /// [`Self::BYTES`] bytes must be readable at `at`.
    unsafe fn bytes<S: Simd>(s: S, at: *const u8) -> [S::I; 2];

    /// The 8 columns as four words of two 16-bit integers: columns (0, 1), (2, 3), (4, 5), (6, 7).
    ///
    /// # Safety
    /// [`Self::BYTES`] bytes must be readable at `at`.
    #[inline(always)]
    unsafe fn pairs<S: Simd>(s: S, at: *const u8) -> [S::I; 4] {
        // SAFETY: the caller's promise is the same.
        let [first, second] = unsafe { Self::bytes(s, at) };
        let low = s.splat_i32(0x00FF_00FF);
        [s.and(first, low), s.and(second, low), s.shr_halves::<8>(first), s.shr_halves::<8>(second)]
    }

    /// Adds the products of 8 columns with 8 activations to `sums`, whose meaning is settled by [`Self::total`].
    ///
    /// # Safety
    /// [`Self::BYTES`] bytes must be readable at `at` and 8 activations at `q`.
    #[inline(always)]
    unsafe fn accumulate<S: Simd>(s: S, sums: &mut [S::I; 3], at: *const u8, q: *const i16) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            let pairs = Self::pairs(s, at);
            sums[0] = s.madd(sums[0], pairs[0], activation_pair(s, q));
            sums[1] = s.madd(sums[1], pairs[1], activation_pair(s, q.add(2)));
            sums[0] = s.madd(sums[0], pairs[2], activation_pair(s, q.add(4)));
            sums[1] = s.madd(sums[1], pairs[3], activation_pair(s, q.add(6)));
        }
    }

    /// The sum of all products that went into `sums`.
    #[inline(always)]
    fn total<S: Simd>(s: S, sums: [S::I; 3]) -> S::I {
        s.add_i32(sums[0], sums[1])
    }
}

/// Two neighbouring activations in every lane.
///
/// # Safety
/// Two activations must be readable at `q`.
#[inline(always)]
pub(super) unsafe fn activation_pair<S: Simd>(s: S, q: *const i16) -> S::I {
    // SAFETY: the caller's promise is the same.
    s.splat_i32(unsafe { q.cast::<i32>().read_unaligned() })
}

/// Unsigned 4-bit integers.
pub(super) struct U4;

impl IntegerCodes for U4 {
    const BYTES: usize = 4 * TILE_ROWS;

    #[inline(always)]
    unsafe fn bytes<S: Simd>(s: S, at: *const u8) -> [S::I; 2] {
        // SAFETY: the caller's promise is the same.
        let word = unsafe { s.load_i32(at) };
        let low = s.splat_i32(0x0F0F_0F0F);
        [s.and(word, low), s.and(s.shr_halves::<4>(word), low)]
    }

    #[inline(always)]
    unsafe fn pairs<S: Simd>(s: S, at: *const u8) -> [S::I; 4] {
        // SAFETY: the caller's promise is the same.
        let word = unsafe { s.load_i32(at) };
        let low = s.splat_i32(0x000F_000F);
        [
            s.and(word, low),
            s.and(s.shr_halves::<4>(word), low),
            s.and(s.shr_halves::<8>(word), low),
            s.shr_halves::<12>(word),
        ]
    }

    /// Nibbles 1 and 2 stay where they are, 16 and 256 times too large, and have sums of their own: that saves two
    /// shifts per word. At most 4 words of a block go into a sum, 2 * 15 * 256 * 32767 * 4 < 2^31.
    #[inline(always)]
    unsafe fn accumulate<S: Simd>(s: S, sums: &mut [S::I; 3], at: *const u8, q: *const i16) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            let word = s.load_i32(at);
            let nibble = s.and(word, s.splat_i32(0x000F_000F));
            sums[0] = s.madd(sums[0], nibble, activation_pair(s, q));
            let nibble = s.and(word, s.splat_i32(0x00F0_00F0));
            sums[1] = s.madd(sums[1], nibble, activation_pair(s, q.add(2)));
            let nibble = s.and(word, s.splat_i32(0x0F00_0F00));
            sums[2] = s.madd(sums[2], nibble, activation_pair(s, q.add(4)));
            sums[0] = s.madd(sums[0], s.shr_halves::<12>(word), activation_pair(s, q.add(6)));
        }
    }

    #[inline(always)]
    fn total<S: Simd>(s: S, sums: [S::I; 3]) -> S::I {
        s.add_i32(s.add_i32(sums[0], s.sar::<4>(sums[1])), s.sar::<8>(sums[2]))
    }
}

/// Signed bytes, stored with an offset of 128.
pub(super) struct I8;

impl IntegerCodes for I8 {
    const BYTES: usize = 8 * TILE_ROWS;

    #[inline(always)]
    unsafe fn bytes<S: Simd>(s: S, at: *const u8) -> [S::I; 2] {
        // SAFETY: the caller's promise is the same.
        unsafe { [s.load_i32(at), s.load_i32(at.add(4 * TILE_ROWS))] }
    }
}

/// E2M1 codes as twice their value plus 12: the integers 0 to 24.
pub(super) struct E2m1;

/// Twice the values of E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives), plus 12.
const E2M1_TWICE_PLUS_12: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

impl IntegerCodes for E2m1 {
    const BYTES: usize = 4 * TILE_ROWS;

    #[inline(always)]
    unsafe fn bytes<S: Simd>(s: S, at: *const u8) -> [S::I; 2] {
        // SAFETY: the caller's promise is the same.
        let [low, high] = unsafe { U4::bytes(s, at) };
        [s.lookup(&E2M1_TWICE_PLUS_12, low), s.lookup(&E2M1_TWICE_PLUS_12, high)]
    }
}

/// Float codes: two columns of a tile at a time.
pub(super) trait FloatCodes {
    /// Bytes of 2 columns of a tile.
    const BYTES: usize;

    /// The two columns, up to a factor in [`output_factor`].
    ///
    /// # Safety
    /// [`Self::BYTES`] bytes must be readable at `at`.
    unsafe fn columns<S: Simd>(s: S, at: *const u8) -> [S::F; 2];
}

/// Single precision.
pub(super) struct F32;
/// IEEE binary16.
pub(super) struct F16;
/// bfloat16.
pub(super) struct Bf16;
/// FP8 E4M3.
pub(super) struct E4m3;

impl FloatCodes for F32 {
    const BYTES: usize = 8 * TILE_ROWS;

    #[inline(always)]
    unsafe fn columns<S: Simd>(s: S, at: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's promise is the same.
        unsafe { [s.load(at.cast()), s.load(at.add(4 * TILE_ROWS).cast())] }
    }
}

impl FloatCodes for F16 {
    const BYTES: usize = 4 * TILE_ROWS;

    #[inline(always)]
    unsafe fn columns<S: Simd>(s: S, at: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's promise is the same.
        unsafe { [s.load_f16(at.cast()), s.load_f16(at.add(2 * TILE_ROWS).cast())] }
    }
}

impl FloatCodes for Bf16 {
    const BYTES: usize = 4 * TILE_ROWS;

    #[inline(always)]
    unsafe fn columns<S: Simd>(s: S, at: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's promise is the same.
        let pairs = unsafe { s.load_i32(at) };
        [s.bf16_low(pairs), s.bf16_high(pairs)]
    }
}

impl FloatCodes for E4m3 {
    const BYTES: usize = 2 * TILE_ROWS;

    #[inline(always)]
    unsafe fn columns<S: Simd>(s: S, at: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's promise is the same.
        unsafe { [s.load_e4m3(at), s.load_e4m3(at.add(TILE_ROWS))] }
    }
}

/// Float codes that are BF16 values, exactly.
#[cfg(target_arch = "x86_64")]
pub(super) trait Bf16Codes: FloatCodes {
    /// Whether the codes are stored as [`Self::pairs`] gives them.
    const STORED_AS_PAIRS: bool;

    /// Two columns, up to a factor in [`output_factor`]: the even one is the low half of each lane.
    ///
    /// # Safety
    /// [`FloatCodes::BYTES`] bytes must be readable at `at`.
    unsafe fn pairs<S: Simd>(s: S, at: *const u8) -> S::I;
}

#[cfg(target_arch = "x86_64")]
impl Bf16Codes for Bf16 {
    const STORED_AS_PAIRS: bool = true;

    #[inline(always)]
    unsafe fn pairs<S: Simd>(s: S, at: *const u8) -> S::I {
        // SAFETY: the caller's promise is the same.
        unsafe { s.load_i32(at) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Bf16Codes for E4m3 {
    const STORED_AS_PAIRS: bool = false;

    #[inline(always)]
    unsafe fn pairs<S: Simd>(s: S, at: *const u8) -> S::I {
        // SAFETY: the caller's promise is the same.
        unsafe { s.load_e4m3_pairs(at) }
    }
}

/// The scales (or biases) of 16 rows, up to a factor in [`output_factor`]; all 1 where there are none.
///
/// # Safety
/// 16 values of the type must be readable at `at`.
#[inline(always)]
pub(super) unsafe fn load_scales<S: Simd>(s: S, kind: Option<ScaleType>, at: *const u8) -> S::F {
    // SAFETY: the caller's promise is the same.
    unsafe {
        match kind {
            None => s.splat(1.0),
            Some(ScaleType::F32) => s.load(at.cast()),
            Some(ScaleType::F16) => s.load_f16(at.cast()),
            Some(ScaleType::Bf16) => s.load_bf16(at.cast()),
            Some(ScaleType::E4m3) => s.load_e4m3(at),
        }
    }
}

/// Scales and biases whose type is known where the code is compiled: a choice at every block would cost as much as its sums.
pub(super) trait Scales {
    /// Bytes of one, if the type that the matrix names is `kind`.
    fn bytes(kind: Option<ScaleType>) -> usize;

    /// The scales of 16 rows, as [`load_scales`].
    ///
    /// # Safety
    /// 16 values of the type must be readable at `at`.
    unsafe fn load<S: Simd>(s: S, kind: Option<ScaleType>, at: *const u8) -> S::F;
}

/// Any scales or none, chosen where they are read.
pub(super) struct AnyScales;

impl Scales for AnyScales {
    #[inline(always)]
    fn bytes(kind: Option<ScaleType>) -> usize {
        kind.map_or(0, ScaleType::bytes)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, kind: Option<ScaleType>, at: *const u8) -> S::F {
        // SAFETY: the caller's promise is the same.
        unsafe { load_scales(s, kind, at) }
    }
}

/// Says that a type of codes is also a type of scales.
macro_rules! scales {
    ($($codes:ident = $kind:expr),*) => {$(
        impl Scales for $codes {
            #[inline(always)]
            fn bytes(_: Option<ScaleType>) -> usize {
                $kind.bytes()
            }

            #[inline(always)]
            unsafe fn load<S: Simd>(s: S, _: Option<ScaleType>, at: *const u8) -> S::F {
                // SAFETY: the caller's promise is the same.
                unsafe { load_scales(s, Some($kind), at) }
            }
        }
    )*};
}

scales!(F16 = ScaleType::F16, Bf16 = ScaleType::Bf16, E4m3 = ScaleType::E4m3);

/// What the decoded integer of a code of value zero is.
pub(super) fn zero_point(packed: &Packed) -> i32 {
    let encoding = packed.layout().encoding();
    match encoding.codes {
        Codes::I8 => i32::from(I8_OFFSET) + i32::from(encoding.zero_point),
        Codes::E2m1 => 12,
        _ => i32::from(encoding.zero_point),
    }
}

/// What sums must be multiplied with in the end: the tensor's scale and the powers of two that decoding leaves out.
pub(super) fn output_factor(packed: &Packed) -> f32 {
    let encoding = packed.layout().encoding();
    let code = match encoding.codes {
        Codes::E2m1 => 0.5,
        Codes::E4m3 => E4M3_SCALE,
        _ => 1.0,
    };
    let scale = match encoding.blocks.map(|blocks| blocks.scale) {
        Some(ScaleType::E4m3) => E4M3_SCALE,
        _ => 1.0,
    };
    packed.tensor_scale() * (code * scale)
}

/// The planes of one tile of a packed matrix, and how to walk them.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) codes: *const u8,
    pub(super) scales: *const u8,
    pub(super) biases: *const u8,
    pub(super) scale_type: Option<ScaleType>,
    pub(super) bias_type: Option<ScaleType>,
    /// Columns that share a scale.
    pub(super) group_cols: usize,
    /// Columns with padding.
    pub(super) cols: usize,
}

/// Bytes from one tile to the next, in each plane of a packed matrix.
#[derive(Clone, Copy)]
pub(super) struct TileStrides {
    codes: usize,
    scales: usize,
    biases: usize,
}

impl TileStrides {
    pub(super) fn of(packed: &Packed) -> Self {
        let layout = packed.layout();
        Self {
            codes: layout.code_tile_bytes(),
            scales: layout.scale_tile_bytes(),
            biases: layout.bias_tile_bytes(),
        }
    }

    /// The tile `count` after `tile`.
    #[inline(always)]
    pub(super) fn advance(&self, tile: Tile, count: usize) -> Tile {
        Tile {
            codes: tile.codes.wrapping_add(count * self.codes),
            scales: tile.scales.wrapping_add(count * self.scales),
            biases: tile.biases.wrapping_add(count * self.biases),
            ..tile
        }
    }
}

impl Tile {
    /// Tile `index`.
    ///
    /// # Panics
    /// If there is no such tile.
    pub(super) fn of(packed: &Packed, index: usize) -> Self {
        let layout = packed.layout();
        assert!(index < layout.tiles());
        let blocks = layout.encoding().blocks;
        let at = |plane: &[u8], bytes: usize| plane[index * bytes..][..bytes].as_ptr();
        Self {
            codes: at(packed.codes(), layout.code_tile_bytes()),
            scales: at(packed.scales(), layout.scale_tile_bytes()),
            biases: at(packed.biases(), layout.bias_tile_bytes()),
            scale_type: blocks.map(|blocks| blocks.scale),
            bias_type: blocks.and_then(|blocks| blocks.bias),
            group_cols: blocks.map_or(layout.padded_cols(), |blocks| blocks.cols),
            cols: layout.padded_cols(),
        }
    }

    /// Columns whose integer products are summed before they are scaled: at most a block of activations.
    pub(super) fn unit_cols(&self) -> usize {
        self.group_cols.min(BLOCK_COLS)
    }

    /// Where the scales of group `group` are.
    ///
    /// # Safety
    /// The group must exist.
    #[inline(always)]
    pub(super) unsafe fn scales_of(&self, group: usize) -> *const u8 {
        // SAFETY: the group exists, so its place is in the plane (which is empty without scales).
        unsafe { self.scales.add(group * TILE_ROWS * self.scale_type.map_or(0, ScaleType::bytes)) }
    }

    /// Where the biases of group `group` are.
    ///
    /// # Safety
    /// The group must exist.
    #[inline(always)]
    pub(super) unsafe fn biases_of(&self, group: usize) -> *const u8 {
        // SAFETY: the group exists, so its place is in the plane (which is empty without biases).
        unsafe { self.biases.add(group * TILE_ROWS * self.bias_type.map_or(0, ScaleType::bytes)) }
    }
}
