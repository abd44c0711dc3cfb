//! The same model in every weight format and from both containers.

mod support;

use std::path::Path;

use lithos_emulator::EmulatorError;
use lithos_engine::{BackendKind, Engine, EngineError, EngineOptions, Fusion, Isa, largest};
use lithos_format::gguf::Writer;
use lithos_format::{Checkpoint, OwnedTensor, encode_matrix, format_names, write_safetensors};
use support::{Reference, cpu, decoded, folder, interpreter, prefilled, reference};

fn relative_error(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 =
        found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = wanted.iter().map(|b| square(f64::from(*b))).sum();
    (error / size).sqrt()
}

/// All tensors of a reference checkpoint as f32.
fn tensors(name: &str) -> Vec<OwnedTensor> {
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
fn is_projection(tensor: &OwnedTensor) -> bool {
    tensor.shape.len() == 2 && tensor.name.ends_with(".weight")
}

/// Writes a reference checkpoint as safetensors, with its projections in `format`.
fn write_in_format(name: &str, format: &str, to: &Path) {
    let mut stored = Vec::new();
    for tensor in tensors(name) {
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

#[test]
fn the_cpu_equals_the_oracle_in_every_format() {
    for format in format_names() {
        if ["q4_0", "q4_1", "q8_0"].contains(&format) {
            continue; // GGUF only: see below.
        }
        for name in ["tiny_qwen35", "tiny_llama3"] {
            let folder = tempfile::tempdir().expect("a folder");
            write_in_format(name, format, folder.path());
            let ids = &reference(name).ids[..40];
            let mut oracle = Engine::open(folder.path(), interpreter()).expect("opens");
            let wanted = prefilled(&mut oracle, ids);
            for isa in Isa::available() {
                let options = EngineOptions { isa: Some(isa), ..cpu(Fusion::Step) };
                let mut engine = Engine::open(folder.path(), options).expect("opens");
                let vocabulary = engine.vocabulary();
                let passes = [
                    ("prefill", prefilled(&mut engine, ids)),
                    ("one row", decoded(&mut engine, ids, 1)),
                    ("eight rows", decoded(&mut engine, ids, 8)),
                ];
                assert!(passes[1].1 == passes[2].1, "{format}, {name}: bits depend on the rows");
                for (pass, found) in passes {
                    let error = relative_error(&found, &wanted);
                    let what = format!("{name} as {format} on {}, {pass}", isa.name());
                    assert!(error < 5e-3, "{what}: relative error {error}");
                    let greedy = |logits: &[f32]| -> Vec<_> {
                        logits.chunks(vocabulary).map(largest).collect()
                    };
                    // Half-precision keys and values may turn a near tie; more than that is a fault.
                    let (a, b) = (greedy(&found), greedy(&wanted));
                    let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
                    assert!(same + 1 >= a.len(), "{what}: {same} of {} greedy tokens", a.len());
                }
            }
        }
    }
}

/// Opens a checkpoint in the emulator; `None`, and a line that says so, where there is no clang.
fn emulated(folder: &Path) -> Option<Engine> {
    let options = EngineOptions { backend: BackendKind::Emulator, ..cpu(Fusion::Layer) };
    let required = std::env::var_os("LITHOS_REQUIRE_CLANG").is_some();
    match Engine::open(folder, options) {
        Ok(engine) => Some(engine),
        Err(EngineError::Emulator(error @ EmulatorError::NoCompiler { .. })) if !required => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("opens in the emulator: {error}"),
    }
}

#[test]
fn the_emulator_equals_the_oracle_in_every_format() {
    for format in format_names() {
        let in_gguf = ["q4_0", "q4_1", "q8_0"].contains(&format);
        let name = if in_gguf { "tiny_llama3" } else { "tiny_qwen35" };
        let folder = tempfile::tempdir().expect("a folder");
        let path = if in_gguf {
            let file = folder.path().join("model.gguf");
            write_gguf(name, format, &file);
            file
        } else {
            write_in_format(name, format, folder.path());
            folder.path().to_path_buf()
        };
        let ids = &reference(name).ids[..24];
        let wanted = prefilled(&mut Engine::open(&path, interpreter()).expect("opens"), ids);
        let Some(mut engine) = emulated(&path) else { return };
        let one = decoded(&mut engine, ids, 1);
        assert!(one == decoded(&mut engine, ids, 8), "{format}: bits depend on the rows");
        let error = relative_error(&one, &wanted);
        assert!(error < 5e-3, "{name} as {format}: relative error {error}");
    }
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

/// Writes a dense reference checkpoint as GGUF, with its projections in `format`.
fn write_gguf(name: &str, format: &str, to: &Path) {
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
    for tensor in tensors(name) {
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

#[test]
fn gguf_of_dense_models_gives_the_reference_logits() {
    for name in ["tiny_llama3", "tiny_qwen3"] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("model.gguf");
        write_gguf(name, "f32", &file);
        let Reference { ids, logits } = reference(name);
        for options in [cpu(Fusion::Step), interpreter()] {
            let mut engine = Engine::open(&file, options).expect("opens");
            let found = prefilled(&mut engine, &ids);
            let off = found.iter().zip(&logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-4, "{name}, {}: off by {off}", options.backend);
        }
    }
}

#[test]
fn gguf_block_formats_equal_the_oracle() {
    for format in ["q4_0", "q4_1", "q8_0"] {
        for name in ["tiny_llama3", "tiny_qwen3"] {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("model.gguf");
            write_gguf(name, format, &file);
            let ids = reference(name).ids;
            let mut oracle = Engine::open(&file, interpreter()).expect("opens");
            let wanted = prefilled(&mut oracle, &ids);
            let mut engine = Engine::open(&file, cpu(Fusion::Layer)).expect("opens");
            for found in [prefilled(&mut engine, &ids), decoded(&mut engine, &ids, 8)] {
                let error = relative_error(&found, &wanted);
                assert!(error < 5e-3, "{name} as {format}: relative error {error}");
            }
        }
    }
}

#[test]
fn vision_and_unknown_tensors_are_left_out_with_a_notice() {
    let mut stored = tensors("tiny_qwen35");
    for tensor in &mut stored {
        if let Some(rest) = tensor.name.strip_prefix("model.") {
            tensor.name = format!("model.language_model.{rest}");
        }
    }
    for name in ["model.visual.blocks.0.norm.weight", "model.visual.patch.weight", "mtp.fc.weight"]
    {
        stored.push(OwnedTensor::from_f32(name, &[4], &[0.0; 4]));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let entries: Vec<_> = stored.iter().map(OwnedTensor::entry).collect();
    write_safetensors(&folder.path().join("model.safetensors"), &entries).expect("writes");
    let text =
        std::fs::read_to_string(support::folder("tiny_qwen35").join("config.json")).expect("reads");
    let inner: serde_json::Value = serde_json::from_str(&text).expect("parses");
    let outer = serde_json::json!({ "model_type": "qwen3_5", "text_config": inner });
    std::fs::write(folder.path().join("config.json"), outer.to_string()).expect("writes");

    let mut engine = Engine::open(folder.path(), cpu(Fusion::Step)).expect("opens");
    let notices = engine.notices().join("\n");
    assert!(notices.contains("2 tensors under model.visual (vision)"), "{notices}");
    assert!(notices.contains("mtp"), "{notices}");
    let Reference { ids, logits } = reference("tiny_qwen35");
    let found = prefilled(&mut engine, &ids);
    let off = found.iter().zip(&logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 2e-4, "off by {off}");
}
