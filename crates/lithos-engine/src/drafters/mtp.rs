//! Drafts of a model's own multi-token prediction layer, one after the other.

use lithos_model::text::TokenId;

use super::proposal::{Candidates, Draws, Proposal};
use super::trial::Trial;
use super::{Drafter, Outcome};
use crate::error::EngineError;
use crate::sequence::Sequence;

/// Drafts of a round, unless a number was asked for: the layer was trained to predict one token ahead, and each further one is a pass.
const USUAL: usize = 3;

/// How likely all drafts up to here must be accepted for another to be made.
const LEAST: f64 = 0.2;

/// The layer that predicts the token after the next one.
pub struct Mtp {
    anchor: TokenId,
    /// Drafts of a round at most; the usual ones, as long as they are likely, if `None`.
    length: Option<usize>,
    candidates: Candidates,
    draws: Option<Draws>,
    trial: Trial,
}

impl Mtp {
    /// So many drafts a round at most; if `None`, some, as long as they are likely.
    pub fn new(length: Option<usize>) -> Self {
        Mtp {
            anchor: TokenId(0),
            length,
            candidates: Candidates::default(),
            draws: None,
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
        let most = most.min(self.length.unwrap_or(USUAL)).min(sequence.room());
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
            survival *= self.candidates.confidence();
            if self.length.is_none() && survival < LEAST {
                break;
            }
            token = self.candidates.propose(self.draws, position + place, survival, &mut proposal);
        }
        Ok(proposal)
    }

    fn learn(&mut self, outcome: &Outcome) {
        self.trial.learn(outcome);
    }
}
