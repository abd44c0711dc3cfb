//! Calls as Hermes and the models that took its form over (Qwen3) write them:
//!
//! ```text
//! <tool_call>
//! {"name": "NAME", "arguments": {"KEY": VALUE}}
//! </tool_call>
//! ```

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::definitions::{Tools, parameter};
use super::event::{AnswerEnd, CallFault};
use super::form::{Call, CallForm, Reading};
use super::markup::{CALL, CALL_END, may_become};
use super::schema::{Schema, Types};
use super::written_value::typed;

/// A call that is being read.
#[derive(Debug)]
pub(super) struct HermesJson {
    /// Where the object begins.
    start: usize,
    /// How far it has been read.
    at: usize,
    /// Objects and lists that are open.
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// Where the object ends, once that is known.
    end: Option<usize>,
}

/// The object.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    /// Llama's models call them parameters.
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

impl HermesJson {
    /// A call whose object begins at `start`.
    pub(super) fn new(start: usize) -> Self {
        HermesJson { start, at: start, depth: 0, in_text: false, escaped: false, end: None }
    }

    /// Looks for the end of the object. `Some` if the call ends before it.
    fn read_object(&mut self, source: &str, ended: bool) -> Option<Reading> {
        while self.end.is_none() {
            let Some(byte) = source.as_bytes().get(self.at) else {
                return Some(if ended { self.over(source) } else { Reading::Unfinished });
            };
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.end = (self.depth == 0).then_some(self.at + 1);
                }
                b'<' => {
                    let rest = &source[self.at..];
                    if rest.starts_with(CALL_END) {
                        return Some(malformed(self.at + CALL_END.len()));
                    } else if rest.starts_with(CALL) {
                        return Some(malformed(self.at));
                    } else if !ended && may_become(rest, &[CALL, CALL_END]) {
                        return Some(Reading::Unfinished);
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
        None
    }

    /// The answer ended inside the object. If a quotation mark too many made a text of everything behind it, the call ends at
    /// its closing tag.
    fn over(&self, source: &str) -> Reading {
        let behind = source[self.start..].find(CALL_END);
        match behind.filter(|_| self.in_text) {
            Some(offset) => malformed(self.start + offset + CALL_END.len()),
            None => Reading::Read { length: source.len(), call: Err(CallFault::Unfinished) },
        }
    }
}

impl CallForm for HermesJson {
    fn read(&mut self, source: &str, tools: &Tools, end: Option<AnswerEnd>) -> Reading {
        if let Some(reading) = self.read_object(source, end.is_some()) {
            return reading;
        }
        let object = &source[self.start..self.end.unwrap_or(self.at)];
        // Some models close more braces than they opened.
        let rest = source[self.at..].trim_start_matches(|c: char| c.is_whitespace() || c == '}');
        self.at = source.len() - rest.len();
        if end.is_none() && (rest.is_empty() || may_become(rest, &[CALL_END])) {
            return Reading::Unfinished;
        }
        let length = if rest.starts_with(CALL_END) { self.at + CALL_END.len() } else { self.at };
        Reading::Read { length, call: call(object, tools) }
    }
}

fn malformed(length: usize) -> Reading {
    Reading::Read { length, call: Err(CallFault::Malformed) }
}

/// The call that an object means.
fn call(object: &str, tools: &Tools) -> Result<Call, CallFault> {
    let repaired;
    let written: Written<'_> = match serde_json::from_str(object) {
        Ok(written) => written,
        Err(_) => {
            repaired = with_escaped_line_breaks(object);
            serde_json::from_str(&repaired).map_err(|_| CallFault::Malformed)?
        }
    };
    let Some(parameters) = tools.parameters(&written.name) else {
        return Err(CallFault::UnknownFunction(written.name));
    };
    let function = written.name;
    let json = written.arguments.map_or("{}", RawValue::get);
    let unpacked;
    let json = match serde_json::from_str(json) {
        // Some models write the object as a text.
        Ok(Value::String(text)) => {
            unpacked = text;
            unpacked.as_str()
        }
        Ok(Value::Null) => "{}",
        _ => json,
    };
    let Ok(Value::Object(mut arguments)) = serde_json::from_str(json) else {
        return Err(CallFault::WrongArguments { function });
    };
    let mut changed = false;
    for (key, value) in &mut arguments {
        let Some(schema) = parameter(parameters, key) else { continue };
        let schema = Schema::root(parameters).inner(schema);
        if schema.allows(value) {
            continue;
        }
        match with_wanted_type(value, schema) {
            Some(wanted) => *value = wanted,
            None => return Err(CallFault::WrongArgument { function, argument: key.clone() }),
        }
        changed = true;
    }
    let arguments = Value::Object(arguments);
    if !Schema::root(parameters).allows(&arguments) {
        return Err(CallFault::WrongArguments { function });
    }
    let json = if changed { arguments.to_string() } else { json.trim().to_owned() };
    Ok(Call { name: function, arguments: json })
}

/// A value in quotation marks that should have none, or the other way round.
fn with_wanted_type(value: &Value, schema: Schema<'_>) -> Option<Value> {
    match value {
        Value::String(text) => serde_json::from_str(&typed(text, schema)?).ok(),
        Value::Number(_) | Value::Bool(_) if schema.types().contain(Types::STRING) => {
            Some(value.to_string().into()).filter(|text| schema.allows(text))
        }
        _ => None,
    }
}

/// JSON has no line breaks and tabs inside texts, but models that write code put them there.
fn with_escaped_line_breaks(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 16);
    let (mut in_text, mut escaped) = (false, false);
    for character in json.chars() {
        match character {
            '"' if !escaped => in_text = !in_text,
            '\n' if in_text => out.push_str("\\n"),
            '\r' if in_text => out.push_str("\\r"),
            '\t' if in_text => out.push_str("\\t"),
            _ => {}
        }
        if !(in_text && matches!(character, '\n' | '\r' | '\t')) {
            out.push(character);
        }
        escaped = in_text && character == '\\' && !escaped;
    }
    out
}
