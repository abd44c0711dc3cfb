//! The interpreter against reference values of an independent implementation.

use std::path::PathBuf;

use lithos_format::Checkpoint;
use lithos_graph::{Interpreter, OpKind};
use lithos_model::{CheckpointWeights, Model};

struct Golden {
    model: Model,
    ids: Vec<u32>,
    reference: Checkpoint,
}

fn golden(name: &str) -> Golden {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens").join(name);
    let reference = Checkpoint::open_safetensors_file(&folder.join("reference.safetensors"))
        .expect("the reference opens");
    let ids = reference.tensor("ids").expect("ids").to_f32().expect("ids decode");
    let ids = ids.into_iter().map(|id| id as u32).collect();
    Golden { model: Model::open(&folder).expect("the model opens"), ids, reference }
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn argmax(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, index| if row[index] > row[best] { index } else { best })
}

fn check_f32(name: &str) {
    let Golden { model, ids, reference } = golden(name);
    let weights = CheckpointWeights::new(&model.checkpoint, &model.graph).expect("weights");
    let interpreter = Interpreter::new(&model.graph, &weights);
    let wanted = reference.tensor("logits").expect("logits").to_f32().expect("decode");
    let vocabulary = model.graph.limits.vocabulary;

    let mut state = interpreter.empty_state();
    let values = interpreter.run_values(&mut state, &ids).expect("runs");
    let logits = &values[&model.graph.logits];
    assert!(largest_difference(logits, &wanted) < 2e-4, "{name}: logits");
    for (row, wanted) in logits.chunks(vocabulary).zip(wanted.chunks(vocabulary)) {
        assert_eq!(argmax(row), argmax(wanted), "{name}: greedy token");
    }
    // The residual after each layer: what every second addition writes.
    let residuals: Vec<_> =
        model.graph.ops.iter().filter(|op| op.kind == OpKind::Add).skip(1).step_by(2).collect();
    for (layer, op) in residuals.iter().enumerate().take(model.graph.limits.layers - 1) {
        let hidden = reference.tensor(&format!("hidden.{}", layer + 1)).expect("hidden");
        let hidden = hidden.to_f32().expect("decode");
        // The file may hold the first rows only.
        let found = &values[&op.outputs[0]][..hidden.len()];
        let difference = largest_difference(found, &hidden);
        assert!(difference < 2e-4, "{name}: residual after layer {layer}: {difference}");
    }

    let mut state = interpreter.empty_state();
    let mut pieces = Vec::new();
    let cuts = [0, 1, 4, 12, 20, 37, ids.len()];
    for cut in cuts.windows(2) {
        pieces.extend(interpreter.run(&mut state, &ids[cut[0]..cut[1]]).expect("runs"));
    }
    assert!(largest_difference(&pieces, &wanted) < 2e-4, "{name}: logits in pieces");
}

#[test]
fn hybrid_f32() {
    check_f32("tiny_qwen35");
}

#[test]
fn mixture_f32() {
    check_f32("tiny_qwen35_moe");
}

#[test]
fn qwen3_f32() {
    check_f32("tiny_qwen3");
}

#[test]
fn llama3_f32() {
    check_f32("tiny_llama3");
}

#[test]
fn hybrid_bf16_points_the_same_way() {
    let Golden { model, ids, reference } = golden("tiny_qwen35_bf16");
    let weights = CheckpointWeights::new(&model.checkpoint, &model.graph).expect("weights");
    let interpreter = Interpreter::new(&model.graph, &weights);
    let wanted = reference.tensor("logits").expect("logits").to_f32().expect("decode");
    let mut state = interpreter.empty_state();
    let logits = interpreter.run(&mut state, &ids).expect("runs");
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let vocabulary = model.graph.limits.vocabulary;
    for (row, wanted) in logits.chunks(vocabulary).zip(wanted.chunks(vocabulary)) {
        let cosine = dot(row, wanted) / (dot(row, row) * dot(wanted, wanted)).sqrt();
        assert!(cosine > 0.999, "cosine {cosine}");
    }
}
