//! Norms, activations, rotary embedding and convolution against their equations in f64.

mod mixers_support;

use lithos_cpu::mixers::activation;
use lithos_cpu::mixers::convolution::{self, HISTORY_ROWS};
use lithos_cpu::mixers::norm::{self, RmsNorm};
use lithos_cpu::mixers::rotary::{self, RotaryRows, RotaryTable};
use lithos_cpu::mixers::{Heads, Rows, RowsMut};
use lithos_cpu::simd::Isa;
use lithos_graph::{Rotary, RotaryScaling};
use mixers_support::*;

fn reference_norm(x: &[f32], weight: &[f32], offset: f64, epsilon: f64) -> Vec<f64> {
    let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + epsilon).sqrt();
    x.iter().zip(weight).map(|(&v, &w)| f64::from(v) * scale * (offset + f64::from(w))).collect()
}

#[test]
fn rms_norm_of_rows_of_any_width() {
    let mut random = Random::new(1);
    for width in [1, 7, 16, 33, 64, 100, 576, 1031, 5120] {
        for offset in [0.0, 1.0] {
            let rows = 3;
            let stride = width + 5;
            let x = random.values(rows * stride, -3.0, 3.0);
            let weight = random.values(width, -1.0, 1.0);
            let norm = RmsNorm { weight: &weight, weight_offset: offset, epsilon: 1e-5 };
            let got = on_every_isa("rms norm", |isa| {
                let mut out = poisoned(rows * width);
                let input = Rows::new(&x, rows, width, stride);
                norm::rms_norm(isa, norm, input, &mut RowsMut::contiguous(&mut out, width));
                out
            });
            for r in 0..rows {
                let want = reference_norm(
                    &x[r * stride..][..width],
                    &weight,
                    f64::from(offset),
                    f64::from(1e-5f32),
                );
                assert_close(&got[r * width..][..width], &want, 1e-6, &format!("row of {width}"));
            }
        }
    }
}

#[test]
fn rms_norm_in_place_equals_out_of_place() {
    let mut random = Random::new(2);
    let (rows, width) = (4, 70);
    let x = random.values(rows * width, -3.0, 3.0);
    let weight = random.values(width, -1.0, 1.0);
    let norm = RmsNorm { weight: &weight, weight_offset: 1.0, epsilon: 1e-6 };
    for isa in Isa::available() {
        let mut apart = poisoned(rows * width);
        norm::rms_norm(
            isa,
            norm,
            Rows::contiguous(&x, width),
            &mut RowsMut::contiguous(&mut apart, width),
        );
        let mut same = x.clone();
        let heads = Heads::dense(1, width);
        norm::rms_norm_heads(isa, norm, &mut RowsMut::contiguous(&mut same, width), heads);
        assert_same_bits(&apart, &same, "in place");
    }
}

#[test]
fn rms_norm_of_heads_leaves_the_gates_between_them() {
    let mut random = Random::new(3);
    for dim in [32, 64, 128, 256, 40] {
        let (rows, count) = (3, 5);
        let heads = Heads { count, dim, first: 3, stride: 2 * dim };
        let width = 3 + count * 2 * dim;
        let x = random.values(rows * width, -2.0, 2.0);
        let weight = random.values(dim, -1.0, 1.0);
        let norm = RmsNorm { weight: &weight, weight_offset: 1.0, epsilon: 1e-6 };
        let got = on_every_isa("head norm", |isa| {
            let mut rows_out = x.clone();
            norm::rms_norm_heads(isa, norm, &mut RowsMut::contiguous(&mut rows_out, width), heads);
            rows_out
        });
        let mut want = wide(&x);
        for r in 0..rows {
            for h in 0..count {
                let start = r * width + heads.column(h);
                let normed = reference_norm(&x[start..][..dim], &weight, 1.0, f64::from(1e-6f32));
                want[start..start + dim].copy_from_slice(&normed);
            }
        }
        assert_close(&got, &want, 1e-6, "heads");
        for r in 0..rows {
            for h in 0..count {
                let gate = r * width + heads.column(h) + dim;
                assert_same_bits(&got[gate..gate + dim], &x[gate..gate + dim], "gate");
            }
        }
    }
}

