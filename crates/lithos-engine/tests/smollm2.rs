//! Real weights: SmolLM2-135M-Instruct from its GGUF file. `scripts/fetch-smollm2` fetches it; where it is absent these tests say so
//! and are skipped, unless `LITHOS_REQUIRE_SMOLLM2` is set, as in CI.

use std::path::{Path, PathBuf};

use lithos_engine::{BackendKind, Engine, EngineOptions, FinishReason, Fusion, Request, TokenId};
use lithos_model::text::{SpecialTokens, TemplateOptions};

fn model() -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("LITHOS_REQUIRE_SMOLLM2").is_none(),
        "{} is absent: run scripts/fetch-smollm2",
        path.display()
    );
    eprintln!("skipped: {} is absent (scripts/fetch-smollm2 fetches it)", path.display());
    None
}

fn open(path: &Path, options: EngineOptions) -> Engine {
    Engine::open(path, EngineOptions { context: Some(2048), ..options }).expect("the model opens")
}

fn ask(engine: &mut Engine, question: &str) -> (String, Vec<TokenId>, FinishReason) {
    let messages = serde_json::json!([{ "role": "user", "content": question }]);
    let options = TemplateOptions { add_generation_prompt: true, ..TemplateOptions::default() };
    let prompt = engine.text().expect("text").encode_chat(&messages, None, &options);
    let request = Request { max_tokens: Some(48), ..Request::new(prompt.expect("encodes")) };
    let completion = engine.generate(&request, &mut |_| ()).expect("generates");
    (completion.text, completion.tokens, completion.finish)
}

#[test]
fn the_capital_of_france_is_paris() {
    let Some(path) = model() else { return };
    let mut answers = Vec::new();
    for fusion in Fusion::ALL {
        let mut engine = open(&path, EngineOptions { fusion, ..EngineOptions::default() });
        let (text, tokens, finish) = ask(&mut engine, "What is the capital of France?");
        assert!(text.contains("Paris"), "{fusion}: {text}");
        assert_eq!(finish, FinishReason::Stop, "{fusion}: ends by itself");
        answers.push(tokens);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "the levels differ");
}

/// Mean negative log-likelihood per token, each token predicted from all before it.
fn mean_loss(engine: &mut Engine, ids: &[TokenId], decode: bool) -> f64 {
    let mut loss = 0.0;
    let mut add = |index: usize, logits: &[f32]| {
        if let Some(next) = ids.get(index + 1) {
            loss -= log_probability(logits, *next);
        }
    };
    let mut sequence = engine.sequence();
    sequence.reset();
    if decode {
        let vocabulary = sequence.decode(&ids[..1]).expect("decodes").len();
        for (start, rows) in ids.chunks(8).enumerate() {
            let logits = sequence.decode(rows).expect("decodes").to_vec();
            for (row, logits) in logits.chunks(vocabulary).enumerate() {
                add(start * 8 + row, logits);
            }
            sequence.accept(rows.len());
        }
    } else {
        sequence.prefill(ids, ids.len(), add).expect("prefills");
    }
    loss / (ids.len() - 1) as f64
}

fn log_probability(logits: &[f32], token: TokenId) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    f64::from(logits[token.index()] - largest) - sum.ln()
}

#[test]
fn perplexity_equals_the_float_path() {
    let Some(path) = model() else { return };
    let text = include_str!("../../../testdata/texts/library.txt");
    let mut cpu = open(&path, EngineOptions::default());
    let ids = cpu.text().expect("text").tokenizer().encode(text, SpecialTokens::AsText);
    let ids = &ids.expect("encodes")[..192];
    let interpreter = EngineOptions { backend: BackendKind::Interpreter, ..Default::default() };
    let float = mean_loss(&mut open(&path, interpreter), ids, false).exp();
    for (what, decode) in [("prefill", false), ("decode", true)] {
        let found = mean_loss(&mut cpu, ids, decode).exp();
        let ratio = found / float;
        eprintln!("{what}: perplexity {found:.4}, float path {float:.4}, ratio {ratio:.5}");
        assert!((ratio - 1.0).abs() < 0.005, "{what}: {found} against {float}");
    }
    assert!((2.0..60.0).contains(&float), "fluent prose, not noise: {float}");
}

