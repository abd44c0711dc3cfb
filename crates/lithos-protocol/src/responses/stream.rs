//! An answer as a stream of events.

use serde_json::{Value, json};

use super::response::{ResponsesAnswer, Setting, part, status};
use super::tools::{Origin, custom_input};
use crate::answer::{AnswerReader, Piece};
use crate::dialect::{DialectAnswer, Ending, TokenCounts};
use crate::error::ApiError;
use crate::sse::Event;

/// Where a stream is.
#[derive(Debug)]
pub(super) struct State {
    stage: Stage,
    reader: AnswerReader,
    /// The number of the next event.
    sequence_number: u64,
    /// The items that are complete: the event at the end repeats them.
    output: Vec<Value>,
    /// The text of the open item: the events at its end repeat it.
    text: String,
    /// Whether clients find an answer in the output.
    answered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    /// The response has begun, and no item is open.
    Begun,
    /// An item is open.
    In(Item),
    Ended,
}

/// Items that come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Reasoning,
    Message,
}

impl State {
    /// The state of an answer that has not begun.
    pub(super) fn new(setting: &Setting) -> Self {
        State {
            stage: Stage::New,
            reader: AnswerReader::new(&setting.heading, &setting.calls),
            sequence_number: 0,
            output: Vec::new(),
            text: String::new(),
            answered: false,
        }
    }
}

/// Items have one part.
const CONTENT_INDEX: usize = 0;

/// The events: `response.created` and `response.in_progress`; then for each item `response.output_item.added`, what it is made
/// of, and `response.output_item.done`; last `response.completed`, `response.incomplete` or `response.failed`. A sign of life is
/// another `response.in_progress`.
///
/// A message and what the model thinks are made of `response.content_part.added`, a delta for each piece of the text, `done`
/// with the whole text, and `response.content_part.done`; a call of a delta and a `done`.
impl DialectAnswer for ResponsesAnswer {
    fn start(&mut self) -> Vec<Event> {
        if self.state.stage != Stage::New {
            return Vec::new();
        }
        self.state.stage = Stage::Begun;
        let response = json!({"response": self.setting.in_progress()});
        vec![
            self.event("response.created", response.clone()),
            self.event("response.in_progress", response),
        ]
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        if text.is_empty() || self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        let pieces = self.state.reader.push(text);
        self.take_in(pieces, &mut events);
        events
    }

    fn heartbeat(&mut self) -> Vec<Event> {
        if self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        if events.is_empty() {
            let response = json!({"response": self.setting.in_progress()});
            events.push(self.event("response.in_progress", response));
        }
        events
    }

    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event> {
        if self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        let pieces = self.state.reader.finish(ending);
        self.take_in(pieces, &mut events);
        if !self.state.answered {
            // Clients take the answer from its item, so an empty answer has one too.
            self.open(Item::Message, &mut events);
        }
        self.close(status(ending), &mut events);
        self.state.stage = Stage::Ended;
        let last = match ending {
            Ending::Model | Ending::StopText(_) => "response.completed",
            Ending::Limit => "response.incomplete",
        };
        let response = self.setting.ended(&self.state.output, ending, counts);
        events.push(self.event(last, json!({ "response": response })));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        if self.state.stage == Stage::Ended {
            return Vec::new();
        }
        let mut events = self.start();
        self.state.stage = Stage::Ended;
        let response = json!({"response": self.setting.failed(error)});
        events.push(self.event("response.failed", response));
        events
    }

    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        // What a stream would have ended with.
        let mut answer = ResponsesAnswer::of(self.setting.clone());
        answer.text(text);
        answer.finish(ending, counts);
        answer.setting.ended(&answer.state.output, ending, counts)
    }
}

impl ResponsesAnswer {
    fn take_in(&mut self, pieces: Vec<Piece>, events: &mut Vec<Event>) {
        for piece in pieces {
            match piece {
                Piece::Thought(text) => self.say(Item::Reasoning, &text, events),
                Piece::Text(text) => self.say(Item::Message, &text, events),
                Piece::Call { index, name, arguments } => {
                    self.close("completed", events);
                    self.call(index, &name, arguments, events);
                }
            }
        }
    }

    fn say(&mut self, item: Item, text: &str, events: &mut Vec<Event>) {
        self.open(item, events);
        self.state.text.push_str(text);
        let (name, fields) = match item {
            Item::Reasoning => ("response.reasoning_text.delta", json!({ "delta": text })),
            Item::Message => ("response.output_text.delta", json!({"delta": text, "logprobs": []})),
        };
        let delta = self.part_event(item, fields);
        events.push(self.event(name, delta));
    }

