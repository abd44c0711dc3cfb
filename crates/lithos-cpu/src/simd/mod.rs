//! Sixteen-lane vectors, written once per instruction set.
//!
//! Every kernel of this crate is written once, generic over [`Simd`]: a vector of 16 `f32` lanes ([`Simd::F`]) or of 16
//! 32-bit integer lanes ([`Simd::I`], which also serve as 16 pairs of 16-bit integers or as 64 bytes). [`Isa::run`]
//! instantiates a [`Kernel`] inside a function that the compiler may build with the instruction set's features.
//!
//! # The same bits everywhere
//!
//! An operation gives the same bits under every implementation: additions, products, divisions and fused
//! multiply-adds are those of IEEE 754 with one rounding, float to integer conversion rounds to nearest even, and the
//! horizontal sums add in one fixed tree. A kernel that keeps to these operations therefore computes the same bits on
//! every machine, and is tested so against [`Portable`].
//!
//! Products of BF16 pairs (`Bf16Pairs`) are the exception: only some processors have them, and their bits are their own.

mod isa;
mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16;
#[cfg(target_arch = "aarch64")]
mod neon;

pub use isa::{Isa, Kernel};
pub use math::{exp, sigmoid, silu};
pub use portable::Portable;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::{Avx512, Avx512Bf16};
#[cfg(all(test, target_arch = "x86_64"))]
pub use bf16::Bf16InSoftware;
#[cfg(target_arch = "x86_64")]
pub use bf16::{Bf16Kernel, Bf16Pairs};
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;

/// Lanes of a vector: the output rows of a weight tile, or 16 neighbouring values of a row.
pub const LANES: usize = 16;

/// What [`Simd::load_e4m3`] leaves out: its values are the coded ones divided by 2^8.
///
/// An E4M3 value becomes a binary16 of the same sign and mantissa whose exponent is 8 less (the biases are 7 and 15),
/// so the decode is a shift, and 2^8 is owed to the sum's end, where it is exact.
pub const E4M3_SCALE: f32 = 256.0;

