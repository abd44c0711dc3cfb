//! Rotary position embedding: pairs of a head's elements turned by an angle that grows with the
//! position (Su et al. 2021, in the half-split layout of GPT-NeoX).

use std::f64::consts::PI;

use thiserror::Error;

use super::activation::{load, store};
use super::view::{Heads, RowsMut};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// The frequencies of one rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryTable {
    inverse_frequencies: Vec<f32>,
    attention_factor: f32,
}

/// Stretching of the frequencies as in Llama 3.1 (Hugging Face transformers, rope type `llama3`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// How many times longer the context becomes.
    pub factor: f64,
    /// Wavelengths above `original / low` are stretched by the whole factor.
    pub low_frequency_factor: f64,
    /// Wavelengths below `original / high` are kept.
    pub high_frequency_factor: f64,
    /// Context length of the pre-training.
    pub original_context: f64,
}

/// Stretching of the frequencies as in YaRN (Peng et al. 2023; transformers, rope type `yarn`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// How many times longer the context becomes.
    pub factor: f64,
    /// Context length of the pre-training.
    pub original_context: f64,
    /// Frequencies with more turns than this over the original context are kept (32).
    pub beta_fast: f64,
    /// Frequencies with fewer turns than this are stretched by the whole factor (1).
    pub beta_slow: f64,
    /// Multiplies cosine and sine; `0.1 ln(factor) + 1` if absent.
    pub attention_factor: Option<f64>,
}

/// Why a rotary embedding cannot be made.
#[derive(Debug, Error, PartialEq)]
pub enum RotaryError {
    /// The rotated width is odd or zero.
    #[error("rotary embedding: rotated width {rotary_dim} is not a positive even number")]
    Width {
        /// The width asked for.
        rotary_dim: usize,
    },
    /// A parameter is not a positive finite number.
    #[error("rotary embedding: {name} = {value} is not a positive finite number")]
    Parameter {
        /// The parameter's name.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Cosines and sines of the positions of one pass, `[T][rotary_dim / 2]`, shared by all heads and
/// layers with the same table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RotaryRows {
    half: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

fn positive(name: &'static str, value: f64) -> Result<(), RotaryError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(RotaryError::Parameter { name, value })
    }
}

/// `theta^(-2i / dim)` for `i` in `0 .. dim / 2`.
fn base_frequencies(theta: f64, rotary_dim: usize) -> Result<Vec<f64>, RotaryError> {
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        return Err(RotaryError::Width { rotary_dim });
    }
    positive("theta", theta)?;
    Ok((0..rotary_dim / 2).map(|i| theta.powf(-2.0 * i as f64 / rotary_dim as f64)).collect())
}

impl RotaryTable {
    /// Plain frequencies `theta^(-2i / rotary_dim)` over the first `rotary_dim` elements of a head.
    ///
    /// # Errors
    /// If the width is not a positive even number or `theta` not a positive number.
    pub fn plain(theta: f64, rotary_dim: usize) -> Result<Self, RotaryError> {
        Ok(Self::from_frequencies(&base_frequencies(theta, rotary_dim)?, 1.0))
    }

    /// Frequencies stretched as in Llama 3.1: long wavelengths by the factor, short ones not, those
    /// between by a blend.
    ///
    /// # Errors
    /// As [`RotaryTable::plain`], or if a parameter of the scaling is not a positive number.
    pub fn llama3(
        theta: f64,
        rotary_dim: usize,
        scaling: Llama3Scaling,
    ) -> Result<Self, RotaryError> {
        let Llama3Scaling {
            factor,
            low_frequency_factor: low,
            high_frequency_factor: high,
            original_context,
        } = scaling;
        positive("factor", factor)?;
        positive("low_freq_factor", low)?;
        positive("high_freq_factor", high)?;
        positive("original_max_position_embeddings", original_context)?;
        let stretched = base_frequencies(theta, rotary_dim)?.into_iter().map(|frequency| {
            let wavelength = 2.0 * PI / frequency;
            if wavelength > original_context / low {
                frequency / factor
            } else if wavelength < original_context / high {
                frequency
            } else {
                let smooth = (original_context / wavelength - low) / (high - low);
                frequency * ((1.0 - smooth) / factor + smooth)
            }
        });
        Ok(Self::from_frequencies(&stretched.collect::<Vec<_>>(), 1.0))
    }

    /// Frequencies stretched as in YaRN: a linear ramp between kept and stretched ones.
    ///
    /// # Errors
    /// As [`RotaryTable::plain`], or if a parameter of the scaling is not a positive number.
    pub fn yarn(theta: f64, rotary_dim: usize, scaling: YarnScaling) -> Result<Self, RotaryError> {
        positive("factor", scaling.factor)?;
        positive("original_max_position_embeddings", scaling.original_context)?;
        positive("beta_fast", scaling.beta_fast)?;
        positive("beta_slow", scaling.beta_slow)?;
        let base = base_frequencies(theta, rotary_dim)?;
        let width = rotary_dim as f64;
        let dimension_of_turns = |turns: f64| {
            width * (scaling.original_context / (2.0 * PI * turns)).ln() / (2.0 * theta.ln())
        };
        let low = dimension_of_turns(scaling.beta_fast).floor().max(0.0);
        let high = dimension_of_turns(scaling.beta_slow).ceil().min(width - 1.0);
        // The same guard against a ramp of no width as in transformers.
        let run = if high == low { 0.001 } else { high - low };
        let stretched = base.into_iter().enumerate().map(|(i, frequency)| {
            let ramp = ((i as f64 - low) / run).clamp(0.0, 1.0);
            frequency / scaling.factor * ramp + frequency * (1.0 - ramp)
        });
        let attention_factor = scaling.attention_factor.unwrap_or_else(|| {
            if scaling.factor > 1.0 { 0.1 * scaling.factor.ln() + 1.0 } else { 1.0 }
        });
        positive("attention_factor", attention_factor)?;
        Ok(Self::from_frequencies(&stretched.collect::<Vec<_>>(), attention_factor as f32))
    }

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
