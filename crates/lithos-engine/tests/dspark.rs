//! DSpark drafts: the values of the reference implementation, and texts that are those without drafts.

mod support;

use lithos_engine::{
    Draft, DraftLength, Drafter, Dspark, Engine, EngineError, EngineOptions, Fusion, Request,
    Sampling, TokenId,
};
use lithos_format::Checkpoint;
use lithos_model::text::TemplateOptions;
use support::{cpu, decoded, emulator, folder, opened, prefilled, repository};

fn open(options: EngineOptions) -> Result<Engine, EngineError> {
    let [target, drafter] =
        ["tiny_qwen35", "tiny_dspark"].map(|name| Checkpoint::open(&folder(name)).expect("opens"));
    Engine::with_drafter(target, Some(drafter), options)
}

fn with_drafter(fusion: Fusion) -> Engine {
    open(cpu(fusion)).expect("the drafter fits")
}

#[test]
fn rounds_are_those_of_the_reference() {
    let file = folder("tiny_dspark").join("reference.safetensors");
    let stored = Checkpoint::open_safetensors_file(&file).expect("the reference opens");
    let values = |name: &str| stored.tensor(name).expect(name).to_f32().expect("decodes");
    let ids: Vec<TokenId> = values("ids").into_iter().map(|id| TokenId(id as u32)).collect();
    let on_processor = Fusion::ALL.map(cpu);
    // A drafter's context and block are kernels, too.
    let on_device = [Fusion::None, Fusion::Layer, Fusion::Step].map(emulator);
    for options in on_processor.into_iter().chain(on_device) {
        let Some(mut engine) = opened(open(options)) else { continue };
        let fusion = format!("{}, {}", options.backend, options.fusion);
        let head = engine.draft_head().expect("has a drafter").clone();
        let (vocabulary, width) = (engine.vocabulary(), head.hidden());
        let mut drafter = Dspark::new(head.clone());
        let mut sequence = engine.sequence();
        sequence.reset();
        // The context by prefill, then by decode passes of which a row is refused.
        sequence.prefill(&ids[..50], 0, |_, _| ()).expect("prefill runs");
        for (round, (from, to)) in [(50, 50), (50, 53), (53, 54)].into_iter().enumerate() {
            if from < to {
                let refused = [&ids[from..to], &[TokenId(9)]].concat();
                sequence.decode(&refused).expect("decode runs");
                sequence.accept(to - from);
            }
            let wanted = |name: &str| values(&format!("r{round}.{name}"));
            let mut block = vec![TokenId(head.mask); head.block];
            block[0] = ids[to];
            let (logits, rows) = sequence.draft(&block).expect("the block runs");
            let tokens: Vec<u32> = wanted("tokens").into_iter().map(|id| id as u32).collect();
            let befores = [ids[to].0].into_iter().chain(tokens.iter().copied());
            let (norm, epsilon) = &head.norm;
            for (place, before) in befores.take(head.block).enumerate() {
                let row = &rows[place * width..][..width];
                let mean = row.iter().map(|x| x * x).sum::<f32>() / width as f32;
                let factor = (mean + epsilon).sqrt().recip();
                for ((x, w), wanted) in row.iter().zip(norm).zip(&wanted("hidden")[place * width..])
                {
                    assert!((x * factor * w - wanted).abs() < 1e-4, "{fusion}, {round}, {place}");
                }
                let vector = head.markov_vector(before);
                let logits = &logits[place * vocabulary..][..vocabulary];
                let corrected = logits
                    .iter()
                    .zip(0u32..)
                    .map(|(logit, token)| logit + head.markov_bias(vector, token));
                for (corrected, wanted) in corrected.zip(&wanted("logits")[place * vocabulary..]) {
                    assert!((corrected - wanted).abs() < 2e-4, "{fusion}, {round}, {place}");
                }
            }
            drafter.begin(&[ids[to]]);
            let proposal = drafter.propose(&mut sequence, head.block).expect("proposes");
            let proposed: Vec<u32> = proposal.tokens.iter().map(|token| token.0).collect();
            assert_eq!(proposed, tokens, "{fusion}, round {round}");
            let mut survival = 1.0;
            for (found, confidence) in proposal.survival.iter().zip(wanted("conf")) {
                survival *= f64::from(confidence);
                assert!((found - survival).abs() < 1e-4, "{fusion}, round {round}");
            }
        }
    }
}

