//! Calls as Qwen3-Coder and Qwen3.5 write them:
//!
//! ```text
//! <tool_call>
//! <function=NAME>
//! <parameter=KEY>
//! VALUE
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! It looks like XML, but values are verbatim: nothing in them is escaped, and they may hold tags themselves. So a value ends
//! only where the form goes on behind it, and tags that open inside a value are paired with those that close.

use serde_json::Value;

use super::definitions::{Tools, is_required, parameter};
use super::event::{AnswerEnd, CallFault};
use super::form::{Call, CallForm, Reading};
use super::markup::{
    CALL, CALL_END, FUNCTION, FUNCTION_END, Name, PARAMETER, PARAMETER_END, follows, may_become,
    name,
};
use super::schema::Schema;
use super::written_value::{is_nothing, typed};

/// A call that is being read.
#[derive(Debug)]
pub(super) struct QwenXml {
    /// Where the function's tag begins.
    start: usize,
    /// How far it has been read.
    at: usize,
    place: Place,
    function: String,
    /// The arguments so far, with their values as written.
    arguments: Vec<(String, String)>,
    /// Whether tags inside a value are paired.
    pairs: bool,
}

#[derive(Debug)]
enum Place {
    /// At the function's tag.
    Function,
    /// Between the parameters.
    Parameters,
    /// Inside a value.
    Value(OpenValue),
    /// Behind a fault, on the way to the end of the call.
    Malformed,
}

#[derive(Debug)]
struct OpenValue {
    key: String,
    start: usize,
    /// Tags that opened inside the value and have not been closed.
    functions: usize,
    parameters: usize,
    /// Whether a function began and ended inside the value.
    has_function: bool,
}

impl OpenValue {
    fn new(key: String, start: usize) -> Self {
        OpenValue { key, start, functions: 0, parameters: 0, has_function: false }
    }
}

/// What the next step of reading came to.
enum Step {
    /// It can go on.
    Next,
    /// More must come.
    Wait,
    /// The call ends here, behind this many bytes.
    Ends(usize),
    /// The answer is over, and the call is not.
    Over,
}

/// What a `<` in a value is.
enum InValue {
    Text,
    /// The value ends here, and the form goes on this many bytes later.
    End(usize),
    Wait,
}

impl QwenXml {
    /// A call whose function's tag stands at `start`.
    pub(super) fn new(start: usize) -> Self {
        QwenXml {
            start,
            at: start,
            place: Place::Function,
            function: String::new(),
            arguments: Vec::new(),
            pairs: true,
        }
    }

    fn step(&mut self, source: &str, tools: &Tools, end: Option<AnswerEnd>) -> Step {
        match self.place {
            Place::Function => self.read_function(source, end),
            Place::Parameters => self.read_between(source, end),
            Place::Value(_) => self.read_value(source, tools, end.is_some()),
            Place::Malformed => self.skip(source, end.is_some()),
        }
    }

    fn read_function(&mut self, source: &str, end: Option<AnswerEnd>) -> Step {
        let at = self.at + FUNCTION.len();
        match name(&source[at..]) {
            Name::Complete(name, length) => {
                self.function = name.to_owned();
                self.at = at + length;
                self.place = Place::Parameters;
                Step::Next
            }
            Name::Open if end.is_some() => Step::Over,
            Name::Open => Step::Wait,
            Name::None => self.malformed(at),
        }
    }

    fn read_between(&mut self, source: &str, end: Option<AnswerEnd>) -> Step {
        const TAGS: [&str; 5] = [FUNCTION_END, CALL_END, PARAMETER, CALL, FUNCTION];
        let rest = source[self.at..].trim_start();
        self.at = source.len() - rest.len();
        if rest.is_empty() || may_become(rest, &TAGS) {
            return match end {
                None => Step::Wait,
                // Closing tags that the model left out at its end.
                Some(AnswerEnd::Whole) => Step::Ends(source.len()),
                Some(AnswerEnd::Cut) => Step::Over,
            };
        }
        if let Some(rest) = rest.strip_prefix(PARAMETER) {
            let at = self.at + PARAMETER.len();
            return match name(rest) {
                Name::Complete(key, length) => {
                    let (key, start) = (key.to_owned(), at + length);
                    self.at = start;
                    self.place = Place::Value(OpenValue::new(key, start));
                    Step::Next
                }
                Name::Open if end.is_some() => Step::Over,
                Name::Open => Step::Wait,
                Name::None => self.malformed(at),
            };
        }
        match TAGS.iter().find(|tag| rest.starts_with(**tag)) {
            // A call that was not closed ends where the next one begins.
            Some(&CALL | &FUNCTION) => Step::Ends(self.at),
            Some(tag) => Step::Ends(self.at + tag.len()),
            None => self.malformed(self.at),
        }
    }