    /// Opens an item and its part, unless it is open.
    fn open(&mut self, item: Item, events: &mut Vec<Event>) {
        if self.state.stage == Stage::In(item) {
            return;
        }
        self.close("completed", events);
        self.state.stage = Stage::In(item);
        self.state.answered |= item == Item::Message;
        let added = self.item(item, "in_progress", None);
        let added = self.item_event(added);
        events.push(self.event("response.output_item.added", added));
        let added = self.part_event(item, json!({"part": item.part("")}));
        events.push(self.event("response.content_part.added", added));
    }

    /// Closes the item that is open, if one is.
    fn close(&mut self, status: &str, events: &mut Vec<Event>) {
        let Stage::In(item) = self.state.stage else { return };
        let text = std::mem::take(&mut self.state.text);
        let (name, fields) = match item {
            Item::Reasoning => ("response.reasoning_text.done", json!({ "text": text })),
            Item::Message => ("response.output_text.done", json!({"text": text, "logprobs": []})),
        };
        let done = self.part_event(item, fields);
        events.push(self.event(name, done));
        let done = self.part_event(item, json!({"part": item.part(&text)}));
        events.push(self.event("response.content_part.done", done));
        let done = self.item(item, status, Some(&text));
        self.end_item(done, events);
        self.state.stage = Stage::Begun;
    }

    /// A whole call. Its item has an id of its own beside that of the call.
    fn call(&mut self, index: usize, name: &str, arguments: String, events: &mut Vec<Event>) {
        self.state.answered = true;
        let setting = &self.setting;
        let place = self.state.output.len();
        let call_id = format!("call_{}_{index}", setting.heading.name);
        let Origin { namespace, name, custom } = setting.origins.of(name);
        let (kind, prefix, field, delta, done, value) = match custom {
            false => (
                "function_call",
                "fc",
                "arguments",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                arguments,
            ),
            true => (
                "custom_tool_call",
                "ctc",
                "input",
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
                custom_input(&arguments),
            ),
        };
        let id = setting.item_id(prefix, place);
        let item = |status: &str, value: &str| {
            let mut item = json!({
                "id": id, "type": kind, "status": status, "call_id": call_id, "name": name, field: value,
            });
            if let Some(namespace) = &namespace {
                item["namespace"] = namespace.as_str().into();
            }
            item
        };
        let added = self.item_event(item("in_progress", ""));
        events.push(self.event("response.output_item.added", added));
        let place = json!({"item_id": id, "output_index": place});
        let piece = merged(place.clone(), json!({ "delta": value }));
        events.push(self.event(delta, piece));
        let mut whole = merged(place, json!({ field: value }));
        if !custom {
            whole["name"] = name.as_str().into();
        }
        events.push(self.event(done, whole));
        self.end_item(item("completed", &value), events);
    }

    fn end_item(&mut self, item: Value, events: &mut Vec<Event>) {
        let done = self.item_event(item.clone());
        events.push(self.event("response.output_item.done", done));
        self.state.output.push(item);
    }

    /// An item; without a text it has no part yet.
    fn item(&self, item: Item, status: &str, text: Option<&str>) -> Value {
        let content: Value = text.map(|text| item.part(text)).into_iter().collect();
        let id = self.setting.item_id(item.prefix(), self.state.output.len());
        match item {
            Item::Reasoning => json!({
                "id": id, "type": "reasoning", "status": status, "summary": [], "content": content,
            }),
            Item::Message => json!({
                "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
            }),
        }
    }

    /// Fields about an item that is being made.
    fn item_event(&self, item: Value) -> Value {
        json!({"output_index": self.state.output.len(), "item": item})
    }

