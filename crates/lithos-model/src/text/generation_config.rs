//! What a checkpoint says about how to sample from it and when to stop.

use lithos_format::{FormatError, GgufMetadata};
use serde_json::Value;

use super::token::TokenId;

/// The name of the file these defaults come from, for messages.
const GENERATION_CONFIG: &str = "generation_config.json";
const CONFIG: &str = "config.json";

/// A checkpoint's defaults for generation. `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Draw tokens at random; otherwise take the most probable one.
    pub do_sample: Option<bool>,
    /// Divides the logits before the softmax.
    pub temperature: Option<f32>,
    /// Keep this many of the most probable tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keep the most probable tokens that together reach this probability.
    pub top_p: Option<f32>,
    /// Keep the tokens that reach this fraction of the greatest probability.
    pub min_p: Option<f32>,
    /// Divides (or multiplies, if negative) the logits of tokens that occurred.
    pub repetition_penalty: Option<f32>,
    /// Subtracted from the logits of tokens that occurred.
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logits of tokens once for each time they occurred.
    pub frequency_penalty: Option<f32>,
    /// The tokens that end an answer: the union of what the checkpoint's files name, ascending.
    pub eos_token_ids: Vec<TokenId>,
}

/// A key whose value cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {key} must be {expected}, but is {found}")]
pub struct GenerationConfigError {
    file: &'static str,
    key: String,
    expected: &'static str,
    found: String,
}

impl GenerationDefaults {
    /// Reads `generation_config.json`, and the end tokens of `config.json` (also those of its `text_config`).
    /// `tokenizer_eos` is the tokenizer's own end token.
    ///
    /// # Errors
    /// If a key has a value of the wrong type.
    pub fn from_json(
        generation_config: Option<&Value>,
        config: Option<&Value>,
        tokenizer_eos: Option<TokenId>,
    ) -> Result<Self, GenerationConfigError> {
        let mut defaults = Self::default();
        let mut eos: Vec<TokenId> = tokenizer_eos.into_iter().collect();
        if let Some(values) = generation_config {
            let section = Section { file: GENERATION_CONFIG, values };
            defaults = Self {
                do_sample: section.bool("do_sample")?,
                temperature: section.number("temperature")?,
                top_k: section.count("top_k")?,
                top_p: section.number("top_p")?,
                min_p: section.number("min_p")?,
                repetition_penalty: section.number("repetition_penalty")?,
                presence_penalty: section.number("presence_penalty")?,
                frequency_penalty: section.number("frequency_penalty")?,
                eos_token_ids: Vec::new(),
            };
            eos.extend(section.tokens("eos_token_id")?);
        }
        if let Some(config) = config {
            for values in [Some(config), config.get("text_config")].into_iter().flatten() {
                let section = Section { file: CONFIG, values };
                eos.extend(section.tokens("eos_token_id")?);
            }
        }
        Ok(defaults.with_eos(eos))
    }

    /// Reads the metadata of a GGUF file: `general.sampling.*` and the ids of the tokens that end a document, a turn and
    /// a message.
    ///
    /// # Errors
    /// If a key has a value of the wrong type.
    pub fn from_gguf(metadata: &GgufMetadata) -> Result<Self, FormatError> {
        let number = |key: &str| metadata.optional(key, GgufMetadata::f32);
        let mut eos = Vec::new();
        for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
            let key = format!("tokenizer.ggml.{key}");
            eos.extend(metadata.optional(&key, GgufMetadata::u32)?.map(TokenId));
        }
        let defaults = Self {
            temperature: number("general.sampling.temp")?,
            top_k: metadata.optional("general.sampling.top_k", GgufMetadata::u32)?,
            top_p: number("general.sampling.top_p")?,
            min_p: number("general.sampling.min_p")?,
            repetition_penalty: number("general.sampling.penalty_repeat")?,
            ..Self::default()
        };
        Ok(defaults.with_eos(eos))
    }

    /// Whether this token ends an answer.
    pub fn is_eos(&self, id: TokenId) -> bool {
        self.eos_token_ids.binary_search(&id).is_ok()
    }

    /// Adds tokens that end an answer.
    pub(super) fn with_eos(mut self, ids: impl IntoIterator<Item = TokenId>) -> Self {
        self.eos_token_ids.extend(ids);
        self.eos_token_ids.sort_unstable();
        self.eos_token_ids.dedup();
        self
    }
}

/// One object of a configuration file.
struct Section<'a> {
    file: &'static str,
    values: &'a Value,
}

impl<'a> Section<'a> {
    /// The value of a key; `null` counts as absent.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: &'static str, found: &Value) -> GenerationConfigError {
        GenerationConfigError {
            file: self.file,
            key: key.to_owned(),
            expected,
            found: found.to_string(),
        }
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, GenerationConfigError> {
        self.get(key)
            .map(|value| value.as_bool().ok_or_else(|| self.wrong(key, "true or false", value)))
            .transpose()
    }

    fn number(&self, key: &str) -> Result<Option<f32>, GenerationConfigError> {
        self.get(key)
            .map(|value| {
                let number = value.as_f64().map(|number| number as f32);
                number.ok_or_else(|| self.wrong(key, "a number", value))
            })
            .transpose()
    }

    fn count(&self, key: &str) -> Result<Option<u32>, GenerationConfigError> {
        self.get(key)
            .map(|value| as_u32(value).ok_or_else(|| self.wrong(key, "a count", value)))
            .transpose()
    }

    /// One token id or a list of them.
    fn tokens(&self, key: &str) -> Result<Vec<TokenId>, GenerationConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let ids = match value {
            Value::Array(ids) => ids.as_slice(),
            id => std::slice::from_ref(id),
        };
        ids.iter()
            .map(|id| as_u32(id).map(TokenId))
            .collect::<Option<_>>()
            .ok_or_else(|| self.wrong(key, "a token id or a list of them", value))
    }
}

fn as_u32(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_tokens_of_all_files_are_united() {
        let generation = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
            "eos_token_id": [151645, 151643], "pad_token_id": 151643, "min_p": null});
        let config = json!({"eos_token_id": 7, "text_config": {"eos_token_id": 151643}});
        let defaults =
            GenerationDefaults::from_json(Some(&generation), Some(&config), Some(TokenId(9)))
                .unwrap();
        let expected: Vec<TokenId> = [7, 9, 151643, 151645].map(TokenId).to_vec();
        assert_eq!(defaults.eos_token_ids, expected);
        assert_eq!(defaults.do_sample, Some(true));
        assert_eq!(defaults.temperature, Some(0.6));
        assert_eq!(defaults.top_k, Some(20));
        assert_eq!(defaults.min_p, None);
        assert!(defaults.is_eos(TokenId(9)) && !defaults.is_eos(TokenId(8)));
    }

    #[test]
    fn nothing_said_is_nothing_set() {
        let defaults = GenerationDefaults::from_json(None, None, None).unwrap();
        assert_eq!(defaults, GenerationDefaults::default());
    }

    #[test]
    fn a_wrong_type_is_named() {
        for (key, value) in [
            ("do_sample", json!(1)),
            ("temperature", json!("hot")),
            ("top_k", json!(-1)),
            ("top_k", json!(0.5)),
            ("repetition_penalty", json!([1.0])),
            ("eos_token_id", json!("<|im_end|>")),
            ("eos_token_id", json!([1, -2])),
        ] {
            let mut object = serde_json::Map::new();
            object.insert(key.to_owned(), value);
            let error = GenerationDefaults::from_json(Some(&Value::Object(object)), None, None)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("generation_config.json: ") && error.contains(key),
                "{error}"
            );
        }
    }
}
