//! An answer, as a stream of events or in one piece.

use serde_json::{Value, json};

use super::error::event_data;
use super::response::{
    Message, SIGNATURE, Usage, call_block, stop_reason, text_block, thinking_block,
};
use crate::answer::{AnswerReader, Piece, WholeAnswer};
use crate::dialect::{DialectAnswer, Ending, Heading, TokenCounts};
use crate::error::ApiError;
use crate::sse::Event;
use crate::tools::Calls;

/// An answer: `message_start`, then for each block `content_block_start`, `content_block_delta` and `content_block_stop`, then
/// `message_delta` and `message_stop`; `ping` in between as a sign of life.
#[derive(Debug)]
pub struct MessagesAnswer {
    heading: Heading,
    calls: Calls,
    reader: AnswerReader,
    state: State,
    /// Blocks that have ended.
    blocks: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    /// The message has begun, and no block is open.
    Begun,
    /// A block is open.
    In(Block),
    Ended,
}

/// Blocks that come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
}

impl MessagesAnswer {
    /// An answer with nothing in it yet, which may hold these calls.
    pub fn new(heading: Heading, calls: Calls) -> Self {
        let reader = AnswerReader::new(&heading, &calls);
        MessagesAnswer { heading, calls, reader, state: State::New, blocks: 0 }
    }

    fn events(&mut self, pieces: Vec<Piece>) -> Vec<Event> {
        let mut events = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Thought(text) => {
                    self.open(Block::Thinking, &mut events);
                    events.push(self.delta(json!({"type": "thinking_delta", "thinking": text})));
                }
                Piece::Text(text) => {
                    self.open(Block::Text, &mut events);
                    events.push(self.delta(json!({"type": "text_delta", "text": text})));
                }
                Piece::Call { index, name, arguments } => {
                    self.close(&mut events);
                    let block = call_block(&self.heading, index, &name, json!({}));
                    events.push(self.block_start(block));
                    let delta = json!({"type": "input_json_delta", "partial_json": arguments});
                    events.push(self.delta(delta));
                    events.push(self.block_stop());
                }
            }
        }
        events
    }

    /// Opens a block, unless it is open.
    fn open(&mut self, block: Block, events: &mut Vec<Event>) {
        if self.state == State::In(block) {
            return;
        }
        self.close(events);
        let start = match block {
            Block::Thinking => thinking_block("", ""),
            Block::Text => text_block(""),
        };
        events.push(self.block_start(start));
        self.state = State::In(block);
    }

    /// Closes the block that is open, if one is.
    fn close(&mut self, events: &mut Vec<Event>) {
        let State::In(block) = self.state else { return };
        if block == Block::Thinking {
            events.push(self.delta(json!({"type": "signature_delta", "signature": SIGNATURE})));
        }
        events.push(self.block_stop());
        self.state = State::Begun;
    }

    fn block_start(&self, block: Value) -> Event {
        event("content_block_start", json!({"index": self.blocks, "content_block": block}))
    }

    fn delta(&self, delta: Value) -> Event {
        event("content_block_delta", json!({"index": self.blocks, "delta": delta}))
    }

    fn block_stop(&mut self) -> Event {
        self.blocks += 1;
        event("content_block_stop", json!({"index": self.blocks - 1}))
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
        let pieces = self.reader.push(text);
        events.extend(self.events(pieces));
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
        let pieces = self.reader.finish(ending);
        events.extend(self.events(pieces));
        self.close(&mut events);
        self.state = State::Ended;
        let (reason, stop_sequence) = stop_reason(ending, self.reader.calls());
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
        let reader = AnswerReader::new(&self.heading, &self.calls);
        let answer = WholeAnswer::read(reader, text, ending);
        json!(Message::whole(&self.heading, answer, ending, counts))
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
    use crate::tools::Tools;

    const COUNTS: TokenCounts = TokenCounts { prompt: 10, cached: 4, completion: 3, thought: 1 };

    fn answer() -> MessagesAnswer {
        with(false, Calls::default())
    }

    fn with(opens_thought: bool, calls: Calls) -> MessagesAnswer {
        let (name, model) = ("1".to_owned(), "m".to_owned());
        let heading = Heading { name, created: 9, model, prompt_tokens: 10, opens_thought };
        MessagesAnswer::new(heading, calls)
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

    #[test]
    fn ac_15_thoughts_words_and_calls_are_blocks_in_order() {
        let list = json!([{"type": "function", "function": {
            "name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}
        }}]);
        let calls = Calls { tools: Some(Tools::of_list(&list)), ..Calls::default() };
        let call =
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
        let text = format!("hm\n</think>\n\nWell.\n\n{call}\n{call}");
        let mut answer = with(true, calls);
        let mut events = Vec::new();
        for character in text.chars() {
            events.extend(answer.text(&character.to_string()));
        }
        events.extend(answer.finish(&Ending::Model, COUNTS));
        // Put together as a client does.
        let mut blocks: Vec<Value> = Vec::new();
        let mut open = false;
        for event in &events {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            match event.name.unwrap() {
                "content_block_start" => {
                    assert!(!open && data["index"] == blocks.len());
                    open = true;
                    blocks.push(data["content_block"].clone());
                }
                "content_block_delta" => {
                    assert!(open && data["index"] == blocks.len() - 1);
                    let (delta, block) = (&data["delta"], blocks.last_mut().unwrap());
                    let (from, to) = match delta["type"].as_str().unwrap() {
                        "thinking_delta" => ("thinking", "thinking"),
                        "signature_delta" => ("signature", "signature"),
                        "text_delta" => ("text", "text"),
                        "input_json_delta" => ("partial_json", "input"),
                        other => panic!("{other}"),
                    };
                    let old = block[to].as_str().unwrap_or("").to_owned();
                    block[to] = (old + delta[from].as_str().unwrap()).into();
                }
                "content_block_stop" => {
                    assert!(open && data["index"] == blocks.len() - 1);
                    open = false;
                    let block = blocks.last_mut().unwrap();
                    if let Some(input) = block["input"].as_str() {
                        block["input"] = serde_json::from_str(input).unwrap();
                    }
                }
                "message_delta" => assert_eq!(data["delta"]["stop_reason"], "tool_use"),
                _ => {}
            }
        }
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}});
        let wanted = json!([
            {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
            {"type": "text", "text": "Well."},
            call("toolu_1_0"),
            call("toolu_1_1")
        ]);
        assert_eq!(Value::Array(blocks), wanted);
        let whole = answer.whole(&text, &Ending::Model, COUNTS);
        assert_eq!((&whole["content"], &whole["stop_reason"]), (&wanted, &json!("tool_use")));
        assert_eq!(answer.whole(&text, &Ending::Limit, COUNTS)["stop_reason"], "max_tokens");
    }
}
