//! Reference checkpoints written anew: in other weight formats and containers, and with other values.

use std::path::Path;

use lithos_format::gguf::Writer;
use lithos_format::{Checkpoint, OwnedTensor, encode_matrix, write_safetensors};

use crate::support::folder;

/// All tensors of a reference checkpoint as f32.
pub fn tensors(name: &str) -> Vec<OwnedTensor> {
    let checkpoint = Checkpoint::open(&folder(name)).expect("opens");
    let names: Vec<String> = checkpoint.tensor_names().map(str::to_string).collect();
    names
        .iter()
        .map(|name| {
            let tensor = checkpoint.tensor(name).expect("listed");
            OwnedTensor::from_f32(name, tensor.shape, &tensor.to_f32().expect("decodes"))
        })
        .collect()
}

fn values(tensor: &OwnedTensor) -> Vec<f32> {
    tensor.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Whether a tensor is a matrix that projections multiply.
pub fn is_projection(tensor: &OwnedTensor) -> bool {
    tensor.shape.len() == 2 && tensor.name.ends_with(".weight")
}

/// Writes a checkpoint of a reference's configuration and names as safetensors, with its projections in `format`.
pub fn write_in_format(name: &str, tensors: Vec<OwnedTensor>, format: &str, to: &Path) {
    let mut stored = Vec::new();
    for tensor in tensors {
        if is_projection(&tensor) {
            let base = tensor.name.trim_end_matches(".weight");
            let encoded = encode_matrix(format, base, tensor.shape[1], &values(&tensor));
            stored.extend(encoded.expect("encodes"));
        } else {
            stored.push(tensor);
        }
    }
    let entries: Vec<_> = stored.iter().map(OwnedTensor::entry).collect();
    write_safetensors(&to.join("model.safetensors"), &entries).expect("writes");
    std::fs::copy(folder(name).join("config.json"), to.join("config.json")).expect("copies");
}

/// GGUF's name of a tensor of a dense transformer.
fn gguf_name(name: &str) -> String {
    let name = name.trim_start_matches("model.");
    let mut name = name.replace("layers.", "blk.");
    for (from, to) in [
        ("embed_tokens", "token_embd"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ] {
        name = name.replace(from, to);
    }
    if name == "norm.weight" { "output_norm.weight".into() } else { name }
}

/// Interleaves the rotary pairs of every head, as conversions of Llama to GGUF do.
fn interleave_pairs(values: &[f32], columns: usize, head_dim: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    let mut out = Vec::with_capacity(values.len());
    for row in 0..rows {
        let (head, within) = (row / head_dim, row % head_dim);
        let source = head * head_dim + within / 2 + within % 2 * (head_dim / 2);
        out.extend_from_slice(&values[source * columns..][..columns]);
    }
    out
}

/// Writes a checkpoint of a dense reference's configuration and names as GGUF, with its projections in `format`.
pub fn write_gguf(name: &str, tensors: Vec<OwnedTensor>, format: &str, to: &Path) {
    let config: serde_json::Value = serde_json::from_str(
        &std::fs::read_to_string(folder(name).join("config.json")).expect("reads"),
    )
    .expect("parses");
    let architecture = config["model_type"].as_str().expect("a model type").to_string();
    let size = |key: &str| config[key].as_u64().expect(key);
    let rope = &config["rope_parameters"];
    let key = |name: &str| format!("{architecture}.{name}");
    let mut writer = Writer::new();
    writer.string("general.architecture", &architecture);
    for (gguf, json) in [
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("rope.dimension_count", "head_dim"),
        ("context_length", "max_position_embeddings"),
    ] {
        writer.integer(&key(gguf), size(json));
    }
    let number = |value: &serde_json::Value| value.as_f64().expect("a number") as f32;
    writer.f32(&key("attention.layer_norm_rms_epsilon"), number(&config["rms_norm_eps"]));
    writer.f32(&key("rope.freq_base"), number(&rope["rope_theta"]));
    let head_dim = size("head_dim") as usize;
    let mut stored = Vec::new();
    for tensor in tensors {
        let gguf = gguf_name(&tensor.name);
        let mut values = values(&tensor);
        if architecture == "llama" && (gguf.contains("attn_q.") || gguf.contains("attn_k.")) {
            values = interleave_pairs(&values, tensor.shape[1], head_dim);
        }
        if is_projection(&tensor) {
            let base = gguf.trim_end_matches(".weight");
            let encoded = encode_matrix(format, base, tensor.shape[1], &values);
            stored.extend(encoded.expect("encodes"));
        } else {
            stored.push(OwnedTensor::from_f32(&gguf, &tensor.shape, &values));
        }
    }
    if rope["rope_type"] == "llama3" {
        let divisors = llama3_divisors(rope, head_dim);
        stored.push(OwnedTensor::from_f32("rope_freqs.weight", &[head_dim / 2], &divisors));
    }
    for tensor in &stored {
        writer.tensor(tensor.entry());
    }
    writer.write(to).expect("writes");
}

/// What a frequency is divided by, from the wavelengths that Llama 3 keeps, blends and stretches.
fn llama3_divisors(rope: &serde_json::Value, head_dim: usize) -> Vec<f32> {
    let number = |key: &str| rope[key].as_f64().expect(key);
    let (factor, original) = (number("factor"), number("original_max_position_embeddings"));
    let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
    (0..head_dim / 2)
        .map(|i| {
            let frequency = number("rope_theta").powf(-2.0 * i as f64 / head_dim as f64);
            let turns = original * frequency / std::f64::consts::TAU;
            let blend = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / (blend + (1.0 - blend) / factor)) as f32
        })
        .collect()
}
