//! NEON: 16 lanes are four 128-bit registers.

use super::Simd;
use std::arch::aarch64::*;
use std::arch::asm;

/// NEON (Advanced SIMD), which every 64-bit Arm processor for general use has.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Neon {
    /// A token for this instruction set.
    ///
    /// # Safety
    /// The processor must have NEON.
    #[inline(always)]
    pub unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// Applies an expression over the register index to all four registers.
macro_rules! quads {
    ($q:ident => $e:expr) => {{
        // SAFETY: the token proves that the processor has the instructions.
        unsafe {
            [
                { const $q: usize = 0; $e },
                { const $q: usize = 1; $e },
                { const $q: usize = 2; $e },
                { const $q: usize = 3; $e },
            ]
        }
    }};
}

/// Four binary16 values to floats; stable Rust has no type for the intrinsic's operand.
#[inline(always)]
fn widen_f16(halves: uint16x4_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: FCVTL is part of the base instruction set; it reads and writes the named registers only.
    unsafe {
        asm!("fcvtl {out:v}.4s, {half:v}.4h", out = lateout(vreg) out, half = in(vreg) halves,
             options(pure, nomem, nostack, preserves_flags));
    }
    out
}

impl Simd for Neon {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    // 6 rows x 4 registers of sums, 4 of weights and one broadcast fit the 32 registers.
    const PANEL_ROWS: usize = 6;
    const DECODE_ROWS: usize = 4;
    const INTEGER_ROWS: usize = 4;
    const HOLDS_BOTH_SUMS: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        quads!(_Q => vdupq_n_f32(x))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        quads!(Q => vld1q_f32(from.add(4 * Q)))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        quads!(Q => vst1q_f32(to.add(4 * Q), x[Q]));
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        quads!(Q => vaddq_f32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        quads!(Q => vsubq_f32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        quads!(Q => vmulq_f32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        quads!(Q => vdivq_f32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        quads!(Q => vsqrtq_f32(a[Q]))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        quads!(Q => vfmaq_f32(c[Q], a[Q], b[Q]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        // Not FMAX, which gives NaN where either operand is NaN.
        quads!(Q => vbslq_f32(vcgtq_f32(a[Q], b[Q]), a[Q], b[Q]))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        quads!(Q => vbslq_f32(vcltq_f32(a[Q], b[Q]), a[Q], b[Q]))
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        quads!(Q => vabsq_f32(a[Q]))
    }
    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        quads!(Q => vbslq_f32(vcltq_f32(a[Q], b[Q]), yes[Q], no[Q]))
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        // SAFETY: the token proves that the processor has the instructions.
        unsafe {
            let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }
    #[inline(always)]
    fn maximum(self, a: Self::F) -> f32 {
        // SAFETY: the token proves that the processor has the instructions.
        unsafe { vmaxvq_f32(vmaxq_f32(vmaxq_f32(a[0], a[2]), vmaxq_f32(a[1], a[3]))) }
    }

    #[inline(always)]
    fn to_i32(self, a: Self::F) -> Self::I {
        quads!(Q => vcvtnq_s32_f32(a[Q]))
    }
    #[inline(always)]
    fn to_f32(self, a: Self::I) -> Self::F {
        quads!(Q => vcvtq_f32_s32(a[Q]))
    }
    #[inline(always)]
    fn to_bits(self, a: Self::F) -> Self::I {
        quads!(Q => vreinterpretq_s32_f32(a[Q]))
    }
    #[inline(always)]
    fn from_bits(self, a: Self::I) -> Self::F {
        quads!(Q => vreinterpretq_f32_s32(a[Q]))
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I {
        quads!(_Q => vdupq_n_s32(x))
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const u8) -> Self::I {
        quads!(Q => vreinterpretq_s32_u8(vld1q_u8(from.add(16 * Q))))
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut u8, x: Self::I) {
        quads!(Q => vst1q_u8(to.add(16 * Q), vreinterpretq_u8_s32(x[Q])));
    }
    #[inline(always)]
    fn add_i32(self, a: Self::I, b: Self::I) -> Self::I {
        quads!(Q => vaddq_s32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn sub_i32(self, a: Self::I, b: Self::I) -> Self::I {
        quads!(Q => vsubq_s32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn mul_i32(self, a: Self::I, b: Self::I) -> Self::I {
        quads!(Q => vmulq_s32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        quads!(Q => vandq_s32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        quads!(Q => vorrq_s32(a[Q], b[Q]))
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        quads!(Q => vshlq_n_s32::<N>(a[Q]))
    }
    #[inline(always)]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        quads!(Q => vreinterpretq_s32_u32(vshrq_n_u32::<N>(vreinterpretq_u32_s32(a[Q]))))
    }
    #[inline(always)]
    fn sar<const N: i32>(self, a: Self::I) -> Self::I {
        quads!(Q => vshrq_n_s32::<N>(a[Q]))
    }
    #[inline(always)]
    fn shr_halves<const N: i32>(self, a: Self::I) -> Self::I {
        quads!(Q => vreinterpretq_s32_u16(vshrq_n_u16::<N>(vreinterpretq_u16_s32(a[Q]))))
    }
    #[inline(always)]
    fn sub_halves(self, a: Self::I, b: Self::I) -> Self::I {
        quads!(Q => vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(a[Q]), vreinterpretq_s16_s32(b[Q]))))
    }
    #[inline(always)]
    fn madd(self, acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        // The de-interleaved weights are common to all rows that share them, so they are made once per weight word.
        // SAFETY: the token proves that the processor has the instructions.
        unsafe {
            let mut out = acc;
            for half in 0..2 {
                let (w0, w1) =
                    (vreinterpretq_s16_s32(w[2 * half]), vreinterpretq_s16_s32(w[2 * half + 1]));
                let (a0, a1) =
                    (vreinterpretq_s16_s32(a[2 * half]), vreinterpretq_s16_s32(a[2 * half + 1]));
                let (w_even, w_odd) = (vuzp1q_s16(w0, w1), vuzp2q_s16(w0, w1));
                let (a_even, a_odd) = (vuzp1q_s16(a0, a1), vuzp2q_s16(a0, a1));
                let low = vmlal_s16(out[2 * half], vget_low_s16(w_even), vget_low_s16(a_even));
                let high = vmlal_high_s16(out[2 * half + 1], w_even, a_even);
                out[2 * half] = vmlal_s16(low, vget_low_s16(w_odd), vget_low_s16(a_odd));
                out[2 * half + 1] = vmlal_high_s16(high, w_odd, a_odd);
            }
            out
        }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], bytes: Self::I) -> Self::I {
        // SAFETY: the token proves that the processor has the instruction; the table is 16 bytes long.
        let table = unsafe { vld1q_u8(table.as_ptr()) };
        quads!(Q => vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(bytes[Q]))))
    }
    #[inline(always)]
    fn sum_i32(self, a: Self::I) -> i32 {
        // SAFETY: the token proves that the processor has the instructions.
        unsafe { vaddvq_s32(vaddq_s32(vaddq_s32(a[0], a[2]), vaddq_s32(a[1], a[3]))) }
    }
    #[inline(always)]
    unsafe fn store_low_halves(self, to: *mut u16, a: Self::I) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe {
            let low = vcombine_s16(vmovn_s32(a[0]), vmovn_s32(a[1]));
            let high = vcombine_s16(vmovn_s32(a[2]), vmovn_s32(a[3]));
            vst1q_u16(to, vreinterpretq_u16_s16(low));
            vst1q_u16(to.add(8), vreinterpretq_u16_s16(high));
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Self::F {
        quads!(Q => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(4 * Q)))))
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::F {
        quads!(Q => widen_f16(vld1_u16(from.add(4 * Q))))
    }
    #[inline(always)]
    unsafe fn load_e4m3(self, from: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        unsafe {
            let codes = vreinterpretq_s8_u8(vld1q_u8(from));
            // Sign extension puts the sign into bits 15 and 14 after the shift; a binary16 wants it in bit 15 only.
            let keep = vdupq_n_u16(0xBFFF);
            let low = vandq_u16(vreinterpretq_u16_s16(vshll_n_s8::<7>(vget_low_s8(codes))), keep);
            let high = vandq_u16(vreinterpretq_u16_s16(vshll_n_s8::<7>(vget_high_s8(codes))), keep);
            [
                widen_f16(vget_low_u16(low)),
                widen_f16(vget_high_u16(low)),
                widen_f16(vget_low_u16(high)),
                widen_f16(vget_high_u16(high)),
            ]
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe {
            asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }
}
