//! What the server needs of a model.

use lithos_engine::{Completion, EngineError, Event, PrefixCounts, Request, Sampling, TokenId};
use lithos_protocol::{ApiError, Conversation};

/// What clients are told about a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name, with or without an owner before a slash.
    pub id: String,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// When it was made, in seconds since 1970; `None` for the start of the server.
    pub created: Option<u64>,
}

/// What a model takes of the machine, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Bytes of weights, buffers and recurrent states in memory.
    pub memory: Option<u64>,
    /// Bytes of weights that one decode pass reads.
    pub read_per_pass: Option<u64>,
}

/// A model that answers prompts. It lives on one thread.
pub trait TextModel: Send + 'static {
    /// What clients are told about it.
    fn info(&self) -> ModelInfo;

    /// What makes its prompts, also while the model is busy.
    ///
    /// # Errors
    /// If the model has no text side.
    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError>;

    /// Answers a prompt. Text is handed out as it becomes certain.
    ///
    /// # Errors
    /// [`ModelError`], whose kind says whose fault it is.
    fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Completion, ModelError>;

    /// How tokens are chosen where a request does not say.
    fn default_sampling(&self) -> Sampling;

    /// What became of prefixes that it keeps, if it keeps any.
    fn prefixes(&self) -> Option<PrefixCounts> {
        None
    }

    /// What it takes of the machine.
    fn resources(&self) -> Resources {
        Resources::default()
    }
}

/// The text side of a model.
pub trait Prompts: Send + Sync + 'static {
    /// The prompt for a conversation.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if there is no prompt for this conversation.
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError>;

    /// Whether the answer to this prompt begins inside a thought, since the prompt ends in one.
    fn opens_thought(&self, prompt: &[TokenId]) -> bool;

    /// The text of generated tokens, without special ones.
    fn text(&self, tokens: &[TokenId]) -> String;
}

/// Why a model gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The request is at fault.
    #[error("{0}")]
    Refused(String),
    /// The prompt leaves no room in the context.
    #[error("the prompt has {prompt_tokens} tokens, and the context holds {context}")]
    ContextTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// The model is at fault.
    #[error("{0}")]
    Failed(String),
}

impl From<EngineError> for ModelError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::ContextTooLong { prompt, context, .. } => {
                ModelError::ContextTooLong { prompt_tokens: prompt, context }
            }
            error if error.is_bad_request() => ModelError::Refused(error.to_string()),
            error => ModelError::Failed(error.to_string()),
        }
    }
}

impl From<ModelError> for ApiError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Refused(message) => ApiError::bad_request(message),
            ModelError::ContextTooLong { prompt_tokens, context } => {
                ApiError::context_length_exceeded(prompt_tokens, context)
            }
            ModelError::Failed(message) => ApiError::internal(message),
        }
    }
}
