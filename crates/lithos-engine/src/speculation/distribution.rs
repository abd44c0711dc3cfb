//! Drafts do not change what a text is distributed as: chi-square tests over a language of a few tokens, whose probabilities are known.

use lithos_model::text::TokenId;

use super::choose_rows;
use crate::drafters::{Candidates, Distribution, Proposal};
use crate::sampling::{Sampler, Sampling};

/// Tokens of the language.
const VOCABULARY: usize = 6;

/// Tokens of each text. Rounds have two drafts, so that there are ends of rounds within it and at its end.
const LENGTH: usize = 3;

const DRAFTS: usize = 2;

/// Texts that are drawn.
const TEXTS: u64 = 50_000;

/// What precedes every text.
const PROMPT: TokenId = TokenId(0);

/// Logits of the token after each, of the model or of a drafter that is like it, but not the same.
fn logits(before: TokenId, of_drafter: bool) -> Vec<f32> {
    (0..VOCABULARY)
        .map(|token| {
            let word = (before.index() * 31 + token * 17 + 5) % 23;
            let own = ((before.index() * 7 + token * 13) % 11) as f32;
            word as f32 * 0.13 + if of_drafter { own * 0.21 - 0.4 } else { 0.0 }
        })
        .collect()
}

/// How a token is chosen where a draft was drawn.
type Rule = fn(&mut Sampler, &[f32], TokenId, &Distribution) -> TokenId;

fn right(sampler: &mut Sampler, logits: &[f32], draft: TokenId, from: &Distribution) -> TokenId {
    sampler.choose(logits, draft, from).expect("chooses")
}

/// Takes whatever is drafted.
fn gullible(sampler: &mut Sampler, logits: &[f32], draft: TokenId, _: &Distribution) -> TokenId {
    sampler.sample(logits).expect("chooses");
    draft
}

/// Draws anew from the model's distribution where it refuses, and not from what the draft's has left of it.
fn forgetful(
    sampler: &mut Sampler,
    logits: &[f32],
    draft: TokenId,
    from: &Distribution,
) -> TokenId {
    let token = sampler.choose(logits, draft, from).expect("chooses");
    if token == draft {
        return token;
    }
    let seed = Some(sampler.draws().map_or(0, |draws| draws.seed) ^ 0x5555_5555);
    let temperature = 1.0;
    Sampler::new(Sampling { seed, temperature, ..Sampling::greedy() }, &[])
        .sample(logits)
        .expect("chooses")
}

/// Draws a text through rounds with drafts.
fn text(sampling: &Sampling, drawn: bool, rule: Rule) -> [TokenId; LENGTH] {
    let mut sampler = Sampler::new(sampling.clone(), &[PROMPT]);
    let draws = sampler.draws().filter(|_| drawn);
    let mut candidates = Candidates::default();
    let mut tokens = vec![PROMPT];
    while tokens.len() <= LENGTH {
        let mut proposal = Proposal::default();
        let anchor = *tokens.last().expect("the prompt");
        let mut rows = logits(anchor, false);
        let mut before = anchor;
        for place in 0..DRAFTS {
            candidates.set(&logits(before, true));
            before = candidates.propose(draws, tokens.len() + place, 1.0, &mut proposal);
            rows.extend(logits(before, false));
        }
        let mut choose = |logits: &[f32], drawn: Option<(TokenId, &Distribution)>| {
            let token = match drawn {
                Some((draft, from)) => rule(&mut sampler, logits, draft, from),
                None => sampler.sample(logits)?,
            };
            Ok((token, false))
        };
        tokens.extend(choose_rows(&rows, VOCABULARY, &proposal, &mut choose).expect("chooses"));
    }
    [tokens[1], tokens[2], tokens[3]]
}

