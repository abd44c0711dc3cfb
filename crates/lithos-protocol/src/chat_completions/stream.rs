//! An answer as a stream of events.

use serde_json::{Map, Value, json};

use super::response::{FinishReason, Usage};
use crate::error::ApiError;
use crate::sse::Event;

const DONE: &str = "[DONE]";

/// Turns what happens during a generation into the events of a stream: the role, pieces of text, calls, the reason of the
/// end, the usage if it was asked for, and `[DONE]`.
///
/// Every call gives the events to send, in order. Whatever the calls, the stream is well formed: the role comes first, and
/// nothing follows the end.
#[derive(Clone, Debug)]
pub struct ChatStream {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    include_usage: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Open,
    Ended,
}

impl ChatStream {
    /// A stream with its id (`chatcmpl-…`), its time in seconds since 1970, and the model that answers.
    pub fn new(
        id: impl Into<String>,
        created: u64,
        model: impl Into<String>,
        include_usage: bool,
    ) -> Self {
        let (id, model) = (id.into(), model.into());
        ChatStream { id, created, model, include_usage, state: State::New }
    }

    /// Begins the stream, before there is any text.
    pub fn start(&mut self) -> Vec<Event> {
        if self.state != State::New {
            return Vec::new();
        }
        self.state = State::Open;
        vec![self.delta(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null)]
    }

    /// A piece of the answer's text.
    pub fn text(&mut self, text: &str) -> Vec<Event> {
        if text.is_empty() || self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        events.push(self.delta(json!({ "content": text }), Value::Null));
        events
    }

    /// A piece of what the model thinks. It is not in OpenAI's own API; clients know it under the name that llama.cpp and vLLM use.
    pub fn thought(&mut self, thought: &str) -> Vec<Event> {
        if thought.is_empty() || self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        events.push(self.delta(json!({ "reasoning_content": thought }), Value::Null));
        events
    }

    /// A call begins: its place among the calls, its id and the function's name.
    pub fn call_begins(&mut self, index: usize, id: &str, name: &str) -> Vec<Event> {
        let function = json!({"name": name, "arguments": ""});
        self.call(json!({"index": index, "id": id, "type": "function", "function": function}))
    }

    /// More of the arguments of a call.
    pub fn call_arguments(&mut self, index: usize, json: &str) -> Vec<Event> {
        self.call(json!({"index": index, "function": {"arguments": json}}))
    }

