//! What the server needs of a model.

use lithos_engine::{
    Completion, Constraint, EngineError, Event, GenerationId, PrefixCounts, Request, Sampling,
    TokenId,
};
use lithos_protocol::tools::CallSyntax;
use lithos_protocol::{AnswerForm, ApiError, Conversation};

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

    /// How many requests it answers side by side.
    fn slots(&self) -> usize {
        1
    }

    /// Takes a request on, of at most as many as there are slots. Its work is done by [`TextModel::step`].
    ///
    /// # Errors
    /// [`ModelError`], whose kind says whose fault it is.
    fn admit(&mut self, request: Request) -> Result<GenerationId, ModelError>;

    /// Does a little of the work of all requests that it has taken on. Text is handed out as it becomes certain. Returns those that have
    /// ended.
    fn step(&mut self, on_event: &mut dyn FnMut(GenerationId, Event<'_>)) -> Vec<Ended>;

    /// Forgets all requests that it has taken on, after a failure that left them in an unknown state.
    fn abandon(&mut self);

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

/// A request that has ended, and what it came to.
pub type Ended = (GenerationId, Result<Completion, ModelError>);

/// The text side of a model.
pub trait Prompts: Send + Sync + 'static {
    /// The prompt for a conversation.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if there is no prompt for this conversation.
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError>;

    /// A text as it is, with the tokens that begin every text in front.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if the tokenizer does not take it, or the model has none, as by default.
    fn encode_text(&self, _text: &str) -> Result<Vec<TokenId>, ModelError> {
        Err(ModelError::Refused("this model takes chats only".into()))
    }

    /// Whether the answer to this prompt begins inside a thought, since the prompt ends in one.
    fn opens_thought(&self, prompt: &[TokenId]) -> bool;

    /// The text of generated tokens, without special ones.
    fn text(&self, tokens: &[TokenId]) -> String;

    /// The form in which the model was taught to call tools.
    fn call_syntax(&self) -> CallSyntax {
        CallSyntax::HermesJson
    }

    /// Compiles the form that an answer is held to.
    ///
    /// # Errors
    /// [`ModelError::Refused`] if it cannot be compiled, or the model's answers cannot be held to a form, as by default.
    fn constraint(&self, _form: &AnswerForm) -> Result<Constraint, ModelError> {
        Err(ModelError::Refused("answers of this model cannot be held to a form".into()))
    }
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
