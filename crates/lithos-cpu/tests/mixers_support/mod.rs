//! What the mixers' tests share: random numbers, comparison, poisoned buffers.
#![allow(dead_code, reason = "each test binary uses its own part")]

use lithos_cpu::simd::Isa;

/// A small generator (SplitMix64), so that tests need no dependency and repeat.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `low .. high`.
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.bits() >> 40) as f64 / (1u64 << 24) as f64;
        (f64::from(low) + unit * (f64::from(high) - f64::from(low))) as f32
    }

    pub fn values(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        (0..count).map(|_| self.uniform(low, high)).collect()
    }

    /// A permutation of `0 .. count`.
    pub fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        for i in (1..count).rev() {
            order.swap(i, (self.bits() % (i as u64 + 1)) as usize);
        }
        order
    }
}

/// `|got - want| / |want|` in the Euclidean norm; infinite if any value is not finite.
pub fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    if got.iter().any(|x| !x.is_finite()) {
        return f64::INFINITY;
    }
    let difference: f64 = got.iter().zip(want).map(|(&g, &w)| (f64::from(g) - w).powi(2)).sum();
    let norm: f64 = want.iter().map(|w| w * w).sum();
    (difference / norm.max(1e-300)).sqrt()
}

#[track_caller]
pub fn assert_close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    let error = relative_error(got, want);
    assert!(error < tolerance, "{what}: relative error {error:e} >= {tolerance:e}");
}

#[track_caller]
pub fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!(x.to_bits() == y.to_bits(), "{what}: element {i} is {x:e} and {y:e}");
    }
}

/// Runs `body` on every instruction set of this machine and checks that all give the same bits.
#[track_caller]
pub fn on_every_isa(what: &str, body: impl Fn(Isa) -> Vec<f32>) -> Vec<f32> {
    let mut results = Isa::available().into_iter().map(|isa| (isa, body(isa)));
    let (first_isa, first) = results.next().expect("the portable set is always there");
    for (isa, result) in results {
        assert_same_bits(&first, &result, &format!("{what}: {first_isa:?} against {isa:?}"));
    }
    first
}

pub fn poisoned(count: usize) -> Vec<f32> {
    vec![f32::NAN; count]
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}
