//! Which codes random bits become, so that the decoded values are spread as those of trained weights are.

use std::collections::HashMap;
use std::sync::Arc;

use lithos_format::numbers::{
    E2M1, E2M1_MAX, E4M3_MAX, bf16_to_f32, e4m3_to_f32, f32_to_bf16, f32_to_e4m3,
};

use crate::bytes::{ENTRIES, Nibbles, Recipe, SCALES};

/// The largest of the millions of weights of a matrix, in standard deviations: it gets the largest FP8 code.
const LARGEST_OF_MATRIX: f64 = 5.5;

/// The largest of 16 weights, in standard deviations: a block's largest gets the largest FP4 code.
const LARGEST_OF_16: f64 = 2.1;

/// The same of 64 weights, for INT4's groups.
const LARGEST_OF_64: f64 = 2.4;

/// Standard deviation of block scales, relative to their mean.
const SCALE_SPREAD: f64 = 0.2;

/// How the values of a small tensor are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    /// Normal.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
    /// Logarithms of decay rates, which are uniform from 1 to 16 (Mamba 2's initialisation, which training keeps near).
    DecayLogarithm,
    /// Biases whose softplus, the step size, is log-uniform from 0.001 to 0.1 (likewise).
    StepBias,
}

/// The recipes of a matrix's tensors.
pub(crate) enum MatrixRecipe {
    /// BF16 values.
    Bf16 {
        /// The values.
        weight: Recipe,
    },
    /// FP8 codes and the factor of all.
    Fp8 {
        /// Codes.
        weight: Recipe,
        /// The factor.
        scale: f32,
    },
    /// FP4 codes, block scales, and the factor of all.
    Nvfp4 {
        /// Codes.
        weight: Recipe,
        /// Block scales.
        scales: Recipe,
        /// The factor.
        scale: f32,
    },
    /// INT4 codes, scales and biases of groups; both are drawn by the same bits.
    AffineInt4 {
        /// Codes.
        weight: Recipe,
        /// Scales.
        scales: Recipe,
        /// Biases.
        biases: Recipe,
    },
}

/// Makes recipes and keeps the tables that several tensors share.
pub(crate) struct Tables {
    normal: Box<[f64; ENTRIES]>,
    arrays: HashMap<[u64; 3], Recipe>,
    fp8: (Arc<[u8; ENTRIES]>, f64),
    fp4_scales: (Arc<[u8; SCALES]>, f64),
}

impl Tables {
    pub(crate) fn new() -> Self {
        let normal = normal_quantiles();
        let fp8: [u8; ENTRIES] = std::array::from_fn(|index| {
            let value = normal[index] * f64::from(E4M3_MAX) / LARGEST_OF_MATRIX;
            f32_to_e4m3(value as f32)
        });
        let fp8_deviation = root_mean_square(fp8.iter().map(|code| e4m3_to_f32(*code)));
        // The largest block's scale is the largest code.
        let mean = f64::from(E4M3_MAX) * LARGEST_OF_16 / LARGEST_OF_MATRIX;
        let scales: [u8; SCALES] =
            std::array::from_fn(|index| f32_to_e4m3((mean * spread_scale(&normal, index)) as f32));
        let scale_deviation = root_mean_square(scales.iter().map(|code| e4m3_to_f32(*code)));
        Tables {
            normal,
            arrays: HashMap::new(),
            fp8: (Arc::new(fp8), fp8_deviation),
            fp4_scales: (Arc::new(scales), scale_deviation),
        }
    }

