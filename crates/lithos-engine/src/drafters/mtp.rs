//! Drafts of a model's own multi-token prediction layer, one after the other.

use lithos_model::text::TokenId;

use super::acceptance::Acceptance;
use super::proposal::{Candidates, Draws, Proposal};
use super::trial::Trial;
use super::{DraftLength, Drafter, MOST_DRAFTS, Outcome};
use crate::error::EngineError;
use crate::sequence::Sequence;

/// Drafts of a round, where they are to pay: the layer was trained to predict one token ahead, and each further one is a pass.
const USUAL: usize = 3;

/// How likely all drafts up to here must be accepted for another to be made.
const LEAST: f64 = 0.2;

/// The layer that predicts the token after the next one.
pub struct Mtp {
    anchor: TokenId,
    length: DraftLength,
    candidates: Candidates,
    draws: Option<Draws>,
    acceptance: Acceptance,
    /// How sure the layer was of each of the last drafts, if those before it are accepted.
    confidences: Vec<f64>,
    trial: Trial,
}

impl Mtp {
    /// No more drafts than this rule can have verified: each is a pass of the layer.
    pub fn new(length: DraftLength) -> Self {
        Mtp {
            anchor: TokenId(0),
            length,
            candidates: Candidates::default(),
            draws: None,
            acceptance: Acceptance::default(),
            confidences: Vec::new(),
            trial: Trial::default(),
        }
    }
}

impl Drafter for Mtp {
    fn source(&self) -> &'static str {
        "mtp"
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
        let longest = match self.length {
            DraftLength::Fixed(length) => length,
            DraftLength::Threshold(_) => MOST_DRAFTS,
            DraftLength::Auto => USUAL,
        };
        let most = most.min(longest).min(sequence.room());
        let mut proposal = Proposal::default();
        if !self.trial.begin(most > 0) {
            return Ok(proposal);
        }
        let position = sequence.tokens().len();
        let (mut token, mut row, mut survival) = (self.anchor, None, 1.0);
        for place in 0..most {
            let Some(further) = sequence.predict_further(token, row.as_deref(), place)? else {
                break;
            };
            self.candidates.set(further.logits);
            row = Some(further.row);
            // What it would choose says how sure it is, also where another is drawn: `Proposal::survival` says why.
            let confidence = self.candidates.confidence();
            let likely = self.acceptance.likely(confidence);
            survival *= likely;
            let wanted = match self.length {
                DraftLength::Fixed(_) => true,
                DraftLength::Threshold(least) => likely >= least,
                DraftLength::Auto => survival >= LEAST,
            };
            if !wanted {
                break;
            }
            self.confidences.push(confidence);
            token = self.candidates.propose(self.draws, position + place, survival, &mut proposal);
        }
        Ok(proposal)
    }

    fn learn(&mut self, outcome: &Outcome) {
        let verified = self.confidences.iter().copied().take(outcome.verified);
        self.acceptance.learn(verified, outcome.accepted);
        self.trial.learn(outcome);
    }
}
