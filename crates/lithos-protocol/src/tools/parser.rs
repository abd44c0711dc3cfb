//! Finding calls in an answer.

use super::definitions::Tools;
use super::event::{AnswerEnd, CallFault, ToolEvent};
use super::form::{Call, CallForm, Reading};
use super::hermes_json::HermesJson;
use super::markup::{CALL, CALL_END, FUNCTION, Name, may_become, name, without_tags};
use super::qwen_xml::QwenXml;

/// Takes the text of an answer in pieces and gives out text and calls. In which pieces the text comes makes no difference to the
/// events, except that text may be given out in more or fewer pieces.
///
/// White space between text and calls is part of the form, and not given out. Tags of calls are never given out as text, except
/// where the model quotes them: directly behind a backtick.
#[derive(Debug)]
pub struct ToolParser {
    tools: Tools,
    one_call_only: bool,
    /// Taken in, but not understood yet.
    held: String,
    /// The call with which `held` begins.
    call: Option<Box<dyn CallForm>>,
    /// White space that is given out if more text follows.
    blank: String,
    /// The last character in front of `held` that is not part of a call.
    previous: Option<char>,
    /// Whether there is nothing but white space in front of `held` on its line.
    begins_line: bool,
    /// Whether there is nothing but white space between a call and `held`.
    behind_call: bool,
    has_text: bool,
    calls: usize,
}

/// What a `<` is.
enum Tag {
    Text,
    /// A tag of this length that means nothing where it stands.
    Stray(usize),
    Call(Box<dyn CallForm>),
    /// More must come.
    Wait,
}

impl ToolParser {
    /// A parser for an answer to a request that put these functions on offer.
    pub fn new(tools: Tools) -> Self {
        ToolParser {
            tools,
            one_call_only: false,
            held: String::new(),
            call: None,
            blank: String::new(),
            previous: None,
            begins_line: true,
            behind_call: false,
            has_text: false,
            calls: 0,
        }
    }

    /// Gives out the first call only, for clients that take one at a time.
    pub fn one_call_only(mut self, yes: bool) -> Self {
        self.one_call_only = yes;
        self
    }

    /// Calls given out so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Takes in a piece of the answer.
    pub fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.held.push_str(text);
        self.advance(None)
    }

    /// Ends the answer.
    pub fn finish(&mut self, end: AnswerEnd) -> Vec<ToolEvent> {
        let mut events = self.advance(Some(end));
        if self.calls == 0 && !self.blank.is_empty() {
            events.push(ToolEvent::Text(std::mem::take(&mut self.blank)));
        }
        events
    }

    fn advance(&mut self, end: Option<AnswerEnd>) -> Vec<ToolEvent> {
        let mut events = Vec::new();
        while !self.held.is_empty() {
            let known = match &mut self.call {
                Some(call) => match call.read(&self.held, &self.tools, end) {
                    Reading::Unfinished => false,
                    Reading::Read { length, call } => {
                        self.end_call(length, call, &mut events);
                        true
                    }
                },
                None => self.read_text(end.is_some(), &mut events),
            };
            if !known {
                break;
            }
        }
        events
    }

    /// Reads up to the next tag. Returns whether it became known what stands there.
    fn read_text(&mut self, ended: bool, events: &mut Vec<ToolEvent>) -> bool {
        let next = self.held.find('<').unwrap_or(self.held.len());
        self.say_held(next, events);
        if self.held.is_empty() {
            return false;
        }
        match self.tag(ended) {
            Tag::Wait => return false,
            Tag::Text => self.say_held(1, events),
            Tag::Stray(length) => {
                self.held.drain(..length);
                self.begins_line = true;
                if self.behind_call {
                    // It stands inside the call's own form.
                    self.blank.clear();
                }
            }
            Tag::Call(call) => self.call = Some(call),
        }
        true
    }

    /// What the tag is with which `held` begins.
    fn tag(&self, ended: bool) -> Tag {
        let held = self.held.as_str();
        if self.previous == Some('`') {
            return Tag::Text;
        }
        if let Some(after) = held.strip_prefix(CALL) {
            let rest = after.trim_start();
            let start = held.len() - rest.len();
            return match rest.chars().next() {
                Some('{') => Tag::Call(Box::new(HermesJson::new(start))),
                Some(_) if rest.starts_with(FUNCTION) => Tag::Call(Box::new(QwenXml::new(start))),
                None if !ended => Tag::Wait,
                Some(_) if may_become(rest, &[FUNCTION]) => {
                    if ended {
                        Tag::Stray(held.len())
                    } else {
                        Tag::Wait
                    }
                }
                _ => Tag::Stray(CALL.len()),
            };
        }
        if held.starts_with(CALL_END) {
            return Tag::Stray(CALL_END.len());
        }
        // Some models leave out the tag around the function.
        if let Some(rest) = held.strip_prefix(FUNCTION).filter(|_| self.begins_line) {
            return match name(rest) {
                Name::Complete(name, _) if self.tools.parameters(name).is_some() => {
                    Tag::Call(Box::new(QwenXml::new(0)))
                }
                Name::Open if !ended => Tag::Wait,
                _ => Tag::Text,
            };
        }
        if !ended && may_become(held, &[CALL, CALL_END, FUNCTION]) {
            return Tag::Wait;
        }
        // What the answer breaks off in is a tag too, unless it is only a `<`.
        let broken_off = held.len() > 1 && may_become(held, &[CALL, CALL_END, FUNCTION]);
        if broken_off { Tag::Stray(held.len()) } else { Tag::Text }
    }

    fn end_call(
        &mut self,
        length: usize,
        call: Result<Call, CallFault>,
        events: &mut Vec<ToolEvent>,
    ) {
        let source: String = self.held.drain(..length).collect();
        self.call = None;
        self.begins_line = true;
        self.previous = None;
        match call {
            Ok(_) if self.one_call_only && self.calls > 0 => {
                events.push(ToolEvent::NoCall(CallFault::OneCallOnly));
            }
            Ok(Call { name, arguments }) => {
                let index = self.calls;
                self.calls += 1;
                self.blank.clear();
                events.push(ToolEvent::CallBegan { index, name });
                events.push(ToolEvent::Arguments { index, json: arguments });
                events.push(ToolEvent::CallEnded { index });
            }
            Err(fault) => {
                events.push(ToolEvent::NoCall(fault));
                self.say(&without_tags(&source), events);
            }
        }
        self.behind_call = true;
    }

    /// Gives out the first bytes of what is held, as text.
    fn say_held(&mut self, length: usize, events: &mut Vec<ToolEvent>) {
        let text: String = self.held.drain(..length).collect();
        for character in text.chars() {
            self.begins_line = character == '\n' || (self.begins_line && character.is_whitespace());
            self.previous = Some(character);
        }
        self.say(&text, events);
    }

    fn say(&mut self, text: &str, events: &mut Vec<ToolEvent>) {
        let mut text = text;
        if self.calls > 0 && !self.has_text {
            // White space behind calls, in front of the first text.
            text = text.trim_start();
            self.blank.clear();
        }
        let body = text.trim_end();
        if body.is_empty() {
            self.blank.push_str(text);
            return;
        }
        self.has_text = true;
        self.behind_call = false;
        let said = std::mem::take(&mut self.blank) + body;
        self.blank.push_str(&text[body.len()..]);
        match events.last_mut() {
            Some(ToolEvent::Text(last)) => last.push_str(&said),
            _ => events.push(ToolEvent::Text(said)),
        }
    }
}
