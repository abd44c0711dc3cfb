//! Whole generations whose tokens a device chooses by itself, in the emulator, against the CPU's, where the host chooses pass by pass:
//! tokens, text and end are the same.

mod support;
#[path = "support/with_text.rs"]
mod with_text;

use std::path::Path;

use lithos_emulator::EmulatorError;
use lithos_engine::{
    BackendKind, Cancel, Completion, Engine, EngineError, EngineOptions, Event, FinishReason,
    Fusion, Request, Sampling, TokenId,
};
use support::{cpu, reference};
use with_text::model_with_text;

fn emulator(model: &Path) -> Option<Engine> {
    let options = EngineOptions { backend: BackendKind::Emulator, ..cpu(Fusion::Step) };
    let required = std::env::var_os("LITHOS_REQUIRE_CLANG").is_some();
    match Engine::open(model, options) {
        Ok(engine) => Some(engine),
        Err(EngineError::Emulator(error @ EmulatorError::NoCompiler { .. })) if !required => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("opens: {error}"),
    }
}

/// What a generation comes to, and the texts that it handed out.
fn generated(
    engine: &mut Engine,
    request: &Request,
    cancel_after: usize,
) -> (Completion, Vec<String>) {
    let mut texts = Vec::new();
    let cancel = request.cancel.clone();
    let completion = engine
        .generate(request, &mut |event| {
            if let Event::Text(text) = event {
                texts.push(text.to_owned());
                if texts.len() == cancel_after {
                    cancel.cancel();
                }
            }
        })
        .expect("generates");
    (completion, texts)
}

/// The generation on both sides; asserts that they are the same.
fn same(engines: &mut [Engine; 2], request: &Request, cancel_after: usize) -> Completion {
    let [device, host] = engines;
    let fresh = |request: &Request| Request { cancel: Cancel::default(), ..request.clone() };
    let (found, found_texts) = generated(device, &fresh(request), cancel_after);
    let (wanted, wanted_texts) = generated(host, &fresh(request), cancel_after);
    assert_eq!(found.tokens, wanted.tokens);
    assert_eq!((found.text, found.finish), (wanted.text.clone(), wanted.finish));
    assert_eq!(found_texts, wanted_texts);
    wanted
}

fn engines(model: &Path) -> Option<[Engine; 2]> {
    let host = Engine::open(model, cpu(Fusion::Step)).expect("opens");
    Some([emulator(model)?, host])
}

#[test]
fn limits_stop_texts_and_cancellation_end_both_alike() {
    let model = model_with_text("tiny_qwen35", &[]);
    let Some(mut engines) = engines(model.path()) else { return };
    let sampling = Sampling { temperature: 1.5, seed: Some(2), ..Sampling::greedy() };
    let prompt = reference("tiny_qwen35").ids[..7].to_vec();
    for sampling in [Sampling::greedy(), Sampling { top_k: 9, ..sampling.clone() }, sampling] {
        let request = Request { sampling, max_tokens: Some(29), ..Request::new(prompt.clone()) };
        let all = same(&mut engines, &request, 0);
        assert_eq!((all.tokens.len(), all.finish), (29, FinishReason::Length));
        for limit in [0, 1, 2, 8, 9, 10] {
            let limited =
                same(&mut engines, &Request { max_tokens: Some(limit), ..request.clone() }, 0);
            assert_eq!(limited.tokens, all.tokens[..limit]);
        }
        // A text in the middle of a visit.
        let middle: String = all.text.chars().skip(all.text.chars().count() / 2).take(3).collect();
        let stopped = same(&mut engines, &Request { stop: vec![middle], ..request.clone() }, 0);
        assert_eq!(stopped.finish, FinishReason::Stop);
        let cancelled = same(&mut engines, &request, 4);
        assert_eq!(cancelled.finish, FinishReason::Cancelled);
        assert!(cancelled.tokens.len() < 29);
    }
}

#[test]
fn end_tokens_end_both_alike() {
    let prompt = reference("tiny_qwen3").ids[..7].to_vec();
    let hot = Sampling { temperature: 2.0, seed: Some(5), ..Sampling::greedy() };
    let request = Request { sampling: hot, max_tokens: Some(30), ..Request::new(prompt.clone()) };
    let endless = model_with_text("tiny_qwen3", &[]);
    let Some(mut without) = engines(endless.path()) else { return };
    let all = same(&mut without, &request, 0).tokens;
    let model = model_with_text("tiny_qwen3", &[TokenId(511), all[20], all[13]]);
    let mut both = engines(model.path()).expect("there is clang");
    let ended = same(&mut both, &request, 0);
    let first = all.iter().position(|token| [all[20], all[13]].contains(token)).expect("listed");
    assert_eq!((ended.finish, ended.tokens.len()), (FinishReason::Stop, first + 1));
    assert_eq!(same(&mut both, &Request { ignore_end: true, ..request.clone() }, 0).tokens, all);
    // The device took in what was chosen before the end token, and no more.
    same(&mut both, &request, 0);
    let next = [&prompt[..], &ended.tokens, &prompt[..3]].concat();
    same(&mut both, &Request { prompt: next, ..request }, 0);
}

#[test]
fn the_end_of_the_context_ends_it() {
    let model = model_with_text("tiny_llama3", &[]);
    let short = |backend| EngineOptions { backend, context: Some(70), ..cpu(Fusion::Step) };
    if emulator(model.path()).is_none() {
        return;
    }
    let open = |backend| Engine::open(model.path(), short(backend)).expect("opens");
    let mut engines = [open(BackendKind::Emulator), open(BackendKind::Cpu)];
    let prompt = reference("tiny_llama3").ids[..40].to_vec();
    let all = same(&mut engines, &Request::new(prompt), 0);
    assert_eq!((all.tokens.len(), all.finish), (31, FinishReason::Length));
}
