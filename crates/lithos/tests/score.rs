//! `lithos score`: logits against an independent implementation, and how a text is scored.

mod support;

use std::fs;
use std::path::Path;

use lithos_model::text::{SpecialTokens, Tokenizer};
use support::{Run, golden, run, run_with, tensor, text_model};

/// Largest difference of a logit from the reference, for F32 weights.
const TOLERANCE: f32 = 2e-4;

fn reference_ids(name: &str) -> Vec<String> {
    let (ids, _) = tensor(&golden(name).join("reference.safetensors"), "ids");
    ids.iter().map(|id| format!("{id:.0}")).collect()
}

/// Scores the reference's ids and returns what was printed, the logits and their shape.
fn score_ids(name: &str, flags: &[&str]) -> (String, Vec<f32>, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("logits.safetensors");
    let model = golden(name);
    let ids = reference_ids(name).join(",");
    let mut args = vec!["score", model.to_str().unwrap(), "--ids", &ids, "--threads", "2"];
    args.extend(["--logits", file.to_str().unwrap()]);
    args.extend(flags);
    let printed = run(&args).ok();
    let (logits, shape) = tensor(&file, "logits");
    (printed, logits, shape)
}

fn ways() -> Vec<Vec<&'static str>> {
    let mut ways: Vec<Vec<&str>> =
        ["none", "mixer", "layer", "step"].map(|level| vec!["--fusion", level]).to_vec();
    ways.push(vec!["--backend", "interpreter"]);
    ways.push(vec!["--chunk", "7"]);
    ways.push(vec!["--chunk", "7", "--backend", "interpreter"]);
    ways
}

#[test]
fn logits_equal_the_reference_in_every_way() {
    for name in ["tiny_qwen35", "tiny_qwen3", "tiny_llama3"] {
        let (wanted, shape) = tensor(&golden(name).join("reference.safetensors"), "logits");
        for way in ways() {
            let (_, found, found_shape) = score_ids(name, &way);
            assert_eq!(found_shape, shape, "{name} {way:?}");
            let difference =
                found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
            assert!(found.iter().all(|logit| logit.is_finite()), "{name} {way:?}");
            assert!(difference <= TOLERANCE, "{name} {way:?}: off by {difference}");
        }
    }
}

#[test]
fn bf16_logits_point_where_the_reference_does() {
    let name = "tiny_qwen35_bf16";
    let (wanted, shape) = tensor(&golden(name).join("reference.safetensors"), "logits");
    for way in ways() {
        let (_, found, found_shape) = score_ids(name, &way);
        assert_eq!(found_shape, shape, "{way:?}");
        for (found, wanted) in found.chunks(shape[1]).zip(wanted.chunks(shape[1])) {
            let product = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let lengths = (product(found, found) * product(wanted, wanted)).sqrt();
            assert!(product(found, wanted) / lengths > 0.999, "{way:?}");
        }
    }
}

#[test]
fn the_top_five_are_the_largest_logits() {
    let (printed, logits, shape) = score_ids("tiny_llama3", &[]);
    let ids = reference_ids("tiny_llama3");
    let mut lines = printed.lines();
    for (row, id) in logits.chunks(shape[1]).zip(&ids) {
        let head = lines.next().unwrap();
        assert_eq!(head.split_whitespace().last(), Some(id.as_str()), "{head}");
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        for id in &order[..5] {
            let line = lines.next().unwrap();
            let wanted = [format!("{:.4}", row[*id]), id.to_string()];
            assert_eq!(line.split_whitespace().collect::<Vec<_>>(), wanted);
        }
    }
    assert_eq!(lines.next(), None);
}

fn write_text(folder: &Path) -> String {
    let text = "The north wind and the sun argued which of them was the stronger. ".repeat(12);
    fs::write(folder.join("text.txt"), &text).unwrap();
    text
}

fn score_text(model: &Path, flags: &[&str]) -> Run {
    let file = model.join("text.txt");
    let mut args = vec!["score", model.to_str().unwrap(), "--text", file.to_str().unwrap()];
    args.extend(flags);
    run(&args)
}

