//! A model's vocabulary as the parser takes it.

use lithos_model::text::{TokenId, Tokenizer};
use toktrie::{TokRxInfo, TokTrie};

use crate::error::ConstraintError;

/// Bytes of a token that the trie can hold; longer ones (runs of a thousand blanks) are left out, since shorter ones say the same.
const LONGEST: usize = 1000;

/// Bytes of all tokens: the trie counts its nodes in 22 bits.
const MOST_BYTES: usize = (1 << 22) - 256;

/// The trie of the vocabulary. Ids without a token, as rows that pad an embedding, never match.
pub(crate) fn trie(
    tokenizer: &Tokenizer,
    vocabulary: usize,
    ends: &[TokenId],
) -> Result<TokTrie, ConstraintError> {
    let ends: Vec<u32> =
        ends.iter().filter(|end| end.index() < vocabulary).map(|end| end.0).collect();
    let Some(first_end) = ends.first() else {
        let cause = "it names no token that ends a text".into();
        return Err(ConstraintError::Vocabulary(cause));
    };
    let words: Vec<Vec<u8>> =
        (0..vocabulary).map(|id| word(tokenizer, TokenId(id as u32))).collect();
    let bytes: usize = words.iter().map(Vec::len).sum();
    if bytes > MOST_BYTES {
        let cause =
            format!("its tokens take {bytes} bytes, and at most {MOST_BYTES} are supported");
        return Err(ConstraintError::Vocabulary(cause));
    }
    let info = TokRxInfo::new(vocabulary as u32, *first_end);
    Ok(TokTrie::from(&info, &words).with_eos_tokens(&ends))
}

/// The bytes of a token; those of a special one are marked, so that no text matches them.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let Some(bytes) = tokenizer.token_bytes(id) else { return Vec::new() };
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    if bytes.len() > LONGEST {
        Vec::new()
    } else if tokenizer.is_special(id) {
        [&[marker], &bytes[..]].concat()
    } else if bytes.first() == Some(&marker) {
        // A byte that UTF-8 does not have, which would read as a special token.
        Vec::new()
    } else {
        bytes.into_owned()
    }
}
