//! Reading a model's configuration: values by key, with errors that name the key.

use std::path::PathBuf;

use serde_json::Value;

use lithos_graph::{Rotary, RotaryScaling};

use crate::model::ModelError;

/// A `config.json` object. Lookups fail with the key's name and the file's.
pub(crate) struct Config<'a> {
    object: &'a Value,
    /// The outer object, where `object` is its `text_config`.
    outer: &'a Value,
    file: PathBuf,
}

impl<'a> Config<'a> {
    /// The text model's part of a `config.json`: `text_config` where there is one.
    pub(crate) fn text_model(config: &'a Value, file: PathBuf) -> Self {
        Config { object: config.get("text_config").unwrap_or(config), outer: config, file }
    }

    pub(crate) fn size(&self, key: &'static str) -> Result<usize, ModelError> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn optional_size(&self, key: &'static str) -> Result<Option<usize>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                // A size that does not fit 31 bits is no size of a model; it would only overflow later arithmetic.
                Some(size) if size > 0 && size < 1 << 31 => Ok(Some(size as usize)),
                _ => Err(self.wrong(key, "a positive integer", value)),
            },
        }
    }

    pub(crate) fn number_or(&self, key: &'static str, default: f64) -> Result<f64, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| self.wrong(key, "a number", value)),
        }
    }

    pub(crate) fn flag_or(&self, key: &'static str, default: bool) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, "true or false", value)),
        }
    }

    /// Whether the vocabulary projection shares the embedding table. May stand beside `text_config`.
    pub(crate) fn tied_embeddings(&self, default: bool) -> Result<bool, ModelError> {
        let key = "tie_word_embeddings";
        match self.get(key).or_else(|| self.outer.get(key)) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, "true or false", value)),
        }
    }

    /// The kinds of the layers, if listed.
    pub(crate) fn layer_types(&self) -> Result<Option<Vec<String>>, ModelError> {
        let key = "layer_types";
        let Some(value) = self.get(key) else { return Ok(None) };
        let names = value.as_array().and_then(|list| {
            list.iter().map(|name| name.as_str().map(str::to_string)).collect::<Option<Vec<_>>>()
        });
        names.map(Some).ok_or_else(|| self.wrong(key, "a list of names", value))
    }

    /// Whether a list has entries.
    pub(crate) fn lists_something(&self, key: &'static str) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(false),
            Some(value) => match value.as_array() {
                Some(list) => Ok(!list.is_empty()),
                None => Err(self.wrong(key, "a list", value)),
            },
        }
    }

    /// Fails unless the activation is SiLU.
    pub(crate) fn require_silu(&self) -> Result<(), ModelError> {
        self.require_text("hidden_act", &["silu", "swish"])
    }

    /// Fails if `key` is present and not one of `known`.
    pub(crate) fn require_text(&self, key: &'static str, known: &[&str]) -> Result<(), ModelError> {
        match self.get(key) {
            None => Ok(()),
            Some(value) if value.as_str().is_some_and(|name| known.contains(&name)) => Ok(()),
            Some(value) => Err(self.unsupported(key, value, known)),
        }
    }

    /// Fails if `key` is present and true: the feature behind it is not built.
    pub(crate) fn require_unset(&self, key: &'static str) -> Result<(), ModelError> {
        match self.get(key) {
            Some(value @ Value::Bool(true)) => Err(self.unsupported(key, value, &["false"])),
            _ => Ok(()),
        }
    }

    /// The rotary embedding, from `rope_parameters` or the older `rope_theta` and `rope_scaling`.
    pub(crate) fn rotary(&self, head_dim: usize, theta: f64) -> Result<Rotary, ModelError> {
        self.rotary_of(head_dim, theta, false)
    }

    /// As [`Config::rotary`], of a drafter, which may be stretched by YaRN.
    pub(crate) fn drafter_rotary(&self, head_dim: usize) -> Result<Rotary, ModelError> {
        self.rotary_of(head_dim, 10_000.0, true)
    }

    fn rotary_of(&self, head_dim: usize, theta: f64, yarn: bool) -> Result<Rotary, ModelError> {
        let parameters = self.get("rope_parameters").or_else(|| self.get("rope_scaling"));
        let field = |name: &str| parameters.and_then(|parameters| parameters.get(name));
        let number = |name: &'static str| -> Result<f64, ModelError> {
            let value = field(name).ok_or_else(|| self.missing(name))?;
            value
                .as_f64()
                .filter(|x| *x > 0.0)
                .ok_or_else(|| self.wrong(name, "a positive number", value))
        };
        let theta = match field("rope_theta") {
            Some(_) => number("rope_theta")?,
            None => self.number_or("rope_theta", theta)?,
        };
        let partial = match field("partial_rotary_factor") {
            Some(_) => number("partial_rotary_factor")?,
            None => self.number_or("partial_rotary_factor", 1.0)?,
        };
        let kind = field("rope_type").or_else(|| field("type"));
        let scaling = match kind.map(|kind| kind.as_str().unwrap_or("")) {
            None | Some("default") => RotaryScaling::None,
            Some("llama3") => RotaryScaling::Llama3 {
                factor: number("factor")?,
                low_frequency_factor: number("low_freq_factor")?,
                high_frequency_factor: number("high_freq_factor")?,
                original_context: number("original_max_position_embeddings")?,
            },
            // Made for drafters; models stretched so are not described.
            Some("yarn") if yarn => {
                let factor = number("factor")?;
                let given = |name: &'static str, default: f64| match field(name) {
                    Some(value) if !value.is_null() => number(name),
                    _ => Ok(default),
                };
                RotaryScaling::Yarn {
                    factor,
                    original_context: number("original_max_position_embeddings")?,
                    fast: given("beta_fast", 32.0)?,
                    slow: given("beta_slow", 1.0)?,
                    magnitude: given("attention_factor", 0.1 * factor.ln() + 1.0)? as f32,
                }
            }
            Some(_) => {
                let value = kind.unwrap_or(&Value::Null);
                return Err(self.unsupported("rope_type", value, &["default", "llama3"]));
            }
        };
        Ok(Rotary { dim: (head_dim as f64 * partial) as usize / 2 * 2, theta, scaling })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn missing(&self, key: &str) -> ModelError {
        ModelError::Config { file: self.file.clone(), problem: format!("`{key}` is missing") }
    }

    fn wrong(&self, key: &str, wanted: &str, found: &Value) -> ModelError {
        let problem = format!("`{key}` must be {wanted}, found {found}");
        ModelError::Config { file: self.file.clone(), problem }
    }

    fn unsupported(&self, key: &str, found: &Value, known: &[&str]) -> ModelError {
        let problem = format!("{key} {found} is not supported (supported: {})", known.join(", "));
        ModelError::Config { file: self.file.clone(), problem }
    }
}
