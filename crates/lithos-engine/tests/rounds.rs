//! Rounds that a device runs by itself, in the emulator: the same tokens as the host chooses from the same logits, pass by pass.

mod support;

use lithos_emulator::EmulatorError;
use lithos_engine::{
    ADJUST_BIAS, ADJUST_MASK, BackendKind, Choice, Engine, EngineError, EngineOptions, Fusion,
    MOST_VISIT, Rounds, Sampler, Sampling, TokenId, largest,
};
use support::{Reference, cpu, folder, reference};

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

/// Takes in all but the last token of a prompt.
fn begin(engine: &mut Engine, prompt: &[TokenId]) -> TokenId {
    let (last, before) = prompt.split_last().expect("a prompt");
    let mut sequence = engine.sequence();
    sequence.reset();
    sequence.prefill(before, 0, |_, _| ()).expect("prefill runs");
    *last
}

/// Tokens that the host chooses, pass by pass.
fn by_host(
    engine: &mut Engine,
    prompt: &[TokenId],
    sampling: &Sampling,
    count: usize,
) -> Vec<TokenId> {
    let mut sampler = Sampler::new(sampling.clone(), prompt);
    let mut token = begin(engine, prompt);
    let mut sequence = engine.sequence();
    (0..count)
        .map(|_| {
            token =
                sampler.sample(sequence.decode(&[token]).expect("decode runs")).expect("chooses");
            sequence.accept(1);
            token
        })
        .collect()
}

/// Tokens that the device chooses, so many passes a visit.
fn by_device(
    engine: &mut Engine,
    prompt: &[TokenId],
    rounds: &Rounds,
    passes: usize,
    count: usize,
) -> Vec<TokenId> {
    let token = begin(engine, prompt);
    let mut sequence = engine.sequence();
    assert!(sequence.begin_rounds(&[token], rounds).expect("begins"), "the emulator has the loop");
    let mut tokens = Vec::new();
    while tokens.len() < count {
        let visit = sequence.rounds(passes.min(count - tokens.len()), passes).expect("rounds run");
        tokens.extend(visit.tokens);
        if visit.ended {
            break;
        }
    }
    tokens
}

/// What a sampler asks of the device, without end tokens and limit.
fn rounds_of(engine: &Engine, sampling: &Sampling, prompt: &[TokenId]) -> Rounds {
    Sampler::new(sampling.clone(), prompt)
        .rounds(engine.vocabulary(), &[], usize::MAX)
        .expect("the device can choose so")
}

#[test]
fn greedy_tokens_are_those_of_the_host_at_every_level() {
    for name in ["tiny_qwen35", "tiny_qwen3", "tiny_llama3"] {
        let Reference { ids, logits } = reference(name);
        let prompt = &ids[..20];
        for fusion in Fusion::ALL {
            let Some(mut engine) = open(name, fusion, false) else { return };
            let greedy = Sampling::greedy();
            let wanted = by_host(&mut engine, prompt, &greedy, 12);
            let vocabulary = engine.vocabulary();
            assert_eq!(wanted[0], largest(&logits[19 * vocabulary..20 * vocabulary]), "{name}");
            let rounds = rounds_of(&engine, &greedy, prompt);
            for passes in [1, 5] {
                let found = by_device(&mut engine, prompt, &rounds, passes, 12);
                assert_eq!(found, wanted, "{name} at {fusion}, {passes} passes a visit");
            }
        }
    }
}

#[test]
fn draws_are_those_of_the_host() {
    let Some(mut engine) = open("tiny_qwen3", Fusion::Step, false) else { return };
    let prompt = &reference("tiny_qwen3").ids[..9];
    let warm = Sampling { temperature: 0.8, seed: Some(11), ..Sampling::greedy() };
    let hot = Sampling { temperature: 3.0, seed: Some(12), ..Sampling::greedy() };
    for sampling in [
        warm.clone(),
        hot.clone(),
        Sampling { min_p: 0.1, ..warm.clone() },
        Sampling { min_p: 0.02, ..hot.clone() },
        Sampling { top_k: 5, ..hot.clone() },
        Sampling { top_k: 64, ..hot.clone() },
        Sampling { top_k: 40, top_p: 0.7, ..hot.clone() },
        Sampling { top_k: 20, top_p: 0.95, min_p: 0.3, ..hot.clone() },
        Sampling { repetition_penalty: 1.3, ..Sampling::greedy() },
        Sampling { presence_penalty: 0.7, frequency_penalty: 0.4, ..hot.clone() },
        Sampling { logit_bias: vec![(TokenId(3), 2.0), (TokenId(500), 4.0)], ..hot.clone() },
        Sampling {
            repetition_penalty: 1.2,
            frequency_penalty: 0.3,
            top_k: 30,
            min_p: 0.05,
            ..hot.clone()
        },
        Sampling { repetition_penalty: 1.5, presence_penalty: 0.5, min_p: 0.05, ..hot },
    ] {
        let wanted = by_host(&mut engine, prompt, &sampling, 20);
        let rounds = rounds_of(&engine, &sampling, prompt);
        let found = by_device(&mut engine, prompt, &rounds, 7, 20);
        assert_eq!(found, wanted, "{sampling:?}");
    }
}