#[test]
fn gated_norm_norms_before_it_gates() {
    let mut random = Random::new(4);
    for dim in [32, 48, 128] {
        let (rows, count) = (3, 6);
        let width = count * dim;
        let o = random.values(rows * width, -2.0, 2.0);
        let z = random.values(rows * width, -6.0, 6.0);
        let weight = random.values(dim, 0.5, 1.5);
        let norm = RmsNorm { weight: &weight, weight_offset: 0.0, epsilon: 1e-6 };
        let got = on_every_isa("gated norm", |isa| {
            let mut out = poisoned(rows * width);
            let (o, z) = (Rows::contiguous(&o, width), Rows::contiguous(&z, width));
            norm::gated_rms_norm(
                isa,
                norm,
                Heads::dense(count, dim),
                o,
                z,
                &mut RowsMut::contiguous(&mut out, width),
            );
            out
        });
        let mut want = Vec::new();
        for head in 0..rows * count {
            let normed = reference_norm(&o[head * dim..][..dim], &weight, 0.0, f64::from(1e-6f32));
            let gates = z[head * dim..][..dim].iter().map(|&z| silu(f64::from(z)));
            want.extend(normed.iter().zip(gates).map(|(n, g)| n * g));
        }
        assert_close(&got, &want, 1e-6, "gated norm");
    }
}

/// Distance in units in the last place of the f32 nearest to `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    let step = f64::from(rounded.next_up()) - f64::from(rounded);
    ((f64::from(got) - want) / step).abs()
}

#[test]
fn exp_is_accurate_to_two_ulp_over_its_whole_range() {
    let mut arguments: Vec<f32> =
        (0..400_000).map(|i| -104.0 + 192.7 * (i as f32 / 400_000.0)).collect();
    arguments.extend((0..2000).map(|i| (i as f32 - 1000.0) * 1e-6));
    arguments.extend([0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 88.722_83, -87.336_54, -103.9]);
    let got = on_every_isa("exp", |isa| {
        let mut values = arguments.clone();
        activation::exp(isa, &mut values);
        values
    });
    for (&x, &y) in arguments.iter().zip(&got) {
        let error = ulps(y, f64::from(x).exp());
        assert!(error <= 2.0, "exp({x}) = {y:e} is {error} ulp off");
    }
}

#[test]
fn exp_at_its_ends() {
    let arguments = [
        f32::NEG_INFINITY,
        -1e38,
        -200.0,
        -104.5,
        88.73,
        200.0,
        1e38,
        f32::INFINITY,
        f32::NAN,
        0.0,
    ];
    let got = on_every_isa("exp at its ends", |isa| {
        let mut values = arguments.to_vec();
        activation::exp(isa, &mut values);
        assert!(values[8].is_nan(), "NaN stays NaN");
        values[8] = 0.0;
        values
    });
    assert_same_bits(&got[..4], &[0.0; 4], "underflow");
    assert_same_bits(&got[4..8], &[f32::INFINITY; 4], "overflow");
    assert_eq!(got[9], 1.0);
}