    /// Fields about the part of an item that is being made.
    fn part_event(&self, item: Item, fields: Value) -> Value {
        let index = self.state.output.len();
        let place = json!({
            "item_id": self.setting.item_id(item.prefix(), index),
            "output_index": index,
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

impl Item {
    fn prefix(self) -> &'static str {
        match self {
            Item::Reasoning => "rs",
            Item::Message => "msg",
        }
    }

    fn part(self, text: &str) -> Value {
        match self {
            Item::Reasoning => json!({"type": "reasoning_text", "text": text}),
            Item::Message => part(text),
        }
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

    const COUNTS: TokenCounts = TokenCounts { prompt: 10, cached: 4, completion: 3, thought: 0 };

    fn answer() -> ResponsesAnswer {
        with(false, json!([]))
    }

    fn with(opens_thought: bool, tools: Value) -> ResponsesAnswer {
        let body = json!({
            "model": "m", "input": "hi", "instructions": "be brief", "temperature": 0.5,
            "max_output_tokens": 7, "metadata": {"k": "v"}, "tools": tools
        });
        let request = ResponsesRequest::parse(body.to_string().as_bytes()).unwrap();
        let (name, model) = ("1".to_owned(), "m".to_owned());
        let heading = Heading { name, created: 9, model, prompt_tokens: 10, opens_thought };
        ResponsesAnswer::new(heading, &request)
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
            r#"{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1_0","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
            r#"{"type":"response.content_part.added","sequence_number":3,"item_id":"msg_1_0","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}"#,
            r#"{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1_0","output_index":0,"content_index":0,"delta":"hi","logprobs":[]}"#,
            r#"{"type":"response.output_text.done","sequence_number":5,"item_id":"msg_1_0","output_index":0,"content_index":0,"text":"hi","logprobs":[]}"#,
            r#"{"type":"response.content_part.done","sequence_number":6,"item_id":"msg_1_0","output_index":0,"content_index":0,"part":{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}}"#,
            r#"{"type":"response.output_item.done","sequence_number":7,"output_index":0,"item":{"id":"msg_1_0","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}}"#,
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
                r#""output":[{"id":"msg_1_0","type":"message","status":"completed","role":"assistant","#,
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

    /// All events of an answer that comes character by character.
    fn stream(answer: &mut ResponsesAnswer, text: &str) -> Vec<Event> {
        let mut events = answer.start();
        for character in text.chars() {
            events.extend(answer.text(&character.to_string()));
        }
        events.extend(answer.finish(&Ending::Model, COUNTS));
        events
    }

    fn call(name: &str, parameter: &str) -> String {
        format!(
            "<tool_call>\n<function={name}>\n<parameter={parameter}>\n1\n</parameter>\n</function>\n</tool_call>"
        )
    }

    #[test]
    fn thoughts_and_calls_are_items_of_their_own() {
        let f = json!({"type": "function", "name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}});
        let tools = json!([f, {"type": "namespace", "name": "n", "tools": [f]}, {"type": "custom", "name": "c"}]);
        let text = format!(
            "hm</think>\n\n{}\n{}\n{}",
            call("f", "a"),
            call("n__f", "a"),
            call("c", "input")
        );
        let mut answer = with(true, tools);
        let events = stream(&mut answer, &text);
        let call =
            |delta, done| ["response.output_item.added", delta, done, "response.output_item.done"];
        let function =
            call("response.function_call_arguments.delta", "response.function_call_arguments.done");
        let custom =
            call("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done");
        let mut wanted = vec![
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ];
        wanted.extend(function.iter().chain(&function).chain(&custom));
        wanted.push("response.completed");
        assert_eq!(names(&events), wanted);
        let output = data(events.last().unwrap())["response"]["output"].take();
        assert_eq!(
            output,
            json!([
                {"id": "rs_1_0", "type": "reasoning", "status": "completed", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"id": "fc_1_1", "type": "function_call", "status": "completed", "call_id": "call_1_0", "name": "f",
                 "arguments": "{\"a\": 1}"},
                {"id": "fc_1_2", "type": "function_call", "status": "completed", "call_id": "call_1_1", "name": "f",
                 "arguments": "{\"a\": 1}", "namespace": "n"},
                {"id": "ctc_1_3", "type": "custom_tool_call", "status": "completed", "call_id": "call_1_2", "name": "c",
                 "input": "1"}
            ])
        );
        let whole = answer.whole(&text, &Ending::Model, COUNTS);
        assert_eq!(whole["output"], output);
        // Every item is said to be done as it stands in the response, and at its place.
        let done = events.iter().filter(|event| event.name == Some("response.output_item.done"));
        for (index, event) in done.enumerate() {
            let data = data(event);
            assert_eq!((&data["output_index"], &data["item"]), (&json!(index), &output[index]));
        }
        let arguments = data(&events[11]);
        assert_eq!((&arguments["name"], &arguments["item_id"]), (&json!("f"), &json!("fc_1_1")));
    }

    #[test]
    fn words_around_calls_are_messages() {
        let tools = json!([{"type": "function", "name": "f"}]);
        let text = format!("a\n{}\nb", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>");
        let whole = with(false, tools).whole(&text, &Ending::Limit, COUNTS);
        let kinds: Vec<_> = whole["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (item["type"].as_str().unwrap(), item["status"].as_str().unwrap()))
            .collect();
        let wanted =
            [("message", "completed"), ("function_call", "completed"), ("message", "incomplete")];
        assert_eq!(kinds, wanted);
    }
}