#[test]
fn another_seed_draws_other_tokens() {
    let Some(mut engine) = open("tiny_qwen3", Fusion::Step, false) else { return };
    let prompt = &reference("tiny_qwen3").ids[..9];
    let mut draw = |seed| {
        let sampling = Sampling { temperature: 3.0, seed: Some(seed), ..Sampling::greedy() };
        let rounds = rounds_of(&engine, &sampling, prompt);
        by_device(&mut engine, prompt, &rounds, 10, 10)
    };
    let first = draw(1);
    assert_eq!(draw(1), first);
    assert_ne!(draw(2), first);
    assert_ne!(draw(1 | 1 << 40), first, "both words of a seed count");
}

/// One pass from the same token with logits, and the token chosen from them.
fn one(engine: &mut Engine, prompt: &[TokenId], rounds: &Rounds) -> (Vec<f32>, TokenId) {
    let token = begin(engine, prompt);
    let mut sequence = engine.sequence();
    sequence.begin_rounds(&[token], &Rounds { logits: true, ..rounds.clone() }).expect("begins");
    let visit = sequence.rounds(1, 0).expect("rounds run");
    (sequence.logits().to_vec(), visit.tokens[0])
}

#[test]
fn of_equal_logits_the_first_token_wins() {
    let Some(mut engine) = open("tiny_qwen3", Fusion::Step, false) else { return };
    let prompt = &reference("tiny_qwen3").ids[..5];
    // A bias so large that the logits vanish in it.
    for tied in [[7, 300, 511], [16, 17, 48], [0, 1, 2], [510, 511, 509]] {
        let mut biases = vec![0.0; engine.vocabulary()];
        tied.iter().for_each(|token| biases[*token] = 1e12);
        let choice = Choice { adjust: ADJUST_BIAS, ..Choice::default() };
        let (_, token) = one(&mut engine, prompt, &Rounds { choice, biases, ..Rounds::default() });
        assert_eq!(token.index(), *tied.iter().min().expect("some"));
    }
}

#[test]
fn masked_tokens_are_never_chosen() {
    let Some(mut engine) = open("tiny_qwen3", Fusion::Step, false) else { return };
    let prompt = &reference("tiny_qwen3").ids[..5];
    let vocabulary = engine.vocabulary();
    let masks: [fn(usize) -> bool; 4] =
        [|_| true, |token| token % 3 == 1, |token| token >= 500, |token| token == 77];
    for allowed in masks {
        let mut mask = vec![0u32; vocabulary.div_ceil(32)];
        (0..vocabulary)
            .filter(|token| allowed(*token))
            .for_each(|token| mask[token / 32] |= 1 << (token % 32));
        for (temperature, top_k, min_p) in
            [(0.0, 0, 0.0f32), (2.0, 0, 0.0), (2.0, 8, 0.0), (2.0, 0, 0.1)]
        {
            let sampling =
                Sampling { temperature, top_k, min_p, seed: Some(4), ..Sampling::greedy() };
            let mut rounds = rounds_of(&engine, &sampling, prompt);
            rounds.choice.adjust |= ADJUST_MASK;
            rounds.mask = mask.clone();
            let (mut logits, token) = one(&mut engine, prompt, &rounds);
            let refused = |token: &usize| !allowed(*token);
            (0..vocabulary).filter(refused).for_each(|token| logits[token] = f32::NEG_INFINITY);
            assert!(allowed(token.index()), "{sampling:?} chose {token:?}");
            assert_eq!(
                token,
                Sampler::new(sampling.clone(), prompt).sample(&logits).expect("chooses"),
                "{sampling:?}"
            );
        }
    }
}

