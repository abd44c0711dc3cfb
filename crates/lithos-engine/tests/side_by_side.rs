//! Generations side by side: what each says is what it says alone, whatever shares its passes.

mod support;

use std::collections::HashMap;

use lithos_emulator::EmulatorError;
use lithos_engine::{
    BackendKind, Completion, Draft, DraftLength, Engine, EngineError, EngineOptions, Event,
    FinishReason, Form, Fusion, GenerationId, Request, Sampling, TokenId,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use support::{cpu, repository};

fn built_in(options: EngineOptions) -> Engine {
    Engine::open(&repository().join("models/lithos-mini"), options).expect("opens")
}

fn with_slots(slots: usize) -> EngineOptions {
    EngineOptions { slots, ..cpu(Fusion::Step) }
}

/// Requests of many kinds: short and long, greedy and drawn, with penalties, stop texts and limits.
fn requests(count: usize, seed: u64) -> Vec<Request> {
    let mut random = StdRng::seed_from_u64(seed);
    let request = |index: usize| {
        let length = [3, 20, 90, 160][index % 4] + random.random_range(0..20);
        let prompt = (0..length).map(|_| TokenId(random.random_range(0..4000))).collect();
        let mut request = Request::new(prompt);
        request.max_tokens = Some(random.random_range(1..40));
        request.ignore_end = index.is_multiple_of(3);
        request.reuse = true;
        if index % 2 == 1 {
            request.sampling = Sampling {
                temperature: 0.9,
                top_p: 0.95,
                repetition_penalty: 1.1,
                seed: Some(index as u64),
                ..Sampling::greedy()
            };
        }
        if index % 5 == 2 {
            request.stop = vec!["e".into()];
        }
        request
    };
    (0..count).map(request).collect()
}

/// Runs requests in the order given, as many at a time as there are slots, and admits the next at steps that a seed decides.
fn together(engine: &mut Engine, requests: &[Request], seed: u64) -> Vec<(Completion, String)> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut indices: HashMap<GenerationId, usize> = HashMap::new();
    let mut texts = vec![String::new(); requests.len()];
    let mut done: Vec<Option<Completion>> = requests.iter().map(|_| None).collect();
    let mut next = 0;
    while done.iter().any(Option::is_none) {
        while next < requests.len() && engine.free_slots() > 0 && random.random_bool(0.6) {
            let id = engine.admit(requests[next].clone()).expect("is admitted");
            indices.insert(id, next);
            next += 1;
        }
        let ended = engine.step(&mut |id, event| {
            if let Event::Text(text) = event {
                texts[indices[&id]].push_str(text);
            }
        });
        for (id, completion) in ended {
            let before = done[indices[&id]].replace(completion.expect("runs"));
            assert!(before.is_none(), "ended twice");
        }
    }
    done.into_iter().flatten().zip(texts).collect()
}

fn alone(engine: &mut Engine, request: &Request) -> Completion {
    // Where nothing is reused, nothing of what was before can show.
    let request = Request { reuse: false, ..request.clone() };
    engine.generate(&request, &mut |_| ()).expect("runs")
}

fn check(options: EngineOptions, requests: &[Request], seed: u64) {
    let mut engine = built_in(options);
    let shared = together(&mut engine, requests, seed);
    let mut single = built_in(EngineOptions { slots: 1, draft: Draft::None, ..options });
    for (index, (request, (completion, text))) in requests.iter().zip(shared).enumerate() {
        let expected = alone(&mut single, request);
        assert_eq!(completion.tokens, expected.tokens, "request {index}");
        assert_eq!((completion.finish, &completion.text), (expected.finish, &expected.text));
        assert_eq!(text, expected.text, "request {index}");
        assert_eq!(completion.prompt_tokens, request.prompt.len());
    }
}

#[test]
fn every_generation_says_what_it_says_alone() {
    for (slots, seed) in [(2, 1), (4, 2), (16, 3)] {
        check(with_slots(slots), &requests(14, seed), seed);
    }
}