    /// A BF16 tensor.
    pub(crate) fn array(&mut self, distribution: Distribution) -> Recipe {
        let key = match distribution {
            Distribution::Normal { mean, deviation } => [0, mean.to_bits(), deviation.to_bits()],
            Distribution::DecayLogarithm => [1, 0, 0],
            Distribution::StepBias => [2, 0, 0],
        };
        let normal = &self.normal;
        let recipe = self.arrays.entry(key).or_insert_with(|| {
            Recipe::Halves(Arc::new(std::array::from_fn(|index| {
                let uniform = (index as f64 + 0.5) / ENTRIES as f64;
                let value = match distribution {
                    Distribution::Normal { mean, deviation } => mean + deviation * normal[index],
                    Distribution::DecayLogarithm => (1.0 + 15.0 * uniform).ln(),
                    Distribution::StepBias => {
                        let step = 0.001 * 100f64.powf(uniform);
                        // The inverse of softplus.
                        step.exp_m1().ln()
                    }
                };
                f32_to_bf16(value as f32)
            })))
        });
        recipe.clone()
    }

    /// A BF16 matrix of normal values around zero.
    pub(crate) fn bf16(&mut self, deviation: f64) -> MatrixRecipe {
        let distribution = Distribution::Normal { mean: 0.0, deviation };
        MatrixRecipe::Bf16 { weight: self.array(distribution) }
    }

    /// An FP8 matrix of normal values around zero.
    pub(crate) fn fp8(&self, deviation: f64) -> MatrixRecipe {
        let (table, own) = &self.fp8;
        MatrixRecipe::Fp8 {
            weight: Recipe::Bytes(Arc::clone(table)),
            scale: (deviation / own) as f32,
        }
    }

    /// An NVFP4 matrix of normal values around zero.
    pub(crate) fn nvfp4(&self, deviation: f64) -> MatrixRecipe {
        let of_codes = f64::from(E2M1_MAX) / LARGEST_OF_16;
        let boundaries = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0].map(|at| at / of_codes);
        let nibbles = Nibbles { thresholds: self.thresholds(boundaries), signs: [0, 8] };
        let (scales, scale_deviation) = &self.fp4_scales;
        let own = deviation_of(&nibbles, |code| f64::from(E2M1[code])) * scale_deviation;
        MatrixRecipe::Nvfp4 {
            weight: Recipe::Nibbles(nibbles),
            scales: Recipe::ByteScales(Arc::clone(scales)),
            scale: (deviation / own) as f32,
        }
    }

    /// An affine INT4 matrix of normal values around zero.
    pub(crate) fn affine_int4(&self, deviation: f64) -> MatrixRecipe {
        const MIDDLE: f64 = 7.5;
        let of_codes = MIDDLE / LARGEST_OF_64;
        let boundaries = std::array::from_fn(|index| (index + 1) as f64 / of_codes);
        // Code 8 + m above the middle, 7 - m below it.
        let nibbles = Nibbles { thresholds: self.thresholds(boundaries), signs: [8, 7] };
        let own = deviation_of(&nibbles, |code| code as f64 - MIDDLE);
        let mean = deviation / (own * (1.0 + SCALE_SPREAD * SCALE_SPREAD).sqrt());
        let scales: [u16; SCALES] = std::array::from_fn(|index| {
            f32_to_bf16((mean * spread_scale(&self.normal, index)) as f32)
        });
        let biases = scales.map(|scale| f32_to_bf16(-MIDDLE as f32 * bf16_to_f32(scale)));
        MatrixRecipe::AffineInt4 {
            weight: Recipe::Nibbles(nibbles),
            scales: Recipe::HalfScales(Arc::new(scales)),
            biases: Recipe::HalfScales(Arc::new(biases)),
        }
    }

    /// How many of 128 equally likely magnitudes lie below each boundary, given in standard deviations.
    fn thresholds(&self, boundaries: [f64; 7]) -> [u8; 7] {
        boundaries.map(|boundary| {
            let below = self.normal.iter().filter(|value| value.abs() < boundary).count();
            (below as f64 * 128.0 / ENTRIES as f64).round() as u8
        })
    }
}

/// One of the [`SCALES`] equally likely scales with a mean of one. They are positive: no quantile is as low as -5.
fn spread_scale(normal: &[f64; ENTRIES], index: usize) -> f64 {
    let step = ENTRIES / SCALES;
    1.0 + SCALE_SPREAD * normal[index * step + step / 2]
}

