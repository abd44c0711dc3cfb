//! Copies where they are likely to be right, else the drafts of a drafter that was trained.

use lithos_model::text::TokenId;

use super::{Copying, Drafter, Draws, Outcome, Proposal};
use crate::error::EngineError;
use crate::sequence::Sequence;

/// How likely the first token of a copy must be for the copy to go before the drafter.
const LIKELY: f64 = 0.75;

/// Two sources, of which each round has one.
pub(crate) struct Mixed {
    copying: Copying,
    trained: Box<dyn Drafter>,
    source: &'static str,
    copied: bool,
}

impl Mixed {
    /// Copies before `trained`, together called `source`.
    pub(crate) fn new(trained: Box<dyn Drafter>, source: &'static str) -> Self {
        Mixed { copying: Copying::default(), trained, source, copied: false }
    }
}

impl Drafter for Mixed {
    fn source(&self) -> &'static str {
        self.source
    }

    fn begin(&mut self, tokens: &[TokenId]) {
        self.copying.begin(tokens);
        self.trained.begin(tokens);
    }

    fn take_in(&mut self, tokens: &[TokenId]) {
        self.copying.take_in(tokens);
        self.trained.take_in(tokens);
    }

    fn draw(&mut self, draws: Option<Draws>) {
        self.trained.draw(draws);
    }

    fn propose(
        &mut self,
        sequence: &mut Sequence<'_>,
        most: usize,
    ) -> Result<Proposal, EngineError> {
        let copies = self.copying.copies(most);
        self.copied = copies.survival.first().is_some_and(|first| *first >= LIKELY);
        if self.copied { Ok(copies) } else { self.trained.propose(sequence, most) }
    }

    fn learn(&mut self, outcome: &Outcome) {
        if self.copied {
            self.copying.learn(outcome);
        } else {
            self.trained.learn(outcome);
        }
    }
}
