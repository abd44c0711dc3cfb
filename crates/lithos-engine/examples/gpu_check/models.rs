//! Whole models: reference values, greedy text, drafts that are rejected, and many repeats of persistent launches.

use std::path::{Path, PathBuf};

use lithos_engine::{
    Draft, Engine, EngineError, EngineOptions, Fusion, Sampler, Sampling, TokenId, largest,
};
use lithos_format::Checkpoint;
use lithos_model::text::SpecialTokens;

use crate::operations::{judge, poisoned};
use crate::report::{Report, relative_error, same_bits};
use crate::support::{Reference, after_rejection, folder, prefilled, reference, repository};
use crate::{cpu, cuda};

/// Largest difference of a logit from the reference, for F32 weights.
const TOLERANCE: f32 = 2e-4;

/// Greedy tokens that must be those of the CPU.
const GREEDY: usize = 256;

/// Repeats of persistent launches, for each repeat of an operation.
const MORE_REPEATS: usize = 6;

/// Goldens, the built-in model, and SmolLM2 where `LITHOS_SMOLLM2` says where it is.
pub fn check(report: &mut Report, repeats: usize) {
    for name in ["tiny_qwen35", "tiny_qwen35_moe", "tiny_qwen3", "tiny_llama3"] {
        if let Err(error) = golden(report, name, repeats * MORE_REPEATS) {
            report.broken(name, &error.to_string());
        }
    }
    if let Err(error) = block(report) {
        report.broken("tiny_dspark", &error.to_string());
    }
    let mut models = vec![("lithos-mini", repository().join("models/lithos-mini"))];
    if let Some(path) = std::env::var_os("LITHOS_SMOLLM2").filter(|path| !path.is_empty()) {
        models.push(("smollm2", PathBuf::from(path)));
    }
    for (name, path) in models {
        if let Err(error) = greedy_text(report, name, &path, repeats) {
            report.broken(name, &error.to_string());
        }
    }
}

/// Reference values at every level, by prefill, by rows, after rejections; then repeats.
fn golden(report: &mut Report, name: &str, repeats: usize) -> Result<(), EngineError> {
    let Reference { ids, logits } = reference(name);
    let mut engine = Engine::open(&folder(name), cuda(Fusion::None))?;
    let vocabulary = engine.vocabulary();
    let ids = &ids[..40.min(ids.len())];
    let wanted = &logits[..ids.len() * vocabulary];
    for fusion in Fusion::ALL {
        engine.set_fusion(fusion)?;
        let level = fusion.name();
        let found = prefilled(&mut engine, ids);
        let error = relative_error(&found, wanted);
        let case = format!("{name} golden, prefill");
        report.case(&case, 16, level, error, 1, off(&found, wanted, vocabulary));
        let found = poisoned(&mut engine, ids, 5)?;
        let error = relative_error(&found, wanted);
        let case = format!("{name} golden, decode");
        let mut problem = off(&found, wanted, vocabulary);
        for repeat in 1..repeats {
            let again = poisoned(&mut engine, ids, 5)?;
            if problem.is_none() && !same_bits(&found, &again) {
                problem = Some(format!("repeat {repeat} has other bits"));
                break;
            }
        }
        report.case(&case, 5, level, error, repeats, problem);
        for accepted in [0, 1, 5, 8] {
            let (first, found) = after_rejection(&mut engine, ids, accepted, 6);
            let wanted = &logits[first * vocabulary..(first + 6) * vocabulary];
            let case = format!("{name} golden, {accepted} of 8 accepted");
            let error = relative_error(&found, wanted);
            report.case(&case, 8, level, error, 1, off(&found, wanted, vocabulary));
        }
    }
    Ok(())
}

/// A drafter's block at every level, over a context that passes of the model made, against the CPU.
fn block(report: &mut Report) -> Result<(), EngineError> {
    let ids: Vec<TokenId> = (0..40).map(|id| TokenId(id * 11 % 512)).collect();
    let open = |options: EngineOptions| {
        let [target, drafter] = ["tiny_qwen35", "tiny_dspark"]
            .map(|name| Checkpoint::open(&folder(name)).map_err(lithos_model::ModelError::from));
        let options = EngineOptions { draft: Draft::Dspark, ..options };
        Engine::with_drafter(target?, Some(drafter?), options)
    };
    let drafts = |engine: &mut Engine| {
        let Some(head) = engine.draft_head().cloned() else { return Ok(Vec::new()) };
        let mut sequence = engine.sequence();
        sequence.reset();
        sequence.prefill(&ids[..33], 0, |_, _| ())?;
        sequence.decode(&ids[33..])?;
        sequence.accept(3);
        let mut rows = vec![TokenId(head.mask); head.block];
        rows[0] = ids[36];
        Ok::<_, EngineError>(sequence.draft(&rows)?.0.to_vec())
    };
    let wanted = drafts(&mut open(cpu())?)?;
    let mut engine = open(cuda(Fusion::None))?;
    let vocabulary = engine.vocabulary();
    for fusion in Fusion::ALL {
        engine.set_fusion(fusion)?;
        let found = drafts(&mut engine)?;
        let error = relative_error(&found, &wanted);
        let problem = off(&found, &wanted, vocabulary);
        report.case("tiny_dspark, a block after 36 tokens", 7, fusion.name(), error, 1, problem);
    }
    Ok(())
}

