//! The same model in every weight format and from both containers.

#[path = "support/checkpoints.rs"]
mod checkpoints;
mod support;

use std::path::Path;

use checkpoints::{tensors, write_gguf, write_in_format};
use lithos_emulator::EmulatorError;
use lithos_engine::{
    BackendKind, Engine, EngineError, EngineOptions, Fusion, Isa, TokenId, largest,
};
use lithos_format::{OwnedTensor, format_names, write_safetensors};
use lithos_graph::{Interpreter, OpKind};
use lithos_model::{CheckpointWeights, Model};
use support::{Reference, cpu, decoded, interpreter, prefilled, reference};

fn relative_error(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 =
        found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = wanted.iter().map(|b| square(f64::from(*b))).sum();
    (error / size).sqrt()
}

#[test]
fn the_cpu_equals_the_oracle_in_every_format() {
    for format in format_names() {
        if ["q4_0", "q4_1", "q8_0"].contains(&format) {
            continue; // GGUF only: see below.
        }
        for name in ["tiny_qwen35", "tiny_qwen35_moe", "tiny_llama3"] {
            let folder = tempfile::tempdir().expect("a folder");
            write_in_format(name, tensors(name), format, folder.path());
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
    let in_gguf = |format| ["q4_0", "q4_1", "q8_0"].contains(&format);
    let hybrids = ["tiny_qwen35", "tiny_qwen35_moe"];
    let cases = format_names().flat_map(|format| {
        let names = if in_gguf(format) { &["tiny_llama3"][..] } else { &hybrids[..] };
        names.iter().map(move |name| (format, *name))
    });
    for (format, name) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let path = if in_gguf(format) {
            let file = folder.path().join("model.gguf");
            write_gguf(name, tensors(name), format, &file);
            file
        } else {
            write_in_format(name, tensors(name), format, folder.path());
            folder.path().to_path_buf()
        };
        let ids = &reference(name).ids[..24];
        let wanted = prefilled(&mut Engine::open(&path, interpreter()).expect("opens"), ids);
        let Some(mut engine) = emulated(&path) else { return };
        let one = decoded(&mut engine, ids, 1);
        let eight = decoded(&mut engine, ids, 8);
        assert!(one == eight, "{name} as {format}: bits depend on the rows");
        let rows = rows_before_a_tie(&path, ids);
        assert!(rows >= ids.len() / 2, "{name} as {format}: only {rows} rows can be compared");
        let values = rows * wanted.len() / ids.len();
        let error = relative_error(&one[..values], &wanted[..values]);
        assert!(error < 5e-3, "{name} as {format}: relative error {error} of {rows} rows");
    }
}

/// Router logits of the last expert that is chosen and of the next one that are closer than this are a tie, which rounding may turn.
const TIE: f32 = 2e-3;

/// Rows before the first tie in any layer; from there on states may hold another expert's work.
fn rows_before_a_tie(path: &Path, ids: &[TokenId]) -> usize {
    let model = Model::open(path).expect("opens");
    let weights = CheckpointWeights::new(&model.checkpoint, &model.graph).expect("weights");
    let interpreter = Interpreter::new(&model.graph, &weights);
    let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
    let values = interpreter.run_values(&mut interpreter.empty_state(), &ids).expect("runs");
    let mut clear = ids.len();
    for op in &model.graph.ops {
        let OpKind::Route { chosen } = op.kind else { continue };
        let logits = &values[&op.inputs[0]];
        for (row, logits) in logits.chunks(logits.len() / ids.len()).enumerate() {
            let mut sorted = logits.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            if sorted[chosen - 1] - sorted[chosen] < TIE {
                clear = clear.min(row);
            }
        }
    }
    clear
}

#[test]
fn gguf_of_dense_models_gives_the_reference_logits() {
    for name in ["tiny_llama3", "tiny_qwen3"] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("model.gguf");
        write_gguf(name, tensors(name), "f32", &file);
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
            write_gguf(name, tensors(name), format, &file);
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
