//! The Metal text of whole models, run lane by lane, against reference values and the CPU.

mod support;

use lithos_emulator::EmulatorError;
use lithos_engine::{BackendKind, Engine, EngineError, EngineOptions, Fusion, largest};
use support::{Reference, after_rejection, cpu, decoded, folder, prefilled, reference};

/// Largest difference of a logit from the reference, for F32 weights.
const TOLERANCE: f32 = 2e-4;

/// Opens a reference checkpoint in the emulator; `None`, and a line that says so, where there is no clang.
fn open(name: &str, fusion: Fusion, checks: bool) -> Option<Engine> {
    let options = EngineOptions { backend: BackendKind::Emulator, checks, ..cpu(fusion) };
    let required = std::env::var_os("LITHOS_REQUIRE_CLANG").is_some();
    match Engine::open(&folder(name), options) {
        Ok(engine) => Some(engine),
        Err(EngineError::Emulator(error @ EmulatorError::NoCompiler { .. })) if !required => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{name} opens: {error}"),
    }
}

fn assert_close(found: &[f32], wanted: &[f32], vocabulary: usize, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: as many logits");
    for (row, (found, wanted)) in
        found.chunks(vocabulary).zip(wanted.chunks(vocabulary)).enumerate()
    {
        let difference =
            found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
        // Written so that a NaN fails.
        assert!(difference <= TOLERANCE, "{what}: row {row} is off by {difference}");
        assert_eq!(largest(found), largest(wanted), "{what}: greedy token of row {row}");
    }
}

#[test]
fn every_family_at_every_fusion_level() {
    for name in ["tiny_qwen35", "tiny_qwen35_moe", "tiny_qwen3", "tiny_llama3"] {
        let Reference { ids, logits } = reference(name);
        for fusion in Fusion::ALL {
            let Some(mut engine) = open(name, fusion, false) else { return };
            let vocabulary = engine.vocabulary();
            let ids = &ids[..40];
            let wanted = &logits[..40 * vocabulary];
            let what = format!("{name} at {fusion}");
            assert_close(
                &prefilled(&mut engine, ids),
                wanted,
                vocabulary,
                &format!("{what}, 16 rows"),
            );
            assert_close(
                &decoded(&mut engine, ids, 5),
                wanted,
                vocabulary,
                &format!("{what}, 5 rows"),
            );
        }
    }
}

#[test]
fn a_rejected_suffix_leaves_no_trace() {
    for name in ["tiny_qwen35", "tiny_qwen35_moe"] {
        let Reference { ids, logits } = reference(name);
        let Some(mut engine) = open(name, Fusion::Step, false) else { return };
        let vocabulary = engine.vocabulary();
        for accepted in [0, 1, 5, 8] {
            let (first, found) = after_rejection(&mut engine, &ids, accepted, 6);
            let wanted = &logits[first * vocabulary..(first + 6) * vocabulary];
            assert_close(&found, wanted, vocabulary, &format!("{name}, accepted {accepted}"));
        }
    }
}

#[test]
fn replays_are_bit_identical() {
    for name in ["tiny_qwen35", "tiny_qwen35_moe"] {
        let ids = reference(name).ids;
        let Some(mut engine) = open(name, Fusion::Layer, false) else { return };
        let first = decoded(&mut engine, &ids[..12], 4);
        let again = decoded(&mut engine, &ids[..12], 4);
        assert!(first == again, "{name}: the same passes give the same bits");
        // A row's sums do not depend on the rows that share its pass.
        for rows in [1, 12] {
            let found = decoded(&mut engine, &ids[..12], rows);
            assert!(first == found, "{name}: nor do they depend on the rows of a pass");
        }
    }
}

#[test]
fn every_access_is_in_bounds_written_and_ordered() {
    for name in ["tiny_qwen35", "tiny_qwen35_moe", "tiny_llama3"] {
        let Reference { ids, logits } = reference(name);
        let Some(mut engine) = open(name, Fusion::Step, true) else { return };
        let vocabulary = engine.vocabulary();
        let found = decoded(&mut engine, &ids[..3], 2);
        assert_close(&found, &logits[..3 * vocabulary], vocabulary, name);
    }
}