    fn read_value(&mut self, source: &str, tools: &Tools, ended: bool) -> Step {
        loop {
            let Some(offset) = source[self.at..].find('<') else {
                self.at = source.len();
                return if ended { self.over() } else { Step::Wait };
            };
            self.at += offset;
            match self.tag_in_value(source, tools, ended) {
                InValue::Text => self.at += 1,
                InValue::Wait => return Step::Wait,
                InValue::End(length) => {
                    let parameters = Place::Parameters;
                    let Place::Value(value) = std::mem::replace(&mut self.place, parameters) else {
                        return Step::Next;
                    };
                    let written = without_line_breaks(&source[value.start..self.at]).to_owned();
                    self.arguments.push((value.key, written));
                    self.at += length;
                    return Step::Next;
                }
            }
        }
    }

    fn tag_in_value(&mut self, source: &str, tools: &Tools, ended: bool) -> InValue {
        const TAGS: [&str; 5] = [PARAMETER_END, FUNCTION_END, CALL_END, PARAMETER, FUNCTION];
        let Place::Value(value) = &mut self.place else { return InValue::Text };
        let rest = &source[self.at..];
        let begins_line = source[..self.at].ends_with('\n');
        let ends_if = |ends: Option<bool>, length: usize| match ends {
            Some(true) => InValue::End(length),
            Some(false) => InValue::Text,
            None => InValue::Wait,
        };
        if rest.starts_with(PARAMETER_END) {
            return self.closing_tag_in_value(source, tools, ended);
        }
        if !ended && may_become(rest, &TAGS) {
            return InValue::Wait;
        }
        // The value's own closing tag may be missing, but then the next tag begins a line.
        if !begins_line {
            return InValue::Text;
        }
        if let Some(after) = rest.strip_prefix(FUNCTION_END) {
            if value.functions > 0 {
                value.functions -= 1;
                value.has_function = true;
                return InValue::Text;
            }
            if value.has_function {
                return InValue::Text;
            }
            return ends_if(follows(after, &[CALL_END], ended), 0);
        }
        let may_end = value.functions == 0 && !value.has_function;
        if let Some(after) = rest.strip_prefix(CALL_END).filter(|_| may_end) {
            return ends_if(follows(after, &[CALL], ended), 0);
        }
        self.opening_tag_in_value(rest, tools, ended)
    }

    /// At what may be an opening tag that begins a line.
    fn opening_tag_in_value(&mut self, rest: &str, tools: &Tools, ended: bool) -> InValue {
        let Some(opened) = [PARAMETER, FUNCTION].into_iter().find(|tag| rest.starts_with(tag))
        else {
            return InValue::Text;
        };
        let is_missing = match name(&rest[opened.len()..]) {
            Name::Open if !ended => return InValue::Wait,
            Name::Complete(key, _) => opened == PARAMETER && self.is_missing(key, tools),
            _ => return InValue::Text,
        };
        let Place::Value(value) = &mut self.place else { return InValue::Text };
        if is_missing && value.functions == 0 && value.parameters == 0 {
            return InValue::End(0);
        }
        let count = if opened == PARAMETER { &mut value.parameters } else { &mut value.functions };
        *count += usize::from(self.pairs);
        InValue::Text
    }

    /// At the closing tag of a parameter. It is the value's own if the form goes on behind it, and no function that began in the
    /// value is open.
    fn closing_tag_in_value(&mut self, source: &str, tools: &Tools, ended: bool) -> InValue {
        let Place::Value(value) = &self.place else { return InValue::Text };
        let after = &source[self.at + PARAMETER_END.len()..];
        let mut ends = value.functions == 0;
        if ends {
            match follows(after, &[FUNCTION_END, CALL_END, CALL, PARAMETER], ended) {
                None => return InValue::Wait,
                Some(follows) => ends = follows,
            }
        }
        if ends
            && let Some(next) = after.trim_start().strip_prefix(PARAMETER)
            && value.parameters > 0
        {
            // A parameter that began in the value may end here too. The next one tells which it is.
            match name(next) {
                Name::Open if !ended => return InValue::Wait,
                Name::Complete(key, _) => ends = self.is_missing(key, tools),
                _ => ends = false,
            }
        }
        if ends {
            return InValue::End(PARAMETER_END.len());
        }
        if let Place::Value(value) = &mut self.place {
            value.parameters = value.parameters.saturating_sub(1);
        }
        InValue::Text
    }

