//! An answer as a stream of events.

use serde_json::{Value, json};

use super::response::{ResponsesAnswer, part, status};
use crate::dialect::{DialectAnswer, Ending, TokenCounts};
use crate::error::ApiError;
use crate::sse::Event;

/// Where a stream is.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    stage: Stage,
    /// The number of the next event.
    sequence_number: u64,
    /// The answer so far: the events at the end repeat it.
    text: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    New,
    /// The response has begun, its item has not.
    Begun,
    /// The item and its part are open.
    Item,
    Ended,
}

/// The message is the only item, and its text the only part.
const OUTPUT_INDEX: usize = 0;
const CONTENT_INDEX: usize = 0;

/// The events: `response.created` and `response.in_progress`; for the message `response.output_item.added`,
/// `response.content_part.added`, `response.output_text.delta` for each piece, `response.output_text.done`,
/// `response.content_part.done` and `response.output_item.done`; last `response.completed`, `response.incomplete` or
/// `response.failed`. A sign of life is another `response.in_progress`.
impl DialectAnswer for ResponsesAnswer {
    fn start(&mut self) -> Vec<Event> {
        if self.state.stage != Stage::New {
            return Vec::new();
        }
        self.state.stage = Stage::Begun;
        let response = json!({"response": self.in_progress()});
        vec![
            self.event("response.created", response.clone()),
            self.event("response.in_progress", response),
        ]
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        if text.is_empty() || self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.open();
        self.state.text.push_str(text);
        let delta = self.place(json!({"delta": text, "logprobs": []}));
        events.push(self.event("response.output_text.delta", delta));
        events
    }

    fn heartbeat(&mut self) -> Vec<Event> {
        if self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        if events.is_empty() {
            let response = json!({"response": self.in_progress()});
            events.push(self.event("response.in_progress", response));
        }
        events
    }

    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event> {
        if self.state.stage == Stage::Ended {
            return Vec::new();
        }
        // Clients take the answer from its item, so an empty answer has one too.
        let mut events = self.open();
        self.state.stage = Stage::Ended;
        let text = std::mem::take(&mut self.state.text);
        let done = self.place(json!({"text": text, "logprobs": []}));
        events.push(self.event("response.output_text.done", done));
        let done = self.place(json!({"part": part(&text)}));
        events.push(self.event("response.content_part.done", done));
        let item = self.item(status(ending), Some(&text));
        let done = json!({"output_index": OUTPUT_INDEX, "item": item});
        events.push(self.event("response.output_item.done", done));
        let last = match ending {
            Ending::Model | Ending::StopText(_) => "response.completed",
            Ending::Limit => "response.incomplete",
        };
        let response = self.ended(&text, ending, counts);
        events.push(self.event(last, json!({ "response": response })));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        if self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        self.state.stage = Stage::Ended;
        let response = json!({"response": self.failed(error)});
        events.push(self.event("response.failed", response));
        events
    }

    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        self.ended(text, ending, counts)
    }
}

impl ResponsesAnswer {
    /// Opens the item and its part, if they are not.
    fn open(&mut self) -> Vec<Event> {
        let mut events = self.start();
        if self.state.stage == Stage::Begun {
            self.state.stage = Stage::Item;
            let item = self.item("in_progress", None);
            let added = json!({"output_index": OUTPUT_INDEX, "item": item});
            events.push(self.event("response.output_item.added", added));
            let added = self.place(json!({"part": part("")}));
            events.push(self.event("response.content_part.added", added));
        }
        events
    }

    /// Fields with the place in the output that they are about.
    fn place(&self, fields: Value) -> Value {
        let place = json!({
            "item_id": self.item_id(),
            "output_index": OUTPUT_INDEX,
            "content_index": CONTENT_INDEX,
        });
        merged(place, fields)
    }

    /// The next event. Its data repeats its name as `type`.
    fn event(&mut self, name: &'static str, fields: Value) -> Event {
        let data = json!({"type": name, "sequence_number": self.state.sequence_number});
        self.state.sequence_number += 1;
        Event { name: Some(name), ..Event::json(&merged(data, fields)) }
    }
}

