//! Finding added tokens in text.
//!
//! The `tokenizers` crate has one switch for a whole tokenizer: special tokens in the text are found, or none is. A chat
//! prompt needs both at once, the template's special tokens found and the user's left alone, so the search is here.

use std::ops::Range;

use tokenizers::AddedToken;

use super::token::TokenId;

/// Whether the special tokens that a text spells become their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// A spelled special token becomes its id: for templates and for text that the caller trusts.
    Parse,
    /// A spelled special token is ordinary text, as a user wrote it. Added tokens that are not special (`<think>`,
    /// `<tool_call>` in the Qwen family) are ordinary vocabulary and are still found.
    AsText,
}

/// An added token that a text spells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The bytes it takes, with the white space that the token swallows.
    pub(super) range: Range<usize>,
    pub(super) id: TokenId,
    pub(super) special: bool,
}

/// Finds the added tokens of a vocabulary in a text: leftmost first, then longest, as the `tokenizers` crate does.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    /// By the first byte of the spelling, the longest spelling first.
    by_first_byte: Vec<Vec<(TokenId, AddedToken)>>,
}

impl AddedTokens {
    pub(super) fn new(tokens: impl IntoIterator<Item = (TokenId, AddedToken)>) -> Self {
        let mut by_first_byte = vec![Vec::new(); 256];
        for (id, token) in tokens {
            if let Some(&first) = token.content.as_bytes().first() {
                by_first_byte[usize::from(first)].push((id, token));
            }
        }
        for bucket in &mut by_first_byte {
            bucket.sort_by_key(|(_, token)| std::cmp::Reverse(token.content.len()));
        }
        Self { by_first_byte }
    }

    /// The longest token that `text` spells at byte `at`, if any.
    fn longest_at(&self, text: &str, at: usize) -> Option<&(TokenId, AddedToken)> {
        let bytes = text.as_bytes();
        let bucket = self.by_first_byte.get(usize::from(bytes[at]))?;
        bucket.iter().find(|(_, token)| bytes[at..].starts_with(token.content.as_bytes()))
    }

    /// Positions in bytes, ascending, such that a mark at each of them breaks every spelling of a special token to which
    /// `text` contributes: behind the first character of a spelling, or of its beginning at the end of the text; at the
    /// start of a text that begins with the rest of a spelling; and before a spelling of one character.
    pub(super) fn breaking_positions(&self, text: &str) -> Vec<usize> {
        let mut positions = Vec::new();
        if self.special().any(|token| ends_inside(&token.content, text)) {
            positions.push(0);
        }
        for at in 0..text.len() {
            let rest = &text.as_bytes()[at..];
            let bucket = self.by_first_byte.get(usize::from(rest[0])).into_iter().flatten();
            let begins = |token: &AddedToken| {
                let spelling = token.content.as_bytes();
                token.special && (rest.starts_with(spelling) || spelling.starts_with(rest))
            };
            // The shortest spelling decides: breaking it breaks the longer ones that begin here too.
            if let Some((_, token)) = bucket.rev().find(|(_, token)| begins(token)) {
                let first = token.content.chars().next().map_or(0, char::len_utf8);
                positions.push(if is_one_character(token) { at } else { at + first });
            }
        }
        positions.dedup();
        positions
    }

    fn special(&self) -> impl Iterator<Item = &AddedToken> {
        let tokens = self.by_first_byte.iter().flatten().map(|(_, token)| token);
        tokens.filter(|token| token.special)
    }

    /// The tokens of `text` from left to right, not overlapping. A spelling for which `is_text` says so is passed over
    /// as a whole.
    pub(super) fn find(
        &self,
        text: &str,
        mut is_text: impl FnMut(&Range<usize>, &AddedToken) -> bool,
    ) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let Some((id, token)) = self.longest_at(text, at) else {
                at += 1;
                continue;
            };
            let mut range = at..at + token.content.len();
            at = range.end;
            if is_text(&range, token) || (token.single_word && !is_single_word(text, &range)) {
                continue;
            }
            if token.lstrip {
                let before = text[..range.start].trim_end().len();
                range.start = before.max(found.last().map_or(0, |last| last.range.end));
            }
            if token.rstrip {
                range.end = text.len() - text[range.end..].trim_start().len();
                at = range.end;
            }
            found.push(Found { range, id: *id, special: token.special });
        }
        found
    }
}

