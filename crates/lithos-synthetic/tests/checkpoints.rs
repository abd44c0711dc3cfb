//! Synthetic checkpoints as what they are opened for: tensors, values, models.

use std::thread;

use lithos_format::{Checkpoint, DType, TensorBytes};
use lithos_model::Model;
use lithos_model::shape::known;
use lithos_model::text::{SpecialTokens, Text};
use lithos_synthetic::{DRAFTERS, FORMATS, SHAPES, open};

fn names_of(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensor_names().map(str::to_owned).collect()
}

#[test]
fn bytes_are_the_same_in_any_order_and_on_any_thread() {
    let checkpoint = open("synthetic:tiny-hybrid-nvfp4?seed=5").unwrap();
    let again = open("synthetic:tiny-hybrid-nvfp4?seed=5").unwrap();
    let names = names_of(&checkpoint);
    let read = |checkpoint: &Checkpoint, names: &[String]| -> Vec<Vec<u8>> {
        names.iter().map(|name| checkpoint.tensor(name).unwrap().bytes.all().into_owned()).collect()
    };
    let whole = read(&checkpoint, &names);
    let threads: Vec<_> = thread::scope(|scope| {
        let spawned: Vec<_> = (0..4)
            .map(|index| {
                let (names, again) = (&names, &again);
                scope.spawn(move || {
                    let mut own = names.clone();
                    own.rotate_left(index * 7);
                    let mut bytes = read(again, &own);
                    bytes.rotate_right(index * 7);
                    bytes
                })
            })
            .collect();
        spawned.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert!(threads.iter().all(|bytes| *bytes == whole));
    let other = open("synthetic:tiny-hybrid-nvfp4").unwrap();
    let differ = names.iter().zip(&whole).filter(|(name, bytes)| {
        let tensor = other.tensor(name).unwrap();
        assert!(matches!(tensor.bytes, TensorBytes::Generated { .. }));
        tensor.shape.is_empty() || *tensor.bytes.all() != **bytes
    });
    assert_eq!(differ.count(), names.len(), "another seed gives other bytes in every tensor");
}

#[test]
fn rows_are_parts_of_the_whole() {
    for (format, _) in FORMATS {
        let checkpoint = open(&format!("synthetic:tiny-hybrid-{format}")).unwrap();
        let base = "model.language_model.layers.1.mlp.down_proj";
        let matrix = checkpoint.matrix(base).unwrap();
        let codes = checkpoint.tensor(&format!("{base}.weight")).unwrap();
        let whole = codes.bytes.all();
        let stride = whole.len() / matrix.rows();
        let whole_values = matrix.decode();
        for row in [127, 0, 64, 63] {
            assert_eq!(
                *codes.bytes.range(row * stride..(row + 1) * stride),
                whole[row * stride..][..stride]
            );
            let mut values = vec![0.0; matrix.cols()];
            matrix.decode_row(row, &mut values);
            assert_eq!(values, whole_values[row * matrix.cols()..][..matrix.cols()], "{format}");
        }
    }
}

/// Mean, standard deviation, fourth moment over the squared variance.
fn moments(values: &[f32]) -> (f64, f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let moment = |power: i32| {
        values.iter().map(|value| (f64::from(*value) - mean).powi(power)).sum::<f64>() / count
    };
    (mean, moment(2).sqrt(), moment(4) / moment(2).powi(2))
}

#[test]
fn decoded_weights_are_spread_as_trained_ones() {
    for (format, _) in FORMATS {
        let checkpoint = open(&format!("synthetic:qwen3.5-0.8b-{format}")).unwrap();
        for (base, spread) in [
            ("layers.0.mlp.gate_proj", 1.0),
            ("layers.3.self_attn.o_proj", 1.0),
            ("layers.5.linear_attn.in_proj_qkv", 1.0),
            ("layers.5.linear_attn.in_proj_a", 1.0),
            ("embed_tokens", 3.0),
        ] {
            let matrix = checkpoint.matrix(&format!("model.language_model.{base}")).unwrap();
            let mut values = vec![0.0; matrix.cols() * matrix.rows().min(200)];
            for (row, out) in values.chunks_exact_mut(matrix.cols()).enumerate() {
                matrix.decode_row(row, out);
            }
            let what = format!("{base} as {}", matrix.format());
            assert!(values.iter().all(|value| value.is_finite()), "{what}");
            let (mean, deviation, kurtosis) = moments(&values);
            let wanted = spread / (matrix.cols() as f64).sqrt();
            // The error of the mean over 16,000 values and more is below 0.8 % of the deviation.
            assert!(mean.abs() < 0.04 * wanted, "{what}: mean {mean}, deviation {deviation}");
            assert!((deviation / wanted - 1.0).abs() < 0.03, "{what}: {deviation} for {wanted}");
            // 3 for a normal distribution; codes saturate, and the spread of scales widens the tails.
            assert!((2.4..3.5).contains(&kurtosis), "{what}: kurtosis {kurtosis}");
        }
    }
}

#[test]
fn small_tensors_hold_what_their_place_calls_for() {
    let checkpoint = open("synthetic:qwen3.5-0.8b").unwrap();
    let values = |name: &str| {
        let name = format!("model.language_model.layers.0.{name}");
        checkpoint.tensor(&name).unwrap().to_f32().unwrap()
    };
    let around = |name: &str, center: f64, most: f32| {
        let values = values(name);
        let (mean, deviation, _) = moments(&values);
        assert!((mean - center).abs() < 0.05 && deviation > 0.01, "{name}: {mean}, {deviation}");
        assert!(values.iter().all(|value| (value - center as f32).abs() < most), "{name}");
    };
    around("input_layernorm.weight", 0.0, 0.5);
    around("linear_attn.norm.weight", 1.0, 0.5);
    around("linear_attn.conv1d.weight", 0.0, 2.5);
    let logarithms = values("linear_attn.A_log");
    assert!(logarithms.iter().all(|log| (0.0..=16f32.ln() + 0.02).contains(log)), "{logarithms:?}");
    let steps = values("linear_attn.dt_bias");
    let softplus = |x: f32| x.exp().ln_1p();
    assert!(steps.iter().all(|bias| (0.0009..0.11).contains(&softplus(*bias))), "{steps:?}");
    assert!(moments(&steps).1 > 0.3);
    let llama = open("synthetic:tiny-llama").unwrap();
    let norm = llama.tensor("model.norm.weight").unwrap().to_f32().unwrap();
    assert!((moments(&norm).0 - 1.0).abs() < 0.05);
}

#[test]
fn every_shape_opens_as_a_model_of_its_size_in_every_format() {
    for (name, shape) in SHAPES {
        for (format, kind) in FORMATS {
            let name = format!("synthetic:{name}-{format}");
            let checkpoint = open(&name).unwrap();
            assert_eq!(checkpoint.path().to_str(), Some(name.as_str()));
            let model = Model::from_checkpoint(checkpoint).unwrap();
            assert_eq!(model.parameters(), shape.parameters(), "{name}");
            assert_eq!(model.graph.limits.context as u64, shape.context, "{name}");
            // Besides the text model there is the prediction layer, in BF16, and a few bytes of tensor scales.
            let text = model.checkpoint.weight_bytes() - 2 * shape.prediction_parameters();
            let footprint = shape.footprint(kind).weights;
            let scales = 8 * model.checkpoint.tensor_names().count() as u64;
            assert!(
                (footprint..=footprint + scales).contains(&text),
                "{name}: {text} of {footprint}"
            );
        }
    }
}

#[test]
fn parameters_with_the_other_parts_are_the_published_totals() {
    /// Qwen3.5's vision encoder: 27 blocks of width 1152 (projections, feed-forward network of 4304, two norms, all
    /// with biases), patches of 2 x 16 x 16 x 3, 2304 positions, and a merger of four patches into the text's width.
    fn vision(width: u64) -> u64 {
        let (hidden, inner) = (1152, 4304);
        let linear = |from: u64, to: u64| from * to + to;
        let block = linear(hidden, 3 * hidden)
            + linear(hidden, hidden)
            + linear(hidden, inner)
            + linear(inner, hidden)
            + 4 * hidden;
        let merger = 2 * hidden + linear(4 * hidden, 4 * hidden) + linear(4 * hidden, width);
        linear(2 * 16 * 16 * 3, hidden) + 2304 * hidden + 27 * block + merger
    }
    for (shape, published) in [(known::QWEN3_5_27B, 27.781), (known::QWEN3_5_9B, 9.653)] {
        let total = shape.parameters() + shape.prediction_parameters() + vision(shape.hidden);
        assert_eq!(format!("{:.3}", total as f64 / 1e9), format!("{published:.3}"));
    }
}

#[test]
fn drafters_hold_their_tensors_and_are_no_models() {
    for (name, shape) in DRAFTERS {
        let checkpoint = open(&format!("synthetic:{name}")).unwrap();
        let config = checkpoint.config().unwrap();
        assert_eq!(
            config["dspark_config"]["target_layer_ids"].as_array().unwrap().len(),
            shape.taps.len()
        );
        assert_eq!(names_of(&checkpoint).len() as u64, 11 * shape.layers + 7);
        let fc = checkpoint.matrix("fc").unwrap();
        let features = shape.taps.len() as u64 * shape.target_hidden;
        assert_eq!((fc.rows() as u64, fc.cols() as u64), (shape.hidden, features));
        let bias = checkpoint.tensor("confidence_head.proj.bias").unwrap();
        assert_eq!((bias.dtype, bias.shape), (DType::Bf16, &[1][..]));
        let Err(error) = Model::from_checkpoint(checkpoint) else { panic!("{name} is no model") };
        let message = error.to_string();
        assert!(message.contains(name) && message.contains("is a drafter"), "{message}");
    }
}

#[test]
fn the_tokenizer_takes_any_text_and_gives_it_back() {
    let checkpoint = open("synthetic:tiny-hybrid-bf16").unwrap();
    let text = Text::load(&checkpoint).unwrap();
    let tokenizer = text.tokenizer();
    let written = "Zürich\n\t\u{1f980} 漢字 \u{0}\u{7f}";
    let ids = tokenizer.encode(written, SpecialTokens::AsText).unwrap();
    assert_eq!(ids.len(), written.len());
    let bytes: Vec<u8> =
        ids.iter().flat_map(|id| tokenizer.token_bytes(*id).unwrap().into_owned()).collect();
    assert_eq!(bytes, written.as_bytes());
    let turn = tokenizer.encode("<|im_end|>", SpecialTokens::Parse).unwrap();
    assert_eq!(turn.len(), 1);
    assert!(text.defaults().eos_token_ids.contains(&turn[0]));
    assert!(tokenizer.token_bytes(lithos_model::text::TokenId(300)).is_none());
    assert!(text.template().is_ok());
}
