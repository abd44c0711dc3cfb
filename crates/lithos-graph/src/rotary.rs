//! Rotary position embeddings: which frequencies a model turns its heads by.

/// Rotary embedding in the half-split (NeoX) form: element `i < dim/2` pairs with element `i + dim/2`, and both turn by
/// `position * frequency[i]`. Elements from `dim` on pass unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Elements of a head that turn (even, at most the head's size).
    pub dim: usize,
    /// Base of the geometric series of frequencies.
    pub theta: f64,
    /// How the frequencies are stretched for longer contexts.
    pub scaling: RotaryScaling,
}

/// How rotary frequencies are stretched for contexts longer than those trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RotaryScaling {
    /// Not at all.
    None,
    /// Llama 3: long wavelengths are divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// Division of the longest wavelengths.
        factor: f64,
        /// Wavelengths above `original / low_frequency_factor` are divided.
        low_frequency_factor: f64,
        /// Wavelengths below `original / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// Context length of the original training, in tokens.
        original_context: f64,
    },
    /// YaRN (Peng et al., arXiv 2309.00071): wavelengths that turn often enough in the original context are kept, those that turn
    /// seldom are divided, those between blended.
    Yarn {
        /// Division of the long wavelengths.
        factor: f64,
        /// Context length of the original training, in tokens.
        original_context: f64,
        /// Turns in the original context from which a wavelength is kept.
        fast: f64,
        /// Turns below which it is divided.
        slow: f64,
        /// Factor of turned heads.
        magnitude: f32,
    },
    /// Explicit divisors, one per frequency (GGUF files store Llama 3's scaling in this form).
    Divisors(Vec<f32>),
}

impl Rotary {
    /// What turned heads are multiplied with.
    pub fn magnitude(&self) -> f32 {
        match &self.scaling {
            RotaryScaling::Yarn { magnitude, .. } => *magnitude,
            _ => 1.0,
        }
    }

    /// Angular frequencies in radians per position, `dim / 2` of them.
    ///
    /// Llama 3's rule follows Hugging Face transformers' `_compute_llama3_parameters`.
    pub fn frequencies(&self) -> Vec<f64> {
        let half = self.dim / 2;
        let plain = |i: usize| self.theta.powf(-2.0 * i as f64 / self.dim as f64);
        match &self.scaling {
            RotaryScaling::None => (0..half).map(plain).collect(),
            RotaryScaling::Divisors(divisors) => {
                (0..half).map(|i| plain(i) / f64::from(divisors[i])).collect()
            }
            RotaryScaling::Yarn { factor, original_context, fast, slow, .. } => {
                // The index of the frequency that turns so often in the original context.
                let index = |turns: f64| {
                    self.dim as f64 * (original_context / (turns * 2.0 * std::f64::consts::PI)).ln()
                        / (2.0 * self.theta.ln())
                };
                let low = index(*fast).floor().max(0.0);
                let mut high = index(*slow).ceil().min(self.dim as f64 - 1.0);
                if low == high {
                    high += 0.001;
                }
                (0..half)
                    .map(|i| {
                        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                        plain(i) * (divided / factor + 1.0 - divided)
                    })
                    .collect()
            }
            RotaryScaling::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                original_context,
            } => (0..half)
                .map(|i| {
                    let frequency = plain(i);
                    let wavelength = 2.0 * std::f64::consts::PI / frequency;
                    if wavelength > original_context / low_frequency_factor {
                        frequency / factor
                    } else if wavelength < original_context / high_frequency_factor {
                        frequency
                    } else {
                        let smooth = (original_context / wavelength - low_frequency_factor)
                            / (high_frequency_factor - low_frequency_factor);
                        frequency * ((1.0 - smooth) / factor + smooth)
                    }
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_short_and_divides_long_wavelengths() {
        let rotary = Rotary {
            dim: 64,
            theta: 500_000.0,
            scaling: RotaryScaling::Llama3 {
                factor: 32.0,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
                original_context: 8192.0,
            },
        };
        let plain = Rotary { scaling: RotaryScaling::None, ..rotary.clone() };
        let (scaled, plain) = (rotary.frequencies(), plain.frequencies());
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[31], plain[31] / 32.0);
        assert!(scaled.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
