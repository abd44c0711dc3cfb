//! An answer: thoughts, words and calls as Chat Completions spells them.

use serde_json::{Value, json};

use super::response::ToolCall;
use super::{ChatCompletion, ChatStream, FinishReason};
use crate::answer::{AnswerReader, Piece, WholeAnswer};
use crate::dialect::{DialectAnswer, Ending, Heading, TokenCounts};
use crate::error::ApiError;
use crate::sse::Event;
use crate::tools::Calls;

/// An answer to a request.
#[derive(Debug)]
pub(super) struct ChatAnswer {
    chat: ChatStream,
    heading: Heading,
    calls: Calls,
    reader: AnswerReader,
}

impl ChatAnswer {
    /// An answer that may hold these calls.
    pub(super) fn new(chat: ChatStream, heading: Heading, calls: Calls) -> Self {
        let reader = AnswerReader::new(&heading, &calls);
        ChatAnswer { chat, heading, calls, reader }
    }

    fn events(&mut self, pieces: Vec<Piece>) -> Vec<Event> {
        let mut events = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Thought(text) => events.extend(self.chat.thought(&text)),
                Piece::Text(text) => events.extend(self.chat.text(&text)),
                Piece::Call { index, name, arguments } => {
                    let id = call_id(&self.chat.id, index);
                    events.extend(self.chat.call_begins(index, &id, &name));
                    events.extend(self.chat.call_arguments(index, &arguments));
                }
            }
        }
        events
    }
}

/// The id of a call. It is unique because that of the answer is.
fn call_id(answer: &str, index: usize) -> String {
    format!("call_{}_{index}", answer.trim_start_matches("chatcmpl-"))
}

/// Why an answer with so many calls ended.
fn finish_reason(ending: &Ending, calls: usize) -> FinishReason {
    match ending {
        Ending::Limit => FinishReason::Length,
        Ending::Model | Ending::StopText(_) if calls > 0 => FinishReason::ToolCalls,
        Ending::Model | Ending::StopText(_) => FinishReason::Stop,
    }
}

impl DialectAnswer for ChatAnswer {
    fn start(&mut self) -> Vec<Event> {
        self.chat.start()
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        let pieces = self.reader.push(text);
        self.events(pieces)
    }

