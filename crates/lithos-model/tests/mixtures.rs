//! Mixtures of experts in every way that checkpoints store them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lithos_format::{Checkpoint, DType, OwnedTensor, encode_matrix, write_safetensors};
use lithos_graph::Interpreter;
use lithos_model::{CheckpointWeights, Model, ModelError};
use tempfile::TempDir;

const EXPERTS: usize = 8;
const HIDDEN: usize = 64;
const INNER: usize = 32;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens/tiny_qwen35_moe")
}

/// All tensors of the reference checkpoint, as f32.
fn tensors() -> BTreeMap<String, OwnedTensor> {
    let checkpoint = Checkpoint::open(&golden()).expect("opens");
    let names: Vec<String> = checkpoint.tensor_names().map(str::to_string).collect();
    names
        .into_iter()
        .map(|name| {
            let tensor = checkpoint.tensor(&name).expect("listed");
            let values = tensor.to_f32().expect("decodes");
            let tensor = OwnedTensor::from_f32(&name, tensor.shape, &values);
            (name, tensor)
        })
        .collect()
}

fn write(tensors: &BTreeMap<String, OwnedTensor>) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let entries: Vec<_> = tensors.values().map(OwnedTensor::entry).collect();
    write_safetensors(&folder.path().join("model.safetensors"), &entries).expect("writes");
    let config = "config.json";
    std::fs::copy(golden().join(config), folder.path().join(config)).expect("copies");
    folder
}

fn logits(folder: &Path) -> Vec<f32> {
    let model = Model::open(folder).expect("opens");
    assert_eq!(model.notices, Vec::<String>::new(), "every tensor is used");
    let weights = CheckpointWeights::new(&model.checkpoint, &model.graph).expect("weights");
    let interpreter = Interpreter::new(&model.graph, &weights);
    interpreter.run(&mut interpreter.empty_state(), &[3, 250, 77, 12, 130]).expect("runs")
}

fn refusal(tensors: &BTreeMap<String, OwnedTensor>) -> ModelError {
    match Model::open(write(tensors).path()) {
        Ok(_) => panic!("must be refused"),
        Err(error) => error,
    }
}

/// Puts the experts' matrices into two tensors of a layer, as Hugging Face publishes them.
fn fuse(tensors: &mut BTreeMap<String, OwnedTensor>) {
    for layer in 0..4 {
        let experts = format!("model.layers.{layer}.mlp.experts.");
        let mut take = |expert: usize, part: &str| -> Vec<u8> {
            let name = format!("{experts}{expert}.{part}_proj.weight");
            tensors.remove(&name).expect("a matrix").bytes
        };
        let (mut gate_up, mut down) = (Vec::new(), Vec::new());
        for expert in 0..EXPERTS {
            gate_up.extend(take(expert, "gate"));
            gate_up.extend(take(expert, "up"));
            down.extend(take(expert, "down"));
        }
        let mut put = |part: &str, shape: [usize; 3], bytes: Vec<u8>| {
            let name = format!("{experts}{part}_proj");
            let mut tensor = OwnedTensor::from_f32(&name, &shape, &vec![0.0; bytes.len() / 4]);
            tensor.bytes = bytes;
            tensors.insert(name, tensor);
        };
        put("gate_up", [EXPERTS, 2 * INNER, HIDDEN], gate_up);
        put("down", [EXPERTS, HIDDEN, INNER], down);
    }
}

#[test]
fn fused_and_separate_experts_are_the_same_model() {
    let mut fused = tensors();
    fuse(&mut fused);
    assert_eq!(logits(write(&fused).path()), logits(&golden()));
}

#[test]
fn configurations_that_are_not_built_are_refused_by_key() {
    let tensors = tensors();
    for (key, value) in [
        ("norm_topk_prob", "false"),
        ("decoder_sparse_step", "2"),
        ("mlp_only_layers", "[1]"),
        ("num_experts_per_tok", "9"),
    ] {
        let folder = write(&tensors);
        let file = folder.path().join("config.json");
        let text = std::fs::read_to_string(&file).expect("reads");
        // A later key of the same name wins.
        let text = text.trim_end().trim_end_matches('}').trim_end().to_owned();
        std::fs::write(&file, format!("{text}, \"{key}\": {value}}}")).expect("writes");
        let Err(error) = Model::open(folder.path()) else { panic!("{key} must be refused") };
        let word = if key == "num_experts_per_tok" { "chooses 9 of 8 experts" } else { key };
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn experts_in_four_bits_are_decoded_expert_by_expert() {
    let plain = tensors();
    let (mut stored, mut decoded) = (plain.clone(), plain.clone());
    for (name, tensor) in &plain {
        let Some(base) = name.strip_suffix(".weight").filter(|base| base.contains("experts."))
        else {
            continue;
        };
        let values: Vec<f32> = tensor
            .bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        stored.remove(name);
        let encoded = encode_matrix("nvfp4", base, tensor.shape[1], &values).expect("encodes");
        stored.extend(encoded.into_iter().map(|tensor| (tensor.name.clone(), tensor)));
    }
    let folder = write(&stored);
    // The same values in single precision, decoded matrix by matrix.
    let checkpoint = Checkpoint::open(folder.path()).expect("opens");
    for (name, tensor) in &mut decoded {
        let base = name.trim_end_matches(".weight");
        if base.contains("experts.") {
            let values = checkpoint.matrix(base).expect("a matrix").decode();
            *tensor = OwnedTensor::from_f32(name, &tensor.shape, &values);
        }
    }
    let (found, wanted) = (logits(folder.path()), logits(write(&decoded).path()));
    assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-6));
    assert!(found != logits(&golden()), "four bits change the logits");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let name = "model.layers.2.mlp.experts.5.up_proj.weight";
    let mut missing = tensors();
    missing.remove(name);
    assert!(refusal(&missing).to_string().contains(name));

    let mut narrow = tensors();
    narrow.insert(name.into(), OwnedTensor::from_f32(name, &[INNER, 48], &[0.0; INNER * 48]));
    let error = refusal(&narrow).to_string();
    assert!(error.contains("experts.5.up_proj") && error.contains("[32, 48]"), "{error}");

    let mut mixed = tensors();
    let base = name.trim_end_matches(".weight");
    mixed.remove(name);
    let encoded = encode_matrix("bf16", base, HIDDEN, &[0.5; INNER * HIDDEN]).expect("encodes");
    mixed.extend(encoded.into_iter().map(|tensor| (tensor.name.clone(), tensor)));
    let error = refusal(&mixed).to_string();
    assert!(error.contains("experts.5.up_proj") && error.contains("format"), "{error}");

    let mut fused = tensors();
    fuse(&mut fused);
    let name = "model.layers.1.mlp.experts.gate_up_proj";
    fused.insert(name.into(), OwnedTensor::from_f32(name, &[4, 32, 64], &[0.0; 4 * 32 * 64]));
    let error = refusal(&fused).to_string();
    assert!(error.contains(name) && error.contains("[4, 32, 64]"), "{error}");
    // Codes that need scales, in a way that nobody has said how to read.
    let (shape, bytes) = (vec![EXPERTS, 2 * INNER, HIDDEN], vec![0; EXPERTS * 2 * INNER * HIDDEN]);
    let codes = OwnedTensor { name: name.into(), dtype: DType::F8E4m3, shape, bytes };
    fused.insert(name.into(), codes);
    let error = refusal(&fused).to_string();
    assert!(error.contains(name) && error.contains("not supported"), "{error}");
}
