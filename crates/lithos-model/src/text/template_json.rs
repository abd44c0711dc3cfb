//! The `tojson` filter of chat templates: JSON text exactly as Python's `json.dumps` writes it, since models have been
//! trained on that text.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// `value | tojson(indent=…, ensure_ascii=…, separators=…, sort_keys=…)`. As in Hugging Face transformers nothing is
/// escaped for HTML and `ensure_ascii` is off unless asked for.
pub(super) fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(indent_text(&value)?),
    };
    let separators = match options.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => Some((text_at(&pair, 0)?, text_at(&pair, 1)?)),
        _ => None,
    };
    let between_items = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) =
        separators.unwrap_or_else(|| (between_items.to_owned(), ": ".to_owned()));
    let mut writer = Writer {
        out: String::new(),
        indent,
        item_separator,
        key_separator,
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    writer.value(&value, 0)?;
    Ok(Value::from(writer.out))
}

fn indent_text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    match value.as_i64() {
        Some(width @ 0..=64) => Ok(" ".repeat(width as usize)),
        _ => Err(invalid("tojson: indent must be a text or a number from 0 to 64")),
    }
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    pair.get_item_by_index(index)
        .ok()
        .and_then(|text| text.as_str().map(str::to_owned))
        .ok_or_else(|| invalid("tojson: separators must be two texts"))
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

/// Deeper nesting than any real message has; a template cannot exhaust the stack.
const MAX_DEPTH: usize = 256;

struct Writer {
    out: String,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container('[', ']', items, depth, |writer, item, depth| {
                    writer.value(&item, depth)
                })?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    entries.push((key_text(&key)?, item));
                }
                if self.sort_keys {
                    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.container('{', '}', entries, depth, |writer, (key, item), depth| {
                    writer.string(&key);
                    writer.out.push_str(&writer.key_separator);
                    writer.value(&item, depth)
                })?;
            }
            kind => return Err(invalid(format!("tojson: a value of type {kind} is not JSON"))),
        }
        Ok(())
    }

    fn container<T>(
        &mut self,
        open: char,
        close: char,
        items: Vec<T>,
        depth: usize,
        mut write: impl FnMut(&mut Self, T, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let empty = items.is_empty();
        for (position, item) in items.into_iter().enumerate() {
            if position > 0 {
                self.out.push_str(&self.item_separator);
            }
            self.new_line(depth + 1);
            write(self, item, depth + 1)?;
        }
        if !empty {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            self.out.push_str(&float_text(f64::try_from(value.clone())?));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !matches!(c, ' '..='~')) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A key as `json.dumps` turns it into text.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(key.is_true().to_string()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(float_text(f64::try_from(key.clone())?)),
        kind => Err(invalid(format!("tojson: a key of type {kind} is not JSON"))),
    }
}

/// A float as Python's `repr` writes it: the shortest digits that give the number back, with an exponent below 1e-4 and
/// from 1e16 on.
fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = number.abs();
    if number != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        };
    }
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        // What `json.dumps` of CPython 3.11 prints.
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (number, text) in cases {
            assert_eq!(float_text(number), text);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let mut value = Value::from(1);
        for _ in 0..MAX_DEPTH + 1 {
            value = Value::from(vec![value]);
        }
        let options = Kwargs::from_iter(std::iter::empty::<(&str, Value)>());
        assert!(to_json(value, options).is_err());
    }
}