    fn heartbeat(&mut self) -> Vec<Event> {
        self.chat.heartbeat()
    }

    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event> {
        let pieces = self.reader.finish(ending);
        let mut events = self.events(pieces);
        let reason = finish_reason(ending, self.reader.calls());
        events.extend(self.chat.finish(reason, counts.into()));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        self.chat.fail(error)
    }

    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        let reader = AnswerReader::new(&self.heading, &self.calls);
        let WholeAnswer { thought, text, calls } = WholeAnswer::read(reader, text, ending);
        let ChatStream { id, created, model, .. } = &self.chat;
        let finish = finish_reason(ending, calls.len());
        let call = |(index, (name, arguments))| ToolCall::new(call_id(id, index), name, arguments);
        let calls = calls.into_iter().enumerate().map(call).collect();
        let answer = ChatCompletion::new(id, *created, model, text, finish, counts.into());
        json!(answer.with_thought(thought).with_calls(calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Tools;

    const CALL: &str =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";

    fn answer(one_call_only: bool) -> ChatAnswer {
        let list = json!([{"type": "function", "function": {
            "name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}
        }}]);
        let tools = Some(Tools::of_list(&list));
        of(false, Calls { tools, one_only: one_call_only, ..Calls::default() })
    }

    fn of(opens_thought: bool, calls: Calls) -> ChatAnswer {
        let (name, model) = ("7".to_owned(), "m".to_owned());
        let heading = Heading { name, created: 9, model, prompt_tokens: 1, opens_thought };
        ChatAnswer::new(ChatStream::new("chatcmpl-7", 9, "m", false), heading, calls)
    }

    /// The choices of all chunks, but for the parts that do not change.
    fn deltas(events: &[Event]) -> Vec<(Value, Value)> {
        let chunks = events.iter().filter(|event| event.data != "[DONE]");
        let choices = chunks.map(|event| {
            let mut chunk: Value = serde_json::from_str(&event.data).unwrap();
            chunk["choices"][0].take()
        });
        choices.map(|mut choice| (choice["delta"].take(), choice["finish_reason"].take())).collect()
    }

    fn whole(text: &str, ending: &Ending) -> Value {
        answer(false).whole(text, ending, TokenCounts::default())["choices"][0].take()
    }

    #[test]
    fn calls_come_as_openais_deltas() {
        let mut answer = answer(false);
        let mut events = answer.start();
        for character in format!("Well.\n\n{CALL}\n{CALL}").chars() {
            events.extend(answer.text(&character.to_string()));
        }
        events.extend(answer.finish(&Ending::Model, TokenCounts::default()));
        let deltas = deltas(&events);
        let begin = |index: usize| {
            let function = json!({"name": "f", "arguments": ""});
            json!({"tool_calls": [{
                "index": index, "id": format!("call_7_{index}"), "type": "function", "function": function
            }]})
        };
        let arguments = |index: usize| json!({"tool_calls": [{"index": index, "function": {"arguments": "{\"a\": 1}"}}]});
        let wanted = [begin(0), arguments(0), begin(1), arguments(1)];
        let calls: Vec<Value> = deltas[deltas.len() - 5..deltas.len() - 1]
            .iter()
            .map(|(delta, reason)| {
                assert!(reason.is_null());
                delta.clone()
            })
            .collect();
        assert_eq!(calls, wanted);
        assert_eq!(deltas.last().unwrap(), &(json!({}), json!("tool_calls")));
        let text: String =
            deltas.iter().filter_map(|(delta, _)| delta["content"].as_str()).collect();
        assert_eq!(text, "Well.");
    }

    #[test]
    fn calls_in_one_piece() {
        let choice = whole(CALL, &Ending::Model);
        assert_eq!(
            choice["message"],
            json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "call_7_0", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}
            ]})
        );
        assert_eq!(choice["finish_reason"], "tool_calls");
        let choice = whole(&format!("Well.\n{CALL}{CALL}"), &Ending::Model);
        assert_eq!(choice["message"]["content"], "Well.");
        assert_eq!(choice["message"]["tool_calls"][1]["id"], "call_7_1");
        let one = answer(true).whole(&CALL.repeat(2), &Ending::Model, TokenCounts::default());
        assert_eq!(one["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn half_a_call_is_text_and_ends_as_what_it_is() {
        let half = CALL.split_once("1\n").unwrap().0;
        for (ending, reason) in [
            (Ending::Limit, "length"),
            (Ending::StopText("1".into()), "stop"),
            (Ending::Model, "stop"),
        ] {
            let choice = whole(half, &ending);
            assert_eq!(choice["message"]["content"], "f\na");
            assert!(choice["message"].get("tool_calls").is_none());
            assert_eq!(choice["finish_reason"], reason);
        }
        // A call before the cut is one, and the reason is that of the cut.
        let choice = whole(&format!("{CALL}{half}"), &Ending::Limit);
        assert_eq!(choice["finish_reason"], "length");
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
        // A stop text may stand where closing tags would: then there is no telling what else would have come.
        let open = CALL.strip_suffix("\n</function>\n</tool_call>").unwrap();
        assert_eq!(whole(open, &Ending::Model)["finish_reason"], "tool_calls");
        assert_eq!(whole(open, &Ending::StopText("x".into()))["finish_reason"], "stop");
    }

    #[test]
    fn without_an_offer_everything_is_text() {
        let mut answer = of(false, Calls::default());
        let choice = answer.whole(CALL, &Ending::Model, TokenCounts::default());
        assert_eq!(choice["choices"][0]["message"]["content"], CALL);
        let events = answer.text(CALL);
        assert_eq!(deltas(&events)[1].0["content"], CALL);
    }

    #[test]
    fn thoughts_have_a_field_of_their_own() {
        let counts = TokenCounts { prompt: 1, cached: 0, completion: 9, thought: 4 };
        for (opened, text) in [(true, "hm\n</think>\n\nyes"), (false, "<think>\nhm</think>yes")] {
            let mut answer = of(opened, Calls::default());
            let mut events = answer.start();
            for character in text.chars() {
                events.extend(answer.text(&character.to_string()));
            }
            events.extend(answer.finish(&Ending::Model, counts));
            let deltas = deltas(&events);
            let joined = |field: &str| -> String {
                deltas.iter().filter_map(|(delta, _)| delta[field].as_str()).collect()
            };
            assert_eq!(
                (joined("reasoning_content"), joined("content")),
                ("hm".into(), "yes".into())
            );
            let whole = answer.whole(text, &Ending::Model, counts);
            assert_eq!(
                whole["choices"][0]["message"],
                json!({"role": "assistant", "content": "yes", "reasoning_content": "hm", "refusal": null})
            );
            assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 4);
        }
    }
}
