//! From logits to a token.
//!
//! The order is the usual one (as in Hugging Face transformers and llama.cpp): penalties and bias on the logits, then tokens that a
//! constraint forbids are left out, then temperature, then top-k, top-p and min-p, then a draw. Temperature 0 takes the largest logit after penalties and bias.
//!
//! A draw adds Gumbel noise times the temperature to the logits and takes the largest sum: softmax(logits / temperature) without sums
//! over the vocabulary (Gumbel 1954; Maddison, Tarlow and Minka 2014). The noise is a function of seed, position and token, so a device
//! draws the same ([`Sampler::rounds`]).

mod rejection;

use std::collections::HashMap;

use lithos_compiler::{ADJUST_BIAS, ADJUST_COUNTS, Choice, MAX_ENDS};
use lithos_constraint::{ConstraintError, Walk};
use lithos_kernels::LIST_ENTRIES;
use lithos_model::text::{GenerationDefaults, TokenId};
use rand::Rng;

use crate::drafters::Draws;
use crate::noise::{Noise, Stream, halves};
use crate::rounds::{IN_PROMPT, Rounds};

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 for the most likely token.
    pub temperature: f32,
    /// Keep this many most likely tokens; 0 for all.
    pub top_k: usize,
    /// Keep the most likely tokens that together reach this probability; 1 for all.
    pub top_p: f32,
    /// Drop tokens less likely than this times the most likely; 0 for none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen before (Keskar et al., CTRL); 1 for none.
    pub repetition_penalty: f32,
    /// Subtracted from logits of generated tokens.
    pub presence_penalty: f32,
    /// Subtracted from logits of generated tokens, once for each time.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed of the draws; `None` for a fresh one.
    pub seed: Option<u64>,
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }

    /// What a checkpoint's `generation_config.json` asks for; greedy where it does not sample.
    pub fn from_defaults(defaults: &GenerationDefaults) -> Self {
        let greedy = Sampling::greedy();
        let sample = defaults.do_sample.unwrap_or(false);
        Sampling {
            temperature: if sample { defaults.temperature.unwrap_or(1.0) } else { 0.0 },
            top_k: defaults.top_k.unwrap_or(0) as usize,
            top_p: defaults.top_p.unwrap_or(1.0),
            min_p: defaults.min_p.unwrap_or(0.0),
            repetition_penalty: defaults.repetition_penalty.unwrap_or(1.0),
            presence_penalty: defaults.presence_penalty.unwrap_or(0.0),
            frequency_penalty: defaults.frequency_penalty.unwrap_or(0.0),
            ..greedy
        }
    }

    /// Checks that every parameter is in its range.
    ///
    /// # Errors
    /// One line that names the parameter, its value and its range.
    pub fn validate(&self) -> Result<(), String> {
        let within = |name: &str, value: f32, low: f32, high: f32| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}: it must be between {low} and {high}"))
            }
        };
        within("temperature", self.temperature, 0.0, 100.0)?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("repetition_penalty", self.repetition_penalty, 0.01, 100.0)?;
        within("presence_penalty", self.presence_penalty, -100.0, 100.0)?;
        within("frequency_penalty", self.frequency_penalty, -100.0, 100.0)?;
        for (token, bias) in &self.logit_bias {
            within(&format!("logit_bias of token {token}"), *bias, -1000.0, 1000.0)?;
        }
        Ok(())
    }

    fn changes_logits(&self) -> bool {
        self.penalises() || !self.logit_bias.is_empty()
    }

    fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }

    /// How far below the largest logit min-p reaches.
    fn floor(&self) -> f32 {
        if self.min_p > 0.0 { self.temperature * self.min_p.ln() } else { f32::NEG_INFINITY }
    }
}

/// Chooses the tokens of one generation.
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
    /// Position of the token whose logits come next.
    position: u32,
    /// Tokens of the prompt and the output: those that a repetition penalty counts.
    seen: HashMap<TokenId, SeenToken>,
    /// The form that the output follows, and how far it has come.
    walk: Option<Walk>,
    adjusted: Vec<f32>,
    candidates: Vec<(f32, u32)>,
}

