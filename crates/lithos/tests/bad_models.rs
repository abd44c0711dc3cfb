//! Damaged and contradictory checkpoints: one line that names file and cause, and no panic.

mod support;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::{Run, copy_of_golden, edit_json, golden, run, text_model};

fn score(model: &Path) -> Run {
    run(&["score", model.to_str().unwrap(), "--ids", "1,2,3"])
}

fn with_weights(bytes: &[u8]) -> Run {
    let model = copy_of_golden("tiny_llama3");
    fs::write(model.path().join("model.safetensors"), bytes).unwrap();
    score(model.path())
}

fn with_config(edit: impl FnOnce(&mut Value)) -> Run {
    let model = copy_of_golden("tiny_llama3");
    edit_json(&model.path().join("config.json"), edit);
    score(model.path())
}

fn safetensors(header: &Value, data: usize) -> Vec<u8> {
    let header = header.to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn the_undamaged_copy_works() {
    score(copy_of_golden("tiny_llama3").path()).ok();
}

#[test]
fn truncated_safetensors() {
    let whole = fs::read(golden("tiny_llama3").join("model.safetensors")).unwrap();
    for length in [0, 4, 8, 100, whole.len() / 2, whole.len() - 1] {
        with_weights(&whole[..length]).refused(&["model.safetensors"]);
    }
}

#[test]
fn overlapping_tensors() {
    let header = json!({
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
    });
    with_weights(&safetensors(&header, 12)).refused(&["model.safetensors"]);
}

#[test]
fn a_header_longer_than_any_file() {
    for length in [1u64 << 63, u64::MAX, 1 << 40] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}");
        with_weights(&bytes).refused(&["model.safetensors"]);
    }
}

#[test]
fn shapes_that_the_configuration_does_not_say() {
    let model = copy_of_golden("tiny_llama3");
    edit_json(&model.path().join("config.json"), |config| config["intermediate_size"] = json!(320));
    let file = model.path().join("model.safetensors: tensor");
    score(model.path()).refused(&[file.to_str().unwrap(), "mlp.gate_proj", "320", "256"]);
    with_config(|config| config["num_hidden_layers"] = json!(3)).refused(&["model.layers.2"]);
    with_config(|config| config["vocab_size"] = json!(513)).refused(&["embed_tokens", "513"]);
    for (key, value) in [
        ("hidden_size", json!(0)),
        ("num_attention_heads", json!(0)),
        ("num_key_value_heads", json!(3)),
        ("head_dim", json!(u64::MAX)),
        ("hidden_size", json!("wide")),
        ("num_hidden_layers", json!(-1)),
        ("max_position_embeddings", json!(0)),
    ] {
        with_config(|config| config[key] = value).refused(&[]);
    }
}

#[test]
fn a_missing_shard() {
    let model = copy_of_golden("tiny_llama3");
    let index = json!({
        "metadata": {},
        "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"},
    });
    fs::remove_file(model.path().join("model.safetensors")).unwrap();
    fs::write(model.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    score(model.path()).refused(&["model-00002-of-00002.safetensors"]);
}

#[test]
fn a_missing_tokenizer() {
    let model = golden("tiny_llama3");
    let model = model.to_str().unwrap();
    for command in ["generate", "chat", "serve"] {
        let mut args = vec![command, "--model", model];
        args.extend(match command {
            "generate" => ["Hello"].as_slice(),
            "serve" => &["--port", "0"],
            _ => &[],
        });
        run(&args).refused(&["tiny_llama3", "tokenizer.json"]);
    }
}

#[test]
fn a_damaged_tokenizer() {
    let model = text_model();
    for text in ["", "{", "{}", "[1, 2]"] {
        fs::write(model.path().join("tokenizer.json"), text).unwrap();
        let path = model.path().to_str().unwrap();
        run(&["generate", "--model", path, "Hello"]).refused(&["tokenizer.json"]);
    }
}

#[test]
fn gguf_with_lying_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lies.gguf");
    for (tensors, keys) in [(1u64 << 60, 0u64), (0, 1 << 60), (u64::MAX, u64::MAX), (3, 3)] {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(keys.to_le_bytes());
        fs::write(&file, bytes).unwrap();
        score(&file).refused(&["lies.gguf"]);
    }
    // A string longer than the file.
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend((1u64 << 62).to_le_bytes());
    fs::write(&file, bytes).unwrap();
    score(&file).refused(&["lies.gguf"]);
}

#[test]
fn nothing_that_is_a_model() {
    let folder = tempfile::tempdir().unwrap();
    score(folder.path()).refused(&[folder.path().to_str().unwrap()]);
    score(&folder.path().join("absent")).refused(&["absent"]);
    let file = folder.path().join("notes.txt");
    fs::write(&file, "not a model").unwrap();
    score(&file).refused(&["notes.txt"]);
    let model = copy_of_golden("tiny_llama3");
    fs::remove_file(model.path().join("config.json")).unwrap();
    score(model.path()).refused(&["config.json"]);
    fs::write(model.path().join("config.json"), "{\n\n oops").unwrap();
    score(model.path()).refused(&["config.json"]);
}

#[test]
fn names_that_are_not_known() {
    with_config(|config| {
        config["architectures"] = json!(["MambaForCausalLM"]);
        config["model_type"] = json!("mamba");
    })
    .refused(&["config.json", "mamba"]);
    with_config(|config| config["rope_parameters"]["rope_type"] = json!("spiral"))
        .refused(&["config.json", "spiral"]);
    with_config(|config| config["hidden_act"] = json!("sinusoid"))
        .refused(&["config.json", "sinusoid"]);
}

#[test]
fn a_context_that_is_too_long() {
    let model = text_model();
    let path = model.path().to_str().unwrap();
    let long = "word ".repeat(300);
    run(&["generate", "--model", path, "--context", "64", &long]).refused(&[
        "64",
        "shorten",
        "raise the context",
        "4096",
    ]);
    // More than the model has cannot be asked for.
    let longer = "word ".repeat(6000);
    let refused = run(&["generate", "--model", path, &longer]);
    assert!(!refused.stderr.contains("raise"), "{refused:?}");
    refused.refused(&["4096", "shorten", "made for no more"]);
    run(&["generate", "--model", path, "--context", "5000", "Hello"]).refused(&["5000", "4096"]);
    run(&["bench", path, "--prompt-tokens", "5000"]).refused(&["4096"]);
    let ids = vec!["1"; 2049].join(",");
    let golden = golden("tiny_llama3");
    run(&["score", golden.to_str().unwrap(), "--ids", &ids]).refused(&["2049", "2048"]);
}
