//! The typed key-value part of a GGUF file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::FormatError;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    /// Any unsigned integer type.
    Unsigned(u64),
    /// Any signed integer type.
    Signed(i64),
    /// A single precision number.
    F32(f32),
    /// A double precision number.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    String(String),
    /// Several values of one type.
    Array(MetadataArray),
}

/// An array of metadata values.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataArray {
    /// Any unsigned integer type.
    Unsigned(Vec<u64>),
    /// Any signed integer type.
    Signed(Vec<i64>),
    /// Single precision numbers.
    F32(Vec<f32>),
    /// Double precision numbers.
    F64(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    String(Vec<String>),
}

impl MetadataValue {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Unsigned(_) => "an unsigned integer",
            Self::Signed(_) => "a signed integer",
            Self::F32(_) => "an f32",
            Self::F64(_) => "an f64",
            Self::Bool(_) => "a bool",
            Self::String(_) => "a string",
            Self::Array(MetadataArray::Unsigned(_)) => "an array of unsigned integers",
            Self::Array(MetadataArray::Signed(_)) => "an array of signed integers",
            Self::Array(MetadataArray::F32(_)) => "an array of f32",
            Self::Array(MetadataArray::F64(_)) => "an array of f64",
            Self::Array(MetadataArray::Bool(_)) => "an array of bools",
            Self::Array(MetadataArray::String(_)) => "an array of strings",
        }
    }
}

/// The metadata of a GGUF file: what stands in `config.json` and `tokenizer.json` elsewhere.
///
/// Every getter fails with [`FormatError::MissingKey`] if the key is absent and with [`FormatError::WrongKeyType`] if
/// the value has another type; both name file and key. See [`GgufMetadata::optional`] for keys that may be absent.
#[derive(Debug)]
pub struct GgufMetadata {
    path: PathBuf,
    keys: Vec<String>,
    values: HashMap<String, MetadataValue>,
}

impl GgufMetadata {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), keys: Vec::new(), values: HashMap::new() }
    }

    /// False if the key is there already.
    pub(crate) fn insert(&mut self, key: String, value: MetadataValue) -> bool {
        if self.values.contains_key(&key) {
            return false;
        }
        self.keys.push(key.clone());
        self.values.insert(key, value);
        true
    }

    /// All keys, in file order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Whether the key is there, with any type.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The value as it is stored.
    pub fn value(&self, key: &str) -> Option<&MetadataValue> {
        self.values.get(key)
    }

    /// What a getter says, or `None` if the key is absent: `metadata.optional("llama.rope.freq_base", GgufMetadata::f32)`.
    ///
    /// # Errors
    /// [`FormatError::WrongKeyType`] if the key is there with another type.
    pub fn optional<'a, T>(
        &'a self,
        key: &str,
        getter: fn(&'a Self, &str) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        if self.contains(key) { getter(self, key).map(Some) } else { Ok(None) }
    }

    /// A text.
    ///
    /// # Errors
    /// See [`GgufMetadata`].
    pub fn string(&self, key: &str) -> Result<&str, FormatError> {
        match self.required(key)? {
            MetadataValue::String(text) => Ok(text),
            other => Err(self.wrong_type(key, other, "a string")),
        }
    }

    /// An integer of any stored type that fits 64 bits without a sign.
    ///
    /// # Errors
    /// See [`GgufMetadata`]; also for a negative value.
    pub fn u64(&self, key: &str) -> Result<u64, FormatError> {
        match self.required(key)? {
            MetadataValue::Unsigned(value) => Ok(*value),
            MetadataValue::Signed(value) => {
                u64::try_from(*value).map_err(|_| self.out_of_range(key, value, "at least 0"))
            }
            other => Err(self.wrong_type(key, other, "an integer")),
        }
    }

    /// An integer of any stored type that fits 32 bits without a sign.
    ///
    /// # Errors
    /// See [`GgufMetadata`]; also for a value outside the range.
    pub fn u32(&self, key: &str) -> Result<u32, FormatError> {
        let value = self.u64(key)?;
        u32::try_from(value).map_err(|_| self.out_of_range(key, &value, "at most 2^32 - 1"))
    }

    /// A number with a fraction, stored in single or double precision.
    ///
    /// # Errors
    /// See [`GgufMetadata`].
    pub fn f32(&self, key: &str) -> Result<f32, FormatError> {
        match self.required(key)? {
            MetadataValue::F32(value) => Ok(*value),
            MetadataValue::F64(value) => Ok(*value as f32),
            other => Err(self.wrong_type(key, other, "a floating-point number")),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// See [`GgufMetadata`].
    pub fn bool(&self, key: &str) -> Result<bool, FormatError> {
        match self.required(key)? {
            MetadataValue::Bool(value) => Ok(*value),
            other => Err(self.wrong_type(key, other, "a bool")),
        }
    }

    /// Several texts, such as the tokens of a vocabulary.
    ///
    /// # Errors
    /// See [`GgufMetadata`].
    pub fn string_array(&self, key: &str) -> Result<&[String], FormatError> {
        match self.required(key)? {
            MetadataValue::Array(MetadataArray::String(texts)) => Ok(texts),
            other => Err(self.wrong_type(key, other, "an array of strings")),
        }
    }

    /// Several integers of any stored type.
    ///
    /// # Errors
    /// See [`GgufMetadata`]; also for a value above 2^63 - 1.
    pub fn integer_array(&self, key: &str) -> Result<Vec<i64>, FormatError> {
        match self.required(key)? {
            MetadataValue::Array(MetadataArray::Signed(values)) => Ok(values.clone()),
            MetadataValue::Array(MetadataArray::Unsigned(values)) => values
                .iter()
                .map(|value| {
                    i64::try_from(*value)
                        .map_err(|_| self.out_of_range(key, value, "at most 2^63 - 1"))
                })
                .collect(),
            other => Err(self.wrong_type(key, other, "an array of integers")),
        }
    }

    /// Several single precision numbers, such as the scores of a vocabulary.
    ///
    /// # Errors
    /// See [`GgufMetadata`].
    pub fn f32_array(&self, key: &str) -> Result<&[f32], FormatError> {
        match self.required(key)? {
            MetadataValue::Array(MetadataArray::F32(values)) => Ok(values),
            other => Err(self.wrong_type(key, other, "an array of f32")),
        }
    }

    fn required(&self, key: &str) -> Result<&MetadataValue, FormatError> {
        self.values
            .get(key)
            .ok_or_else(|| FormatError::MissingKey { path: self.path.clone(), key: key.to_owned() })
    }

    fn wrong_type(&self, key: &str, found: &MetadataValue, expected: &'static str) -> FormatError {
        FormatError::WrongKeyType {
            path: self.path.clone(),
            key: key.to_owned(),
            found: found.type_name().to_owned(),
            expected,
        }
    }

    fn out_of_range(
        &self,
        key: &str,
        found: &impl ToString,
        expected: &'static str,
    ) -> FormatError {
        FormatError::WrongKeyType {
            path: self.path.clone(),
            key: key.to_owned(),
            found: found.to_string(),
            expected,
        }
    }
}