#[test]
fn activations_equal_their_equations() {
    let mut x: Vec<f32> = (0..40_001).map(|i| -110.0 + 220.0 * i as f32 / 40_000.0).collect();
    x.extend((0..2001).map(|i| -10.0 + i as f32 / 100.0));
    type Case = (&'static str, fn(Isa, &mut [f32]), fn(f64) -> f64);
    let cases: [Case; 3] = [
        ("sigmoid", activation::sigmoid, sigmoid),
        ("silu", activation::silu, silu),
        ("softplus", activation::softplus, softplus),
    ];
    for (name, map, reference) in cases {
        let got = on_every_isa(name, |isa| {
            let mut values = x.clone();
            map(isa, &mut values);
            values
        });
        for (&x, &y) in x.iter().zip(&got) {
            let want = reference(f64::from(x));
            let error = (f64::from(y) - want).abs();
            assert!(error <= 4e-7 * want.abs() + 1e-36, "{name}({x}) = {y:e}, not {want:e}");
        }
    }
}

#[test]
fn elementwise_rows() {
    let mut random = Random::new(5);
    let (rows, width, stride) = (3, 83, 90);
    let a = random.values(rows * stride, -8.0, 8.0);
    let b = random.values(rows * stride, -8.0, 8.0);
    let (x, y) = (Rows::new(&a, rows, width, stride), Rows::new(&b, rows, width, stride));
    let expect = |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        (0..rows)
            .flat_map(|r| (0..width).map(move |c| (r, c)))
            .map(|(r, c)| f(f64::from(x.row(r)[c]), f64::from(y.row(r)[c])))
            .collect()
    };
    let got = on_every_isa("silu multiply", |isa| {
        let mut out = poisoned(rows * width);
        activation::silu_multiply(isa, x, y, &mut RowsMut::contiguous(&mut out, width));
        out
    });
    assert_close(&got, &expect(&|g, u| silu(g) * u), 1e-6, "silu multiply");
    let got = on_every_isa("add", |isa| {
        let mut out: Vec<f32> = (0..rows).flat_map(|r| x.row(r).to_vec()).collect();
        activation::add(isa, &mut RowsMut::contiguous(&mut out, width), y);
        out
    });
    assert_close(&got, &expect(&|a, b| a + b), 1e-6, "add");
}

#[test]
fn output_gate_of_interleaved_heads() {
    let mut random = Random::new(6);
    let (rows, count, dim) = (2, 3, 40);
    let o = random.values(rows * count * dim, -2.0, 2.0);
    let qg = random.values(rows * count * 2 * dim, -8.0, 8.0);
    let gate_heads = Heads { count, dim, first: dim, stride: 2 * dim };
    let got = on_every_isa("output gate", |isa| {
        let mut out = o.clone();
        activation::multiply_sigmoid(
            isa,
            &mut RowsMut::contiguous(&mut out, count * dim),
            Heads::dense(count, dim),
            Rows::contiguous(&qg, count * 2 * dim),
            gate_heads,
        );
        out
    });
    let mut want = Vec::new();
    for r in 0..rows {
        for h in 0..count {
            for d in 0..dim {
                let gate = qg[r * count * 2 * dim + h * 2 * dim + dim + d];
                want.push(f64::from(o[(r * count + h) * dim + d]) * sigmoid(f64::from(gate)));
            }
        }
    }
    assert_close(&got, &want, 1e-6, "output gate");
}

#[test]
fn rotary_turns_halves_and_leaves_the_rest() {
    let mut random = Random::new(7);
    let positions = [0u32, 1, 77, 4096, 262_143];
    for (dim, rotary_dim) in [(64, 64), (64, 16), (256, 64), (128, 128), (32, 20), (80, 80)] {
        let theta = 1e7;
        let rotary = Rotary { dim: rotary_dim, theta, scaling: RotaryScaling::None };
        let table = RotaryTable::from_frequencies(&rotary.frequencies(), 1.0);
        let mut angles = RotaryRows::new();
        angles.set(&table, positions);
        let heads = Heads { count: 3, dim, first: 2, stride: dim + 8 };
        let width = 2 + 3 * (dim + 8);
        let x = random.values(positions.len() * width, -2.0, 2.0);
        let got = on_every_isa("rotary", |isa| {
            let mut out = x.clone();
            rotary::rotate(isa, &angles, 0, &mut RowsMut::contiguous(&mut out, width), heads);
            out
        });
        let mut want = wide(&x);
        let half = rotary_dim / 2;
        for (r, &position) in positions.iter().enumerate() {
            for h in 0..heads.count {
                let start = r * width + heads.column(h);
                for i in 0..half {
                    let frequency = theta.powf(-2.0 * i as f64 / rotary_dim as f64) as f32;
                    let (s, c) = (f64::from(position) * f64::from(frequency)).sin_cos();
                    let (a, b) = (f64::from(x[start + i]), f64::from(x[start + half + i]));
                    want[start + i] = a * c - b * s;
                    want[start + half + i] = b * c + a * s;
                }
            }
        }
        assert_close(&got, &want, 1e-6, "rotary");
        let changed = got.iter().zip(&x).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert!(changed <= (positions.len() - 1) * 3 * rotary_dim, "only rotated elements change");
    }
}