/// Whether a mark at one of the `positions`, which are ascending, breaks the spelling of a token in this range.
pub(super) fn is_broken(positions: &[usize], range: &Range<usize>, token: &AddedToken) -> bool {
    let first_inside = range.start + usize::from(!is_one_character(token));
    let next = positions.partition_point(|position| *position < first_inside);
    positions.get(next).is_some_and(|position| *position < range.end)
}

fn is_one_character(token: &AddedToken) -> bool {
    token.content.chars().nth(1).is_none()
}

/// Whether the text begins with the rest of the spelling, after at least one of its characters.
fn ends_inside(spelling: &str, text: &str) -> bool {
    let mut starts = spelling.char_indices().skip(1);
    starts.any(|(start, _)| text.starts_with(&spelling[start..]))
}

/// Whether no letter, digit or underscore touches the range from outside.
fn is_single_word(text: &str, range: &Range<usize>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..range.start].chars().next_back().is_some_and(is_word)
        && !text[range.end..].chars().next().is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(spellings: &[&str]) -> AddedTokens {
        AddedTokens::new(
            spellings
                .iter()
                .zip(0..)
                .map(|(spelling, id)| (TokenId(id), AddedToken::from(*spelling, true))),
        )
    }

    fn found(tokens: &AddedTokens, text: &str) -> Vec<(u32, Range<usize>)> {
        tokens.find(text, |_, _| false).into_iter().map(|found| (found.id.0, found.range)).collect()
    }

    #[test]
    fn the_leftmost_then_longest_spelling_wins() {
        let tokens = tokens(&["<a>", "<a>b", "b<a>"]);
        assert_eq!(found(&tokens, "b<a>b"), vec![(2, 0..4)]);
        assert_eq!(found(&tokens, "é<a>b<a>"), vec![(1, 2..6), (0, 6..9)]);
    }

    #[test]
    fn white_space_is_swallowed_where_the_token_says_so() {
        let mut mask = AddedToken::from("<mask>", true).lstrip(true);
        mask.rstrip = true;
        let tokens = AddedTokens::new([(TokenId(7), mask)]);
        assert_eq!(found(&tokens, "a \n<mask>  b"), vec![(7, 1..11)]);
        assert_eq!(found(&tokens, "<mask> <mask>"), vec![(7, 0..7), (7, 7..13)]);
    }

    #[test]
    fn a_single_word_token_is_not_found_inside_a_word() {
        let tokens =
            AddedTokens::new([(TokenId(1), AddedToken::from("end", false).single_word(true))]);
        assert_eq!(found(&tokens, "end send the end."), vec![(1, 0..3), (1, 13..16)]);
    }

    #[test]
    fn positions_break_every_spelling() {
        let tokens = tokens(&["aXa", "§"]);
        // Overlapping spellings, and the beginning of one at the end.
        assert_eq!(tokens.breaking_positions("-aXaXa"), vec![2, 4, 6]);
        assert_eq!(tokens.breaking_positions("-aX"), vec![2]);
        // The rest of one at the start.
        assert_eq!(tokens.breaking_positions("Xa-"), vec![0]);
        assert_eq!(tokens.breaking_positions("é§"), vec![2]);
        assert!(tokens.breaking_positions("X").is_empty());
    }

    #[test]
    fn a_mark_beside_a_spelling_does_not_break_it() {
        let three = AddedToken::from("aXa", true);
        let one = AddedToken::from("§", true);
        assert!(is_broken(&[1, 4], &(3..6), &three));
        assert!(!is_broken(&[3, 6], &(3..6), &three));
        assert!(is_broken(&[3], &(3..5), &one));
        assert!(!is_broken(&[5], &(3..5), &one));
    }
}
