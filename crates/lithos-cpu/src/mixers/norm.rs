//! Root mean square norms (Zhang and Sennrich 2019): over rows, over heads, and with a gate.

use super::activation::{load, store};
use super::exponential;
use super::view::{Heads, Rows, RowsMut};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// The parameters of a norm: `y = x / sqrt(mean(x^2) + epsilon) * (weight_offset + weight)`.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'a> {
    /// A weight for each element of a row or head.
    pub weight: &'a [f32],
    /// 0 where the checkpoint stores the factor itself, 1 where it stores its distance from one.
    pub weight_offset: f32,
    /// Added to the mean of squares.
    pub epsilon: f32,
}

/// Norms each row of `x` into `out`, both `[T, W]`.
///
/// # Panics
/// If widths or row counts differ.
pub fn rms_norm(isa: Isa, norm: RmsNorm<'_>, x: Rows<'_>, out: &mut RowsMut<'_>) {
    assert_eq!(x.rows(), out.rows(), "as many rows out as in");
    let heads = Heads::dense(1, norm.weight.len());
    assert!(x.width() == heads.dim && out.width() == heads.dim, "rows as wide as the weight");
    for t in 0..x.rows() {
        isa.run(Norm {
            norm,
            from: x.row(t).as_ptr(),
            gate: None,
            to: out.row_mut(t).as_mut_ptr(),
        });
    }
}

/// Norms each head of each row in place. Elements between heads are left alone.
///
/// # Panics
/// If a head is not as wide as the weight or lies outside the row.
pub fn rms_norm_heads(isa: Isa, norm: RmsNorm<'_>, rows: &mut RowsMut<'_>, heads: Heads) {
    assert_eq!(heads.dim, norm.weight.len(), "heads as wide as the weight");
    for t in 0..rows.rows() {
        let row = rows.row_mut(t);
        for head in 0..heads.count {
            let values = row[heads.column(head)..][..heads.dim].as_mut_ptr();
            isa.run(Norm { norm, from: values, gate: None, to: values });
        }
    }
}

/// Norms each head of `x` into the same head of `out`, whose layout may differ.
///
/// # Panics
/// If a head is not as wide as the weight or lies outside its row.
pub fn rms_norm_heads_into(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: Rows<'_>,
    x_heads: Heads,
    out: &mut RowsMut<'_>,
    out_heads: Heads,
) {
    let dim = norm.weight.len();
    assert!(x_heads.dim == dim && out_heads.dim == dim, "heads as wide as the weight");
    assert!(x.rows() == out.rows() && x_heads.count == out_heads.count, "as many heads out as in");
    for t in 0..x.rows() {
        for head in 0..x_heads.count {
            let from = x.row(t)[x_heads.column(head)..][..dim].as_ptr();
            let to = out.row_mut(t)[out_heads.column(head)..][..dim].as_mut_ptr();
            isa.run(Norm { norm, from, gate: None, to });
        }
    }
}

/// The norm of Gated DeltaNet: `y = rms_norm(o) * silu(z)` head by head, the norm before the gate
/// (Hugging Face transformers' `Qwen3NextRMSNormGated`). `o`, `z` and `out` have the same heads.
///
/// # Panics
/// If a head is not as wide as the weight or lies outside its row.
pub fn gated_rms_norm(
    isa: Isa,
    norm: RmsNorm<'_>,
    heads: Heads,
    o: Rows<'_>,
    z: Rows<'_>,
    out: &mut RowsMut<'_>,
) {
    assert_eq!(heads.dim, norm.weight.len(), "heads as wide as the weight");
    assert!(o.rows() == out.rows() && z.rows() == out.rows(), "as many rows out as in");
    for t in 0..o.rows() {
        for head in 0..heads.count {
            let part = heads.column(head)..heads.column(head) + heads.dim;
            let (from, gate) = (o.row(t)[part.clone()].as_ptr(), z.row(t)[part.clone()].as_ptr());
            isa.run(Norm { norm, from, gate: Some(gate), to: out.row_mut(t)[part].as_mut_ptr() });
        }
    }
}

/// One norm over `weight.len()` elements. `from` and `to` may be the same.
struct Norm<'a> {
    norm: RmsNorm<'a>,
    from: *const f32,
    gate: Option<*const f32>,
    to: *mut f32,
}

impl Kernel for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.norm.weight.len();
        // SAFETY: whoever makes a Norm checked that all parts are as wide as the weight.
        let squares = unsafe { sum_of_squares(s, self.from, width) };
        let scale = s.splat(1.0 / (squares / width as f32 + self.norm.epsilon).sqrt());
        let offset = s.splat(self.norm.weight_offset);
        let mut at = 0;
        while at < width {
            let count = (width - at).min(LANES);
            // SAFETY: as above; `count` elements from `at` on.
            unsafe {
                let weight = s.add(offset, load(s, self.norm.weight.as_ptr().add(at), count));
                let mut y = s.mul(s.mul(load(s, self.from.add(at), count), scale), weight);
                if let Some(gate) = self.gate {
                    y = s.mul(y, exponential::silu(s, load(s, gate.add(at), count)));
                }
                store(s, self.to.add(at), count, y);
            }
            at += LANES;
        }
    }
}

/// The sum of squares in four chains of 16 lanes, added pairwise.
///
/// # Safety
/// `width` floats are readable at `from`.
#[inline(always)]
pub(super) unsafe fn sum_of_squares<S: Simd>(s: S, from: *const f32, width: usize) -> f32 {
    let mut sums = [s.zero(); 4];
    let mut at = 0;
    // SAFETY: loads stay below the width.
    unsafe {
        while at + 4 * LANES <= width {
            for (chain, sum) in sums.iter_mut().enumerate() {
                let x = s.load(from.add(at + chain * LANES));
                *sum = s.fma(x, x, *sum);
            }
            at += 4 * LANES;
        }
        let mut chain = 0;
        while at < width {
            let x = load(s, from.add(at), (width - at).min(LANES));
            sums[chain] = s.fma(x, x, sums[chain]);
            at += LANES;
            chain += 1;
        }
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}
