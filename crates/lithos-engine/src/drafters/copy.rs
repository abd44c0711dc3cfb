//! Copies: what followed the last time that the text stood as it stands now ("prompt lookup decoding", Saxena 2023). Code that is
//! edited, quotations and lists repeat themselves; a copy costs a look into a table.

use std::collections::HashMap;

use lithos_model::text::TokenId;

use super::acceptance::Acceptance;
use super::{Drafter, Outcome, Proposal};
use crate::error::EngineError;
use crate::sequence::Sequence;

/// Tokens that the places in the table have in common with the end of the text, at least.
const KEY: usize = 2;

/// Places that are compared at most, the last ones first.
const PLACES: usize = 32;

/// Longest common part that is looked for.
const LONGEST_MATCH: usize = 32;

/// The lengths of the common part at which acceptance is counted apart: from each of these on.
const LENGTHS: [usize; 6] = [2, 3, 4, 6, 9, 17];

/// Share of tokens accepted that is assumed for each length before any is seen.
const EXPECTED: [f64; 6] = [0.35, 0.45, 0.6, 0.7, 0.8, 0.9];

/// Copies from the text itself.
#[derive(Debug, Default)]
pub(crate) struct Copying {
    text: Vec<TokenId>,
    /// Where something follows each run of [`KEY`] tokens, in order.
    places: HashMap<[TokenId; KEY], Vec<u32>>,
    seen: [Acceptance; LENGTHS.len()],
    /// Length of the last proposal's match, as an index of [`LENGTHS`], if there was one.
    last: Option<usize>,
}

impl Copying {
    fn push(&mut self, token: TokenId) {
        if let Some(key) = self.text.last_chunk::<KEY>() {
            self.places.entry(*key).or_default().push(self.text.len() as u32);
        }
        self.text.push(token);
    }

    /// The place with the longest common part, of equal ones the last, and that length.
    fn best_place(&self) -> Option<(usize, usize)> {
        let key = self.text.last_chunk::<KEY>()?;
        let places = self.places.get(key)?;
        let mut best: Option<(usize, usize)> = None;
        for place in places.iter().rev().take(PLACES).map(|place| *place as usize) {
            let common = self.text[..place]
                .iter()
                .rev()
                .zip(self.text.iter().rev())
                .take(LONGEST_MATCH)
                .take_while(|(before, now)| before == now)
                .count();
            if best.is_none_or(|(_, longest)| common > longest) {
                best = Some((place, common));
            }
            if common == LONGEST_MATCH {
                break;
            }
        }
        best
    }

    /// At most so many tokens that followed where the text stood as it stands now.
    pub(crate) fn copies(&mut self, most: usize) -> Proposal {
        self.last = None;
        let Some((place, common)) = self.best_place() else { return Proposal::default() };
        let class = LENGTHS.iter().rposition(|length| *length <= common).unwrap_or(0);
        self.last = Some(class);
        let rate = self.seen[class].likely(EXPECTED[class]);
        // A copy that comes to the end of the text goes on with itself.
        let period = self.text.len() - place;
        let tokens: Vec<TokenId> = (0..most).map(|i| self.text[place + i % period]).collect();
        let survival = (1..=tokens.len()).map(|count| rate.powi(count as i32)).collect();
        Proposal { tokens, survival, ..Proposal::default() }
    }
}

impl Drafter for Copying {
    fn source(&self) -> &'static str {
        "copy"
    }

    fn begin(&mut self, tokens: &[TokenId]) {
        self.text.clear();
        self.places.clear();
        self.take_in(tokens);
    }

    fn take_in(&mut self, tokens: &[TokenId]) {
        tokens.iter().for_each(|token| self.push(*token));
    }

    fn propose(&mut self, _: &mut Sequence<'_>, most: usize) -> Result<Proposal, EngineError> {
        Ok(self.copies(most))
    }

    fn learn(&mut self, outcome: &Outcome) {
        if let Some(class) = self.last {
            let expected = std::iter::repeat_n(EXPECTED[class], outcome.verified);
            self.seen[class].learn(expected, outcome.accepted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn outcome(verified: usize, accepted: usize) -> Outcome {
        Outcome { verified, accepted, ..Outcome::default() }
    }

    fn proposed(text: &[u32], most: usize) -> Vec<TokenId> {
        let mut copying = Copying::default();
        copying.begin(&tokens(text));
        copying.copies(most).tokens
    }

    #[test]
    fn what_followed_the_same_words_is_proposed() {
        assert_eq!(proposed(&[1, 2, 3, 4, 5, 9, 1, 2], 3), tokens(&[3, 4, 5]));
        assert_eq!(
            proposed(&[1, 2, 3, 4, 5, 9, 1, 2], 10),
            tokens(&[3, 4, 5, 9, 1, 2, 3, 4, 5, 9])
        );
        assert_eq!(proposed(&[1, 2, 3], 4), []);
        assert_eq!(proposed(&[7], 4), []);
        assert_eq!(proposed(&[], 4), []);
    }

    #[test]
    fn the_longest_common_part_wins_and_of_equal_ones_the_last() {
        // After 5 1 2 came 3; after 6 1 2 came 8.
        assert_eq!(proposed(&[5, 1, 2, 3, 6, 1, 2, 8, 5, 1, 2], 1), tokens(&[3]));
        assert_eq!(proposed(&[4, 1, 2, 3, 6, 1, 2, 8, 5, 1, 2], 1), tokens(&[8]));
    }

    #[test]
    fn a_text_that_repeats_itself_is_continued() {
        assert_eq!(proposed(&[3, 3, 3, 3], 2), tokens(&[3, 3]));
        assert_eq!(proposed(&[8, 9, 8, 9], 3), tokens(&[8, 9, 8]));
    }

    #[test]
    fn what_is_refused_is_expected_less_and_what_is_accepted_more() {
        let mut copying = Copying::default();
        copying.begin(&tokens(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3]));
        let before = copying.copies(4).survival;
        assert_eq!(before.len(), 4);
        assert!(before.windows(2).all(|pair| pair[1] < pair[0]));
        copying.learn(&outcome(4, 0));
        let refused = copying.copies(4).survival;
        assert!(refused[0] < before[0]);
        for _ in 0..20 {
            copying.learn(&outcome(4, 4));
        }
        assert!(copying.copies(4).survival[3] > before[3]);
        // Where there was no copy, nothing is learned.
        let survival = copying.copies(4).survival;
        copying.begin(&tokens(&[1]));
        assert_eq!(copying.copies(4).tokens, []);
        copying.learn(&outcome(0, 0));
        copying.begin(&tokens(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3]));
        assert_eq!(copying.copies(4).survival, survival);
    }

    #[test]
    fn a_new_generation_forgets_the_text() {
        let mut copying = Copying::default();
        copying.begin(&tokens(&[1, 2, 3, 1, 2]));
        assert_eq!(copying.copies(1).tokens, tokens(&[3]));
        copying.begin(&tokens(&[1, 2]));
        assert_eq!(copying.copies(1).tokens, []);
    }
}
