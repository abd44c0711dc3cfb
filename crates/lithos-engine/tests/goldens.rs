//! Both backends against reference values of an independent implementation: at every fusion level, in any chunking, as passes of
//! several rows, and after rolling back to any accepted prefix.

mod support;

use lithos_engine::{Engine, EngineOptions, Fusion, Isa, MAX_DECODE_ROWS, largest};
use support::{
    Reference, after_rejection, cpu, decoded, folder, interpreter, prefilled, reference,
};

const F32_FAMILIES: [&str; 4] = ["tiny_qwen35", "tiny_qwen35_moe", "tiny_qwen3", "tiny_llama3"];

/// Largest difference of a logit from the reference, for F32 weights.
const TOLERANCE: f32 = 2e-4;

fn open(name: &str, options: EngineOptions) -> Engine {
    Engine::open(&folder(name), options).expect("the model opens")
}

fn every_backend() -> Vec<EngineOptions> {
    let mut options: Vec<_> = Fusion::ALL.into_iter().map(cpu).collect();
    options.push(interpreter());
    options
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
        assert!(found.iter().all(|logit| logit.is_finite()), "{what}: row {row} is not finite");
        assert_eq!(largest(found), largest(wanted), "{what}: greedy token of row {row}");
    }
}

#[test]
fn prefill_in_any_chunking() {
    for name in F32_FAMILIES {
        let Reference { ids, logits } = reference(name);
        for options in every_backend() {
            for chunk in [1, 3, 8, 16, 17, 64, 100, 256] {
                let options = EngineOptions { chunk: Some(chunk), ..options };
                let mut engine = open(name, options);
                let vocabulary = engine.vocabulary();
                let what = format!("{name}, {} {}, chunk {chunk}", options.backend, options.fusion);
                assert_close(&prefilled(&mut engine, &ids), &logits, vocabulary, &what);
            }
        }
    }
}

#[test]
fn decode_in_passes_of_any_rows() {
    for name in F32_FAMILIES {
        let Reference { ids, logits } = reference(name);
        for options in every_backend() {
            let mut engine = open(name, options);
            let vocabulary = engine.vocabulary();
            for rows in [1, 2, 5, 8, 16] {
                let what = format!("{name}, {} {}, {rows} rows", options.backend, options.fusion);
                assert_close(&decoded(&mut engine, &ids, rows), &logits, vocabulary, &what);
            }
        }
    }
}

#[test]
fn prefill_then_one_pass_of_eight_rows() {
    for name in F32_FAMILIES {
        let Reference { ids, logits } = reference(name);
        for options in every_backend() {
            let mut engine = open(name, options);
            let vocabulary = engine.vocabulary();
            for prompt in [1, 17, 31, 40] {
                let mut sequence = engine.sequence();
                sequence.reset();
                sequence.prefill(&ids[..prompt], 0, |_, _| ()).expect("prefill runs");
                let rows = sequence.decode(&ids[prompt..prompt + 8]).expect("decode runs").to_vec();
                let wanted = &logits[prompt * vocabulary..(prompt + 8) * vocabulary];
                let what = format!("{name}, {} {}, {prompt} + 8", options.backend, options.fusion);
                assert_close(&rows, wanted, vocabulary, &what);
            }
        }
    }
}

#[test]
fn a_rejected_suffix_leaves_no_trace() {
    for name in F32_FAMILIES {
        let Reference { ids, logits } = reference(name);
        for options in [cpu(Fusion::None), cpu(Fusion::Step), interpreter()] {
            let mut engine = open(name, options);
            let vocabulary = engine.vocabulary();
            for accepted in 0..=8usize {
                let (first, found) = after_rejection(&mut engine, &ids, accepted, 12);
                let wanted = &logits[first * vocabulary..(first + 12) * vocabulary];
                let what =
                    format!("{name}, {} {}, accepted {accepted}", options.backend, options.fusion);
                assert_close(&found, wanted, vocabulary, &what);
            }
        }
    }
}

#[test]
fn a_rows_bits_do_not_depend_on_its_pass() {
    for name in F32_FAMILIES.into_iter().chain(["tiny_qwen35_bf16"]) {
        let ids = reference(name).ids;
        let alone = decoded(&mut open(name, cpu(Fusion::None)), &ids, 1);
        for (fusion, rows) in
            [(Fusion::Step, 1), (Fusion::Layer, 4), (Fusion::Mixer, 8), (Fusion::None, 16)]
        {
            assert!(rows <= MAX_DECODE_ROWS);
            let found = decoded(&mut open(name, cpu(fusion)), &ids, rows);
            assert!(alone == found, "{name}: {rows} rows at {fusion} give other bits than one");
        }
    }
}

#[test]
fn every_instruction_set_agrees() {
    for name in F32_FAMILIES {
        let Reference { ids, logits } = reference(name);
        for isa in Isa::available() {
            let options = EngineOptions { isa: Some(isa), ..cpu(Fusion::Step) };
            let mut engine = open(name, options);
            let vocabulary = engine.vocabulary();
            let what = format!("{name} on {}", isa.name());
            assert_close(&prefilled(&mut engine, &ids), &logits, vocabulary, &what);
            assert_close(&decoded(&mut engine, &ids, 8), &logits, vocabulary, &what);
        }
    }
}

#[test]
fn bf16_weights_point_the_same_way() {
    let name = "tiny_qwen35_bf16";
    let Reference { ids, logits } = reference(name);
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    for options in every_backend() {
        let mut engine = open(name, options);
        let vocabulary = engine.vocabulary();
        for found in [prefilled(&mut engine, &ids), decoded(&mut engine, &ids, 8)] {
            for (found, wanted) in found.chunks(vocabulary).zip(logits.chunks(vocabulary)) {
                let cosine = dot(found, wanted) / (dot(found, found) * dot(wanted, wanted)).sqrt();
                assert!(cosine > 0.999, "{} {}: {cosine}", options.backend, options.fusion);
            }
        }
    }
}

#[test]
fn replays_are_bit_identical() {
    let ids = reference("tiny_qwen35").ids;
    let mut engine = open("tiny_qwen35", cpu(Fusion::Step));
    let first = prefilled(&mut engine, &ids);
    for _ in 0..20 {
        assert!(first == prefilled(&mut engine, &ids), "a replay gives other bits");
    }
}