/// Equally likely values of a normal distribution with mean 0 and deviation 1, ascending.
fn normal_quantiles() -> Box<[f64; ENTRIES]> {
    let half = ENTRIES / 2;
    let above: Vec<f64> = (0..half)
        .map(|index| inverse_normal(0.5 + (index as f64 + 0.5) / ENTRIES as f64))
        .collect();
    // The middles of equally likely ranges spread a little less than the whole.
    let deviation = (above.iter().map(|value| value * value).sum::<f64>() / half as f64).sqrt();
    Box::new(std::array::from_fn(|index| {
        let value = if index < half { -above[half - 1 - index] } else { above[index - half] };
        value / deviation
    }))
}

/// The quantile of the normal distribution for `0.5 <= p < 1`, to a relative error below 1.2e-9 (P. J. Acklam, An
/// algorithm for computing the inverse normal cumulative distribution function, 2003).
fn inverse_normal(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let polynomial =
        |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    if p <= 0.97575 {
        let q = p - 0.5;
        let r = q * q;
        polynomial(&A, r) * q / polynomial(&B, r)
    } else {
        let q = (-2.0 * (1.0 - p).ln()).sqrt();
        -polynomial(&C, q) / polynomial(&D, q)
    }
}

fn root_mean_square(values: impl ExactSizeIterator<Item = f32>) -> f64 {
    let count = values.len() as f64;
    (values.map(|value| f64::from(value) * f64::from(value)).sum::<f64>() / count).sqrt()
}

/// The root mean square of 4-bit codes' values, by how likely each code is.
fn deviation_of(nibbles: &Nibbles, value: impl Fn(usize) -> f64) -> f64 {
    let mut sum = 0.0;
    for random in 0..128 {
        let magnitude =
            nibbles.thresholds.iter().filter(|threshold| random >= **threshold).count() as u8;
        for sign in nibbles.signs {
            sum += value(usize::from(magnitude ^ sign)).powi(2);
        }
    }
    (sum / 256.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_a_normal_distribution() {
        // Tabulated values of the normal distribution.
        for (p, value) in
            [(0.5, 0.0), (0.841_344_746, 1.0), (0.977_249_868, 2.0), (0.999, 3.090_232)]
        {
            assert!((inverse_normal(p) - value).abs() < 1e-6, "{p}");
        }
        let quantiles = normal_quantiles();
        assert!(quantiles.is_sorted());
        let mean = quantiles.iter().sum::<f64>() / ENTRIES as f64;
        let square = quantiles.iter().map(|value| value * value).sum::<f64>() / ENTRIES as f64;
        assert!(mean.abs() < 1e-12 && (square - 1.0).abs() < 1e-12);
        let within = quantiles.iter().filter(|value| value.abs() < 1.0).count() as f64;
        assert!((within / ENTRIES as f64 - 0.6827).abs() < 1e-3);
    }

    #[test]
    fn codes_have_the_frequencies_of_rounded_values_and_no_nan() {
        let tables = Tables::new();
        let MatrixRecipe::Nvfp4 { weight: Recipe::Nibbles(nibbles), .. } = tables.nvfp4(1.0) else {
            panic!("4-bit codes")
        };
        // Code 1 (0.5) is a value from 0.25 to 0.75 with a deviation of 6 / 2.1: about 0.138 of all, either sign.
        let ones = f64::from(nibbles.thresholds[1] - nibbles.thresholds[0]) / 128.0;
        assert!((ones - 0.138).abs() < 0.01, "{ones}");
        assert!(nibbles.thresholds.is_sorted() && nibbles.thresholds[6] < 128);
        assert!(tables.fp8.0.iter().all(|code| code & 0x7f != 0x7f));
        let scales = tables.fp4_scales.0.iter().map(|code| e4m3_to_f32(*code));
        assert!(scales.clone().all(|scale| scale > 0.0 && scale <= E4M3_MAX));
        assert!(scales.map(f32::to_bits).collect::<std::collections::HashSet<_>>().len() > 8);
    }
}