/// Both objects' fields, in order.
fn merged(mut first: Value, mut second: Value) -> Value {
    if let (Value::Object(first), Value::Object(second)) = (&mut first, &mut second) {
        first.append(second);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{DialectRequest, Heading};
    use crate::responses::ResponsesRequest;

    const COUNTS: TokenCounts = TokenCounts { prompt: 10, cached: 4, completion: 3 };

    fn answer() -> ResponsesAnswer {
        let body = json!({
            "model": "m", "input": "hi", "instructions": "be brief", "temperature": 0.5,
            "max_output_tokens": 7, "metadata": {"k": "v"}
        });
        let request = ResponsesRequest::parse(body.to_string().as_bytes()).unwrap();
        let (name, model) = ("1".to_owned(), "m".to_owned());
        ResponsesAnswer::new(Heading { name, created: 9, model, prompt_tokens: 10 }, &request)
    }

    fn names(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.name.unwrap()).collect()
    }

    fn data(event: &Event) -> Value {
        serde_json::from_str(&event.data).unwrap()
    }

    #[test]
    fn a_stream_has_openais_events_in_order() {
        let mut answer = answer();
        let mut events = answer.start();
        events.extend(answer.heartbeat());
        events.extend(answer.text("Par"));
        events.extend(answer.text(""));
        events.extend(answer.text("is"));
        events.extend(answer.finish(&Ending::Model, COUNTS));
        assert_eq!(
            names(&events),
            [
                "response.created",
                "response.in_progress",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ]
        );
        for (index, event) in events.iter().enumerate() {
            let data = data(event);
            assert_eq!(data["type"], event.name.unwrap());
            assert_eq!(data["sequence_number"], index);
        }
        for event in &events[..3] {
            let response = &data(event)["response"];
            assert_eq!(
                (&response["id"], &response["status"]),
                (&json!("resp_1"), &json!("in_progress"))
            );
            assert_eq!((&response["output"], &response["usage"]), (&json!([]), &Value::Null));
        }
    }

    #[test]
    fn the_events_of_an_item_are_openais_to_the_byte() {
        let mut answer = answer();
        answer.start();
        let mut events = answer.text("hi");
        events.extend(answer.finish(&Ending::Model, COUNTS));
        let wanted = [
            r#"{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
            r#"{"type":"response.content_part.added","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}"#,
            r#"{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"hi","logprobs":[]}"#,
            r#"{"type":"response.output_text.done","sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"text":"hi","logprobs":[]}"#,
            r#"{"type":"response.content_part.done","sequence_number":6,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}}"#,
            r#"{"type":"response.output_item.done","sequence_number":7,"output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}}"#,
        ];
        for (event, wanted) in events.iter().zip(wanted) {
            assert_eq!(event.data, wanted);
        }
        assert!(events[0].encode().starts_with("event: response.output_item.added\ndata: {"));
        // The last event holds what would have been sent without a stream.
        assert_eq!(data(&events[6])["response"], answer.whole("hi", &Ending::Model, COUNTS));
    }

    #[test]
    fn a_whole_answer_is_openais() {
        assert_eq!(
            answer().whole("hi", &Ending::StopText("x".into()), COUNTS).to_string(),
            concat!(
                r#"{"id":"resp_1","object":"response","created_at":9,"status":"completed","error":null,"incomplete_details":null,"#,
                r#""instructions":"be brief","max_output_tokens":7,"metadata":{"k":"v"},"model":"m","#,
                r#""output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","#,
                r#""content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}],"#,
                r#""parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"#,
                r#""store":false,"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"#,
                r#""top_p":null,"truncation":"disabled","usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"#,
                r#""output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":13}}"#
            )
        );
    }

    #[test]
    fn a_limit_leaves_the_response_incomplete() {
        let mut answer = answer();
        let events = answer.finish(&Ending::Limit, COUNTS);
        assert_eq!(events[events.len() - 2].name, Some("response.output_item.done"));
        assert_eq!(data(&events[events.len() - 2])["item"]["status"], "incomplete");
        let last = events.last().unwrap();
        assert_eq!(last.name, Some("response.incomplete"));
        let response = &data(last)["response"];
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(response["usage"]["total_tokens"], 13);
    }

    #[test]
    fn a_late_error_fails_the_response() {
        let mut answer = answer();
        answer.text("x");
        let events = answer.fail(&ApiError::context_length_exceeded(9, 8));
        assert_eq!(names(&events), ["response.failed"]);
        let response = &data(&events[0])["response"];
        assert_eq!((&response["id"], &response["status"]), (&json!("resp_1"), &json!("failed")));
        assert_eq!(response["error"]["code"], "context_length_exceeded");
        assert_eq!(data(&answer_failing())["response"]["error"]["code"], "server_error");
    }

    fn answer_failing() -> Event {
        answer().fail(&ApiError::internal("it broke")).pop().unwrap()
    }

    #[test]
    fn whatever_is_called_the_response_is_first_and_nothing_follows_the_end() {
        let first = ["response.created", "response.in_progress"];
        assert_eq!(names(&answer().heartbeat()), first);
        assert_eq!(names(&answer().text("x"))[..2], first);
        assert_eq!(names(&answer().finish(&Ending::Model, COUNTS))[..2], first);
        for fails in [false, true] {
            let mut answer = answer();
            let events = match fails {
                true => answer.fail(&ApiError::internal("x")),
                false => answer.finish(&Ending::Model, COUNTS),
            };
            assert_eq!(names(&events)[..2], first);
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
