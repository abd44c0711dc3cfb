//! Drafts of multi-token prediction layers: the values of the reference, and texts that are those without drafts.

mod support;
#[path = "support/torch_random.rs"]
mod torch_random;

use std::path::Path;

use lithos_engine::{
    Completion, Draft, DraftLength, Engine, EngineOptions, Further, Fusion, Proposals, Request,
    Sampling, TokenId,
};
use lithos_format::{Checkpoint, OwnedTensor, write_safetensors};
use lithos_model::text::TemplateOptions;
use support::{cpu, emulator, folder, opened, repository};
use torch_random::Generator;

const WIDTH: usize = 128;

/// The layer of `tiny_mtp`: drawn in this order, with a deviation of one by the root of the columns, norms with 0.1.
fn layer() -> Vec<OwnedTensor> {
    let layer = |name: &str| format!("mtp.layers.0.{name}.weight");
    let shapes: [(String, &[usize]); 15] = [
        (layer("self_attn.q_proj"), &[512, WIDTH]),
        (layer("self_attn.k_proj"), &[WIDTH, WIDTH]),
        (layer("self_attn.v_proj"), &[WIDTH, WIDTH]),
        (layer("self_attn.o_proj"), &[WIDTH, 256]),
        (layer("self_attn.q_norm"), &[64]),
        (layer("self_attn.k_norm"), &[64]),
        (layer("mlp.gate_proj"), &[256, WIDTH]),
        (layer("mlp.up_proj"), &[256, WIDTH]),
        (layer("mlp.down_proj"), &[WIDTH, 256]),
        (layer("input_layernorm"), &[WIDTH]),
        (layer("post_attention_layernorm"), &[WIDTH]),
        ("mtp.fc.weight".into(), &[WIDTH, 2 * WIDTH]),
        ("mtp.pre_fc_norm_embedding.weight".into(), &[WIDTH]),
        ("mtp.pre_fc_norm_hidden.weight".into(), &[WIDTH]),
        ("mtp.norm.weight".into(), &[WIDTH]),
    ];
    let mut generator = Generator::new(4);
    let draw = |(name, shape): &(String, &[usize])| {
        let scale = if shape.len() == 1 { 0.1 } else { (shape[1] as f32).sqrt().recip() };
        let values = generator.normal(shape.iter().product());
        let values: Vec<f32> = values.into_iter().map(|value| value * scale).collect();
        OwnedTensor::from_f32(name, shape, &values)
    };
    shapes.iter().map(draw).collect()
}

/// `tiny_qwen35` with that layer.
fn target(scratch: &Path) -> Checkpoint {
    let layer = layer();
    let entries: Vec<_> = layer.iter().map(OwnedTensor::entry).collect();
    let file = scratch.join("mtp.safetensors");
    write_safetensors(&file, &entries).expect("writes");
    let layer = Checkpoint::open_safetensors_file(&file).expect("opens");
    let target = Checkpoint::open(&folder("tiny_qwen35")).expect("opens");
    target.with_part("", layer).expect("has no layer yet")
}

#[test]
fn predictions_are_those_of_the_reference_however_the_context_came_about() {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = folder("tiny_mtp").join("reference.safetensors");
    let stored = Checkpoint::open_safetensors_file(&file).expect("the reference opens");
    let values = |name: &str| stored.tensor(name).expect(name).to_f32().expect("decodes");
    let ids: Vec<TokenId> = values("ids").into_iter().map(|id| TokenId(id as u32)).collect();
    let (hidden, last_logits) = (values("mtp_hidden.last"), values("mtp_logits.last"));
    for options in [
        cpu(Fusion::Step),
        EngineOptions { chunk: Some(7), ..cpu(Fusion::None) },
        cpu(Fusion::Layer),
        // The layer is kernels, too.
        emulator(Fusion::Step),
    ] {
        let options = EngineOptions { draft: Draft::Mtp, ..options };
        let fusion = format!("{}, {}", options.backend, options.fusion);
        let engine = Engine::from_checkpoint(target(scratch.path()), options);
        let Some(mut engine) = opened(engine) else { continue };
        let vocabulary = engine.vocabulary();
        let mut sequence = engine.sequence();
        let (mut rows_compared, mut logits_compared) = (0, 0);
        // By prefill up to some token, then by decode passes, of each of which rows are refused.
        for start in [1, 2, 16, 17, 18, 33, 38, 39] {
            sequence.reset();
            sequence.prefill(&ids[..start], 0, |_, _| ()).expect("prefill runs");
            let (mut at, mut rows) = (start, 1);
            while at < ids.len() {
                let found = sequence.predict_further(ids[at], None, 0).expect("runs");
                let Further { logits, row } = found.expect("there is a layer");
                let logits = logits.to_vec();
                // The last rows are stored: their values depend on the keys and values of all before them.
                if let Some(place) = (at + hidden.len() / WIDTH).checked_sub(ids.len()) {
                    for (found, wanted) in row.iter().zip(&hidden[place * WIDTH..][..WIDTH]) {
                        assert!((found - wanted).abs() < 1e-4, "{fusion}, {start}, {at}");
                    }
                    rows_compared += 1;
                }
                if at + 1 == ids.len() {
                    assert_eq!((logits.len(), last_logits.len()), (vocabulary, vocabulary));
                    for (found, wanted) in logits.iter().zip(&last_logits) {
                        assert!((found - wanted).abs() < 2e-4, "{fusion}, {start}");
                    }
                    logits_compared += 1;
                }
                // What it goes on to predict from its own rows leaves no trace.
                let mut own = row;
                for step in 1..3 {
                    let token = TokenId(7 * step as u32);
                    let next = sequence.predict_further(token, Some(&own), step).expect("runs");
                    own = next.expect("there is a layer").row;
                }
                let right = rows.min(ids.len() - at);
                let tokens = [&ids[at..at + right], &[TokenId(9), TokenId(8)]].concat();
                sequence.decode(&tokens).expect("decode runs");
                sequence.accept(right);
                (at, rows) = (at + right, rows % 5 + 1);
            }
        }
        assert!(rows_compared > 20 && logits_compared > 1, "{rows_compared}, {logits_compared}");
    }
}