    fn call(&mut self, call: Value) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        events.push(self.delta(json!({ "tool_calls": [call] }), Value::Null));
        events
    }

    /// Says that the answer is still coming. Clients' idle timers ignore comments, so this is a delta without content.
    pub fn heartbeat(&mut self) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        if events.is_empty() {
            events.push(self.delta(json!({}), Value::Null));
        }
        events
    }

    /// Ends the stream.
    pub fn finish(&mut self, reason: FinishReason, usage: Usage) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        events.push(self.delta(json!({}), json!(reason)));
        if self.include_usage {
            let mut chunk = self.chunk(json!([]));
            chunk.insert("usage".into(), json!(usage));
            events.push(Event::json(&chunk));
        }
        events.push(Event::data(DONE));
        self.state = State::Ended;
        events
    }

    /// Ends the stream with an error that came after it had begun. The event is both an error object and a last chunk with a
    /// `finish_reason`: clients that look only for the latter would otherwise take the stream for cut off and ask again.
    pub fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        if self.state == State::Ended {
            return Vec::new();
        }
        let mut chunk = self
            .chunk(json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "error"}]));
        chunk.insert("error".into(), error.object());
        self.state = State::Ended;
        vec![Event::json(&chunk), Event::data(DONE)]
    }

    fn delta(&self, delta: Value, finish_reason: Value) -> Event {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish_reason,
        });
        let mut chunk = self.chunk(json!([choice]));
        if self.include_usage {
            chunk.insert("usage".into(), Value::Null);
        }
        Event::json(&chunk)
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let mut chunk = Map::new();
        chunk.insert("id".into(), self.id.as_str().into());
        chunk.insert("object".into(), "chat.completion.chunk".into());
        chunk.insert("created".into(), self.created.into());
        chunk.insert("model".into(), self.model.as_str().into());
        chunk.insert("choices".into(), choices);
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::TokenCounts;

    fn usage(prompt: usize, cached: usize, completion: usize) -> Usage {
        Usage::new(TokenCounts { prompt, cached, completion, thought: 0 })
    }

    fn json_of(event: &Event) -> Value {
        serde_json::from_str(&event.data).unwrap()
    }

    #[test]
    fn a_stream_is_openais_to_the_byte() {
        let mut stream = ChatStream::new("chatcmpl-1", 9, "m", false);
        let mut events = stream.start();
        events.extend(stream.text("Par"));
        events.extend(stream.text(""));
        events.extend(stream.text("is\n"));
        events.extend(stream.finish(FinishReason::Length, usage(1, 0, 2)));
        let head = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":9,"model":"m","choices":[{"index":0,"delta":"#;
        let wanted = [
            head,
            r#"{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}"#,
            "\n\n",
            head,
            r#"{"content":"Par"},"logprobs":null,"finish_reason":null}]}"#,
            "\n\n",
            head,
            r#"{"content":"is\n"},"logprobs":null,"finish_reason":null}]}"#,
            "\n\n",
            head,
            r#"{},"logprobs":null,"finish_reason":"length"}]}"#,
            "\n\ndata: [DONE]\n\n",
        ];
        assert_eq!(crate::sse::encode(&events), wanted.concat());
    }

    #[test]
    fn usage_is_the_last_chunk_and_null_before() {
        let mut stream = ChatStream::new("chatcmpl-1", 9, "m", true);
        let mut events = stream.text("x");
        events.extend(stream.finish(FinishReason::Stop, usage(5, 2, 3)));
        assert_eq!(events.len(), 5);
        for event in &events[..3] {
            let chunk = json_of(event);
            assert!(chunk.get("usage").is_some_and(Value::is_null));
            assert_eq!(chunk["choices"].as_array().unwrap().len(), 1);
        }
        let last = json_of(&events[3]);
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["id"], "chatcmpl-1");
        assert_eq!((&last["usage"]["total_tokens"]), &json!(8));
        assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
        assert_eq!(events[4].data, "[DONE]");
    }

    #[test]
    fn whatever_is_called_the_role_is_first_and_nothing_follows_the_end() {
        let none = usage(1, 0, 0);
        let mut stream = ChatStream::new("i", 0, "m", false);
        let events = stream.finish(FinishReason::Stop, none);
        assert_eq!(json_of(&events[0])["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(events.len(), 3);
        let after = [
            stream.start(),
            stream.text("x"),
            stream.thought("x"),
            stream.call_begins(0, "x", "x"),
            stream.call_arguments(0, "{}"),
            stream.heartbeat(),
            stream.finish(FinishReason::Stop, none),
            stream.fail(&ApiError::internal("x")),
        ];
        assert!(after.iter().all(Vec::is_empty));
    }

    #[test]
    fn heartbeats_carry_the_id_and_no_content() {
        let mut stream = ChatStream::new("chatcmpl-1", 9, "m", false);
        let first = stream.heartbeat();
        assert_eq!(json_of(&first[0])["choices"][0]["delta"]["role"], "assistant");
        let next = stream.heartbeat();
        assert_eq!(next.len(), 1);
        let chunk = json_of(&next[0]);
        assert_eq!(chunk["id"], "chatcmpl-1");
        assert_eq!(chunk["choices"][0]["delta"], json!({}));
    }

    #[test]
    fn a_late_error_is_also_an_end() {
        let mut stream = ChatStream::new("chatcmpl-1", 9, "m", false);
        stream.start();
        let events = stream.fail(&ApiError::internal("it broke"));
        let chunk = json_of(&events[0]);
        assert_eq!(chunk["error"]["message"], "it broke");
        assert_eq!(chunk["error"]["type"], "server_error");
        assert_eq!(chunk["choices"][0]["finish_reason"], "error");
        assert_eq!(events[1].data, "[DONE]");
    }
}
