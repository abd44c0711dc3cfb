//! A conversation as token ids.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::added_tokens::{AddedTokens, SpecialTokens, is_broken};
use super::template::{ChatTemplate, TemplateError, TemplateOptions};
use super::token::TokenId;
use super::tokenizer::{Tokenizer, TokenizerError};

/// Why a conversation could not be turned into a prompt.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The template did not write it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The tokenizer did not encode it.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The texts of the conversation use every private-use character, so none is left to mark them with.
    #[error(
        "the conversation holds a special token and every private-use character of Unicode: remove one of them"
    )]
    NoMarkLeft,
}

/// Writes a conversation with its template and encodes it. Special tokens that the template writes become their ids;
/// special tokens that a message or a tool description spells are text, so that nobody can end a turn or begin one by
/// writing about it, nor by writing a part that the template would complete.
///
/// How: in the texts of the conversation a mark, a private-use character that occurs nowhere else, is put inside each
/// spelling of a special token, also where the text only begins or ends one. The template copies the marks along. In
/// the rendered text the marks are taken out, and a spelling in which one stood is text. The text between two special
/// tokens is then encoded as a whole, so the ids are those of the plain prompt wherever the conversation spells no
/// special token.
///
/// # Errors
/// If the template refuses or fails, or the tokenizer cannot encode the text.
pub fn encode_chat(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    messages: &Value,
    tools: Option<&Value>,
    options: &TemplateOptions,
) -> Result<Vec<TokenId>, ChatError> {
    let added = tokenizer.raw_added_tokens();
    let texts = || {
        let mut texts = Texts::default();
        texts.collect(messages);
        tools.into_iter().for_each(|tools| texts.collect(tools));
        options.extra.values().for_each(|value| texts.collect(value));
        texts
    };
    if !texts().any(|text| !added.breaking_positions(text).is_empty()) {
        let prompt = template.render(messages, tools, options)?;
        return Ok(tokenizer.encode(&prompt, SpecialTokens::Parse)?);
    }
    let mark = unused_mark(texts().0.into_iter().chain([template.source()]))
        .ok_or(ChatError::NoMarkLeft)?;
    let marker = Marker { added, mark };
    let extra =
        options.extra.iter().map(|(name, value)| (name.clone(), marker.marked(value))).collect();
    let options = TemplateOptions { extra, ..options.clone() };
    let tools = tools.map(|tools| marker.marked(tools));
    let prompt = template.render(&marker.marked(messages), tools.as_ref(), &options)?;
    let (prompt, marks) = without_marks(&prompt, mark);
    let ids = tokenizer
        .encode_where(&prompt, |range, token| token.special && is_broken(&marks, range, token))?;
    Ok(ids)
}

/// All texts of a JSON value, keys too.
#[derive(Default)]
struct Texts<'a>(Vec<&'a str>);

impl<'a> Texts<'a> {
    fn collect(&mut self, value: &'a Value) {
        match value {
            Value::String(text) => self.0.push(text),
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(entries) => {
                for (key, item) in entries {
                    self.0.push(key);
                    self.collect(item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn any(&self, condition: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|text| condition(text))
    }
}

/// A private-use character that none of the texts holds.
fn unused_mark<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<char> {
    const PRIVATE_USE: std::ops::RangeInclusive<char> = '\u{E000}'..='\u{F8FF}';
    let used: HashSet<char> = texts
        .into_iter()
        .flat_map(str::chars)
        .filter(|character| PRIVATE_USE.contains(character))
        .collect();
    PRIVATE_USE.into_iter().find(|character| !used.contains(character))
}

struct Marker<'a> {
    added: &'a AddedTokens,
    mark: char,
}

impl Marker<'_> {
    fn marked(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.marked_text(text)),
            Value::Array(items) => items.iter().map(|item| self.marked(item)).collect(),
            Value::Object(entries) => {
                let entries: Map<String, Value> = entries
                    .iter()
                    .map(|(key, item)| (self.marked_text(key), self.marked(item)))
                    .collect();
                Value::Object(entries)
            }
            other => other.clone(),
        }
    }

    fn marked_text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        let mut end = 0;
        for at in self.added.breaking_positions(text) {
            out.push_str(&text[end..at]);
            out.push(self.mark);
            end = at;
        }
        out.push_str(&text[end..]);
        out
    }
}

/// The text without its marks, and the positions in bytes where they stood, ascending.
fn without_marks(text: &str, mark: char) -> (String, Vec<usize>) {
    let mut out = String::with_capacity(text.len());
    let mut positions = Vec::new();
    for part in text.split_inclusive(mark) {
        match part.strip_suffix(mark) {
            Some(part) => {
                out.push_str(part);
                positions.push(out.len());
            }
            None => out.push_str(part),
        }
    }
    (out, positions)
}