/// What is wrong with logits of F32 weights, if anything.
fn off(found: &[f32], wanted: &[f32], vocabulary: usize) -> Option<String> {
    if found.len() != wanted.len() {
        return Some(format!("{} logits instead of {}", found.len(), wanted.len()));
    }
    let rows = found.chunks(vocabulary).zip(wanted.chunks(vocabulary));
    for (row, (found, wanted)) in rows.enumerate() {
        let far = found
            .iter()
            .zip(wanted)
            .map(|(a, b)| (a - b).abs())
            .find(|off| off.is_nan() || *off > TOLERANCE);
        if let Some(far) = far {
            return Some(format!("row {row} is off by {far}"));
        }
        if largest(found) != largest(wanted) {
            return Some(format!("row {row} chooses another token"));
        }
    }
    None
}

/// Greedy text at every level against the CPU's, and the text again and again.
fn greedy_text(
    report: &mut Report,
    name: &str,
    path: &Path,
    repeats: usize,
) -> Result<(), EngineError> {
    let (wanted, leads) = greedy(&mut Engine::open(path, cpu())?)?;
    let mut engine = Engine::open(path, cuda(Fusion::None))?;
    for fusion in Fusion::ALL {
        engine.set_fusion(fusion)?;
        let (found, _) = greedy(&mut engine)?;
        let same = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        let mut problem = (same < GREEDY).then(|| {
            format!("token {same} differs from the CPU's, which led by {:.3}", leads[same])
        });
        let repeats = (repeats / 10).max(2);
        for repeat in 1..repeats {
            if problem.is_none() && greedy(&mut engine)?.0 != found {
                problem = Some(format!("repeat {repeat} has another text"));
            }
        }
        let case = format!("{name}, {GREEDY} greedy tokens");
        report.case(&case, 1, fusion.name(), (GREEDY - same) as f64, repeats, problem);
        own_rounds(report, (name, fusion.name()), &mut engine, &found, repeats)?;
    }
    Ok(())
}

/// Tokens that the card chooses by itself, in visits of several passes with others queued behind them, against those that the host
/// chooses of the same logits: `greedy` ones, and drawn ones with penalties.
fn own_rounds(
    report: &mut Report,
    (name, level): (&str, &str),
    engine: &mut Engine,
    greedy: &[TokenId],
    repeats: usize,
) -> Result<(), EngineError> {
    let drawn = Sampling {
        temperature: 0.8,
        top_k: 20,
        top_p: 0.9,
        repetition_penalty: 1.1,
        seed: Some(7),
        ..Sampling::greedy()
    };
    let drawn_by_host = by_host(engine, &drawn)?;
    for (kind, sampling, wanted) in
        [("greedy", Sampling::greedy(), greedy), ("drawn", drawn, &drawn_by_host)]
    {
        let mut problem = None;
        for (passes, ahead) in [(1, 0), (8, 8), (5, 3)].into_iter().cycle().take(3 * repeats) {
            let found = by_card(engine, &sampling, passes, ahead)?;
            let same = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            if same < GREEDY {
                problem = Some(format!(
                    "token {same} differs from the host's, with {passes} passes a visit and {ahead} ahead"
                ));
                break;
            }
        }
        let case = format!("{name}, {GREEDY} {kind} tokens chosen by the card");
        report.case(&case, 1, level, 0.0, 3 * repeats, problem);
    }
    Ok(())
}

/// Takes in a short prompt but its last token, which is returned, and the prompt.
fn begin(engine: &mut Engine) -> Result<(TokenId, Vec<TokenId>), EngineError> {
    let prompt = prompt(engine);
    let (last, before) = prompt.split_last().ok_or(EngineError::EmptyPrompt)?;
    let mut sequence = engine.sequence();
    sequence.reset();
    sequence.prefill(before, 0, |_, _| ())?;
    Ok((*last, prompt))
}