    /// Whether the function has a parameter of this name that has not been given, nor is being read.
    fn is_missing(&self, key: &str, tools: &Tools) -> bool {
        let parameters = tools.parameters(&self.function);
        let known = parameters.is_some_and(|parameters| parameter(parameters, key).is_some());
        let open = matches!(&self.place, Place::Value(value) if value.key == key);
        known && !open && !self.arguments.iter().any(|(given, _)| given == key)
    }

    /// Inside a value at the end of the answer. If a function that began in the value was never closed, its end was
    /// taken from the call: then everything is read once more, without pairs.
    fn over(&mut self) -> Step {
        let unpaired =
            matches!(&self.place, Place::Value(value) if value.functions > 0 || value.has_function);
        if !unpaired {
            return Step::Over;
        }
        *self = QwenXml { pairs: false, ..QwenXml::new(self.start) };
        Step::Next
    }

    fn malformed(&mut self, at: usize) -> Step {
        self.at = at;
        self.place = Place::Malformed;
        Step::Next
    }

    fn skip(&mut self, source: &str, ended: bool) -> Step {
        const TAGS: [&str; 3] = [FUNCTION_END, CALL_END, CALL];
        while let Some(offset) = source[self.at..].find('<') {
            self.at += offset;
            let rest = &source[self.at..];
            match TAGS.iter().find(|tag| rest.starts_with(**tag)) {
                Some(&CALL) => return Step::Ends(self.at),
                Some(tag) => return Step::Ends(self.at + tag.len()),
                None if !ended && may_become(rest, &TAGS) => return Step::Wait,
                None => self.at += 1,
            }
        }
        self.at = source.len();
        if ended { Step::Over } else { Step::Wait }
    }

    /// The call that has been read.
    fn call(&self, tools: &Tools) -> Result<Call, CallFault> {
        if matches!(self.place, Place::Malformed) {
            return Err(CallFault::Malformed);
        }
        let function = self.function.clone();
        let Some(parameters) = tools.parameters(&function) else {
            return Err(CallFault::UnknownFunction(function));
        };
        let schema = Schema::root(parameters);
        let mut arguments: Vec<String> = Vec::new();
        for (index, (key, written)) in self.arguments.iter().enumerate() {
            // Of several values for one key the last one counts, as in JSON.
            if self.arguments[index + 1..].iter().any(|(later, _)| later == key) {
                continue;
            }
            let inner = schema.inner(parameter(parameters, key).unwrap_or(&Value::Null));
            match typed(written, inner) {
                Some(value) => arguments.push(format!("{}: {value}", Value::from(key.as_str()))),
                // What need not be there, and is said not to be there, is not there.
                None if is_nothing(written) && !is_required(parameters, key) => {}
                None => {
                    return Err(CallFault::WrongArgument { function, argument: key.clone() });
                }
            }
        }
        let json = format!("{{{}}}", arguments.join(", "));
        match serde_json::from_str(&json) {
            Ok(arguments) if schema.allows(&arguments) => {
                Ok(Call { name: function, arguments: json })
            }
            _ => Err(CallFault::WrongArguments { function }),
        }
    }
}

impl CallForm for QwenXml {
    fn read(&mut self, source: &str, tools: &Tools, end: Option<AnswerEnd>) -> Reading {
        loop {
            match self.step(source, tools, end) {
                Step::Next => {}
                Step::Wait => return Reading::Unfinished,
                Step::Ends(length) => return Reading::Read { length, call: self.call(tools) },
                Step::Over => {
                    let call = Err(CallFault::Unfinished);
                    return Reading::Read { length: source.len(), call };
                }
            }
        }
    }
}

/// A value stands on lines of its own: the line breaks that make it so are not part of it.
fn without_line_breaks(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or(value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or(value.strip_suffix('\n')).unwrap_or(value)
}