#[test]
fn drafts_share_passes_and_change_nothing() {
    for draft in [Draft::Copy, Draft::Dspark] {
        for draft_length in [DraftLength::Auto, DraftLength::Fixed(4)] {
            let options = EngineOptions { draft, draft_length, ..with_slots(4) };
            check(options, &requests(10, 7), 7);
        }
    }
}

#[test]
fn drafts_forms_and_kept_prefixes_together_change_nothing() {
    let options =
        EngineOptions { draft: Draft::Dspark, draft_length: DraftLength::Auto, ..with_slots(4) };
    let mut engine = built_in(options);
    let schema = r#"{"type": "object", "properties": {"sea": {"type": "string", "maxLength": 12},
        "deep": {"type": "boolean"}}, "required": ["sea", "deep"]}"#;
    let form = Form::JsonSchema(serde_json::from_str(schema).expect("is JSON"));
    let mut all = requests(12, 21);
    let base: Vec<TokenId> = all[3].prompt.iter().copied().cycle().take(300).collect();
    for (index, request) in all.iter_mut().enumerate() {
        // Three branches of one beginning, at places that no chunk ends at.
        request.prompt = [&base[..300 - index % 3 * 70], &request.prompt].concat();
        request.sampling = Sampling::greedy();
        if index % 4 == 1 {
            request.constraint = Some(engine.constraint(&form).expect("compiles"));
            request.stop = Vec::new();
        }
    }
    let shared = together(&mut engine, &all, 21);
    let reused: usize = shared.iter().map(|(completion, _)| completion.reused_tokens).sum();
    assert!(reused > 500, "{reused} tokens of kept prefixes");
    let accepted: u64 = shared
        .iter()
        .filter_map(|(completion, _)| Some(completion.speculation.as_ref()?.accepted))
        .sum();
    assert!(accepted > 0, "drafts were accepted");
    let mut single = built_in(EngineOptions { slots: 1, draft: Draft::None, ..options });
    for (index, (request, (completion, _))) in all.iter().zip(shared).enumerate() {
        assert_eq!(completion.tokens, alone(&mut single, request).tokens, "request {index}");
    }
}

#[test]
fn one_shared_context_is_enough_for_none() {
    // Every slot holds a whole context, so no generation can starve another.
    let options = EngineOptions { context: Some(64), ..with_slots(3) };
    let mut engine = built_in(options);
    assert_eq!((engine.slots(), engine.context()), (3, 64));
    let mut request = Request::new(vec![TokenId(5); 60]);
    request.ignore_end = true;
    let requests = vec![request; 3];
    for (completion, _) in together(&mut engine, &requests, 0) {
        assert_eq!((completion.finish, completion.tokens.len()), (FinishReason::Length, 5));
    }
}

#[test]
fn cancelling_ends_one_and_leaves_the_others() {
    let mut engine = built_in(with_slots(2));
    let mut first = Request::new(vec![TokenId(7); 30]);
    (first.ignore_end, first.max_tokens) = (true, Some(50));
    let second = Request { cancel: Default::default(), ..first.clone() };
    let expected = alone(&mut built_in(with_slots(1)), &second);
    let cancelled = engine.admit(first.clone()).expect("is admitted");
    let kept = engine.admit(second).expect("is admitted");
    let busy = engine.admit(Request::new(vec![TokenId(1)])).expect_err("no slot is free");
    assert!(matches!(busy, EngineError::Busy { slots: 2 }), "{busy}");
    let refused = engine.generate(&Request::new(vec![TokenId(1)]), &mut |_| ());
    assert!(refused.is_err(), "the slots belong to others");
    for _ in 0..6 {
        assert!(engine.step(&mut |_, _| ()).is_empty());
    }
    first.cancel.cancel();
    let ended = engine.step(&mut |_, _| ());
    assert_eq!(ended.len(), 1);
    let (id, completion) = &ended[0];
    assert_eq!(*id, cancelled);
    assert_eq!(completion.as_ref().expect("ends").finish, FinishReason::Cancelled);
    assert_eq!(engine.free_slots(), 1);
    let mut rest = Vec::new();
    while rest.is_empty() {
        rest = engine.step(&mut |_, _| ());
    }
    assert_eq!(rest[0].0, kept);
    assert_eq!(rest[0].1.as_ref().expect("ends").tokens, expected.tokens);
}

