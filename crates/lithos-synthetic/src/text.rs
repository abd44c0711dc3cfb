//! The text side: a tokenizer of bytes, a minimal ChatML template, greedy sampling.

use serde_json::{Map, Value, json};

/// Ids below are bytes. Rows of the embedding table past the special tokens stand for no text.
const FIRST_SPECIAL: u32 = 256;

/// Spelled at ids from [`FIRST_SPECIAL`] on.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// The id that ends a text.
pub(crate) const END_OF_TEXT: u32 = FIRST_SPECIAL;

const END_OF_TURN: u32 = FIRST_SPECIAL + 2;

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The files beside `config.json`, with their names.
pub(crate) fn files() -> Vec<(String, Vec<u8>)> {
    let generation = json!({"do_sample": false, "eos_token_id": [END_OF_TURN, END_OF_TEXT]});
    let config = json!({"eos_token": SPECIAL[2], "pad_token": SPECIAL[0]});
    [
        ("generation_config.json", generation.to_string()),
        ("tokenizer.json", tokenizer().to_string()),
        ("tokenizer_config.json", config.to_string()),
        ("chat_template.jinja", TEMPLATE.to_owned()),
    ]
    .map(|(name, text)| (name.to_owned(), text.into_bytes()))
    .into()
}

fn tokenizer() -> Value {
    let vocabulary: Map<String, Value> =
        (0..=255u8).map(|byte| (spelling(byte).to_string(), json!(byte))).collect();
    let special = |(index, content): (usize, &&str)| {
        json!({
            "id": FIRST_SPECIAL as usize + index,
            "content": content,
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            "normalized": false,
            "special": true,
        })
    };
    let byte_level = json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": false,
        "use_regex": false,
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": SPECIAL.iter().enumerate().map(special).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "vocab": vocabulary,
            "merges": [],
        },
    })
}

/// The character that a byte-level vocabulary writes for a byte, as GPT-2's: printable Latin-1 characters stand for
/// themselves, the other bytes for the characters from U+0100 on, in order.
fn spelling(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !is_printable(*other)).count();
    // At most 68 bytes are not printable, so this is a character.
    char::from_u32(0x100 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}
