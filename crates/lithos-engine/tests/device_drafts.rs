//! Drafts on programs for graphics processors, in the emulator: the text is that which the device chooses by itself, without drafts.

#[path = "support/scripted.rs"]
mod scripted;
mod support;

use std::fs;
use std::path::Path;

use lithos_engine::{
    Draft, DraftLength, Engine, EngineOptions, Fusion, MOST_DRAFTS, Request, Sampling, TokenId,
};
use scripted::Scripted;
use support::{emulator, folder, opened, repository};

/// A reference checkpoint with a tokenizer, which texts need: that of the built-in model, whose vocabulary is larger.
fn with_tokenizer(name: &str, target: &Path) {
    let tokenizer = repository().join("models/lithos-mini");
    let files = [
        folder(name).join("config.json"),
        folder(name).join("model.safetensors"),
        tokenizer.join("tokenizer.json"),
        tokenizer.join("tokenizer_config.json"),
    ];
    for file in files {
        fs::copy(&file, target.join(file.file_name().expect("a name"))).expect("is copied");
    }
}

/// A text that is certain, one that is drawn, and one whose tokens count. All are of few tokens, so that there is something to copy.
fn requests() -> [Request; 3] {
    let prompt = [5, 9, 101, 44, 17, 160, 9, 101, 44, 17, 160, 9, 101].map(TokenId).to_vec();
    let few = [9, 101, 44, 17, 160].map(|id| (TokenId(id), 30.0)).to_vec();
    let few = Sampling { logit_bias: few, ..Sampling::greedy() };
    let warm = Sampling { temperature: 0.6, seed: Some(11), ..few.clone() };
    let penalised = Sampling { frequency_penalty: 0.4, ..few.clone() };
    [few, warm, penalised].map(|sampling| Request {
        sampling,
        max_tokens: Some(25),
        ignore_end: true,
        ..Request::new(prompt.clone())
    })
}

#[test]
fn texts_with_drafts_are_those_that_the_device_chooses_without() {
    for (name, fusion) in [
        ("tiny_qwen35", Fusion::Step),
        ("tiny_llama3", Fusion::None),
        ("tiny_qwen35_moe", Fusion::Layer),
    ] {
        let model = tempfile::tempdir().expect("a folder");
        with_tokenizer(name, model.path());
        let Some(mut engine) = opened(Engine::open(model.path(), emulator(fusion))) else { return };
        let (mut accepted, mut refused) = (0, 0);
        for request in requests() {
            engine.set_draft(Draft::None, DraftLength::Auto);
            let plain = engine.generate(&request, &mut |_| ()).expect("generates");
            assert!(plain.speculation.is_none());
            let check = |engine: &mut Engine, drafts: &str| {
                let drafted = engine.generate(&request, &mut |_| ()).expect("generates");
                assert_eq!(drafted.tokens, plain.tokens, "{name}, {drafts}, {request:?}");
                let report = drafted.speculation.expect("there is a drafter");
                assert_eq!(report.tokens, report.rounds + report.accepted);
                report
            };
            engine.set_draft(Draft::Copy, DraftLength::Fixed(7));
            let copies = check(&mut engine, "copies");
            accepted += copies.accepted;
            refused += copies.proposed - copies.accepted;
            // Always right, always wrong, right for exactly some, and any of these.
            for right in [Some(MOST_DRAFTS), Some(0), Some(4), None] {
                let drafter = Scripted::new(request.prompt.len(), &plain.tokens, right);
                engine.set_drafter(drafter, DraftLength::Fixed(MOST_DRAFTS));
                let report = check(&mut engine, &format!("{right:?} right"));
                match right {
                    Some(0) => assert_eq!(report.rounds, 24),
                    Some(4) => assert_eq!(report.rounds, 5),
                    Some(_) => assert_eq!(report.rounds, 2),
                    None => assert!(report.accepted > 0),
                }
            }
        }
        assert!(accepted > 0 && refused > 0, "{name}: {accepted}, {refused}");
    }
}

#[test]
fn texts_with_a_drafter_are_those_that_the_device_chooses_without() {
    let model = tempfile::tempdir().expect("a folder");
    with_tokenizer("tiny_qwen35", model.path());
    let drafter = model.path().join("draft");
    fs::create_dir(&drafter).expect("is made");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder("tiny_dspark").join(file), drafter.join(file)).expect("is copied");
    }
    for fusion in [Fusion::Step, Fusion::Mixer] {
        let drafted = EngineOptions { draft: Draft::Dspark, ..emulator(fusion) };
        let [plain, drafted] =
            [emulator(fusion), drafted].map(|options| opened(Engine::open(model.path(), options)));
        let (Some(mut plain), Some(mut engine)) = (plain, drafted) else { return };
        let mut verified = 0;
        for request in requests() {
            let plain = plain.generate(&request, &mut |_| ()).expect("generates");
            for length in [DraftLength::Fixed(7), DraftLength::Auto] {
                engine.set_draft(Draft::Dspark, length);
                let drafted = engine.generate(&request, &mut |_| ()).expect("generates");
                assert_eq!(drafted.tokens, plain.tokens, "{fusion}, {length:?}, {request:?}");
                let report = drafted.speculation.expect("there is a drafter");
                assert_eq!(report.tokens, report.rounds + report.accepted);
                verified += report.proposed;
            }
        }
        assert!(verified > 0, "{fusion}");
    }
}
