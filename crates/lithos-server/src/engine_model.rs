//! The engine as a model that answers conversations.

use lithos_engine::{Completion, Engine, EngineError, Event, Request, Sampling, TokenId};
use lithos_model::text::{Detokenizer, TemplateOptions, Text, TextError};
use lithos_protocol::Conversation;

use crate::model::{ModelError, ModelInfo, Prompts, Resources, TextModel};

impl TextModel for Engine {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: self.name(), context: self.context(), created: None }
    }

    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError> {
        Ok(Box::new(self.text()?.clone()))
    }

    fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Completion, ModelError> {
        Ok(Engine::generate(self, request, on_event)?)
    }

    fn default_sampling(&self) -> Sampling {
        Engine::default_sampling(self)
    }

    fn resources(&self) -> Resources {
        let memory = self.memory();
        // A backend that does not count says nothing.
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        Resources { memory: known(memory.resident), read_per_pass: known(memory.read_per_pass) }
    }
}

impl Prompts for Text {
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError> {
        let takes_tools = self.template().is_ok_and(|template| template.takes_tools());
        if conversation.tools.is_some() && !takes_tools {
            let message =
                "tools are not supported: this model's chat template has no place for them";
            return Err(ModelError::Refused(message.into()));
        }
        let refused = match encode(self, conversation) {
            Ok(ids) => return Ok(ids),
            Err(error) => error,
        };
        // Templates that know a system message only at the front refuse a later one, which agents do send.
        let ids = match conversation.with_system_only_in_front() {
            Some(conversation) => encode(self, &conversation),
            None => Err(refused),
        };
        Ok(ids.map_err(EngineError::from)?)
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let mut detokenizer = Detokenizer::new(self.tokenizer(), true);
        let mut text: String = tokens.iter().map(|token| detokenizer.push(*token)).collect();
        text.push_str(&detokenizer.finish());
        text
    }
}

fn encode(text: &Text, conversation: &Conversation) -> Result<Vec<TokenId>, TextError> {
    let mut extra = conversation.template_variables.clone();
    // The template's own default applies where the request does not say.
    let enable_thinking = extra.shift_remove("enable_thinking").and_then(|value| value.as_bool());
    let options =
        TemplateOptions { add_generation_prompt: true, enable_thinking, extra, now: None };
    text.encode_chat(&conversation.messages, conversation.tools.as_ref(), &options)
}
