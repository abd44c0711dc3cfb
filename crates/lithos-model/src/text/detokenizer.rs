//! Tokens to text as they arrive.

use super::token::TokenId;
use super::tokenizer::Tokenizer;

/// Turns tokens into text one at a time, at a cost that does not depend on how many came before.
///
/// The text of all calls together is that of [`String::from_utf8_lossy`] over the bytes of all tokens. Nothing is emitted
/// before it is certain, so a caller never sees half a character.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// The beginning of a character that the next token may complete: at most three bytes.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Begins a text. With `skip_special` the special tokens are left out; added tokens that are not special
    /// (`<think>`, `<tool_call>`) stay.
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer: tokenizer.clone(), skip_special, pending: Vec::new() }
    }

    /// The text that this token completes; empty if it ends inside a character, is skipped, or is an id without a token
    /// (a padding row of the model's embedding).
    pub fn push(&mut self, id: TokenId) -> String {
        if self.skip_special && self.tokenizer.is_special(id) {
            return String::new();
        }
        if let Some(bytes) = self.tokenizer.token_slice(id) {
            self.pending.extend_from_slice(bytes);
        }
        self.take_complete()
    }

    /// Ends the text: a character that was left incomplete becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }

    fn take_complete(&mut self) -> String {
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, tail) = rest.split_at(error.valid_up_to());
                    // Valid as the error says; the lossy conversion only avoids a second check that could fail.
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = tail;
                    let Some(invalid) = error.error_len() else {
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[invalid..];
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
        text
    }
}