#[test]
fn a_model_without_the_layer_says_so() {
    let options = EngineOptions { draft: Draft::Mtp, ..cpu(Fusion::Step) };
    let error = Engine::open(&folder("tiny_qwen35"), options).err().expect("has none").to_string();
    assert!(error.contains("tiny_qwen35") && error.contains("multi-token"), "{error}");
}

#[test]
fn the_built_in_models_text_is_that_without_drafts() {
    let folder = repository().join("models/lithos-mini");
    let options = EngineOptions { draft: Draft::Mtp, ..cpu(Fusion::Step) };
    let mut engine = Engine::open(&folder, options).expect("opens");
    assert!(engine.notices().iter().all(|notice| !notice.contains("mtp")), "it is used");
    let mut without = Engine::open(&folder, cpu(Fusion::Step)).expect("opens");
    let messages = serde_json::json!([{"role": "user", "content": "What is a bicycle?"}]);
    let options = TemplateOptions { add_generation_prompt: true, ..TemplateOptions::default() };
    let text = engine.text().expect("has text");
    let prompt = text.encode_chat(&messages, None, &options).expect("encodes");
    let warm = Sampling { temperature: 0.8, min_p: 0.05, seed: Some(3), ..Sampling::greedy() };
    let complete = |engine: &mut Engine, request: &Request| -> Completion {
        engine.generate(request, &mut |_| ()).expect("generates")
    };
    for sampling in [Sampling::greedy(), warm] {
        let drawn = sampling.temperature > 0.0;
        let request = Request {
            sampling,
            max_tokens: Some(64),
            ignore_end: true,
            ..Request::new(prompt.clone())
        };
        let plain = complete(&mut without, &request);
        for (draft, length) in [
            (Draft::Mtp, DraftLength::Fixed(3)),
            (Draft::Mtp, DraftLength::Fixed(15)),
            (Draft::Mtp, DraftLength::Auto),
            (Draft::Auto, DraftLength::Fixed(4)),
        ] {
            engine.set_draft(draft, length);
            let drafted = complete(&mut engine, &request);
            assert_eq!(drafted.tokens, plain.tokens, "{draft}, {length:?}");
            let report = drafted.speculation.expect("there is a drafter");
            assert_eq!(report.tokens, report.rounds + report.accepted);
            if length == DraftLength::Fixed(3) {
                assert_eq!(report.source, "mtp");
                assert!(
                    report.accepted_by_position.len() >= 2 && report.accepted >= 8,
                    "{report:?}"
                );
            }
        }
        // Drawn drafts make another text where it is drawn, and the same where it is not; either way the same each time.
        engine.set_draft(Draft::Mtp, DraftLength::Fixed(3));
        engine.set_proposals(Proposals::Drawn);
        let [first, again] = [(); 2].map(|()| complete(&mut engine, &request));
        assert_eq!(first.tokens, again.tokens);
        assert_eq!(first.tokens != plain.tokens, drawn);
        assert!(first.speculation.is_some_and(|report| report.accepted > 0));
        engine.set_proposals(Proposals::Likeliest);
    }
}
