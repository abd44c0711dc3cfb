//! Products of pairs of BF16 values: instructions that only some processors with AVX-512 have.

use super::Simd;

/// A proof that the processor multiplies pairs of BF16 values into sums of the vectors of `S`.
///
/// It is a trait of its own, not a part of [`Simd`], so that only the few kernels that need it are built once more.
pub trait Bf16Pairs<S: Simd>: Copy {
    /// Per lane `acc + w.high * a.high + w.low * a.low`, the halves being BF16 values, added in this order.
    ///
    /// Denormal values, the sum included, count as zero.
    fn dot(self, s: S, acc: S::F, w: S::I, a: S::I) -> S::F;
}

/// Work for [`Isa::run_bf16`](super::Isa::run_bf16).
///
/// `run` must be `#[inline(always)]`, as must be all that it calls with the tokens.
pub trait Bf16Kernel {
    /// What the work returns.
    type Output;
    /// Does the work with the operations of `simd` and `pairs`.
    fn run<S: Simd, P: Bf16Pairs<S>>(self, simd: S, pairs: P) -> Self::Output;
}

/// The operation in software, which lets the kernels be tested on every machine. It keeps denormal values.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub struct Bf16InSoftware;

#[cfg(test)]
impl<S: Simd> Bf16Pairs<S> for Bf16InSoftware {
    #[inline(always)]
    fn dot(self, s: S, acc: S::F, w: S::I, a: S::I) -> S::F {
        let acc = s.fma(s.bf16_high(w), s.bf16_high(a), acc);
        s.fma(s.bf16_low(w), s.bf16_low(a), acc)
    }
}