/// A proof that the processor can run an instruction set, and that set's operations on 16 lanes.
///
/// The implementors are zero-sized. One is only made (by [`Isa::run`]) after the processor was asked, which is what
/// makes the safe operations sound. All methods must be inlined into a function that has the set's target features:
/// keep kernels `#[inline(always)]` down to these calls and free of closures.
pub trait Simd: Copy + Send + Sync + 'static {
    /// 16 lanes of `f32`.
    type F: Copy;
    /// 16 lanes of `i32`, or 16 pairs of `i16`, or 64 bytes.
    type I: Copy;
    /// Rows of activations whose sums a matrix kernel keeps in registers, at most 12, with weights that are ready.
    const PANEL_ROWS: usize;
    /// The same with weights that are decoded in registers, at most 8.
    const DECODE_ROWS: usize;
    /// The same with integer weights, whose sums of integers go into sums of floats, at most 5.
    const INTEGER_ROWS: usize;
    /// Whether registers hold both sums of those rows.
    const HOLDS_BOTH_SUMS: bool;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Reads 16 floats; no alignment is needed.
    ///
    /// # Safety
    /// 16 floats must be readable at `from`.
    unsafe fn load(self, from: *const f32) -> Self::F;
    /// Writes 16 floats; no alignment is needed.
    ///
    /// # Safety
    /// 16 floats must be writable at `to`.
    unsafe fn store(self, to: *mut f32, x: Self::F);
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// Square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a * b + c` with one rounding.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`, so `b` where either is not a number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`, so `b` where either is not a number.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Absolute value.
    fn abs(self, a: Self::F) -> Self::F;
    /// `a < b ? yes : no` per lane.
    fn select_less(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// Sum of all lanes: lane i + lane i+8, then i + i+4, i + i+2, i + i+1.
    fn sum(self, a: Self::F) -> f32;
    /// Largest lane (no lane may be NaN).
    fn maximum(self, a: Self::F) -> f32;

    /// Rounds to the nearest integer, ties to even. Outside the range of `i32`, and for NaN, the result is unspecified.
    fn to_i32(self, a: Self::F) -> Self::I;
    /// Converts to float, rounding to nearest, ties to even.
    fn to_f32(self, a: Self::I) -> Self::F;
    /// The bits of each float.
    fn to_bits(self, a: Self::F) -> Self::I;
    /// The floats that have these bits.
    #[expect(clippy::wrong_self_convention, reason = "`self` is the token, not the value")]
    fn from_bits(self, a: Self::I) -> Self::F;

    /// All lanes `x`.
    fn splat_i32(self, x: i32) -> Self::I;
    /// Reads 64 bytes; no alignment is needed.
    ///
    /// # Safety
    /// 64 bytes must be readable at `from`.
    unsafe fn load_i32(self, from: *const u8) -> Self::I;
    /// Writes 64 bytes; no alignment is needed.
    ///
    /// # Safety
    /// 64 bytes must be writable at `to`.
    unsafe fn store_i32(self, to: *mut u8, x: Self::I);
    /// Wrapping sum of 32-bit lanes.
    fn add_i32(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping difference of 32-bit lanes.
    fn sub_i32(self, a: Self::I, b: Self::I) -> Self::I;
    /// Low 32 bits of the product of 32-bit lanes.
    fn mul_i32(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts 32-bit lanes left by `N` bits.
    fn shl<const N: i32>(self, a: Self::I) -> Self::I;
    /// Shifts 32-bit lanes right by `N` bits, filling with zeros.
    fn shr<const N: i32>(self, a: Self::I) -> Self::I;
    /// Shifts 32-bit lanes right by `N` bits, filling with the sign.
    fn sar<const N: i32>(self, a: Self::I) -> Self::I;
    /// Shifts 16-bit halves right by `N` bits, filling with zeros.
    fn shr_halves<const N: i32>(self, a: Self::I) -> Self::I;
    /// Wrapping difference of 16-bit halves.
    fn sub_halves(self, a: Self::I, b: Self::I) -> Self::I;
    /// Per lane `acc + w.low * a.low + w.high * a.high`, the halves being signed 16-bit integers (wrapping).
    fn madd(self, acc: Self::I, w: Self::I, a: Self::I) -> Self::I;
    /// Replaces each byte, which must be below 16, by that entry of `table`.
    fn lookup(self, table: &[u8; 16], bytes: Self::I) -> Self::I;
    /// Wrapping sum of all 32-bit lanes.
    fn sum_i32(self, a: Self::I) -> i32;
    /// Writes the low 16 bits of each lane: 32 bytes.
    ///
    /// # Safety
    /// 32 bytes must be writable at `to`.
    unsafe fn store_low_halves(self, to: *mut u16, a: Self::I);

    /// Reads 16 BF16 values (the high halves of floats).
    ///
    /// # Safety
    /// 32 bytes must be readable at `from`.
    unsafe fn load_bf16(self, from: *const u16) -> Self::F;
    /// Reads 16 IEEE binary16 values.
    ///
    /// # Safety
    /// 32 bytes must be readable at `from`.
    unsafe fn load_f16(self, from: *const u16) -> Self::F;
    /// Reads 16 E4M3 values, each divided by [`E4M3_SCALE`]. The code that means "not a number" reads as +-480.
    ///
    /// # Safety
    /// 16 bytes must be readable at `from`.
    unsafe fn load_e4m3(self, from: *const u8) -> Self::F;

    /// Asks for the cache line at `at` to be brought near; a hint that may name any address.
    fn prefetch(self, at: *const u8);

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// The low half of each lane as a BF16 value, widened.
    #[inline(always)]
    fn bf16_low(self, pairs: Self::I) -> Self::F {
        self.from_bits(self.shl::<16>(pairs))
    }
    /// The high half of each lane as a BF16 value, widened.
    #[inline(always)]
    fn bf16_high(self, pairs: Self::I) -> Self::F {
        self.from_bits(self.and(pairs, self.splat_i32(0xFFFF_0000_u32 as i32)))
    }
    /// The nearest BF16 values, ties to even, as floats (a NaN must have zeros in its low half).
    #[inline(always)]
    fn round_to_bf16(self, a: Self::F) -> Self::F {
        let bits = self.to_bits(a);
        let odd = self.and(self.shr::<16>(bits), self.splat_i32(1));
        let rounded = self.add_i32(self.add_i32(bits, self.splat_i32(0x7FFF)), odd);
        self.bf16_high(rounded)
    }
    /// Writes 16 floats as BF16, rounded as by [`Self::round_to_bf16`].
    ///
    /// # Safety
    /// 32 bytes must be writable at `to`.
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, a: Self::F) {
        let rounded = self.to_bits(self.round_to_bf16(a));
        // SAFETY: the caller's promise is the same.
        unsafe { self.store_low_halves(to, self.shr::<16>(rounded)) }
    }
    /// Reads 16 E4M3 values and then 16 more as pairs of BF16 values, each divided by [`E4M3_SCALE`]: the first ones are
    /// the low halves. This is exact; codes that mean "not a number" read as by [`Self::load_e4m3`].
    ///
    /// # Safety
    /// 32 bytes must be readable at `from`.
    #[inline(always)]
    unsafe fn load_e4m3_pairs(self, from: *const u8) -> Self::I {
        // SAFETY: the caller's promise is the same.
        let (low, high) = unsafe { (self.load_e4m3(from), self.load_e4m3(from.add(LANES))) };
        // Three bits of mantissa leave the low halves of these floats zero.
        self.or(self.shr::<16>(self.to_bits(low)), self.to_bits(high))
    }
    /// Reads the `count` floats at `from`, at most 16; the other lanes are zero.
    ///
    /// # Safety
    /// `count` floats must be readable at `from`.
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, count: usize) -> Self::F {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the caller vouches for the source; the copy is cut to the array's length.
        unsafe { std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count.min(LANES)) };
        // SAFETY: the array holds 16 floats.
        unsafe { self.load(lanes.as_ptr()) }
    }
    /// Writes the first `count` lanes, at most 16.
    ///
    /// # Safety
    /// `count` floats must be writable at `to`.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize, x: Self::F) {
        let mut lanes = [0.0f32; LANES];
        // SAFETY: the array holds 16 floats.
        unsafe { self.store(lanes.as_mut_ptr(), x) };
        // SAFETY: the caller vouches for the target; the copy is cut to the array's length.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count.min(LANES)) };
    }
}

#[cfg(test)]
mod tests;
