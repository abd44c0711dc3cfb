//! DSpark drafts (arXiv 2607.05147): a block of tokens from one small pass, corrected from left to right by the Markov head.

use lithos_model::dspark::DraftHead;
use lithos_model::text::TokenId;

use super::acceptance::Acceptance;
use super::proposal::{Candidates, Draws, Proposal};
use super::trial::Trial;
use super::{Drafter, Outcome};
use crate::error::EngineError;
use crate::sequence::Sequence;

/// A drafter that was trained with its target.
pub struct Dspark {
    head: DraftHead,
    anchor: TokenId,
    candidates: Candidates,
    draws: Option<Draws>,
    acceptance: Acceptance,
    /// How sure the confidence head was of each of the last drafts, if those before it are accepted.
    confidences: Vec<f64>,
    trial: Trial,
}

impl Dspark {
    /// Drafts by these heads.
    pub fn new(head: DraftHead) -> Self {
        Dspark {
            head,
            anchor: TokenId(0),
            candidates: Candidates::default(),
            draws: None,
            acceptance: Acceptance::default(),
            confidences: Vec::new(),
            trial: Trial::default(),
        }
    }
}

impl Drafter for Dspark {
    fn source(&self) -> &'static str {
        "dspark"
    }

    fn begin(&mut self, tokens: &[TokenId]) {
        self.take_in(tokens);
    }

    fn take_in(&mut self, tokens: &[TokenId]) {
        self.anchor = tokens.last().copied().unwrap_or(self.anchor);
    }

    fn draw(&mut self, draws: Option<Draws>) {
        self.draws = draws;
    }

    fn propose(
        &mut self,
        sequence: &mut Sequence<'_>,
        most: usize,
    ) -> Result<Proposal, EngineError> {
        self.confidences.clear();
        let (block, width) = (self.head.block, self.head.hidden());
        // A block is drafted as a whole, also where less of it is wanted.
        if !self.trial.begin(most > 0 && sequence.room() >= block) {
            return Ok(Proposal::default());
        }
        let mut rows = vec![TokenId(self.head.mask); block];
        rows[0] = self.anchor;
        let (vocabulary, position) = (sequence.vocabulary(), sequence.tokens().len());
        let (logits, hidden) = sequence.draft(&rows)?;
        let (mut before, mut survival) = (self.anchor, 1.0);
        let mut state = Vec::new();
        let mut proposal = Proposal::default();
        let rows = logits.chunks(vocabulary).zip(hidden.chunks(width));
        for (place, (logits, row)) in rows.take(most).enumerate() {
            let normed = self.head.normed(row);
            let vector = self.head.markov_vector(before.0).to_vec();
            let confidence = f64::from(self.head.confidence(place, &normed, &vector));
            self.confidences.push(confidence);
            survival *= self.acceptance.likely(confidence);
            let vector = self.head.markov_step(&mut state, &normed, &vector);
            self.candidates.set(logits);
            self.candidates.add(|token| self.head.markov_bias(&vector, token));
            before = self.candidates.propose(self.draws, position + place, survival, &mut proposal);
        }
        Ok(proposal)
    }

    fn learn(&mut self, outcome: &Outcome) {
        let verified = self.confidences.iter().copied().take(outcome.verified);
        self.acceptance.learn(verified, outcome.accepted);
        self.trial.learn(outcome);
    }
}
