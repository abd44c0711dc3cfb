//! AVX-512 with VNNI: 16 lanes are one 512-bit register.

use super::{Bf16Pairs, Simd};
use std::arch::x86_64::*;

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// A token for this instruction set.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, BW, VL, DQ and VNNI, and AVX2, FMA and F16C.
    #[inline(always)]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// AVX-512 BF16.
#[derive(Clone, Copy, Debug)]
pub struct Avx512Bf16(());

impl Avx512Bf16 {
    /// A token for this instruction set.
    ///
    /// # Safety
    /// The processor must have AVX-512 BF16.
    #[inline(always)]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// For each of 4 groups of 4 lanes: the words of 32 E4M3 codes that hold its 4 low and its 4 high codes.
const E4M3_WORDS: [i32; 16] = [0, 4, 0, 4, 1, 5, 1, 5, 2, 6, 2, 6, 3, 7, 3, 7];
/// The bytes of such a group that a lane takes: its low code twice, then its high code twice.
const E4M3_BYTES: [i32; 4] = [0x0404_0000, 0x0505_0101, 0x0606_0202, 0x0707_0303];
/// Exponent and mantissa of an E4M3 code that was shifted to where BF16 has them.
const E4M3_MAGNITUDE: i16 = 0x07F0;
/// What the exponent of a BF16 value has more than that of an E4M3 code, with the scale left out: 127 - 7 - 8.
const E4M3_EXPONENT: i16 = 112 << 7;
/// The exponent of an E4M3 code in the high half of a 16-bit integer.
const E4M3_CODE_EXPONENT: i16 = 0x7800;
/// BF16 values of the codes whose exponent is zero: multiples of 2^-9 / 2^8.
const E4M3_SUBNORMALS: [i16; 8] = [0, 0x3700, 0x3780, 0x37C0, 0x3800, 0x3820, 0x3840, 0x3860];

/// Calls an intrinsic that takes registers only.
macro_rules! op {
    ($intrinsic:ident $(::<$n:tt>)? ($($a:expr),*)) => {{
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { $intrinsic$(::<$n>)?($($a),*) }
    }};
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const PANEL_ROWS: usize = 12;
    const DECODE_ROWS: usize = 8;
    const INTEGER_ROWS: usize = 5;
    const HOLDS_BOTH_SUMS: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        op!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller vouches for 16 readable floats.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: __m512) {
        // SAFETY: the caller vouches for 16 writable floats.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        op!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        op!(_mm512_andnot_ps(self.splat(-0.0), a))
    }
    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        let less = op!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b));
        op!(_mm512_mask_blend_ps(less, no, yes))
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: the token proves that the processor has the instructions.
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn maximum(self, a: __m512) -> f32 {
        op!(_mm512_reduce_max_ps(a))
    }

    #[inline(always)]
    fn to_i32(self, a: __m512) -> __m512i {
        op!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn to_f32(self, a: __m512i) -> __m512 {
        op!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn to_bits(self, a: __m512) -> __m512i {
        op!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn from_bits(self, a: __m512i) -> __m512 {
        op!(_mm512_castsi512_ps(a))
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        op!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const u8) -> __m512i {
        // SAFETY: the caller vouches for 64 readable bytes.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut u8, x: __m512i) {
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe { _mm512_storeu_si512(to.cast(), x) }
    }
    #[inline(always)]
    fn add_i32(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i32(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn mul_i32(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: __m512i) -> __m512i {
        let count = op!(_mm_cvtsi32_si128(N));
        op!(_mm512_sll_epi32(a, count))
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: __m512i) -> __m512i {
        let count = op!(_mm_cvtsi32_si128(N));
        op!(_mm512_srl_epi32(a, count))
    }
    #[inline(always)]
    fn sar<const N: i32>(self, a: __m512i) -> __m512i {
        let count = op!(_mm_cvtsi32_si128(N));
        op!(_mm512_sra_epi32(a, count))
    }
    #[inline(always)]
    fn shr_halves<const N: i32>(self, a: __m512i) -> __m512i {
        let count = op!(_mm_cvtsi32_si128(N));
        op!(_mm512_srl_epi16(a, count))
    }
    #[inline(always)]
    fn sub_halves(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_sub_epi16(a, b))
    }
    #[inline(always)]
    fn madd(self, acc: __m512i, w: __m512i, a: __m512i) -> __m512i {
        op!(_mm512_dpwssd_epi32(acc, w, a))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], bytes: __m512i) -> __m512i {
        // SAFETY: the token proves that the processor has the instruction; the table is 16 bytes long.
        let table = unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())) };
        op!(_mm512_shuffle_epi8(table, bytes))
    }
    #[inline(always)]
    fn sum_i32(self, a: __m512i) -> i32 {
        op!(_mm512_reduce_add_epi32(a))
    }
    #[inline(always)]
    unsafe fn store_low_halves(self, to: *mut u16, a: __m512i) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(a)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m512 {
        // SAFETY: the caller vouches for 32 readable bytes.
        let wide = unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())) };
        self.bf16_low(wide)
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m512 {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> __m512 {
        // SAFETY: the caller vouches for 16 readable bytes.
        let codes = unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())) };
        // Sign extension puts the sign into bits 15 and 14 after the shift; a binary16 wants it in bit 15 only.
        let wide = op!(_mm256_slli_epi16::<7>(codes));
        let keep = op!(_mm256_set1_epi32(0xBFFF_BFFF_u32 as i32));
        let halves = op!(_mm256_and_si256(wide, keep));
        op!(_mm512_cvtph_ps(halves))
    }

    /// Bit operations on all 32 codes at once, half as many as widening them takes: with a code in both bytes of a 16-bit
    /// integer, a shift puts exponent and mantissa into place, and the low bits select a value where the exponent is zero.
    #[inline(always)]
    unsafe fn load_e4m3_pairs(self, from: *const u8) -> __m512i {
        // SAFETY: the caller vouches for 32 readable bytes; the constants have the sizes that are loaded. The token proves
        // that the processor has the instructions.
        unsafe {
            let words = _mm512_loadu_si512(E4M3_WORDS.as_ptr().cast());
            let bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(E4M3_BYTES.as_ptr().cast()));
            let subnormals =
                _mm512_broadcast_i32x4(_mm_loadu_si128(E4M3_SUBNORMALS.as_ptr().cast()));
            let codes = _mm512_castsi256_si512(_mm256_loadu_si256(from.cast()));
            let codes = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(words, codes), bytes);
            // (shifted & magnitude) | exponent
            let normal = _mm512_ternarylogic_epi32::<0xEA>(
                _mm512_srai_epi16::<4>(codes),
                _mm512_set1_epi16(E4M3_MAGNITUDE),
                _mm512_set1_epi16(E4M3_EXPONENT),
            );
            let subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(E4M3_CODE_EXPONENT));
            let magnitude = _mm512_mask_permutexvar_epi16(normal, subnormal, codes, subnormals);
            // The sign bit of the code, the other bits of the magnitude.
            _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi16(i16::MIN), codes, magnitude)
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        op!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }
}

