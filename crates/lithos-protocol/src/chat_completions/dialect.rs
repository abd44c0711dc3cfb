//! Chat Completions as one of the dialects.

use super::answer::ChatAnswer;
use super::{ChatRequest, ChatStream, Usage};
use crate::dialect::{DialectAnswer, DialectRequest, Heading, TokenCounts};
use crate::error::ApiError;
use crate::generation::Generation;

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
        let model = heading.model.as_str();
        let chat = ChatStream::new(id, heading.created, model, self.include_usage);
        Box::new(ChatAnswer::new(chat, heading, self.generation.calls.clone()))
    }
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        Usage::new(counts)
    }
}
