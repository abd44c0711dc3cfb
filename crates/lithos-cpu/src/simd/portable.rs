//! The lanes as plain arrays: the definition that the other implementations are tested against.

use super::{LANES, Simd};
use half::f16;

/// Plain Rust, for processors without one of the known instruction sets.
///
/// Its operations are inlined where the compiler finds it worthwhile, not always: without a fused multiply-add in hardware one
/// operation is sixteen calls, and every kernel would be built from hundreds of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portable;

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(a: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for lane in 0..LANES {
        out[lane] = f(a[lane]);
    }
    out
}

#[inline(always)]
fn zip<T: Copy + Default>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> T) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for lane in 0..LANES {
        out[lane] = f(a[lane], b[lane]);
    }
    out
}

/// Folds 16 lanes in the fixed tree: i with i+8, i+4, i+2, i+1.
#[inline(always)]
fn fold<T: Copy>(mut a: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            a[lane] = f(a[lane], a[lane + width]);
        }
        width /= 2;
    }
    a[0]
}

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    const PANEL_ROWS: usize = 4;
    const DECODE_ROWS: usize = 4;
    const INTEGER_ROWS: usize = 4;
    const HOLDS_BOTH_SUMS: bool = false;

    #[inline]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline]
    unsafe fn load(self, from: *const f32) -> Self::F {
        // SAFETY: the caller vouches for 16 readable floats.
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }
    #[inline]
    unsafe fn store(self, to: *mut f32, x: Self::F) {
        // SAFETY: the caller vouches for 16 writable floats.
        unsafe { to.cast::<Self::F>().write_unaligned(x) }
    }
    #[inline]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x + y)
    }
    #[inline]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x - y)
    }
    #[inline]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x * y)
    }
    #[inline]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x / y)
    }
    #[inline]
    fn sqrt(self, a: Self::F) -> Self::F {
        map(a, f32::sqrt)
    }
    #[inline]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let mut out = c;
        for lane in 0..LANES {
            out[lane] = a[lane].mul_add(b[lane], c[lane]);
        }
        out
    }
    #[inline]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline]
    fn abs(self, a: Self::F) -> Self::F {
        map(a, f32::abs)
    }
    #[inline]
    fn select_less(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        let mut out = no;
        for lane in 0..LANES {
            out[lane] = if a[lane] < b[lane] { yes[lane] } else { no[lane] };
        }
        out
    }
    #[inline]
    fn sum(self, a: Self::F) -> f32 {
        fold(a, |x, y| x + y)
    }
    #[inline]
    fn maximum(self, a: Self::F) -> f32 {
        fold(a, |x, y| if x > y { x } else { y })
    }

    #[inline]
    fn to_i32(self, a: Self::F) -> Self::I {
        map(a, |x| x.round_ties_even() as i32)
    }
    #[inline]
    fn to_f32(self, a: Self::I) -> Self::F {
        map(a, |x| x as f32)
    }
    #[inline]
    fn to_bits(self, a: Self::F) -> Self::I {
        map(a, |x| x.to_bits() as i32)
    }
    #[inline]
    fn from_bits(self, a: Self::I) -> Self::F {
        map(a, |x| f32::from_bits(x as u32))
    }

    #[inline]
    fn splat_i32(self, x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline]
    unsafe fn load_i32(self, from: *const u8) -> Self::I {
        // SAFETY: the caller vouches for 64 readable bytes.
        map(unsafe { from.cast::<Self::I>().read_unaligned() }, i32::from_le)
    }
    #[inline]
    unsafe fn store_i32(self, to: *mut u8, x: Self::I) {
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe { to.cast::<Self::I>().write_unaligned(map(x, i32::to_le)) }
    }
    #[inline]
    fn add_i32(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline]
    fn sub_i32(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline]
    fn mul_i32(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_mul)
    }
    #[inline]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |x, y| x & y)
    }
    #[inline]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |x, y| x | y)
    }
    #[inline]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        map(a, |x| x << N)
    }
    #[inline]
    fn shr<const N: i32>(self, a: Self::I) -> Self::I {
        map(a, |x| ((x as u32) >> N) as i32)
    }
    #[inline]
    fn sar<const N: i32>(self, a: Self::I) -> Self::I {
        map(a, |x| x >> N)
    }
    #[inline]
    fn shr_halves<const N: i32>(self, a: Self::I) -> Self::I {
        map(a, |x| {
            let (low, high) = (x as u32 & 0xFFFF, x as u32 >> 16);
            ((low >> N) | ((high >> N) << 16)) as i32
        })
    }
    #[inline]
    fn sub_halves(self, a: Self::I, b: Self::I) -> Self::I {
        let mut out = a;
        for (out, b) in out.iter_mut().zip(b) {
            let half = |shift: u32| (*out >> shift) as u16;
            let less =
                |shift: u32| u32::from(half(shift).wrapping_sub((b >> shift) as u16)) << shift;
            *out = (less(0) | less(16)) as i32;
        }
        out
    }
    #[inline]
    fn madd(self, acc: Self::I, w: Self::I, a: Self::I) -> Self::I {
        let mut out = acc;
        for lane in 0..LANES {
            let low = i32::from(w[lane] as i16) * i32::from(a[lane] as i16);
            let high = (w[lane] >> 16) * (a[lane] >> 16);
            out[lane] = acc[lane].wrapping_add(low).wrapping_add(high);
        }
        out
    }
    #[inline]
    fn lookup(self, table: &[u8; 16], bytes: Self::I) -> Self::I {
        map(bytes, |x| i32::from_le_bytes(x.to_le_bytes().map(|b| table[usize::from(b & 15)])))
    }
    #[inline]
    fn sum_i32(self, a: Self::I) -> i32 {
        fold(a, i32::wrapping_add)
    }
    #[inline]
    unsafe fn store_low_halves(self, to: *mut u16, a: Self::I) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(map(a, |x| (x as u16).to_le())) }
    }

    #[inline]
    unsafe fn load_bf16(self, from: *const u16) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        map(bits, |x| f32::from_bits(u32::from(u16::from_le(x)) << 16))
    }
    #[inline]
    unsafe fn load_f16(self, from: *const u16) -> Self::F {
        // SAFETY: the caller vouches for 32 readable bytes.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        map(bits, |x| f16::from_bits(u16::from_le(x)).to_f32())
    }
    #[inline]
    unsafe fn load_e4m3(self, from: *const u8) -> Self::F {
        // SAFETY: the caller vouches for 16 readable bytes.
        let codes = unsafe { from.cast::<[u8; LANES]>().read_unaligned() };
        map(codes, |x| {
            let sign = u16::from(x & 0x80) << 8;
            let magnitude = u16::from(x & 0x7F) << 7;
            f16::from_bits(sign | magnitude).to_f32()
        })
    }

    #[inline]
    fn prefetch(self, _at: *const u8) {}
}
