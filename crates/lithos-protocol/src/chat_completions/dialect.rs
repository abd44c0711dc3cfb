//! Chat Completions as one of the dialects.

use serde_json::{Value, json};

use super::{ChatCompletion, ChatRequest, ChatStream, FinishReason, Usage};
use crate::dialect::{DialectAnswer, DialectRequest, Ending, Heading, TokenCounts};
use crate::error::ApiError;
use crate::generation::Generation;
use crate::sse::Event;

impl DialectRequest for ChatRequest {
    const PROMPT_FIELD: &'static str = "messages";

    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        ChatRequest::parse(body)
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn streams(&self) -> bool {
        self.stream
    }

    fn ignored(&self) -> &[String] {
        &self.ignored
    }

    fn generation(&self) -> &Generation {
        &self.generation
    }

    fn answer(&self, heading: Heading) -> Box<dyn DialectAnswer> {
        let id = format!("chatcmpl-{}", heading.name);
        Box::new(ChatStream::new(id, heading.created, heading.model, self.include_usage))
    }
}

impl DialectAnswer for ChatStream {
    fn start(&mut self) -> Vec<Event> {
        ChatStream::start(self)
    }

    fn text(&mut self, text: &str) -> Vec<Event> {
        ChatStream::text(self, text)
    }

    fn heartbeat(&mut self) -> Vec<Event> {
        ChatStream::heartbeat(self)
    }

    fn finish(&mut self, ending: &Ending, counts: TokenCounts) -> Vec<Event> {
        ChatStream::finish(self, ending.into(), counts.into())
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        ChatStream::fail(self, error)
    }

    fn whole(&self, text: &str, ending: &Ending, counts: TokenCounts) -> Value {
        let (id, model) = (self.id.as_str(), self.model.as_str());
        json!(ChatCompletion::new(id, self.created, model, text, ending.into(), counts.into()))
    }
}

impl From<&Ending> for FinishReason {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Model | Ending::StopText(_) => FinishReason::Stop,
            Ending::Limit => FinishReason::Length,
        }
    }
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Usage::new(counts.prompt, counts.cached, counts.completion)
    }
}
