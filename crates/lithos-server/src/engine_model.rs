//! The engine as a model that answers conversations.

use lithos_engine::{Completion, Engine, EngineError, Event, Request, Sampling, TokenId};
use lithos_model::text::TemplateOptions;
use serde_json::{Map, Value};

use crate::model::{ModelError, ModelInfo, TextModel};

impl TextModel for Engine {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: self.name(), context: self.context(), created: None }
    }

    fn encode_chat(
        &self,
        messages: &Value,
        template_variables: &Map<String, Value>,
    ) -> Result<Vec<TokenId>, ModelError> {
        let mut extra = template_variables.clone();
        // The template's own default applies where the request does not say.
        let enable_thinking =
            extra.shift_remove("enable_thinking").and_then(|value| value.as_bool());
        let options =
            TemplateOptions { add_generation_prompt: true, enable_thinking, extra, now: None };
        let ids = self.text()?.encode_chat(messages, None, &options).map_err(EngineError::from)?;
        Ok(ids)
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
}