/// Probabilities of the next token, by the definitions and in no hurry.
fn exact(sampling: &Sampling, tokens: &[TokenId]) -> Vec<f64> {
    let before = *tokens.last().expect("the prompt");
    let mut logits: Vec<f64> = logits(before, false).into_iter().map(f64::from).collect();
    for (token, logit) in logits.iter_mut().enumerate() {
        let times = tokens[1..].iter().filter(|seen| seen.index() == token).count();
        if tokens.iter().any(|seen| seen.index() == token) {
            let penalty = f64::from(sampling.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
        *logit -= f64::from(sampling.frequency_penalty) * times as f64;
        for (biased, bias) in &sampling.logit_bias {
            *logit += if biased.index() == token { f64::from(*bias) } else { 0.0 };
        }
    }
    let mut order: Vec<usize> = (0..VOCABULARY).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    if sampling.top_k > 0 {
        order.truncate(sampling.top_k);
    }
    let weight = |token: usize| (logits[token] / f64::from(sampling.temperature)).exp();
    let total: f64 = order.iter().map(|token| weight(*token)).sum();
    let mut reached = 0.0;
    let keep = order.iter().position(|token| {
        reached += weight(*token) / total;
        reached >= f64::from(sampling.top_p)
    });
    if sampling.top_p < 1.0 {
        order.truncate(keep.map_or(order.len(), |last| last + 1));
    }
    let least = weight(order[0]) * f64::from(sampling.min_p);
    order.retain(|token| weight(*token) >= least);
    let total: f64 = order.iter().map(|token| weight(*token)).sum();
    let mut probabilities = vec![0.0; VOCABULARY];
    order.iter().for_each(|token| probabilities[*token] = weight(*token) / total);
    probabilities
}

/// How unlikely counts are under the right distribution, in standard deviations of a normal one (Wilson and Hilferty 1931); above 2.326 the
/// p-value is below 0.01.
fn deviation(sampling: &Sampling, drawn: bool, rule: Rule) -> f64 {
    let cell = |text: &[TokenId]| text.iter().fold(0, |sum, t| sum * VOCABULARY + t.index());
    let mut counts = vec![0u64; VOCABULARY.pow(LENGTH as u32)];
    for seed in 0..TEXTS {
        // Far apart, so that nothing of one seed is near another's.
        let seed = Some((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        counts[cell(&text(&Sampling { seed, ..sampling.clone() }, drawn, rule))] += 1;
    }
    let mut expected = vec![0.0; counts.len()];
    let ids = || (0..VOCABULARY as u32).map(TokenId);
    for (a, b, c) in ids().flat_map(|a| ids().flat_map(move |b| ids().map(move |c| (a, b, c)))) {
        let mut probability = 1.0;
        let mut tokens = vec![PROMPT];
        for token in [a, b, c] {
            probability *= exact(sampling, &tokens)[token.index()];
            tokens.push(token);
        }
        expected[cell(&[a, b, c])] = probability * TEXTS as f64;
    }
    let (mut sum, mut cells, mut rare) = (0.0, 0, (0.0, 0));
    let mut add = |expected: f64, count: u64| {
        sum += (count as f64 - expected).powi(2) / expected;
        cells += 1;
    };
    for (expected, count) in expected.into_iter().zip(counts) {
        if expected == 0.0 && count > 0 {
            return f64::INFINITY;
        }
        // The usual rule: cells of fewer than five are taken together.
        if expected < 5.0 {
            rare = (rare.0 + expected, rare.1 + count);
        } else {
            add(expected, count);
        }
    }
    if rare.0 >= 5.0 {
        add(rare.0, rare.1);
    }
    let free = 2.0 / (9.0 * f64::from(cells - 1));
    ((sum / f64::from(cells - 1)).cbrt() - (1.0 - free)) / free.sqrt()
}

const LARGEST_DEVIATION: f64 = 2.326;

fn settings() -> Vec<Sampling> {
    let at = |temperature| Sampling { temperature, ..Sampling::greedy() };
    let mut settings = Vec::new();
    for temperature in [0.5, 1.0, 1.8] {
        settings.push(at(temperature));
        settings.push(Sampling { top_k: 3, ..at(temperature) });
        settings.push(Sampling { top_p: 0.8, ..at(temperature) });
    }
    settings.push(Sampling { top_k: 5, top_p: 0.9, min_p: 0.2, ..at(1.3) });
    settings.push(Sampling {
        repetition_penalty: 1.4,
        frequency_penalty: 0.3,
        logit_bias: vec![(TokenId(2), 0.8)],
        ..at(1.0)
    });
    settings
}

#[test]
fn texts_with_drawn_drafts_have_the_distribution_of_those_without() {
    for sampling in settings() {
        let deviation = deviation(&sampling, true, right);
        assert!(deviation < LARGEST_DEVIATION, "{deviation}, {sampling:?}");
    }
}

#[test]
fn texts_with_the_likeliest_drafts_have_the_distribution_of_those_without() {
    for sampling in settings() {
        let deviation = deviation(&sampling, false, right);
        assert!(deviation < LARGEST_DEVIATION, "{deviation}, {sampling:?}");
    }
}

#[test]
fn wrong_rules_are_found_out() {
    let sampling = Sampling { temperature: 1.0, ..Sampling::greedy() };
    for (name, wrong) in [("gullible", gullible as Rule), ("forgetful", forgetful)] {
        let deviation = deviation(&sampling, true, wrong);
        assert!(deviation > 2.0 * LARGEST_DEVIATION, "{name}: {deviation}");
    }
}

#[test]
fn drafts_like_the_models_own_choice_are_all_accepted_and_others_never() {
    let sampling = Sampling { temperature: 1.0, seed: Some(1), ..Sampling::greedy() };
    let mut candidates = Candidates::default();
    for seed in 0..200 {
        let mut sampler = Sampler::new(Sampling { seed: Some(seed), ..sampling.clone() }, &[]);
        let row = logits(PROMPT, false);
        let mut proposal = Proposal::default();
        candidates.set(&row);
        let draft = candidates.propose(sampler.draws(), 0, 1.0, &mut proposal);
        assert_eq!(sampler.choose(&row, draft, &proposal.drawn_from[0]), Ok(draft));
        // What the filters leave out is never accepted, however sure a drafter is of it.
        let least = TokenId((0..6).min_by(|a, b| row[*a].total_cmp(&row[*b])).expect("six") as u32);
        let top = Sampling { top_k: 2, seed: Some(seed), ..sampling.clone() };
        let sure: Vec<f32> =
            (0..6).map(|token| if token == least.0 { 50.0 } else { 0.0 }).collect();
        let mut proposal = Proposal::default();
        candidates.set(&sure);
        assert_eq!(candidates.propose(sampler.draws(), 0, 1.0, &mut proposal), least);
        assert_ne!(Sampler::new(top, &[]).choose(&row, least, &proposal.drawn_from[0]), Ok(least));
    }
}