#[derive(Clone, Copy, Default)]
struct SeenToken {
    generated: u32,
}

impl Sampler {
    /// A sampler for a generation after `prompt`.
    pub fn new(sampling: Sampling, prompt: &[TokenId]) -> Self {
        let seed = sampling.seed.unwrap_or_else(|| rand::rng().random());
        Sampler {
            seed,
            position: prompt.len().saturating_sub(1) as u32,
            seen: prompt.iter().map(|token| (*token, SeenToken::default())).collect(),
            sampling,
            walk: None,
            adjusted: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// The same sampler, which chooses only tokens that this walk allows.
    pub fn constrained(self, walk: Option<Walk>) -> Self {
        Sampler { walk, ..self }
    }

    /// Whether the output follows a form and is complete, so that nothing can come any more.
    pub fn is_complete(&self) -> bool {
        self.walk.as_ref().is_some_and(Walk::is_complete)
    }

    /// Chooses a token for logits `[vocabulary]`.
    ///
    /// # Errors
    /// [`ConstraintError`] if the constraint leaves no token, or gave up, or what it leaves has no numbers. Without a constraint there is
    /// none.
    pub fn sample(&mut self, logits: &[f32]) -> Result<TokenId, ConstraintError> {
        let greedy = self.sampling.temperature == 0.0;
        self.pick(
            logits,
            |sampler, logits| if greedy { largest(logits) } else { sampler.draw(logits) },
        )
    }

    /// Has a token picked from the logits after penalties, bias and constraint, and takes it in.
    fn pick(
        &mut self,
        logits: &[f32],
        pick: impl FnOnce(&mut Self, &[f32]) -> TokenId,
    ) -> Result<TokenId, ConstraintError> {
        let allowed = self.walk.as_mut().map(Walk::allowed).transpose()?;
        let mut adjusted = std::mem::take(&mut self.adjusted);
        let logits = if self.sampling.changes_logits() || allowed.is_some() {
            adjusted.clear();
            adjusted.extend_from_slice(logits);
            self.adjust(&mut adjusted);
            if let Some(allowed) = &allowed {
                allowed.forbid_others(&mut adjusted);
            }
            &adjusted[..]
        } else {
            logits
        };
        let token = pick(self, logits);
        self.adjusted = adjusted;
        if allowed.is_some_and(|allowed| !allowed.contains(token)) {
            return Err(ConstraintError::NoNumbers);
        }
        if let Some(walk) = &mut self.walk {
            walk.take(token)?;
        }
        self.take_in(token);
        Ok(token)
    }

    /// The token was chosen.
    pub(crate) fn take_in(&mut self, token: TokenId) {
        self.position = self.position.wrapping_add(1);
        self.seen.entry(token).or_default().generated += 1;
    }

    /// How a drafter draws what it proposes for this; `None` where tokens are not drawn.
    pub(crate) fn draws(&self) -> Option<Draws> {
        let temperature = self.sampling.temperature;
        (temperature > 0.0).then_some(Draws { seed: self.seed, temperature })
    }

    fn adjust(&self, logits: &mut [f32]) {
        if !self.sampling.changes_logits() {
            return;
        }
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } =
            self.sampling;
        for (token, seen) in &self.seen {
            let Some(logit) = logits.get_mut(token.index()) else { continue };
            *logit = if *logit > 0.0 {
                *logit / repetition_penalty
            } else {
                *logit * repetition_penalty
            };
            if seen.generated > 0 {
                *logit -= presence_penalty + frequency_penalty * seen.generated as f32;
            }
        }
        for (token, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(token.index()) {
                *logit += bias;
            }
        }
    }

    fn draw(&mut self, logits: &[f32]) -> TokenId {
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        let noise = self.noise(Stream::Tokens, temperature);
        let maximum = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = maximum + self.sampling.floor();
        if top_k == 0 && top_p >= 1.0 {
            return noise.draw(logits, least).map_or_else(|| largest(logits), TokenId);
        }
        self.filter(logits, maximum);
        let (mut best, mut token) = (f32::NEG_INFINITY, u32::MAX);
        for (logit, id) in &self.candidates {
            let sum = noise.add(*id, *logit);
            if sum > best || (sum == best && *id < token) {
                (best, token) = (sum, *id);
            }
        }
        // Logits without a finite value leave no candidate.
        if token == u32::MAX { largest(logits) } else { TokenId(token) }
    }

    /// The noise at the position of the token whose logits come next.
    fn noise(&self, stream: Stream, temperature: f32) -> Noise {
        Noise { seed: self.seed, position: self.position, stream, temperature }
    }

    /// Makes the candidates those that top-k, top-p and min-p leave, the largest first.
    fn filter(&mut self, logits: &[f32], maximum: f32) {
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        let least = maximum + self.sampling.floor();
        self.candidates.clear();
        // Below this a token's weight vanishes in f32 sums; leaving such tokens out makes sorting cheap.
        let vanishing = maximum - 40.0 * temperature;
        let kept = logits.iter().enumerate().filter(|(_, logit)| **logit >= vanishing);
        self.candidates.extend(kept.map(|(id, logit)| (*logit, id as u32)));
        self.candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if top_k > 0 {
            self.candidates.truncate(top_k);
        }
        if top_p < 1.0 {
            let weight = |logit: f32| ((logit - maximum) / temperature).exp();
            let total: f32 = self.candidates.iter().map(|(logit, _)| weight(*logit)).sum();
            let mut reached = 0.0;
            let keep = self.candidates.iter().position(|(logit, _)| {
                reached += weight(*logit);
                reached >= top_p * total
            });
            self.candidates.truncate(keep.map_or(self.candidates.len(), |last| last + 1));
        }
        self.candidates.retain(|(logit, _)| *logit >= least);
    }

    /// What a device needs to go on choosing as this does, until one of `ends` or `limit` tokens; `None` if it cannot: top-p without
    /// top-k, a larger top-k than its lists hold, too many end tokens, or a constraint, whose mask changes with every token.
    pub fn rounds(&self, vocabulary: usize, ends: &[TokenId], limit: usize) -> Option<Rounds> {
        let sampling = &self.sampling;
        let draws = sampling.temperature != 0.0;
        let listed = sampling.top_k > 0 || sampling.top_p >= 1.0;
        if self.walk.is_some()
            || ends.len() > MAX_ENDS
            || (draws && (!listed || sampling.top_k > LIST_ENTRIES))
        {
            return None;
        }
        let mut rounds = Rounds::default();
        let mut end_ids = [0; MAX_ENDS];
        for (out, end) in end_ids.iter_mut().zip(ends) {
            *out = end.0;
        }
        rounds.choice = Choice {
            temperature: sampling.temperature,
            floor: sampling.floor(),
            top_k: sampling.top_k as u32,
            top_p: sampling.top_p,
            repetition_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            seed: halves(self.seed),
            ends_used: ends.len() as u32,
            ends: end_ids,
            left: limit.min(u32::MAX as usize) as u32,
            ..Choice::default()
        };
        if sampling.penalises() {
            rounds.choice.adjust |= ADJUST_COUNTS;
            rounds.counts = vec![0; vocabulary];
            for (token, seen) in &self.seen {
                if let Some(count) = rounds.counts.get_mut(token.index()) {
                    *count = IN_PROMPT | seen.generated;
                }
            }
        }
        if !sampling.logit_bias.is_empty() {
            rounds.choice.adjust |= ADJUST_BIAS;
            rounds.biases = vec![0.0; vocabulary];
            for (token, bias) in &sampling.logit_bias {
                if let Some(sum) = rounds.biases.get_mut(token.index()) {
                    *sum += bias;
                }
            }
        }
        Some(rounds)
    }
}

/// The token of the largest logit; of equal ones the first. NaN never wins.
pub fn largest(logits: &[f32]) -> TokenId {
    // Sixteen running maxima, which compile to vector instructions, then the first place of the largest.
    let (chunks, rest) = logits.as_chunks::<16>();
    let mut maxima = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (maximum, logit) in maxima.iter_mut().zip(chunk) {
            *maximum = if *logit > *maximum { *logit } else { *maximum };
        }
    }
    let maximum = maxima.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    TokenId(logits.iter().position(|logit| *logit == maximum).unwrap_or(0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(sampling: Sampling, logits: &[f32], draws: usize) -> Vec<f64> {
        let mut sampler = Sampler::new(Sampling { seed: Some(7), ..sampling }, &[]);
        let mut counts = vec![0usize; logits.len()];
        for _ in 0..draws {
            sampler.seen.clear();
            counts[sampler.sample(logits).expect("chooses").index()] += 1;
        }
        counts.iter().map(|count| *count as f64 / draws as f64).collect()
    }

    fn logits_of(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    #[test]
    fn draws_follow_the_distribution() {
        let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
        let plain = Sampling { temperature: 1.0, ..Sampling::greedy() };
        let seen = frequencies(plain.clone(), &logits, 40_000);
        for (seen, wanted) in seen.iter().zip([0.5, 0.3, 0.15, 0.05]) {
            assert!((seen - wanted).abs() < 0.01, "{seen} against {wanted}");
        }
        // Temperature one half squares the odds.
        let cold = frequencies(Sampling { temperature: 0.5, ..plain }, &logits, 40_000);
        let total = 0.25 + 0.09 + 0.0225 + 0.0025;
        assert!((cold[0] - 0.25 / total).abs() < 0.01);
    }

    #[test]
    fn filters_drop_the_tail() {
        let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
        let plain = Sampling { temperature: 1.0, ..Sampling::greedy() };
        let top_k = frequencies(Sampling { top_k: 2, ..plain.clone() }, &logits, 4000);
        assert_eq!((top_k[2], top_k[3]), (0.0, 0.0));
        let top_p = frequencies(Sampling { top_p: 0.79, ..plain.clone() }, &logits, 4000);
        assert!(top_p[1] > 0.0 && top_p[2] == 0.0);
        let min_p = frequencies(Sampling { min_p: 0.2, ..plain }, &logits, 4000);
        assert!(min_p[2] > 0.0 && min_p[3] == 0.0);
    }

    #[test]
    fn penalties_and_bias_move_the_choice() {
        let logits = [2.0, 1.5, -1.0];
        let penalised = Sampling { repetition_penalty: 2.0, ..Sampling::greedy() };
        let mut sampler = Sampler::new(penalised, &[TokenId(0)]);
        assert_eq!(sampler.sample(&logits), Ok(TokenId(1)));
        let present = Sampling { presence_penalty: 1.0, ..Sampling::greedy() };
        let mut sampler = Sampler::new(present, &[TokenId(0)]);
        // Presence counts generated tokens, not those of the prompt.
        assert_eq!(sampler.sample(&logits), Ok(TokenId(0)));
        assert_eq!(sampler.sample(&logits), Ok(TokenId(1)));
        let biased = Sampling { logit_bias: vec![(TokenId(2), 9.0)], ..Sampling::greedy() };
        assert_eq!(Sampler::new(biased, &[]).sample(&logits), Ok(TokenId(2)));
    }

    #[test]
    fn a_seed_repeats_the_draws() {
        let logits = logits_of(&[0.4, 0.3, 0.2, 0.1]);
        let sampling = Sampling { temperature: 1.0, seed: Some(3), ..Sampling::greedy() };
        let run = || -> Vec<TokenId> {
            let mut sampler = Sampler::new(sampling.clone(), &[]);
            (0..50).map(|_| sampler.sample(&logits).expect("chooses")).collect()
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let wrong = Sampling { top_p: 1.5, ..Sampling::greedy() };
        assert!(wrong.validate().unwrap_err().contains("top_p"));
        let wrong = Sampling { temperature: f32::NAN, ..Sampling::greedy() };
        assert!(wrong.validate().is_err());
    }
}
