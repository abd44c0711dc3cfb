//! A check of `tokenizer.json` before the `tokenizers` crate reads it.
//!
//! That crate copies each merged spelling into a buffer as long as the longest token, and panics where a merge makes
//! something longer. The check walks the file once and keeps nothing.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Says what is wrong with the merges of a `tokenizer.json`, if anything. What is not as expected in other ways is left
/// to the reader to complain about.
pub(super) fn check_merges(json: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct File {
        model: Option<Model>,
    }
    let Ok(File { model: Some(model) }) = serde_json::from_slice(json) else {
        return Ok(());
    };
    if model.longest_merge > model.longest_token {
        return Err("a merge makes a text that is longer than every token".to_owned());
    }
    Ok(())
}

/// Lengths in bytes.
#[derive(Default)]
struct Model {
    longest_token: usize,
    longest_merge: usize,
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Model;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Model, A::Error> {
        let mut model = Model::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "vocab" => model.longest_token = map.next_value_seed(Longest(Part::Vocabulary))?,
                "merges" => model.longest_merge = map.next_value_seed(Longest(Part::Merges))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(model)
    }
}

#[derive(Clone, Copy)]
enum Part {
    /// An object: the length of its longest key. A list, as Unigram models have, counts as 0.
    Vocabulary,
    /// A list: the length of its longest merge.
    Merges,
    /// One merge, as a text with a space in it or as a list of texts.
    Merge,
}

/// The greatest length within a part of the model.
#[derive(Clone, Copy)]
struct Longest(Part);

impl<'de> DeserializeSeed<'de> for Longest {
    type Value = usize;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Longest {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary or merges")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let mut longest = 0;
        while let Some(key) = map.next_key_seed(Longest(self.0))? {
            longest = longest.max(key);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(longest)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut longest = 0;
        match self.0 {
            Part::Vocabulary => while items.next_element::<IgnoredAny>()?.is_some() {},
            Part::Merges => {
                while let Some(length) = items.next_element_seed(Longest(Part::Merge))? {
                    longest = longest.max(length);
                }
            }
            Part::Merge => {
                while let Some(length) = items.next_element_seed(Longest(Part::Vocabulary))? {
                    longest += length;
                }
            }
        }
        Ok(longest)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<usize, E> {
        Ok(match self.0 {
            Part::Merge => text.len().saturating_sub(1),
            Part::Vocabulary | Part::Merges => text.len(),
        })
    }
}
