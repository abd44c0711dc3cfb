//! Where the passes of a prompt end, and where its states are kept.
//!
//! A state's bits depend on how the rows before it were dealt to passes. So a cut depends on nothing but the tokens in front of it: a
//! prompt that goes on from a kept state runs the same passes as one that begins with nothing, whatever follows.

use lithos_model::text::TokenId;

use super::digest::{Digest, after};

/// Tokens between regular cuts, or a little more where the chunk does not divide them: a prompt that is known computes less than this again.
const SPACING: usize = 256;

/// Between any two cuts there is this part of the spacing at least: each has a cost.
const PARTS: usize = 4;

/// Every how many regular cuts a recurrent state is kept that takes more memory than keys and values.
const STATES_APART: usize = 4;

/// The rule of cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cuts {
    /// Rows of a pass.
    chunk: usize,
    /// Positions that are multiples of this are cuts, where there is none just before.
    spacing: usize,
    /// Tokens that end a message.
    ends: Vec<TokenId>,
}

/// A cut of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Tokens before the cut in front of it.
    pub(crate) start: usize,
    /// Tokens before it.
    pub(crate) end: usize,
    /// Of all tokens before it.
    pub(crate) digest: Digest,
    /// Of all tokens before the cut in front of it.
    pub(crate) parent: Digest,
}

impl Cuts {
    /// Cuts for passes of at most so many rows.
    pub(crate) fn new(chunk: usize, ends: Vec<TokenId>) -> Self {
        let chunk = chunk.clamp(1, SPACING);
        Cuts { chunk, spacing: SPACING.next_multiple_of(chunk), ends }
    }

    /// How many of the tokens at `position` are in front of the next cut, if it is among or behind them. `last` is the cut before.
    pub(crate) fn next(&self, last: usize, position: usize, tokens: &[TokenId]) -> Option<usize> {
        let least = self.spacing / PARTS;
        let ends_here = |index: usize| {
            let end = position + index + 1;
            end >= last + least
                && (end.is_multiple_of(self.spacing) || self.ends.contains(&tokens[index]))
        };
        (0..tokens.len()).find(|index| ends_here(*index)).map(|index| index + 1)
    }

    /// Rows of the next pass: at most to the next multiple of the chunk, or to the next cut.
    pub(crate) fn rows(&self, last: usize, position: usize, tokens: &[TokenId]) -> usize {
        let most = (self.chunk - position % self.chunk).min(tokens.len());
        self.next(last, position, &tokens[..most]).unwrap_or(most)
    }

    /// Whether a pass ends here whatever follows, though there may be no cut.
    pub(crate) fn ends_pass(&self, position: usize) -> bool {
        position.is_multiple_of(self.chunk)
    }

    /// All cuts of a prompt, of a model with this digest.
    pub(crate) fn of(&self, model: Digest, tokens: &[TokenId]) -> Vec<Cut> {
        let mut cuts: Vec<Cut> = Vec::new();
        let (mut start, mut parent) = (0, model);
        while let Some(count) = self.next(start, start, &tokens[start..]) {
            let end = start + count;
            let digest = after(parent, &tokens[start..end]);
            cuts.push(Cut { start, end, digest, parent });
            (start, parent) = (end, digest);
        }
        cuts
    }

    /// Whether a large state is kept at this cut of a prompt: at the end of a message, now and then, and at the prompt's last one.
    pub(crate) fn keeps_large_states(&self, end: usize, is_last: bool) -> bool {
        is_last
            || !end.is_multiple_of(self.spacing)
            || end.is_multiple_of(STATES_APART * self.spacing)
    }

    /// What the rule depends on, in words.
    pub(crate) fn describe(&self) -> String {
        format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::prefix::digest::Digest;

    const MODEL: Digest = Digest([7; 32]);

    fn ends(cuts: &[Cut]) -> Vec<usize> {
        cuts.iter().map(|cut| cut.end).collect()
    }

    #[test]
    fn cuts_are_at_multiples_and_at_ends_of_messages_that_are_not_too_near() {
        let cuts = Cuts::new(512, vec![TokenId(1)]);
        let mut tokens = vec![TokenId(0); 600];
        assert_eq!(ends(&cuts.of(MODEL, &tokens)), [256, 512]);
        // 64 tokens between them are the least.
        for (place, wanted) in [
            (62, vec![256, 512]),
            (63, vec![64, 256, 512]),
            (191, vec![192, 256, 512]),
            (192, vec![193, 512]),
            (400, vec![256, 401, 512]),
        ] {
            tokens[place] = TokenId(1);
            assert_eq!(ends(&cuts.of(MODEL, &tokens)), wanted);
            tokens[place] = TokenId(0);
        }
        // A pass of few rows has several to a cut.
        let few = Cuts::new(16, Vec::new());
        assert_eq!(ends(&few.of(MODEL, &tokens)), [256, 512]);
        assert_eq!(few.rows(0, 0, &tokens), 16);
        assert_eq!(few.rows(0, 20, &tokens), 12);
    }

    proptest! {
        #[test]
        fn a_cut_depends_on_the_tokens_before_it_only(
            tokens in proptest::collection::vec(0_u32..6, 1..3000),
            split in 0_usize..3000,
            chunk in prop_oneof![Just(16_usize), Just(64), Just(100), Just(256), Just(512)],
        ) {
            let tokens: Vec<TokenId> = tokens.into_iter().map(TokenId).collect();
            let cuts = Cuts::new(chunk, vec![TokenId(5)]);
            let split = split.min(tokens.len());
            let (all, some) = (cuts.of(MODEL, &tokens), cuts.of(MODEL, &tokens[..split]));
            let before: Vec<Cut> = all.iter().copied().filter(|cut| cut.end <= split).collect();
            prop_assert_eq!(&before, &some);
            // The passes from the last cut on are those of the whole prompt.
            let passes = |mut position: usize, mut last: usize| {
                let mut passes = Vec::new();
                while position < tokens.len() {
                    let rows = cuts.rows(last, position, &tokens[position..]);
                    if cuts.next(last, position, &tokens[position..][..rows]) == Some(rows) {
                        last = position + rows;
                    }
                    position += rows;
                    passes.push(position);
                }
                passes
            };
            let from = some.last().map_or(0, |cut| cut.end);
            let whole: Vec<usize> = passes(0, 0).into_iter().filter(|end| *end > from).collect();
            prop_assert_eq!(passes(from, from), whole);
        }
    }
}
