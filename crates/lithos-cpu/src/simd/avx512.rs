//! AVX-512 with VNNI: 16 lanes are one 512-bit register.

use super::Simd;
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

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        op!(_mm_prefetch::<_MM_HINT_T0>(at.cast()))
    }
}
