//! The text around a model: its tokenizer, its chat template and its defaults for generation.
//!
//! [`Text::load`] finds all three in a checkpoint, in the files of a Hugging Face directory or in GGUF metadata.

mod added_tokens;
mod chat;
mod detokenizer;
mod generation_config;
mod gguf_tokenizer;
mod load;
mod spelling;
mod template;
mod template_json;
mod template_time;
mod token;
mod tokenizer;
mod tokenizer_json;

pub use added_tokens::SpecialTokens;
pub use chat::{ChatError, encode_chat};
pub use detokenizer::Detokenizer;
pub use generation_config::{GenerationConfigError, GenerationDefaults};
pub use gguf_tokenizer::{GgufTokenizerError, GgufVocabulary};
pub use load::{Text, TextError};
pub use template::{ChatTemplate, TemplateError, TemplateOptions, TemplateTokens};
pub use token::TokenId;
pub use tokenizer::{Tokenizer, TokenizerError};
