//! A drafter that is right as often as it is told to be.

use lithos_engine::{Drafter, EngineError, MOST_DRAFTS, Outcome, Proposal, Sequence, TokenId};

/// Proposes what it was told to: the text that will follow, with every draft from the `wrong`-th on changed.
pub struct Scripted {
    text: Vec<TokenId>,
    at: usize,
    prompt: usize,
    /// How many drafts of a round are right; drawn anew each round if `None`.
    right: Option<usize>,
    state: u64,
}

impl Scripted {
    pub fn new(prompt: usize, text: &[TokenId], right: Option<usize>) -> Box<Self> {
        Box::new(Scripted { text: text.to_vec(), at: 0, prompt, right, state: 7 })
    }
}

impl Drafter for Scripted {
    fn source(&self) -> &'static str {
        "scripted"
    }

    fn begin(&mut self, tokens: &[TokenId]) {
        assert_eq!(tokens.len(), self.prompt, "a generation begins with its prompt");
        self.at = 0;
    }

    fn take_in(&mut self, tokens: &[TokenId]) {
        assert_eq!(tokens, &self.text[self.at..self.at + tokens.len()], "what was chosen");
        self.at += tokens.len();
    }

    fn propose(&mut self, _: &mut Sequence<'_>, most: usize) -> Result<Proposal, EngineError> {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let right = self.right.unwrap_or((self.state >> 33) as usize % 9);
        let follows = self.text[self.at..].iter().copied().chain(std::iter::repeat(TokenId(3)));
        let tokens: Vec<TokenId> = follows
            .take(most)
            .enumerate()
            .map(|(place, token)| if place < right { token } else { TokenId(token.0 ^ 1) })
            .collect();
        Ok(Proposal { survival: vec![0.9; tokens.len()], tokens, ..Proposal::default() })
    }

    fn learn(&mut self, outcome: &Outcome) {
        assert!(outcome.accepted <= outcome.verified && outcome.verified <= MOST_DRAFTS);
    }
}
