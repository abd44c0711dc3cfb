//! Causal depthwise convolution with SiLU, as before the delta rule of Gated DeltaNet.
//!
//! The rows before the pass come from a ring of past inputs, addressed by absolute position. Rows
//! that a verification rejects need no undoing: the accepted rows that follow overwrite them. That
//! holds while the ring is longer than the longest such pass plus the kernel's reach backwards.

use super::activation::{load, store};
use super::exponential;
use super::view::{Rows, RowsMut};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// Rows of the ring; position `p` is in row `p % HISTORY_ROWS`.
pub const HISTORY_ROWS: usize = 32;

/// Most taps of a kernel: with them, a pass of 16 rows never overwrites rows that the next needs.
pub const MAX_TAPS: usize = 16;

/// Convolves this pass's rows: `out[t] = silu(sum_j weights[j] * u[t - taps + 1 + j])`, channel by
/// channel, where inputs before position 0 are zero.
///
/// `weights` is `[taps, C]` (a tap's channels adjacent), `u` and `out` are `[T, C]`, `history` is
/// `[HISTORY_ROWS, C]`, of which only the `taps - 1` rows before `first_position` are read.
///
/// # Panics
/// If the widths differ or there are more than [`MAX_TAPS`] taps.
pub fn convolve(
    isa: Isa,
    weights: Rows<'_>,
    u: Rows<'_>,
    first_position: usize,
    history: Rows<'_>,
    out: &mut RowsMut<'_>,
) {
    let channels = u.width();
    assert!((1..=MAX_TAPS).contains(&weights.rows()), "1 to {MAX_TAPS} taps");
    assert!(weights.width() == channels && out.width() == channels, "as many channels everywhere");
    assert!(
        history.width() == channels && history.rows() == HISTORY_ROWS,
        "a ring of {HISTORY_ROWS} rows"
    );
    assert_eq!(u.rows(), out.rows(), "as many rows out as in");
    isa.run(Convolve { weights, u, first_position, history, out });
}

/// Puts this pass's inputs into the ring (of a long pass, the last [`HISTORY_ROWS`]).
///
/// For a pass of up to 16 rows it may run beside [`convolve`] of the same channels; after a longer
/// one it must come later, since it overwrites rows that the convolution reads.
///
/// # Panics
/// If the widths differ.
pub fn store_history(u: Rows<'_>, first_position: usize, history: &mut RowsMut<'_>) {
    assert!(
        history.width() == u.width() && history.rows() == HISTORY_ROWS,
        "a ring of {HISTORY_ROWS} rows"
    );
    for t in u.rows().saturating_sub(HISTORY_ROWS)..u.rows() {
        history.row_mut((first_position + t) % HISTORY_ROWS).copy_from_slice(u.row(t));
    }
}

struct Convolve<'a, 'o> {
    weights: Rows<'a>,
    u: Rows<'a>,
    first_position: usize,
    history: Rows<'a>,
    out: &'a mut RowsMut<'o>,
}

impl Convolve<'_, '_> {
    /// The input `back` rows before row `t`, if the sequence has it.
    #[inline(always)]
    fn input(&self, t: usize, back: usize) -> Option<*const f32> {
        if back <= t {
            Some(self.u.row(t - back).as_ptr())
        } else if back <= self.first_position + t {
            Some(self.history.row((self.first_position + t - back) % HISTORY_ROWS).as_ptr())
        } else {
            None
        }
    }
}

impl Kernel for Convolve<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (taps, channels) = (self.weights.rows(), self.u.width());
        for t in 0..self.u.rows() {
            let mut inputs = [(std::ptr::null(), std::ptr::null()); MAX_TAPS];
            let mut present = 0;
            for tap in 0..taps {
                if let Some(input) = self.input(t, taps - 1 - tap) {
                    inputs[present] = (self.weights.row(tap).as_ptr(), input);
                    present += 1;
                }
            }
            let out = self.out.row_mut(t).as_mut_ptr();
            let mut at = 0;
            while at < channels {
                let count = (channels - at).min(LANES);
                let mut sum = s.zero();
                // SAFETY: weights, inputs and output are `channels` wide.
                unsafe {
                    for &(weight, input) in &inputs[..present] {
                        sum = s.fma(
                            load(s, weight.add(at), count),
                            load(s, input.add(at), count),
                            sum,
                        );
                    }
                    store(s, out.add(at), count, exponential::silu(s, sum));
                }
                at += LANES;
            }
        }
    }
}