#[test]
fn stop_texts_and_limits_end_an_answer() {
    let Some(path) = model() else { return };
    let mut engine = open(&path, EngineOptions::default());
    let prompt = engine.text().expect("text").tokenizer();
    let prompt = prompt.encode("One, two, three, four,", SpecialTokens::AsText).expect("encodes");
    let limited = Request { max_tokens: Some(3), ..Request::new(prompt.clone()) };
    let completion = engine.generate(&limited, &mut |_| ()).expect("generates");
    assert_eq!((completion.tokens.len(), completion.finish), (3, FinishReason::Length));
    let mut streamed = String::new();
    let stopped = Request { stop: vec![",".into()], max_tokens: Some(40), ..limited };
    let completion = engine
        .generate(&stopped, &mut |event| {
            if let lithos_engine::Event::Text(text) = event {
                streamed.push_str(text);
            }
        })
        .expect("generates");
    assert_eq!(completion.finish, FinishReason::Stop);
    assert!(!completion.text.contains(','), "{}", completion.text);
    assert_eq!(streamed, completion.text);
}

#[test]
fn reuse_gives_the_same_answer() {
    let Some(path) = model() else { return };
    let mut engine = open(&path, EngineOptions::default());
    let tokenizer = engine.text().expect("text").tokenizer().clone();
    let encode = |text| tokenizer.encode(text, SpecialTokens::AsText).expect("encodes");
    let sea: Vec<TokenId> = encode("The sea is deep. ").into_iter().cycle().take(300).collect();
    let first = Request { max_tokens: Some(8), reuse: true, ..Request::new(sea.clone()) };
    let completion = engine.generate(&first, &mut |_| ()).expect("generates");
    let longer: Vec<TokenId> = [sea.clone(), completion.tokens, encode(" and")].concat();
    let fresh = Request { max_tokens: Some(12), ..Request::new(longer) };
    let reused = Request { reuse: true, ..fresh.clone() };
    let with = engine.generate(&reused, &mut |_| ()).expect("generates");
    let without = engine.generate(&fresh, &mut |_| ()).expect("generates");
    assert_eq!(with.reused_tokens, 256);
    assert_eq!(without.reused_tokens, 0);
    assert_eq!(with.tokens, without.tokens);
}

#[test]
fn cancelling_ends_within_a_round() {
    let Some(path) = model() else { return };
    let mut engine = open(&path, EngineOptions::default());
    let tokenizer = engine.text().expect("text").tokenizer().clone();
    let prompt = tokenizer.encode("Once upon a time", SpecialTokens::AsText).expect("encodes");
    let request = Request { max_tokens: Some(200), ignore_end: true, ..Request::new(prompt) };
    let cancel = request.cancel.clone();
    let mut pieces = 0;
    let completion = engine
        .generate(&request, &mut |event| {
            if matches!(event, lithos_engine::Event::Text(_)) {
                pieces += 1;
                if pieces == 3 {
                    cancel.cancel();
                }
            }
        })
        .expect("ends in order");
    assert_eq!(completion.finish, FinishReason::Cancelled);
    assert!(completion.tokens.len() < 8, "{} tokens", completion.tokens.len());
    // Cancelled before it began: nothing is generated, and the engine goes on.
    assert!(engine.generate(&request, &mut |_| ()).expect("ends").tokens.is_empty());
    assert!(ask(&mut engine, "What is the capital of France?").0.contains("Paris"));
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_before_any_work() {
    let Some(path) = model() else { return };
    let options = EngineOptions { context: Some(64), ..EngineOptions::default() };
    let mut engine = Engine::open(&path, options).expect("the model opens");
    let request = Request::new(vec![TokenId(28); 64]);
    let mut events = 0;
    let error = engine.generate(&request, &mut |_| events += 1).expect_err("refused");
    assert!(error.is_bad_request());
    assert!(error.to_string().contains("64 tokens"), "{error}");
    assert_eq!(events, 0);
    // One token less leaves room for two: the last one generated is never taken in.
    let request = Request { ignore_end: true, ..Request::new(vec![TokenId(28); 63]) };
    let completion = engine.generate(&request, &mut |_| ()).expect("fits");
    assert_eq!((completion.tokens.len(), completion.finish), (2, FinishReason::Length));
    let beyond = EngineOptions { context: Some(1 << 20), ..EngineOptions::default() };
    let error = Engine::open(&path, beyond).err().expect("refused");
    assert!(error.to_string().contains("8192"), "{error}");
}

#[test]
fn a_seed_repeats_an_answer() {
    let Some(path) = model() else { return };
    let mut engine = open(&path, EngineOptions::default());
    let tokenizer = engine.text().expect("text").tokenizer().clone();
    let prompt = tokenizer.encode("The best thing about", SpecialTokens::AsText).expect("encodes");
    let mut tokens = |seed| {
        let sampling = lithos_engine::Sampling {
            temperature: 0.9,
            top_p: 0.95,
            seed: Some(seed),
            ..lithos_engine::Sampling::greedy()
        };
        let request = Request { sampling, max_tokens: Some(24), ..Request::new(prompt.clone()) };
        engine.generate(&request, &mut |_| ()).expect("generates").tokens
    };
    assert_eq!(tokens(1), tokens(1));
    assert_ne!(tokens(1), tokens(2));
}