impl Bf16Pairs<Avx512> for Avx512Bf16 {
    #[inline(always)]
    fn dot(self, _s: Avx512, acc: __m512, w: __m512i, a: __m512i) -> __m512 {
        // SAFETY: the types are 512 bits without a meaning of their own; the token proves that the processor has the
        // instruction.
        unsafe {
            let w = std::mem::transmute::<__m512i, __m512bh>(w);
            let a = std::mem::transmute::<__m512i, __m512bh>(a);
            _mm512_dpbf16_ps(acc, w, a)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{E4M3_SCALE, LANES};

    /// What [`Simd::load_e4m3_pairs`] computes, instruction by instruction, on machines without AVX-512.
    fn pairs_by_instruction(from: &[u8; 2 * LANES]) -> [u32; LANES] {
        let words = E4M3_WORDS.map(|word| &from[4 * word as usize..][..4]).concat();
        let bytes = E4M3_BYTES.map(i32::to_le_bytes).concat();
        std::array::from_fn(|lane| {
            let group = &words[lane / 4 * 16..][..16];
            let half = |half: usize| {
                let byte = |byte: usize| group[usize::from(bytes[lane % 4 * 4 + 2 * half + byte])];
                let code = i16::from_le_bytes([byte(0), byte(1)]);
                let normal = (code >> 4 & E4M3_MAGNITUDE) | E4M3_EXPONENT;
                // The table is repeated over 32 entries, of which the low 5 bits select one.
                let table = E4M3_SUBNORMALS[code as usize % 32 % 8];
                let magnitude = if code & E4M3_CODE_EXPONENT == 0 { table } else { normal };
                ((code & i16::MIN) | (magnitude & i16::MAX)) as u16
            };
            u32::from(half(0)) | u32::from(half(1)) << 16
        })
    }

    #[test]
    fn the_bit_operations_read_all_e4m3_codes_exactly() {
        let value = |code: u8| {
            let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
            let magnitude = match exponent {
                0 => mantissa * 2f32.powi(-9),
                _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
            };
            if code >> 7 == 1 { -magnitude } else { magnitude }
        };
        for base in (0..=255u8).step_by(2 * LANES) {
            let codes: [u8; 2 * LANES] = std::array::from_fn(|k| base + k as u8);
            for (lane, pair) in pairs_by_instruction(&codes).into_iter().enumerate() {
                for (half, bits) in [pair << 16, pair & 0xFFFF_0000].into_iter().enumerate() {
                    let code = codes[half * LANES + lane];
                    let got = f32::from_bits(bits) * E4M3_SCALE;
                    assert_eq!(got.to_bits(), value(code).to_bits(), "code {code:02x}");
                }
            }
        }
    }
}
