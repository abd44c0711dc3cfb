//! Exponential, logistic and softplus on 16 lanes, over the whole range of f32.

use crate::simd::Simd;

/// `e^x`, within 2 units in the last place.
///
/// Large arguments give infinity, small ones pass through the subnormal numbers to zero, and NaN
/// stays NaN. The argument is reduced by multiples of ln 2 (Cody and Waite); the remainder goes
/// through the degree-5 polynomial of the Cephes library's `expf` (S. Moshier).
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // `max` and `min` return their second operand if either is NaN, so NaN goes through.
    let x = s.max(s.splat(-104.0), s.min(s.splat(89.0), x));
    let n = s.to_i32(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let n_float = s.to_f32(n);
    let r = s.fma(n_float, s.splat(-0.693_359_4), x);
    let r = s.fma(n_float, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.fma(p, r, s.splat(coefficient));
    }
    let e = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    // 2^n in two factors, since n reaches from -150 to 128: 2^floor(n / 2) and the rest.
    let half = s.sub_i32(s.shr::<1>(s.add_i32(n, s.splat_i32(150))), s.splat_i32(75));
    let (low, high) = (power_of_two(s, half), power_of_two(s, s.sub_i32(n, half)));
    s.mul(s.mul(e, low), high)
}

/// `2^n` for n from -126 to 127.
#[inline(always)]
fn power_of_two<S: Simd>(s: S, n: S::I) -> S::F {
    s.from_bits(s.shl::<23>(s.add_i32(n, s.splat_i32(127))))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(s.splat(1.0), s.add(s.splat(1.0), exp(s, s.sub(s.zero(), x))))
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.zero(), x))))
}

/// `ln(1 + e^x)`, as `max(x, 0) + ln(1 + e^-|x|)`: past 20 that is x itself in f32.
///
/// The logarithm is `2 artanh(u / (2 + u))` by its series, whose argument is at most 1/3.
#[inline(always)]
pub(super) fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let u = exp(s, s.sub(s.zero(), s.abs(x)));
    let t = s.div(u, s.add(u, s.splat(2.0)));
    let square = s.mul(t, t);
    let mut series = s.splat(2.0 / 15.0);
    for odd in [13.0f32, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = s.fma(series, square, s.splat(2.0 / odd));
    }
    let logarithm = s.fma(s.mul(series, square), t, s.add(t, t));
    // Zero first: a NaN then comes through.
    s.add(s.max(s.zero(), x), logarithm)
}