#[test]
fn long_prompts_do_not_silence_a_stream() {
    let options = EngineOptions { chunk: Some(32), ..with_slots(2) };
    let mut engine = built_in(options);
    let mut talking = Request::new(vec![TokenId(9); 4]);
    (talking.ignore_end, talking.max_tokens) = (true, Some(60));
    let talks = engine.admit(talking).expect("is admitted");
    engine.step(&mut |_, _| ());
    let reads = engine.admit(Request::new(vec![TokenId(9); 400])).expect("is admitted");
    let mut chunks = 0;
    for step in 1..=400usize.div_ceil(32) {
        engine.step(&mut |id, event| match event {
            Event::Prefill { done, .. } if id == reads && done > 0 => chunks += 1,
            _ => {}
        });
        assert_eq!(chunks, step, "one chunk a step");
    }
    // In each of those steps the other generation went on: it has a token of its first step, and one or two of each since.
    let mut steps = 0;
    let mut tokens = None;
    while tokens.is_none() {
        steps += 1;
        for (id, completion) in engine.step(&mut |_, _| ()) {
            if id == talks {
                tokens = Some(completion.expect("runs").tokens.len());
            }
        }
    }
    assert_eq!(tokens, Some(60));
    assert_eq!(steps, 60 - 2 - chunks, "a token a step");
}

#[test]
fn short_prompts_that_keep_coming_do_not_hold_up_a_long_one() {
    let options = EngineOptions { chunk: Some(32), ..with_slots(3) };
    let mut engine = built_in(options);
    let long = engine.admit(Request::new(vec![TokenId(9); 400])).expect("is admitted");
    let (mut steps, mut done) = (0, 0);
    while done < 400 {
        while engine.free_slots() > 0 {
            let mut short = Request::new(vec![TokenId(8); 4]);
            short.max_tokens = Some(1);
            engine.admit(short).expect("is admitted");
        }
        engine.step(&mut |id, event| match event {
            Event::Prefill { done: taken_in, .. } if id == long => done = taken_in,
            _ => {}
        });
        steps += 1;
        assert!(steps <= 3 * 13, "{done} of 400 tokens after {steps} steps");
    }
}

/// Opens the built-in model in the emulator; `None`, and a line that says so, where there is no clang.
fn emulated(slots: usize) -> Option<Engine> {
    let options = EngineOptions {
        backend: BackendKind::Emulator,
        fusion: Fusion::Layer,
        context: Some(96),
        ..with_slots(slots)
    };
    let required = std::env::var_os("LITHOS_REQUIRE_CLANG").is_some();
    match Engine::open(&repository().join("models/lithos-mini"), options) {
        Ok(engine) => Some(engine),
        Err(EngineError::Emulator(error @ EmulatorError::NoCompiler { .. })) if !required => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("opens: {error}"),
    }
}

#[test]
fn the_metal_text_takes_rows_of_several_slots() {
    let (Some(mut engine), Some(mut single)) = (emulated(3), emulated(1)) else { return };
    let mut few = requests(3, 11);
    for request in &mut few {
        request.prompt.truncate(18);
        request.max_tokens = Some(4);
    }
    let shared = together(&mut engine, &few, 1);
    for (request, (completion, _)) in few.iter().zip(shared) {
        assert_eq!(completion.tokens, alone(&mut single, request).tokens);
    }
}
