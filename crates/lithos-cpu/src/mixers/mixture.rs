//! The choice among the experts of a mixture, and their sum.

use super::{activation, exponential};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// The experts of the largest logits, of equal ones that with the lower index first, and the softmax over these logits. As many as
/// there is room for. NaN counts as the smallest.
///
/// # Panics
/// If there is not as much room for weights as for experts, or more than there are logits.
pub fn route(isa: Isa, logits: &[f32], experts: &mut [f32], weights: &mut [f32]) {
    assert!(experts.len() == weights.len() && experts.len() <= logits.len(), "room for experts");
    let key = |expert: usize| match logits[expert].is_nan() {
        true => f32::NEG_INFINITY,
        false => logits[expert],
    };
    let mut last: Option<usize> = None;
    for (expert, weight) in experts.iter_mut().zip(weights.iter_mut()) {
        // The first of those that come after the one before.
        let after = |candidate: &usize| {
            last.is_none_or(|last| {
                key(*candidate) < key(last) || (key(*candidate) == key(last) && *candidate > last)
            })
        };
        let mut best: Option<usize> = None;
        for candidate in (0..logits.len()).filter(after) {
            if best.is_none_or(|best| key(candidate) > key(best)) {
                best = Some(candidate);
            }
        }
        let best = best.expect("there are at least as many logits as experts");
        (*expert, *weight, last) = (best as f32, key(best), Some(best));
    }
    let largest = weights.first().copied().unwrap_or_default();
    weights.iter_mut().for_each(|weight| *weight -= largest);
    activation::exp(isa, weights);
    let sum: f32 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// `out += sum of weights[j] * experts[j], in order, + sigmoid(gate) * shared`.
///
/// # Panics
/// If the parts have different widths, or there is no weight for each expert.
pub fn combine<'a>(
    isa: Isa,
    experts: impl ExactSizeIterator<Item = &'a [f32]>,
    weights: &[f32],
    shared: &[f32],
    gate: f32,
    out: &mut [f32],
) {
    assert!(experts.len() == weights.len() && shared.len() == out.len(), "parts of one sum");
    // Columns are few enough that the sums stay in the first-level cache.
    let mut sums = vec![0.0; out.len()];
    for (expert, weight) in experts.zip(weights) {
        assert_eq!(expert.len(), out.len(), "parts of one width");
        isa.run(AddScaled { x: expert, factor: Factor::Plain(*weight), to: &mut sums });
    }
    isa.run(AddScaled { x: shared, factor: Factor::Sigmoid(gate), to: &mut sums });
    isa.run(AddScaled { x: &sums, factor: Factor::Plain(1.0), to: out });
}

#[derive(Clone, Copy)]
enum Factor {
    Plain(f32),
    Sigmoid(f32),
}

/// `to += factor * x`.
struct AddScaled<'a> {
    x: &'a [f32],
    factor: Factor,
    to: &'a mut [f32],
}

impl Kernel for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = match self.factor {
            Factor::Plain(factor) => s.splat(factor),
            Factor::Sigmoid(x) => exponential::sigmoid(s, s.splat(x)),
        };
        for (x, to) in self.x.chunks(LANES).zip(self.to.chunks_mut(LANES)) {
            // SAFETY: both have as many values as `x`, at most a vector.
            unsafe {
                let sum = s.fma(
                    factor,
                    s.load_first(x.as_ptr(), x.len()),
                    s.load_first(to.as_ptr(), x.len()),
                );
                s.store_first(to.as_mut_ptr(), x.len(), sum);
            }
        }
    }
}
