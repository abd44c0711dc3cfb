//! The engine as a model that answers conversations.

use lithos_engine::{
    Constraint, Engine, EngineError, Event, Form, GenerationId, Grammars, PrefixCounts, Request,
    Sampling, TokenId,
};
use lithos_model::text::{Detokenizer, SpecialTokens, TemplateOptions, Text, TextError};
use lithos_protocol::tools::CallSyntax;
use lithos_protocol::{AnswerForm, Conversation, FormKind};

use crate::model::{Ended, ModelError, ModelInfo, Prompts, Resources, TextModel};

impl TextModel for Engine {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: self.name(), context: self.context(), created: None }
    }

    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError> {
        Ok(Box::new(EnginePrompts {
            text: self.text()?.clone(),
            grammars: self.grammars()?.clone(),
        }))
    }

    fn slots(&self) -> usize {
        Engine::slots(self)
    }

    fn admit(&mut self, request: Request) -> Result<GenerationId, ModelError> {
        Ok(Engine::admit(self, request)?)
    }

    fn step(&mut self, on_event: &mut dyn FnMut(GenerationId, Event<'_>)) -> Vec<Ended> {
        let ended = Engine::step(self, on_event).into_iter();
        ended.map(|(id, completion)| (id, completion.map_err(ModelError::from))).collect()
    }

    fn abandon(&mut self) {
        Engine::abandon(self);
    }

    fn default_sampling(&self) -> Sampling {
        Engine::default_sampling(self)
    }

    fn prefixes(&self) -> Option<PrefixCounts> {
        Some(Engine::prefixes(self))
    }

    fn resources(&self) -> Resources {
        let memory = self.memory();
        // A backend that does not count says nothing.
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        Resources { memory: known(memory.resident), read_per_pass: known(memory.read_per_pass) }
    }
}

/// The text side of an engine, which is there while the engine is busy.
struct EnginePrompts {
    text: Text,
    grammars: Grammars,
}

impl Prompts for EnginePrompts {
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError> {
        let takes_tools = self.text.template().is_ok_and(|template| template.takes_tools());
        if conversation.tools.is_some() && !takes_tools {
            let message =
                "tools are not supported: this model's chat template has no place for them";
            return Err(ModelError::Refused(message.into()));
        }
        let refused = match encode_with_any_effort(&self.text, conversation) {
            Ok(ids) => return Ok(ids),
            Err(error) => error,
        };
        // Templates that know a system message only at the front refuse a later one, which agents do send.
        let ids = match conversation.with_system_only_in_front() {
            Some(conversation) => encode_with_any_effort(&self.text, &conversation),
            None => Err(refused),
        };
        Ok(ids.map_err(EngineError::from)?)
    }

    fn encode_text(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        let mut tokens = self.text.tokenizer().start_tokens().to_vec();
        let encoded = self.text.tokenizer().encode(text, SpecialTokens::Parse);
        tokens.extend(encoded.map_err(|error| ModelError::Refused(error.to_string()))?);
        Ok(tokens)
    }

    fn opens_thought(&self, prompt: &[TokenId]) -> bool {
        let end = &prompt[prompt.len().saturating_sub(THINK_TOKENS)..];
        Prompts::text(self, end).trim_end().ends_with("<think>")
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let mut detokenizer = Detokenizer::new(self.text.tokenizer(), true);
        let mut text: String = tokens.iter().map(|token| detokenizer.push(*token)).collect();
        text.push_str(&detokenizer.finish());
        text
    }

    fn call_syntax(&self) -> CallSyntax {
        let template = self.text.template();
        template
            .map_or(CallSyntax::HermesJson, |template| CallSyntax::of_template(template.source()))
    }

    fn constraint(&self, form: &AnswerForm) -> Result<Constraint, ModelError> {
        let form = match form.kind.clone() {
            FormKind::JsonSchema(schema) => Form::JsonSchema(schema),
            FormKind::JsonObject => Form::JsonObject,
            FormKind::Regex(pattern) => Form::Regex(pattern),
            FormKind::Lark(grammar) => Form::Lark(grammar),
        };
        Ok(self.grammars.compile(&form).map_err(EngineError::from)?)
    }
}

/// Tokens of `<think>` and the line break behind it, at most: it need not be a token of its own.
const THINK_TOKENS: usize = 10;

const EFFORT: &str = "reasoning_effort";

/// Templates refuse efforts of names that they do not know, while clients send those of the service that they were made for. Then
/// the nearest other name is tried, and at last none.
fn encode_with_any_effort(
    text: &Text,
    conversation: &Conversation,
) -> Result<Vec<TokenId>, TextError> {
    let refused = match encode(text, conversation) {
        Ok(ids) => return Ok(ids),
        Err(error) => error,
    };
    let Some(effort) = conversation.template_variables.get(EFFORT) else { return Err(refused) };
    let mut conversation = conversation.clone();
    for other in nearest_efforts(effort.as_str().unwrap_or_default()) {
        conversation.template_variables.insert(EFFORT.into(), (*other).into());
        if let Ok(ids) = encode(text, &conversation) {
            return Ok(ids);
        }
    }
    conversation.template_variables.shift_remove(EFFORT);
    encode(text, &conversation).map_err(|_| refused)
}

/// Other names for about the same effort.
fn nearest_efforts(effort: &str) -> &'static [&'static str] {
    match effort {
        "minimal" => &["low"],
        "high" => &["xhigh", "max"],
        "xhigh" => &["high", "max"],
        "max" => &["xhigh", "high"],
        _ => &[],
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
