//! An answer, in one piece or as a stream.

use serde_json::{Map, Value, json};

use crate::chat_completions::Usage;
use crate::dialect::{DialectAnswer, Ending, Heading, TokenCounts};
use crate::error::ApiError;
use crate::sse::Event;

/// An answer to a request: the text as the model writes it.
#[derive(Debug)]
pub(super) struct CompletionAnswer {
    heading: Heading,
    include_usage: bool,
    ended: bool,
}

impl CompletionAnswer {
    /// An answer whose stream ends with the counts of tokens, if asked for.
    pub(super) fn new(heading: Heading, include_usage: bool) -> Self {
        CompletionAnswer { heading, include_usage, ended: false }
    }

    fn object(&self, choices: Value) -> Map<String, Value> {
        let Heading { name, created, model, .. } = &self.heading;
        let head = [
            ("id", json!(format!("cmpl-{name}"))),
            ("object", json!("text_completion")),
            ("created", json!(created)),
            ("model", json!(model)),
            ("choices", choices),
        ];
        head.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn chunk(&self, text: &str, reason: Value) -> Event {
        let mut chunk = self.object(choice(text, reason));
        if self.include_usage {
            chunk.insert("usage".into(), Value::Null);
        }
        Event::json(&chunk)
    }
}

fn choice(text: &str, reason: Value) -> Value {
    json!([{"text": text, "index": 0, "logprobs": null, "finish_reason": reason}])
}

fn reason(ending: &Ending) -> Value {
    match ending {
        Ending::Limit => "length".into(),
        Ending::Model | Ending::StopText(_) => "stop".into(),
    }
}

impl DialectAnswer for CompletionAnswer {
    fn start(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        if text.is_empty() || self.ended { Vec::new() } else { vec![self.chunk(text, Value::Null)] }
    }

    fn heartbeat(&mut self) -> Vec<Event> {
        if self.ended { Vec::new() } else { vec![self.chunk("", Value::Null)] }
    }

    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let mut events = vec![self.chunk("", reason(ending))];
        if self.include_usage {
            let mut chunk = self.object(json!([]));
            chunk.insert("usage".into(), json!(Usage::new(counts)));
            events.push(Event::json(&chunk));
        }
        events.push(Event::data("[DONE]"));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        if std::mem::replace(&mut self.ended, true) {
            return Vec::new();
        }
        let mut chunk = self.object(choice("", "error".into()));
        chunk.insert("error".into(), error.object());
        vec![Event::json(&chunk), Event::data("[DONE]")]
    }

    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        let mut answer = self.object(choice(text, reason(ending)));
        answer.insert("usage".into(), json!(Usage::new(counts)));
        Value::Object(answer)
    }
}
