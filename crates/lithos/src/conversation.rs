//! Messages as a chat template takes them.

use lithos_engine::{Engine, Request, TokenId};
use lithos_model::text::{TemplateOptions, TextError};
use serde_json::{Value, json};

use crate::args::{AnswerArgs, SamplingArgs, Switch};

/// A conversation: instructions, then turns of the user and the model.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// Instructions that precede the turns.
    pub system: Option<String>,
    turns: Vec<Turn>,
}

#[derive(Clone, Debug)]
struct Turn {
    role: &'static str,
    content: String,
}

impl Conversation {
    /// A conversation without turns.
    pub fn new(system: Option<String>) -> Self {
        Conversation { system, turns: Vec::new() }
    }

    /// Adds what the user says.
    pub fn ask(&mut self, content: String) {
        self.turns.push(Turn { role: "user", content });
    }

    /// Adds what the model answered.
    pub fn answer(&mut self, content: String) {
        self.turns.push(Turn { role: "assistant", content });
    }

    /// Takes back the last turn.
    pub fn take_back(&mut self) {
        self.turns.pop();
    }

    /// Forgets the turns and keeps the instructions.
    pub fn start_over(&mut self) {
        self.turns.clear();
    }

    /// The prompt after which the model answers.
    ///
    /// # Errors
    /// If the model has no tokenizer or template, or the template refuses the conversation.
    pub fn tokens(
        &self,
        engine: &Engine,
        thinking: Option<Switch>,
    ) -> anyhow::Result<Vec<TokenId>> {
        let options = TemplateOptions {
            add_generation_prompt: true,
            enable_thinking: thinking.map(Switch::is_on),
            ..TemplateOptions::default()
        };
        let tokens: Result<_, TextError> =
            engine.text()?.encode_chat(&self.messages(), None, &options);
        Ok(tokens?)
    }

    fn messages(&self) -> Value {
        let system = self.system.iter().map(|text| ("system", text));
        let turns = self.turns.iter().map(|turn| (turn.role, &turn.content));
        let message = |(role, content)| json!({"role": role, "content": content});
        Value::Array(system.chain(turns).map(message).collect())
    }
}

/// A request for an answer to a prompt, as the flags say.
///
/// # Errors
/// If a bias is for a token that the model does not have.
pub fn request(
    engine: &Engine,
    prompt: Vec<TokenId>,
    answer: &AnswerArgs,
    sampling: &SamplingArgs,
) -> anyhow::Result<Request> {
    let sampling = sampling.over(engine.default_sampling());
    let vocabulary = engine.vocabulary();
    if let Some((token, _)) = sampling.logit_bias.iter().find(|(id, _)| id.index() >= vocabulary) {
        anyhow::bail!(
            "--logit-bias names token id {token}: the vocabulary has {vocabulary} tokens"
        );
    }
    Ok(Request {
        sampling,
        max_tokens: answer.max_tokens,
        stop: answer.stop.clone(),
        ..Request::new(prompt)
    })
}
