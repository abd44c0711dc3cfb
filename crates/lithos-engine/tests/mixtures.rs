//! Mixtures of experts: what rows did not choose plays no part, and rows in one pass choose for themselves.

#[path = "support/checkpoints.rs"]
#[allow(dead_code, reason = "this test writes no other format")]
mod checkpoints;
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use checkpoints::tensors;
use lithos_compiler::device::{DeviceOptions, KeyValues, Program};
use lithos_engine::{BackendKind, Engine, EngineOptions, Fusion, TokenId};
use lithos_format::{DType, OwnedTensor, write_safetensors};
use lithos_graph::{Interpreter, OpKind};
use lithos_model::{CheckpointWeights, Model};
use support::{cpu, decoded, folder, prefilled, reference};

const NAME: &str = "tiny_qwen35_moe";

/// Layer and index of every expert that the rows of a sequence choose.
fn chosen(ids: &[TokenId]) -> BTreeSet<(usize, usize)> {
    let model = Model::open(&folder(NAME)).expect("opens");
    let weights = CheckpointWeights::new(&model.checkpoint, &model.graph).expect("weights");
    let interpreter = Interpreter::new(&model.graph, &weights);
    let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
    let values = interpreter.run_values(&mut interpreter.empty_state(), &ids).expect("runs");
    let mut found = BTreeSet::new();
    for op in &model.graph.ops {
        let (OpKind::Route { chosen }, Some(layer)) = (&op.kind, op.scope.layer) else { continue };
        for row in values[&op.outputs[0]].chunks(2 * chosen) {
            found.extend(row[..*chosen].iter().map(|expert| (layer, *expert as usize)));
        }
    }
    found
}

/// Writes the reference checkpoint with all experts but these full of NaN.
fn poisoned(kept: &BTreeSet<(usize, usize)>, to: &Path) -> usize {
    let (mut all, mut count) = (tensors(NAME), 0);
    for tensor in &mut all {
        let parts: Vec<&str> = tensor.name.split('.').collect();
        let Some(at) = parts.iter().position(|part| *part == "experts") else { continue };
        let number = |index: usize| parts[index].parse().expect("a number");
        if !kept.contains(&(number(2), number(at + 1))) {
            tensor.bytes =
                [f32::NAN; 1].map(f32::to_le_bytes).concat().repeat(tensor.bytes.len() / 4);
            count += 1;
        }
    }
    let entries: Vec<_> = all.iter().map(OwnedTensor::entry).collect();
    write_safetensors(&to.join("model.safetensors"), &entries).expect("writes");
    std::fs::copy(folder(NAME).join("config.json"), to.join("config.json")).expect("copies");
    count / 3
}

fn open(folder: &Path, options: EngineOptions) -> Engine {
    Engine::open(folder, options).expect("opens")
}

#[test]
fn experts_that_no_row_chose_play_no_part() {
    let ids = &reference(NAME).ids[..3];
    let kept = chosen(ids);
    let folder = tempfile::tempdir().expect("a folder");
    let experts = poisoned(&kept, folder.path());
    assert!(experts >= 4, "only {experts} experts were not chosen");
    for fusion in [Fusion::None, Fusion::Step] {
        let wanted = decoded(&mut open(&support::folder(NAME), cpu(fusion)), ids, 3);
        let mut engine = open(folder.path(), cpu(fusion));
        assert!(wanted.iter().all(|logit| logit.is_finite()));
        assert!(decoded(&mut engine, ids, 3) == wanted, "one pass at {fusion}");
        assert!(decoded(&mut engine, ids, 1) == wanted, "one row at a time at {fusion}");
        let found = prefilled(&mut engine, ids);
        assert!(found.iter().all(|logit| logit.is_finite()), "prefill at {fusion}");
    }
    // Among more rows one chooses what is poisoned: it shows, so the comparison means something.
    let mut engine = open(folder.path(), cpu(Fusion::Step));
    let found = decoded(&mut engine, &reference(NAME).ids[..16], 16);
    assert!(found.iter().any(|logit| logit.is_nan()));
}

/// The reference checkpoint with the matrices of a layer's experts in two tensors.
fn fused(to: &Path) {
    let mut all = tensors(NAME);
    for layer in 0..4 {
        let experts = format!("model.layers.{layer}.mlp.experts.");
        let mut take = |expert: usize, part: &str| {
            let name = format!("{experts}{expert}.{part}_proj.weight");
            let at = all.iter().position(|tensor| tensor.name == name).expect("a matrix");
            all.swap_remove(at).bytes
        };
        let (mut gate_up, mut down) = (Vec::new(), Vec::new());
        for expert in 0..8 {
            gate_up.extend(take(expert, "gate"));
            gate_up.extend(take(expert, "up"));
            down.extend(take(expert, "down"));
        }
        for (part, shape, bytes) in
            [("gate_up", [8, 2 * 32, 64], gate_up), ("down", [8, 64, 32], down)]
        {
            let name = format!("{experts}{part}_proj");
            all.push(OwnedTensor { name, dtype: DType::F32, shape: shape.to_vec(), bytes });
        }
    }
    let entries: Vec<_> = all.iter().map(OwnedTensor::entry).collect();
    write_safetensors(&to.join("model.safetensors"), &entries).expect("writes");
    std::fs::copy(folder(NAME).join("config.json"), to.join("config.json")).expect("copies");
}

#[test]
fn fused_experts_are_packed_as_separate_ones() {
    let path = tempfile::tempdir().expect("a folder");
    fused(path.path());
    let ids = &reference(NAME).ids[..24];
    let logits = |folder: &Path| decoded(&mut open(folder, cpu(Fusion::Layer)), ids, 8);
    assert!(logits(path.path()) == logits(&folder(NAME)), "the CPU computes the same");
    let packed = |folder: &Path| {
        let model = Model::open(folder).expect("opens");
        let options = DeviceOptions {
            fusion: Fusion::Layer,
            slots: 1,
            context: 512,
            key_values: KeyValues::F32,
            range_keys: 256,
        };
        let places = Program::new(&model.graph, options).expect("a program").places.weights;
        let mut bytes = vec![0; places.bytes];
        places.load(&model.checkpoint, &model.graph, &mut bytes).expect("loads");
        bytes
    };
    assert!(packed(path.path()) == packed(&folder(NAME)), "kernels read the same");
}

#[test]
fn the_rows_of_a_pass_choose_different_experts() {
    let ids = reference(NAME).ids;
    let of_all = chosen(&ids[..16]);
    let of_layer = |layer| of_all.iter().filter(|(of, _)| *of == layer).count();
    // Else no test of many rows would mean much.
    assert!((0..4).all(|layer| of_layer(layer) >= 6), "{of_all:?}");
}

#[test]
fn a_pass_of_one_row_reads_the_chosen_experts_only() {
    let engine =
        open(&folder(NAME), EngineOptions { backend: BackendKind::Cpu, ..cpu(Fusion::None) });
    let memory = engine.memory();
    let experts = 4 * 8 * 3 * 32 * 64 * 4;
    let all: u64 = tensors(NAME)
        .iter()
        .filter(|tensor| tensor.shape.len() == 2 && !tensor.name.contains("embed_tokens"))
        .map(|tensor| tensor.bytes.len() as u64)
        .sum();
    let padded = memory.read_per_pass.abs_diff(all - experts * 6 / 8);
    assert!(padded < all / 10, "{} of {all}", memory.read_per_pass);
}
