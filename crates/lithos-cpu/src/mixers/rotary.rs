//! Rotary position embedding: pairs of a head's elements turned by an angle that grows with the
//! position (Su et al. 2021, in the half-split layout of GPT-NeoX).

use super::activation::{load, store};
use super::view::{Heads, RowsMut};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// The frequencies of one rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryTable {
    inverse_frequencies: Vec<f32>,
    attention_factor: f32,
}

/// Cosines and sines of the positions of one pass, `[T][rotary_dim / 2]`, shared by all heads and
/// layers with the same table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RotaryRows {
    half: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl RotaryTable {
    /// A table of given angular frequencies in radians per position, cosines and sines scaled by `attention_factor`.
    pub fn from_frequencies(frequencies: &[f64], attention_factor: f32) -> Self {
        let inverse_frequencies = frequencies.iter().map(|&frequency| frequency as f32).collect();
        Self { inverse_frequencies, attention_factor }
    }

    /// Elements of a head that are rotated.
    pub fn rotary_dim(&self) -> usize {
        2 * self.inverse_frequencies.len()
    }

    /// Angle per position of each pair, in radians.
    pub fn inverse_frequencies(&self) -> &[f32] {
        &self.inverse_frequencies
    }

    /// Factor on every cosine and sine.
    pub fn attention_factor(&self) -> f32 {
        self.attention_factor
    }

    /// Cosines and sines of one position. Both slices are `rotary_dim / 2` long.
    ///
    /// The angle is formed and reduced in f64: at position 262,144 an f32 angle is off by up to
    /// 0.016 radians.
    pub fn fill(&self, position: u32, cosines: &mut [f32], sines: &mut [f32]) {
        let outputs = cosines.iter_mut().zip(sines);
        for (&frequency, (cosine, sine)) in self.inverse_frequencies.iter().zip(outputs) {
            let (s, c) = (f64::from(position) * f64::from(frequency)).sin_cos();
            *cosine = (c * f64::from(self.attention_factor)) as f32;
            *sine = (s * f64::from(self.attention_factor)) as f32;
        }
    }
}

impl RotaryRows {
    /// No rows yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the rows by those of `positions`, reusing the memory.
    pub fn set(&mut self, table: &RotaryTable, positions: impl IntoIterator<Item = u32>) {
        self.half = table.inverse_frequencies.len();
        self.cosines.clear();
        self.sines.clear();
        for position in positions {
            let start = self.cosines.len();
            self.cosines.resize(start + self.half, 0.0);
            self.sines.resize(start + self.half, 0.0);
            table.fill(position, &mut self.cosines[start..], &mut self.sines[start..]);
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.cosines.len().checked_div(self.half).unwrap_or(0)
    }

    /// Cosines of row `t`.
    pub fn cosines(&self, t: usize) -> &[f32] {
        &self.cosines[t * self.half..][..self.half]
    }

    /// Sines of row `t`.
    pub fn sines(&self, t: usize) -> &[f32] {
        &self.sines[t * self.half..][..self.half]
    }
}

/// Rotates heads in place: element `i` of the first half of the rotated width with element `i` of
/// the second, by the angle of the row's position: row `t` turns by row `first + t` of `angles`. Elements past the rotated width stay.
///
/// # Panics
/// If a head is narrower than the rotated width or `angles` has fewer rows.
pub fn rotate(isa: Isa, angles: &RotaryRows, first: usize, rows: &mut RowsMut<'_>, heads: Heads) {
    assert!(2 * angles.half <= heads.dim, "heads at least as wide as the rotation");
    for t in 0..rows.rows() {
        let (cosines, sines, row) =
            (angles.cosines(first + t), angles.sines(first + t), rows.row_mut(t));
        for head in 0..heads.count {
            let (first, second) =
                row[heads.column(head)..][..2 * angles.half].split_at_mut(angles.half);
            isa.run(Rotate { cosines, sines, first, second });
        }
    }
}

struct Rotate<'a> {
    cosines: &'a [f32],
    sines: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let half = self.first.len();
        let mut at = 0;
        while at < half {
            let count = (half - at).min(LANES);
            // SAFETY: all four are `half` long.
            unsafe {
                let cosine = load(s, self.cosines.as_ptr().add(at), count);
                let sine = load(s, self.sines.as_ptr().add(at), count);
                let (first, second) =
                    (self.first.as_mut_ptr().add(at), self.second.as_mut_ptr().add(at));
                let (a, b) = (load(s, first, count), load(s, second, count));
                store(s, first, count, s.fma(a, cosine, s.sub(s.zero(), s.mul(b, sine))));
                store(s, second, count, s.fma(b, cosine, s.mul(a, sine)));
            }
            at += LANES;
        }
    }
}