fn by_host(engine: &mut Engine, sampling: &Sampling) -> Result<Vec<TokenId>, EngineError> {
    let (mut token, prompt) = begin(engine)?;
    let mut sampler = Sampler::new(sampling.clone(), &prompt);
    let mut sequence = engine.sequence();
    let mut tokens = Vec::new();
    while tokens.len() < GREEDY {
        token = sampler.sample(sequence.decode(&[token])?)?;
        sequence.accept(1);
        tokens.push(token);
    }
    Ok(tokens)
}

fn by_card(
    engine: &mut Engine,
    sampling: &Sampling,
    passes: usize,
    ahead: usize,
) -> Result<Vec<TokenId>, EngineError> {
    let (token, prompt) = begin(engine)?;
    let sampler = Sampler::new(sampling.clone(), &prompt);
    let Some(rounds) = sampler.rounds(engine.vocabulary(), &[], GREEDY) else {
        return Ok(Vec::new());
    };
    let mut sequence = engine.sequence();
    sequence.begin_rounds(&[token], &rounds)?;
    let mut tokens = Vec::new();
    loop {
        let visit = sequence.rounds(passes, ahead)?;
        tokens.extend(visit.tokens);
        if visit.ended || tokens.len() >= GREEDY {
            tokens.extend(sequence.end_rounds()?);
            return Ok(tokens);
        }
    }
}

fn prompt(engine: &Engine) -> Vec<TokenId> {
    match engine.text() {
        Ok(text) => text
            .tokenizer()
            .encode("The weather in the mountains", SpecialTokens::AsText)
            .unwrap_or_default(),
        Err(_) => (1..9).map(TokenId).collect(),
    }
}

/// Greedy tokens after a short prompt, and by how much each led.
fn greedy(engine: &mut Engine) -> Result<(Vec<TokenId>, Vec<f32>), EngineError> {
    let prompt = prompt(engine);
    let mut sequence = engine.sequence();
    sequence.reset();
    let mut last = Vec::new();
    sequence.prefill(&prompt, 1, |_, row| last = row.to_vec())?;
    let (mut tokens, mut leads) = (Vec::new(), Vec::new());
    while tokens.len() < GREEDY {
        let token = largest(&last);
        let others = last.iter().enumerate().filter(|(index, _)| *index != token.index());
        let second = others.map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
        tokens.push(token);
        leads.push(last[token.index()] - second);
        last = sequence.decode(&[token])?.to_vec();
        sequence.accept(1);
    }
    Ok((tokens, leads))
}

/// Published shapes with random weights, against the CPU: extents and formats as in real checkpoints.
pub fn check_synthetic(report: &mut Report, seed: u64, repeats: usize) {
    for name in [
        "tiny-hybrid-nvfp4",
        "tiny-moe-nvfp4",
        "tiny-llama-int4",
        "qwen3-0.6b-bf16",
        "qwen3-0.6b-fp8",
        "smollm2-135m-int4",
        "qwen3.5-0.8b-nvfp4",
    ] {
        if let Err(error) = synthetic(report, name, seed, repeats.min(20)) {
            report.broken(name, &error.to_string());
        }
    }
}

fn synthetic(
    report: &mut Report,
    name: &str,
    seed: u64,
    repeats: usize,
) -> Result<(), EngineError> {
    let full = format!("synthetic:{name}?seed={}", seed % 1_000_000);
    let open = |options: EngineOptions| {
        let checkpoint: Checkpoint = lithos_synthetic::open(&full).expect("a known shape");
        Engine::from_checkpoint(checkpoint, options)
    };
    let mut oracle = open(cpu())?;
    let vocabulary = oracle.vocabulary();
    let ids: Vec<TokenId> = (0..33u64)
        .map(|index| {
            let mixed = (seed ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            TokenId((mixed % vocabulary as u64) as u32)
        })
        .collect();
    let wanted = prefilled(&mut oracle, &ids);
    drop(oracle);
    let mut engine = open(cuda(Fusion::None))?;
    let mut reference: Option<Vec<f32>> = None;
    for fusion in Fusion::ALL {
        engine.set_fusion(fusion)?;
        for rows in [1, 8, 16] {
            let first = poisoned(&mut engine, &ids, rows)?;
            let error = relative_error(&first, &wanted);
            let mut problem = judge(&first, &wanted, vocabulary, error);
            for repeat in 1..repeats {
                let again = poisoned(&mut engine, &ids, rows)?;
                if problem.is_none() && !same_bits(&first, &again) {
                    problem = Some(format!("repeat {repeat} has other bits"));
                    break;
                }
            }
            let reference = reference.get_or_insert_with(|| first.clone());
            if problem.is_none() && !same_bits(reference, &first) {
                let off = relative_error(&first, reference);
                problem = Some(format!("other bits than 1 row at none ({off:.1e})"));
            }
            report.case(&full, rows, fusion.name(), error, repeats, problem);
        }
    }
    Ok(())
}