#[test]
fn a_text_is_scored_the_same_in_every_way() {
    let model = text_model();
    let text = write_text(model.path());
    let first = score_text(model.path(), &["--json"]).json();
    let perplexity = first["perplexity"].as_f64().unwrap();
    let (tokens, bytes) = (first["tokens"].as_f64().unwrap(), first["bytes"].as_f64().unwrap());
    // Bits per byte and perplexity are one sum over different counts.
    let bits = first["bits_per_byte"].as_f64().unwrap();
    assert!((perplexity.log2() * tokens / bytes - bits).abs() < 1e-9);
    assert_eq!(first["text_bytes"].as_u64(), Some(text.len() as u64));
    assert_eq!(first["tokens"].as_u64().unwrap() + 1, first["text_tokens"].as_u64().unwrap());
    for way in ways() {
        let flags = [&["--json"][..], &way].concat();
        let other = score_text(model.path(), &flags).json();
        let difference = (other["perplexity"].as_f64().unwrap() / perplexity - 1.0).abs();
        assert!(difference < 1e-4, "{way:?}: off by {difference}");
    }
    let printed = score_text(model.path(), &[]).ok();
    assert!(printed.contains(&format!("{perplexity:.4}")), "{printed}");
    // The same bytes by way of standard input.
    let args = ["score", model.path().to_str().unwrap(), "--text", "-", "--json"];
    assert_eq!(run_with(&args, text.as_bytes()).json()["perplexity"], first["perplexity"]);
}

#[test]
fn perplexity_is_that_of_the_logits() {
    let model = text_model();
    let text = "Who was the stronger of the two?";
    fs::write(model.path().join("text.txt"), text).unwrap();
    let scored = score_text(model.path(), &["--json"]).json();
    let tokenizer = Tokenizer::from_file(&model.path().join("tokenizer.json")).unwrap();
    let ids = tokenizer.encode(text, SpecialTokens::AsText).unwrap();
    let list = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let file = model.path().join("logits.safetensors");
    let (folder, out) = (model.path().to_str().unwrap(), file.to_str().unwrap());
    run(&["score", folder, "--ids", &list, "--logits", out]).ok();
    let (logits, shape) = tensor(&file, "logits");
    let mut surprise = 0.0;
    for (row, next) in logits.chunks(shape[1]).zip(&ids[1..]) {
        let total: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        surprise += total.ln() - f64::from(row[next.index()]);
    }
    let wanted = (surprise / (ids.len() - 1) as f64).exp();
    let found = scored["perplexity"].as_f64().unwrap();
    assert!((found / wanted - 1.0).abs() < 1e-5, "{found} against {wanted}");
    assert_eq!(scored["text_tokens"], ids.len());
}

#[test]
fn windows_start_afresh() {
    let model = text_model();
    write_text(model.path());
    let whole = score_text(model.path(), &["--json"]).json();
    let cut = score_text(model.path(), &["--json", "--window", "32"]).json();
    let windows = cut["windows"].as_u64().unwrap();
    assert_eq!(windows, whole["text_tokens"].as_u64().unwrap().div_ceil(32));
    // The first token of each window has nothing to be predicted from.
    assert_eq!(cut["tokens"].as_u64().unwrap() + windows, cut["text_tokens"].as_u64().unwrap());
}

#[test]
fn exactly_one_thing_is_scored() {
    let model = golden("tiny_llama3");
    let model = model.to_str().unwrap();
    for args in [vec!["score", model], vec!["score", model, "--ids", "1", "--text", "x"]] {
        assert_eq!(run(&args).code, Some(2));
    }
    run(&["score", model, "--ids", "1,512"]).refused(&["512", "vocabulary"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.txt");
    let args = ["score", model, "--text", file.to_str().unwrap()];
    run(&args).refused(&["text.txt"]);
    fs::write(&file, b"ab\xff").unwrap();
    run(&args).refused(&["text.txt", "UTF-8", "byte 2"]);
    fs::write(&file, "text").unwrap();
    run(&args).refused(&["tokenizer.json"]);
}
