//! Functions built from the vector operations, so that they too give the same bits everywhere.

use super::Simd;

/// e^x per lane, with a relative error below 2e-7; 0 below -87.3, and at most about 1.6e38 (e^88).
///
/// The argument is reduced by multiples of ln 2 (Cody and Waite) and the remainder goes through the degree-5
/// polynomial of the Cephes library's `expf` (S. Moshier).
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let clamped = s.max(s.min(x, s.splat(88.0)), s.splat(-87.3));
    let n = s.to_i32(s.mul(clamped, s.splat(std::f32::consts::LOG2_E)));
    let n_float = s.to_f32(n);
    let r = s.fma(n_float, s.splat(-0.693_359_4), clamped);
    let r = s.fma(n_float, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.fma(p, r, s.splat(coefficient));
    }
    let e = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    let power = s.from_bits(s.shl::<23>(s.add_i32(n, s.splat_i32(127))));
    s.select_less(x, s.splat(-87.3), s.zero(), s.mul(e, power))
}

/// The logistic function 1 / (1 + e^-x) per lane.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(s.splat(1.0), s.add(s.splat(1.0), exp(s, s.sub(s.zero(), x))))
}

/// x times the logistic function of x, per lane (SiLU, also called swish).
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.zero(), x))))
}
