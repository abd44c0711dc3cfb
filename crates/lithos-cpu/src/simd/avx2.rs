//! AVX2 with FMA and F16C: 16 lanes are two 256-bit registers.

use super::Simd;
use std::arch::x86_64::*;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// A token for this instruction set.
    ///
    /// # Safety
    /// The processor must have AVX2, FMA and F16C.
    #[inline(always)]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// Applies a two-operand intrinsic to both halves.
macro_rules! both {
    ($intrinsic:ident, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [$intrinsic(a[0], b[0]), $intrinsic(a[1], b[1])] }
    }};
    ($intrinsic:ident, $a:expr) => {{
        let a = $a;
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [$intrinsic(a[0]), $intrinsic(a[1])] }
    }};
}

impl Simd for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];
    // 6 rows x 2 registers of sums, 2 of weights and one broadcast fill the 16 registers.
    const PANEL_ROWS: usize = 6;
    const DECODE_ROWS: usize = 4;
    const INTEGER_ROWS: usize = 4;
    const HOLDS_BOTH_SUMS: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        // SAFETY: the token proves that the processor has the instruction.
        let v = unsafe { _mm256_set1_ps(x) };
        [v, v]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        // SAFETY: the caller vouches for 16 readable floats.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        // SAFETY: the caller vouches for 16 writable floats.
        unsafe {
            _mm256_storeu_ps(to, x[0]);
            _mm256_storeu_ps(to.add(8), x[1]);
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        both!(_mm256_sqrt_ps, a)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        both!(_mm256_andnot_ps, self.splat(-0.0), a)
    }
    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]);
            let high = _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]);
            [_mm256_blendv_ps(no[0], yes[0], low), _mm256_blendv_ps(no[1], yes[1], high)]
        }
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe {
            let eight = _mm256_add_ps(a[0], a[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn maximum(self, a: Self::F) -> f32 {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe {
            let eight = _mm256_max_ps(a[0], a[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn to_i32(self, a: Self::F) -> Self::I {
        both!(_mm256_cvtps_epi32, a)
    }
    #[inline(always)]
    fn to_f32(self, a: Self::I) -> Self::F {
        both!(_mm256_cvtepi32_ps, a)
    }
    #[inline(always)]
    fn to_bits(self, a: Self::F) -> Self::I {
        both!(_mm256_castps_si256, a)
    }
    #[inline(always)]
    fn from_bits(self, a: Self::I) -> Self::F {
        both!(_mm256_castsi256_ps, a)
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction.
        let v = unsafe { _mm256_set1_epi32(x) };
        [v, v]
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const u8) -> Self::I {
        // SAFETY: the caller vouches for 64 readable bytes.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut u8, x: Self::I) {
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe {
            _mm256_storeu_si256(to.cast(), x[0]);
            _mm256_storeu_si256(to.add(32).cast(), x[1]);
        }
    }
    #[inline(always)]
    fn add_i32(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_add_epi32, a, b)
    }
    #[inline(always)]
    fn sub_i32(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_sub_epi32, a, b)
    }
    #[inline(always)]
    fn mul_i32(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_mullo_epi32, a, b)
    }
    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_and_si256, a, b)
    }
    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [_mm256_slli_epi32::<N>(a[0]), _mm256_slli_epi32::<N>(a[1])] }
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [_mm256_srli_epi32::<N>(a[0]), _mm256_srli_epi32::<N>(a[1])] }
    }
    #[inline(always)]
    fn sar<const N: i32>(self, a: Self::I) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [_mm256_srai_epi32::<N>(a[0]), _mm256_srai_epi32::<N>(a[1])] }
    }
    #[inline(always)]
    fn shr_halves<const N: i32>(self, a: Self::I) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe { [_mm256_srli_epi16::<N>(a[0]), _mm256_srli_epi16::<N>(a[1])] }
    }
    #[inline(always)]
    fn sub_halves(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_sub_epi16, a, b)
    }
    #[inline(always)]
    fn madd(self, acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        self.add_i32(acc, both!(_mm256_madd_epi16, w, a))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], bytes: Self::I) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction; the table is 16 bytes long.
        let table = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())) };
        both!(_mm256_shuffle_epi8, [table, table], bytes)
    }
    #[inline(always)]
    fn sum_i32(self, a: Self::I) -> i32 {
        // SAFETY: the token proves that the processor has the instruction.
        unsafe {
            let eight = _mm256_add_epi32(a[0], a[1]);
            let four =
                _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
        }
    }
    #[inline(always)]
    unsafe fn store_low_halves(self, to: *mut u16, a: Self::I) {
        // SAFETY: the token proves that the processor has the instructions; the caller vouches for the target.
        unsafe {
            // The pack saturates, so each lane is first its own low half, sign-extended.
            let low = _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(a[0]));
            let high = _mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(a[1]));
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
            _mm256_storeu_si256(to.cast(), packed);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        let wide = unsafe {
            [
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8).cast())),
            ]
        };
        self.bf16_low(wide)
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())),
            ]
        }
    }
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe {
            // Sign extension puts the sign into bits 15 and 14 after the shift; a binary16 wants it in bit 15 only.
            let wide = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())));
            let halves = _mm256_and_si256(wide, _mm256_set1_epi32(0xBFFF_BFFF_u32 as i32));
            [
                _mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves)),
            ]
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
