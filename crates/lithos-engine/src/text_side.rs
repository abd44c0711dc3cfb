//! The text side of a model: tokenizer, template, defaults, and the forms that answers can have.

use lithos_constraint::{Constraint, Form, Grammars};
use lithos_model::text::Text;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::sampling::Sampling;

/// What a checkpoint says about text.
pub(crate) struct TextSide {
    text: Text,
    grammars: Grammars,
}

impl TextSide {
    /// For a model whose logits have so many places.
    pub(crate) fn new(text: Text, vocabulary: usize) -> Self {
        let ends = text.defaults().eos_token_ids.clone();
        let grammars = Grammars::new(text.tokenizer().clone(), vocabulary, ends);
        TextSide { text, grammars }
    }
}

impl Engine {
    /// The tokenizer, template and defaults.
    ///
    /// # Errors
    /// [`EngineError::NoText`] if the checkpoint has no usable tokenizer.
    pub fn text(&self) -> Result<&Text, EngineError> {
        Ok(&self.text_side()?.text)
    }

    /// What compiles the forms of answers, for [`Request::constraint`](crate::Request::constraint); clones work while the engine is busy.
    ///
    /// # Errors
    /// [`EngineError::NoText`] if the checkpoint has no usable tokenizer.
    pub fn grammars(&self) -> Result<&Grammars, EngineError> {
        Ok(&self.text_side()?.grammars)
    }

    /// Compiles the form that an answer is to have, for [`Request::constraint`](crate::Request::constraint).
    ///
    /// # Errors
    /// [`EngineError::Constraint`] if the form cannot be compiled, or answers of this model cannot be constrained;
    /// [`EngineError::NoText`] if the checkpoint has no usable tokenizer.
    pub fn constraint(&self, form: &Form) -> Result<Constraint, EngineError> {
        Ok(self.grammars()?.compile(form)?)
    }

    /// The checkpoint's own choice of sampling.
    pub fn default_sampling(&self) -> Sampling {
        match self.text() {
            Ok(text) => Sampling::from_defaults(text.defaults()),
            Err(_) => Sampling::greedy(),
        }
    }

    fn text_side(&self) -> Result<&TextSide, EngineError> {
        self.text.as_ref().map_err(|cause| EngineError::NoText(cause.clone()))
    }
}
