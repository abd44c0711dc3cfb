//! What a drafter proposes, and how it chooses it from logits.

use lithos_model::text::TokenId;

use crate::noise::{Noise, Stream};

/// Tokens of a row, the most likely ones, among which a drafter chooses.
const CANDIDATES: usize = 64;

/// Tokens that may follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    /// The tokens, in order.
    pub tokens: Vec<TokenId>,
    /// For each, how likely it and all before it are accepted. Where tokens were drawn, this must depend on those before it only: whether a
    /// draft is verified must say nothing about which one it is.
    pub survival: Vec<f64>,
    /// What each was drawn from; empty where none was drawn, and each is the one that its drafter would choose.
    pub drawn_from: Vec<Distribution>,
}

/// Probabilities of some tokens; others have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// In ascending order of tokens.
    probabilities: Vec<(TokenId, f64)>,
}

/// How drafts are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Of the random numbers, which are apart from those that tokens are chosen by.
    pub(crate) seed: u64,
    /// Above 0.
    pub(crate) temperature: f32,
}

impl Proposal {
    /// For each token, how likely it is accepted if all before it are.
    pub(crate) fn confidences(&self) -> impl Iterator<Item = f64> {
        let before = std::iter::once(1.0).chain(self.survival.iter().copied());
        let conditional = |(survival, before): (&f64, f64)| {
            if before > 0.0 { survival / before } else { 0.0 }
        };
        self.survival.iter().zip(before).map(conditional)
    }
}

impl Distribution {
    /// A token's probability.
    pub fn of(&self, token: TokenId) -> f64 {
        let found = self.probabilities.binary_search_by_key(&token, |(token, _)| *token);
        found.map_or(0.0, |place| self.probabilities[place].1)
    }

    /// softmax(logits / temperature).
    fn softmax(logits: &[(f32, u32)], temperature: f32) -> Self {
        let largest = logits.iter().map(|(logit, _)| *logit).fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| f64::from((logit - largest) / temperature).exp();
        let total: f64 = logits.iter().map(|(logit, _)| weight(*logit)).sum();
        let mut probabilities: Vec<(TokenId, f64)> =
            logits.iter().map(|(logit, id)| (TokenId(*id), weight(*logit) / total)).collect();
        probabilities.sort_unstable_by_key(|(token, _)| *token);
        Distribution { probabilities }
    }
}

/// The likeliest tokens of a row, to choose one from.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Vec<(f32, u32)>);

impl Candidates {
    /// Those with the largest logits.
    pub(crate) fn set(&mut self, logits: &[f32]) {
        self.0.clear();
        self.0.extend(logits.iter().copied().zip(0u32..));
        if logits.len() > CANDIDATES {
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0);
            self.0.select_nth_unstable_by(CANDIDATES - 1, order);
            self.0.truncate(CANDIDATES);
        }
    }

    /// Adds to the logit of each.
    pub(crate) fn add(&mut self, bias: impl Fn(u32) -> f32) {
        self.0.iter_mut().for_each(|(logit, token)| *logit += bias(*token));
    }

    /// The probability of the likeliest at a temperature of 1.
    pub(crate) fn confidence(&self) -> f64 {
        let largest = self.0.iter().map(|(logit, _)| *logit).fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = self.0.iter().map(|(logit, _)| f64::from(logit - largest).exp()).sum();
        if total > 0.0 { 1.0 / total } else { 0.0 }
    }

    /// Adds a token to a proposal: the likeliest, of equal ones the first; or, where drafts are drawn, one that is drawn, as the one at
    /// this position. Returns it.
    pub(crate) fn propose(
        &self,
        draws: Option<Draws>,
        position: usize,
        survival: f64,
        proposal: &mut Proposal,
    ) -> TokenId {
        let order = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1));
        let token = match draws {
            None => self.0.iter().copied().max_by(order),
            Some(Draws { seed, temperature }) => {
                let (position, stream) = (position as u32, Stream::Drafts);
                let noise = Noise { seed, position, stream, temperature };
                proposal.drawn_from.push(Distribution::softmax(&self.0, temperature));
                self.0.iter().map(|(logit, id)| (noise.add(*id, *logit), *id)).max_by(order)
            }
        };
        let token = TokenId(token.map_or(0, |(_, token)| token));
        proposal.tokens.push(token);
        proposal.survival.push(survival);
        token
    }
}
