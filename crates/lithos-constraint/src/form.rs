//! What an answer is to look like.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use crate::error::ConstraintError;

/// What an answer is to look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// JSON that is valid against this schema (JSON Schema, draft 2020-12 and earlier ones).
    JsonSchema(Value),
    /// A JSON object, whatever is in it.
    JsonObject,
    /// Text that matches this regular expression from its beginning to its end (the syntax of the Rust crate `regex`).
    Regex(String),
    /// Text of this grammar, in Lark's notation with the extensions of llguidance.
    Lark(String),
}

/// White space between the tokens of JSON: enough to indent, too little for a weak model to go on with blanks for ever.
const WHITE_SPACE: &str = r"[\x20\x0A][\x20]{0,16}";

impl Form {
    /// What it is called in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Form::JsonSchema(_) => "JSON schema",
            Form::JsonObject => "JSON object",
            Form::Regex(_) => "regular expression",
            Form::Lark(_) => "grammar",
        }
    }

    /// Bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Form::JsonSchema(schema) => schema.to_string().len(),
            Form::JsonObject => 0,
            Form::Regex(text) | Form::Lark(text) => text.len(),
        }
    }

    /// How many brackets of a grammar stand within each other, those in its texts among them. Elsewhere depth is bounded where JSON and
    /// expressions are read.
    pub(crate) fn depth(&self) -> usize {
        let Form::Lark(text) = self else { return 0 };
        let (mut depth, mut deepest) = (0_usize, 0);
        for byte in text.bytes() {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        deepest
    }

    /// The form as the library takes it.
    pub(crate) fn grammar(&self) -> Result<TopLevelGrammar, ConstraintError> {
        Ok(match self {
            Form::JsonSchema(schema) => self.json(schema.clone())?,
            Form::JsonObject => self.json(json!({"type": "object"}))?,
            Form::Regex(pattern) => TopLevelGrammar::from_regex(pattern),
            Form::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        })
    }

    fn json(&self, schema: Value) -> Result<TopLevelGrammar, ConstraintError> {
        let mut keys = match schema {
            Value::Object(keys) => keys,
            Value::Bool(true) => serde_json::Map::new(),
            _ => {
                let cause = "a schema is a JSON object, such as {\"type\": \"object\"}".into();
                return Err(ConstraintError::Form { kind: self.kind(), cause });
            }
        };
        // The library's own options: a schema must not choose to have parts of it left out.
        keys.insert("x-guidance".into(), json!({"whitespace_pattern": WHITE_SPACE}));
        Ok(TopLevelGrammar::from_json_schema(Value::Object(keys)))
    }
}