#[test]
fn the_ring_goes_round() {
    let Some(mut engine) = open("tiny_qwen3", Fusion::Step, false) else { return };
    let prompt = &reference("tiny_qwen3").ids[..4];
    let count = 2 * MOST_VISIT + 5;
    let hot = Sampling { temperature: 2.0, seed: Some(9), ..Sampling::greedy() };
    let wanted = by_host(&mut engine, prompt, &hot, count);
    let rounds = rounds_of(&engine, &hot, prompt);
    assert_eq!(by_device(&mut engine, prompt, &rounds, 23, count), wanted);
}

#[test]
fn end_tokens_and_limits_end_it_on_the_device() {
    let Some(mut engine) = open("tiny_qwen35", Fusion::Layer, false) else { return };
    let prompt = &reference("tiny_qwen35").ids[..6];
    let hot = Sampling { temperature: 2.0, seed: Some(3), ..Sampling::greedy() };
    let wanted = by_host(&mut engine, prompt, &hot, 16);
    let end = wanted[9];
    let first = wanted.iter().position(|token| *token == end).expect("listed");
    let sampler = Sampler::new(hot, prompt);
    let vocabulary = engine.vocabulary();
    let ended = sampler.rounds(vocabulary, &[TokenId(u32::MAX), end], 100).expect("possible");
    // More passes than there are tokens: those after the end do nothing.
    assert_eq!(by_device(&mut engine, prompt, &ended, 14, 14), wanted[..=first]);
    let limited = sampler.rounds(vocabulary, &[], 5).expect("possible");
    assert_eq!(by_device(&mut engine, prompt, &limited, 8, 8), wanted[..5]);
    // What was taken in can be gone on from: all but the last token.
    let mut sequence = engine.sequence();
    assert_eq!(sequence.tokens(), [prompt, &wanted[..4]].concat());
    assert_eq!(largest(sequence.decode(&wanted[4..5]).expect("decode runs")).index(), {
        sequence.reset();
        let all = [prompt, &wanted[..5]].concat();
        let mut logits = Vec::new();
        for token in all {
            logits = sequence.decode(&[token]).expect("decode runs").to_vec();
            sequence.accept(1);
        }
        largest(&logits).index()
    });
}

#[test]
fn drafts_are_accepted_as_far_as_they_are_what_would_be_chosen() {
    for (name, fusion) in [("tiny_qwen35", Fusion::Step), ("tiny_llama3", Fusion::None)] {
        let Some(mut engine) = open(name, fusion, false) else { return };
        let prompt = &reference(name).ids[..11];
        let vocabulary = engine.vocabulary() as u32;
        for sampling in [
            Sampling::greedy(),
            Sampling { temperature: 1.5, seed: Some(8), ..Sampling::greedy() },
            Sampling { temperature: 1.5, top_k: 12, seed: Some(8), ..Sampling::greedy() },
        ] {
            let wanted = by_host(&mut engine, prompt, &sampling, 18);
            let rounds = rounds_of(&engine, &sampling, prompt);
            for right in [0, 1, 4, 10] {
                let token = begin(&mut engine, prompt);
                let drafts = (0..10).map(|i| match i < right {
                    true => wanted[i],
                    false => TokenId((wanted[i].0 + 1) % vocabulary),
                });
                let rows: Vec<TokenId> = std::iter::once(token).chain(drafts).collect();
                let mut sequence = engine.sequence();
                sequence.begin_rounds(&rows, &rounds).expect("begins");
                let first = sequence.rounds(1, 0).expect("rounds run").tokens;
                assert_eq!(
                    first,
                    wanted[..=right],
                    "{name}, {right} drafts are right, {sampling:?}"
                );
                // What follows is what would have followed without drafts.
                let rest = sequence.rounds(17 - right, 0).expect("rounds run").tokens;
                assert_eq!(rest, wanted[right + 1..], "{name} after {right} drafts, {sampling:?}");
            }
        }
    }
}

#[test]
fn every_access_of_a_round_is_in_bounds_written_and_ordered() {
    let prompt = &reference("tiny_llama3").ids[..2];
    let Some(mut engine) = open("tiny_llama3", Fusion::Step, true) else { return };
    let plain = Sampling { temperature: 1.5, seed: Some(1), ..Sampling::greedy() };
    for sampling in [
        Sampling::greedy(),
        Sampling { min_p: 0.1, frequency_penalty: 0.2, ..plain.clone() },
        Sampling { top_k: 6, top_p: 0.9, ..plain },
    ] {
        let wanted = by_host(&mut engine, prompt, &sampling, 2);
        let rounds = rounds_of(&engine, &sampling, prompt);
        assert_eq!(by_device(&mut engine, prompt, &rounds, 2, 2), wanted, "{sampling:?}");
    }
}