/// The convolution's equation over a whole sequence, in f64.
fn reference_convolution(u: &[f32], weights: &[f32], width: usize, channels: usize) -> Vec<f64> {
    let rows = u.len() / channels;
    let mut out = Vec::new();
    for t in 0..rows {
        for c in 0..channels {
            let sum = (0..width)
                .filter(|j| t + j + 1 >= width)
                .map(|j| {
                    f64::from(weights[j * channels + c])
                        * f64::from(u[(t + j + 1 - width) * channels + c])
                })
                .sum();
            out.push(silu(sum));
        }
    }
    out
}

/// Runs a sequence in passes of the given sizes over two column ranges.
fn convolve_in_passes(
    isa: Isa,
    u: &[f32],
    weights: &[f32],
    width: usize,
    channels: usize,
    passes: &[usize],
) -> Vec<f32> {
    let mut history = poisoned(HISTORY_ROWS * channels);
    let mut out = poisoned(u.len());
    let mut position = 0;
    let split = (channels / 3) & !15;
    for &rows in passes {
        let input = Rows::contiguous(&u[position * channels..][..rows * channels], channels);
        let mut output =
            RowsMut::contiguous(&mut out[position * channels..][..rows * channels], channels);
        let mut ring = RowsMut::contiguous(&mut history, channels);
        for (first, count) in [(0, split), (split, channels - split)] {
            let taps = Rows::contiguous(weights, channels).columns(first, count);
            let input = input.columns(first, count);
            let mut ring = ring.columns_mut(first, count);
            convolution::convolve(
                isa,
                taps,
                input,
                position,
                ring.as_rows(),
                &mut output.columns_mut(first, count),
            );
            convolution::store_history(input, position, &mut ring);
        }
        position += rows;
    }
    assert_eq!(position * channels, u.len());
    assert!(width >= 1);
    out
}

#[test]
fn convolution_in_any_passes() {
    let mut random = Random::new(8);
    for (width, channels) in [(4, 96), (4, 101), (2, 40), (1, 33)] {
        let rows = 90;
        let u = random.values(rows * channels, -2.0, 2.0);
        let weights = random.values(width * channels, -1.0, 1.0);
        let whole = on_every_isa("convolution", |isa| {
            convolve_in_passes(isa, &u, &weights, width, channels, &[rows])
        });
        assert_close(
            &whole,
            &reference_convolution(&u, &weights, width, channels),
            1e-6,
            "convolution",
        );
        for passes in [vec![1; rows], vec![8, 1, 16, 2, 3, 60], vec![40, 1, 1, 1, 47]] {
            for isa in Isa::available() {
                let split = convolve_in_passes(isa, &u, &weights, width, channels, &passes);
                assert_same_bits(&whole, &split, "convolution in passes");
            }
        }
    }
}

#[test]
fn convolution_after_rejected_rows() {
    let mut random = Random::new(9);
    let (width, channels) = (4, 48);
    let weights = random.values(width * channels, -1.0, 1.0);
    let u = random.values(64 * channels, -2.0, 2.0);
    let isa = Isa::available()[0];
    let plain = convolve_in_passes(isa, &u, &weights, width, channels, &[1; 64]);
    let taps = Rows::contiguous(&weights, channels);
    for accepted in 1..=16 {
        let mut history = poisoned(HISTORY_ROWS * channels);
        let mut position = 0;
        while position + 16 <= 64 {
            // The first `accepted` rows are the sequence's own, the others wrong guesses.
            let mut rows = random.values(16 * channels, -2.0, 2.0);
            rows[..accepted * channels]
                .copy_from_slice(&u[position * channels..][..accepted * channels]);
            let input = Rows::contiguous(&rows, channels);
            let mut out = poisoned(16 * channels);
            let mut ring = RowsMut::contiguous(&mut history, channels);
            convolution::convolve(
                isa,
                taps,
                input,
                position,
                ring.as_rows(),
                &mut RowsMut::contiguous(&mut out, channels),
            );
            convolution::store_history(input, position, &mut ring);
            let count = accepted * channels;
            assert_same_bits(
                &out[..count],
                &plain[position * channels..][..count],
                "accepted rows",
            );
            position += accepted;
        }
    }
}
