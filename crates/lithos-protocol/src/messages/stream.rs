//! An answer, as a stream of events or in one piece.

use serde_json::{Value, json};

use super::error::event_data;
use super::response::{Message, TextBlock, Usage, stop_reason};
use crate::dialect::{DialectAnswer, Ending, Heading, TokenCounts};
use crate::error::ApiError;
use crate::sse::Event;

/// An answer: `message_start`, then for the block of text `content_block_start`, `content_block_delta` and
/// `content_block_stop`, then `message_delta` and `message_stop`; `ping` in between as a sign of life.
#[derive(Clone, Debug)]
pub struct MessagesAnswer {
    heading: Heading,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// The message has begun, no block has.
    Begun,
    /// The block of text is open.
    Text,
    Ended,
}

/// The text is the only block.
const TEXT: usize = 0;

impl MessagesAnswer {
    /// An answer with nothing in it yet.
    pub fn new(heading: Heading) -> Self {
        MessagesAnswer { heading, state: State::New }
    }
}

impl DialectAnswer for MessagesAnswer {
    fn start(&mut self) -> Vec<Event> {
        if self.state != State::New {
            return Vec::new();
        }
        self.state = State::Begun;
        vec![event("message_start", json!({"message": Message::head(&self.heading)}))]
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        if text.is_empty() || self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        if self.state == State::Begun {
            self.state = State::Text;
            let block = json!({"index": TEXT, "content_block": TextBlock::new("")});
            events.push(event("content_block_start", block));
        }
        let delta = json!({"index": TEXT, "delta": {"type": "text_delta", "text": text}});
        events.push(event("content_block_delta", delta));
        events
    }

    fn heartbeat(&mut self) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        events.push(event("ping", json!({})));
        events
    }

    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        if self.state == State::Text {
            events.push(event("content_block_stop", json!({"index": TEXT})));
        }
        self.state = State::Ended;
        let (reason, stop_sequence) = stop_reason(ending);
        let delta = json!({"stop_reason": reason, "stop_sequence": stop_sequence});
        let usage = Usage::from(counts);
        events.push(event("message_delta", json!({"delta": delta, "usage": usage})));
        events.push(event("message_stop", json!({})));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        self.state = State::Ended;
        vec![Event { name: Some("error"), ..Event::json(&event_data(error)) }]
    }

    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        json!(Message::whole(&self.heading, text, ending, counts))
    }
}

/// An event whose data repeats its name as `type`.
fn event(name: &'static str, mut fields: Value) -> Event {
    let mut data = json!({ "type": name });
    if let (Value::Object(data), Value::Object(fields)) = (&mut data, &mut fields) {
        data.append(fields);
    }
    Event { name: Some(name), ..Event::json(&data) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: TokenCounts = TokenCounts { prompt: 10, cached: 4, completion: 3 };

    fn answer() -> MessagesAnswer {
        let (name, model) = ("1".to_owned(), "m".to_owned());
        MessagesAnswer::new(Heading { name, created: 9, model, prompt_tokens: 10 })
    }

    fn names(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.name.unwrap()).collect()
    }

    #[test]
    fn a_stream_is_anthropics_to_the_byte() {
        let mut answer = answer();
        let mut events = answer.start();
        events.extend(answer.heartbeat());
        events.extend(answer.text("Par"));
        events.extend(answer.text(""));
        events.extend(answer.text("is\n"));
        events.extend(answer.finish(&Ending::Model, COUNTS));
        let wanted = [
            "event: message_start\n",
            r#"data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"#,
            r#""usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}"#,
            "\n\nevent: ping\n",
            r#"data: {"type":"ping"}"#,
            "\n\nevent: content_block_start\n",
            r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            "\n\nevent: content_block_delta\n",
            r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Par"}}"#,
            "\n\nevent: content_block_delta\n",
            r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"is\n"}}"#,
            "\n\nevent: content_block_stop\n",
            r#"data: {"type":"content_block_stop","index":0}"#,
            "\n\nevent: message_delta\n",
            r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"#,
            r#""usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3}}"#,
            "\n\nevent: message_stop\n",
            r#"data: {"type":"message_stop"}"#,
            "\n\n",
        ];
        assert_eq!(crate::sse::encode(&events), wanted.concat());
    }

    #[test]
    fn the_end_says_why() {
        for (ending, reason, stop) in [
            (Ending::Model, "end_turn", Value::Null),
            (Ending::Limit, "max_tokens", Value::Null),
            (Ending::StopText("END".into()), "stop_sequence", "END".into()),
        ] {
            let events = answer().finish(&ending, COUNTS);
            // An empty answer has no block.
            assert_eq!(names(&events), ["message_start", "message_delta", "message_stop"]);
            let delta: Value = serde_json::from_str(&events[1].data).unwrap();
            assert_eq!(
                (&delta["delta"]["stop_reason"], &delta["delta"]["stop_sequence"]),
                (&json!(reason), &stop)
            );
            let whole = answer().whole("x", &ending, COUNTS);
            assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!(reason), &stop));
        }
    }

    #[test]
    fn a_whole_answer_is_anthropics() {
        assert_eq!(
            answer().whole("hi", &Ending::Model, COUNTS).to_string(),
            concat!(
                r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"#,
                r#""stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"#,
                r#""cache_read_input_tokens":4,"output_tokens":3}}"#
            )
        );
        assert_eq!(answer().whole("", &Ending::Limit, COUNTS)["content"], json!([]));
    }

    #[test]
    fn a_late_error_ends_the_stream() {
        let mut answer = answer();
        answer.text("x");
        let events = answer.fail(&ApiError::internal("it broke"));
        assert_eq!(
            crate::sse::encode(&events),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"it broke\"}}\n\n"
        );
    }

    #[test]
    fn whatever_is_called_the_message_is_first_and_nothing_follows_the_end() {
        assert_eq!(names(&answer().heartbeat()), ["message_start", "ping"]);
        assert_eq!(
            names(&answer().text("x")),
            ["message_start", "content_block_start", "content_block_delta"]
        );
        for fails in [false, true] {
            let mut answer = answer();
            match fails {
                true => answer.fail(&ApiError::internal("x")),
                false => answer.finish(&Ending::Model, COUNTS),
            };
            let after = [
                answer.start(),
                answer.text("x"),
                answer.heartbeat(),
                answer.finish(&Ending::Model, COUNTS),
                answer.fail(&ApiError::internal("x")),
            ];
            assert!(after.iter().all(Vec::is_empty));
        }
    }
}
