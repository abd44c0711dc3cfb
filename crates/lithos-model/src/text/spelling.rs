//! The bytes that a vocabulary's spellings stand for.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// How a vocabulary spells its tokens, read from the decoder of `tokenizer.json`.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    /// Every byte is one printable character, as in GPT-2.
    byte_level: bool,
    /// Bytes without a token of their own are spelled `<0x0A>`, as SentencePiece does.
    byte_fallback: bool,
    /// What else is replaced, such as `▁` by a space.
    replacements: Vec<(String, String)>,
}

impl Spelling {
    /// Reads the `decoder` entry of `tokenizer.json`. Steps that depend on a token's place in the text (stripping the
    /// first space) do not matter for a text that is continued and are left out.
    pub(super) fn from_decoder(decoder: &Value) -> Self {
        let mut spelling = Self::default();
        spelling.add_step(decoder);
        spelling
    }

    fn add_step(&mut self, step: &Value) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match step["type"].as_str() {
            Some("Sequence") => {
                for step in step["decoders"].as_array().into_iter().flatten() {
                    self.add_step(step);
                }
            }
            Some("ByteLevel") => self.byte_level = true,
            Some("ByteFallback") => self.byte_fallback = true,
            Some("Metaspace") => {
                let replacement = text(&step["replacement"]).unwrap_or_else(|| "▁".to_owned());
                self.replacements.push((replacement, " ".to_owned()));
            }
            Some("Replace") => {
                if let (Some(from), Some(to)) =
                    (text(&step["pattern"]["String"]), text(&step["content"]))
                {
                    self.replacements.push((from, to));
                }
            }
            _ => {}
        }
    }

    /// The bytes of an ordinary token of the vocabulary.
    pub(super) fn bytes(&self, token: &str) -> Vec<u8> {
        if self.byte_level
            && let Some(bytes) = token.chars().map(byte_of).collect()
        {
            return bytes;
        }
        if self.byte_fallback
            && let Some(byte) = fallback_byte(token)
        {
            return vec![byte];
        }
        let mut text = token.to_owned();
        for (from, to) in &self.replacements {
            text = text.replace(from, to);
        }
        text.into_bytes()
    }
}

/// The characters by which GPT-2 spells the bytes 0 to 255: printable ones of Latin-1 stand for themselves, the others
/// take the code points from 256 on in order (`bytes_to_unicode` of OpenAI's GPT-2 encoder).
pub(super) fn byte_characters() -> [char; 256] {
    let mut next = 256;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => char::from(byte),
        _ => {
            next += 1;
            char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
}

fn byte_of(character: char) -> Option<u8> {
    static BYTES: LazyLock<HashMap<char, u8>> =
        LazyLock::new(|| byte_characters().into_iter().zip(0..=255).collect());
    BYTES.get(&character).copied()
}

fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn byte_characters_are_those_of_gpt2() {
        let characters = byte_characters();
        assert_eq!(characters[usize::from(b'A')], 'A');
        assert_eq!(characters[usize::from(b' ')], 'Ġ');
        assert_eq!(characters[usize::from(b'\n')], 'Ċ');
        assert_eq!(characters[0xAD], 'Ń');
        assert_eq!(characters[0xFF], 'ÿ');
        for (byte, character) in characters.into_iter().enumerate() {
            assert_eq!(byte_of(character).map(usize::from), Some(byte));
        }
    }

    #[test]
    fn byte_level_tokens_are_raw_bytes() {
        let spelling = Spelling::from_decoder(&json!({"type": "ByteLevel"}));
        assert_eq!(spelling.bytes("ĠaÃ"), b" a\xC3");
        // Not spelled in the byte alphabet: text as it stands.
        assert_eq!(spelling.bytes("a b"), b"a b");
    }

    #[test]
    fn sentencepiece_tokens_are_text_or_one_byte() {
        let spelling = Spelling::from_decoder(&json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]}));
        assert_eq!(spelling.bytes("▁the"), b" the");
        assert_eq!(spelling.bytes("<0xE2>"), b"\xE2");
        assert_eq!(spelling.bytes("<0xE2"), b"<0xE2");
        let metaspace = Spelling::from_decoder(&json!({"type": "Metaspace", "replacement": "_"}));
        assert_eq!(metaspace.bytes("_a"), b" a");
    }
}