#[test]
fn a_drafters_context_changes_no_logits() {
    let ids: Vec<TokenId> = (0..40).map(|id| TokenId(id * 11 % 512)).collect();
    for fusion in Fusion::ALL {
        let mut engine = with_drafter(fusion);
        let mut without = Engine::open(&folder("tiny_qwen35"), cpu(fusion)).expect("opens");
        assert_eq!(prefilled(&mut engine, &ids), prefilled(&mut without, &ids), "{fusion}");
        for rows in [1, 5] {
            let [with, without] = [&mut engine, &mut without].map(|e| decoded(e, &ids, rows));
            assert_eq!(with, without, "{fusion}, {rows} rows");
        }
    }
}

#[test]
fn a_drafter_of_another_model_is_refused_by_name() {
    let open = |target: &str| {
        let [target, drafter] =
            [target, "tiny_dspark"].map(|name| Checkpoint::open(&folder(name)).expect("opens"));
        let error = Engine::with_drafter(target, Some(drafter), cpu(Fusion::Step)).err();
        error.expect("does not fit").to_string()
    };
    let error = open("tiny_qwen3");
    assert!(error.contains("tiny_dspark") && error.contains("layers"), "{error}");
    let mini = Checkpoint::open(&repository().join("models/lithos-mini/draft")).expect("opens");
    let target = Checkpoint::open(&folder("tiny_qwen35")).expect("opens");
    let error = Engine::with_drafter(target, Some(mini), cpu(Fusion::Step)).err();
    let error = error.expect("does not fit").to_string();
    assert!(error.contains("vocabulary of 8192") && error.contains("512"), "{error}");
    let options = EngineOptions { draft: Draft::Dspark, ..cpu(Fusion::Step) };
    let error = Engine::open(&folder("tiny_qwen35"), options).err().expect("has none").to_string();
    assert!(error.contains("no drafter"), "{error}");
}

#[test]
fn the_built_in_models_text_is_that_without_drafts() {
    let options = EngineOptions { draft: Draft::Dspark, ..cpu(Fusion::Step) };
    let folder = repository().join("models/lithos-mini");
    let mut engine = Engine::open(&folder, options).expect("opens");
    let mut without = Engine::open(&folder, cpu(Fusion::Step)).expect("opens");
    let messages = serde_json::json!([{"role": "user", "content": "What is a bicycle?"}]);
    let options = TemplateOptions { add_generation_prompt: true, ..TemplateOptions::default() };
    let text = engine.text().expect("has text");
    let prompt = text.encode_chat(&messages, None, &options).expect("encodes");
    let warm = Sampling { temperature: 0.8, min_p: 0.05, seed: Some(3), ..Sampling::greedy() };
    for sampling in [Sampling::greedy(), warm] {
        let request = Request {
            sampling,
            max_tokens: Some(48),
            ignore_end: true,
            ..Request::new(prompt.clone())
        };
        let plain = without.generate(&request, &mut |_| ()).expect("generates");
        assert!(plain.speculation.is_none());
        for (draft, length) in [
            (Draft::Dspark, DraftLength::Fixed(7)),
            (Draft::Dspark, DraftLength::Auto),
            (Draft::Auto, DraftLength::Fixed(4)),
        ] {
            engine.set_draft(draft, length);
            let drafted = engine.generate(&request, &mut |_| ()).expect("generates");
            assert_eq!(drafted.tokens, plain.tokens, "{draft}, {length:?}");
            let report = drafted.speculation.expect("there is a drafter");
            assert_eq!(report.tokens, report.rounds + report.accepted);
            if length == DraftLength::Fixed(7) {
                assert!(report.accepted >= 5, "{report:?}");
            }
        }
    }
}
