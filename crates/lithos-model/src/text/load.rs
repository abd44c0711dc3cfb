//! Finding a checkpoint's tokenizer, template and defaults.

use std::fmt;
use std::path::{Path, PathBuf};

use lithos_format::{Checkpoint, Folder, FormatError, GgufMetadata};
use serde_json::Value;

use super::chat::{ChatError, encode_chat};
use super::generation_config::{GenerationConfigError, GenerationDefaults};
use super::gguf_tokenizer::{GgufTokenizerError, GgufVocabulary};
use super::template::{ChatTemplate, TemplateOptions, TemplateTokens};
use super::token::TokenId;
use super::tokenizer::{Tokenizer, TokenizerError};

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const TEMPLATE: &str = "chat_template.jinja";
const TEMPLATE_JSON: &str = "chat_template.json";

/// Spellings by which model families end a turn or a document. GGUF files often name only one of them, so that control
/// tokens spelled like this end an answer too.
const END_SPELLINGS: [&str; 8] = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|eot|>",
];

/// Why the text side of a checkpoint could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The directory has no tokenizer.
    #[error(
        "{}: {TOKENIZER} is missing: download it from where the weights are from, or open a GGUF file, which holds its own",
        path.display()
    )]
    NoTokenizer {
        /// The checkpoint.
        path: PathBuf,
    },
    /// The checkpoint has no chat template.
    #[error(
        "{}: there is no chat template ({TEMPLATE}, chat_template in {TOKENIZER_CONFIG}, or tokenizer.chat_template in GGUF), \
         so it is not known how to write a conversation: continue a plain text instead, with --raw",
        path.display()
    )]
    NoTemplate {
        /// The checkpoint.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FormatError),
    /// A file or a value in it is not what it should be.
    #[error("{}: {cause}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The tokenizer cannot be used; the message names its file.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A conversation could not be encoded.
    #[error(transparent)]
    Chat(#[from] ChatError),
}

impl TextError {
    fn invalid(path: &Path, cause: impl fmt::Display) -> Self {
        Self::Invalid { path: path.to_owned(), cause: cause.to_string() }
    }
}

/// The text side of a checkpoint.
#[derive(Clone, Debug)]
pub struct Text {
    path: PathBuf,
    tokenizer: Tokenizer,
    /// The template, or the reason why the one that is there cannot be used.
    template: Option<Result<ChatTemplate, String>>,
    defaults: GenerationDefaults,
}

impl Text {
    /// Reads the tokenizer, the template and the defaults of a checkpoint. A missing or unusable template is no error
    /// yet: see [`Text::template`].
    ///
    /// # Errors
    /// If the tokenizer is missing, or a file or value is not what it should be.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, TextError> {
        match (checkpoint.gguf(), checkpoint.folder()) {
            (Some(metadata), _) => Self::from_gguf(checkpoint.path(), metadata),
            (None, Some(folder)) => Self::from_folder(checkpoint, folder),
            (None, None) => Err(TextError::NoTokenizer { path: checkpoint.path().to_owned() }),
        }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What the checkpoint says about sampling and stopping.
    pub fn defaults(&self) -> &GenerationDefaults {
        &self.defaults
    }

    /// The chat template.
    ///
    /// # Errors
    /// If there is none or it cannot be used; the message says that plain text can still be continued.
    pub fn template(&self) -> Result<&ChatTemplate, TextError> {
        match &self.template {
            Some(Ok(template)) => Ok(template),
            Some(Err(cause)) => Err(TextError::invalid(&self.path, cause)),
            None => Err(TextError::NoTemplate { path: self.path.clone() }),
        }
    }

    /// A conversation as token ids: see [`encode_chat`].
    ///
    /// # Errors
    /// As [`Text::template`] and [`encode_chat`].
    pub fn encode_chat(
        &self,
        messages: &Value,
        tools: Option<&Value>,
        options: &TemplateOptions,
    ) -> Result<Vec<TokenId>, TextError> {
        let ids = encode_chat(&self.tokenizer, self.template()?, messages, tools, options)?;
        Ok(ids)
    }

    fn from_gguf(path: &Path, metadata: &GgufMetadata) -> Result<Self, TextError> {
        let vocabulary = GgufVocabulary::from_metadata(metadata).map_err(in_file(path))?;
        let tokenizer = vocabulary.tokenizer().map_err(in_file(path))?;
        let spelling = |id: Option<TokenId>| -> Option<String> {
            id.and_then(|id| vocabulary.spelling(id).ok()).map(str::to_owned)
        };
        let tokens = TemplateTokens {
            bos: spelling(vocabulary.bos),
            eos: spelling(vocabulary.eos),
            unknown: spelling(vocabulary.unknown),
            padding: spelling(vocabulary.padding),
        };
        let template = metadata
            .optional("tokenizer.chat_template", GgufMetadata::string)
            .map_err(in_file(path))?;
        let defaults = GenerationDefaults::from_gguf(metadata)
            .map_err(in_file(path))?
            .with_eos(vocabulary.control_tokens(&END_SPELLINGS));
        Ok(Self {
            path: path.to_owned(),
            tokenizer,
            template: template.map(|source| read_template(source, tokens)),
            defaults,
        })
    }

    fn from_folder(checkpoint: &Checkpoint, folder: &Folder) -> Result<Self, TextError> {
        let path = folder.path();
        let json = folder
            .read(TOKENIZER)?
            .ok_or_else(|| TextError::NoTokenizer { path: path.to_owned() })?;
        let config = read_json(folder, TOKENIZER_CONFIG)?.unwrap_or_default();
        let tokenizer = Tokenizer::parse(&json, &path.join(TOKENIZER).display(), Some(&config))?;
        let map = read_json(folder, SPECIAL_TOKENS_MAP)?.unwrap_or_default();
        let named = |key: &str| token_text(&config[key]).or_else(|| token_text(&map[key]));
        let tokens = TemplateTokens {
            bos: named("bos_token"),
            eos: named("eos_token"),
            unknown: named("unk_token"),
            padding: named("pad_token"),
        };
        let eos = tokens.eos.as_deref().and_then(|eos| tokenizer.token_id(eos));
        let defaults =
            GenerationDefaults::from_json(checkpoint.generation_config(), checkpoint.config(), eos)
                .map_err(|error: GenerationConfigError| TextError::invalid(path, error))?;
        let source = template_source(folder, &config)?;
        Ok(Self {
            path: path.to_owned(),
            tokenizer,
            template: source.map(|source| read_template(&source, tokens)),
            defaults,
        })
    }
}

fn read_template(source: &str, tokens: TemplateTokens) -> Result<ChatTemplate, String> {
    ChatTemplate::new(source, tokens)
        .map_err(|error| format!("{error}: continue a plain text instead, with --raw"))
}

/// The template of a folder: a file of its own, else a key of the tokenizer's configuration.
fn template_source(folder: &Folder, config: &Value) -> Result<Option<String>, TextError> {
    if let Some(bytes) = folder.read(TEMPLATE)? {
        let source = String::from_utf8(bytes.into_owned());
        return source
            .map(Some)
            .map_err(|_| TextError::invalid(&folder.path().join(TEMPLATE), "not UTF-8 text"));
    }
    let processor = read_json(folder, TEMPLATE_JSON)?.unwrap_or_default();
    let found = [(TOKENIZER_CONFIG, config), (TEMPLATE_JSON, &processor)];
    for (name, values) in found {
        match &values["chat_template"] {
            Value::Null => {}
            Value::String(source) => return Ok(Some(source.clone())),
            // Several templates with names, as lists of {"name": …, "template": …}.
            Value::Array(templates) => {
                let default = templates.iter().find(|entry| entry["name"] == "default");
                if let Some(source) = default.and_then(|entry| entry["template"].as_str()) {
                    return Ok(Some(source.to_owned()));
                }
                let path = folder.path().join(name);
                return Err(TextError::invalid(&path, "chat_template has no entry \"default\""));
            }
            _ => {
                let path = folder.path().join(name);
                return Err(TextError::invalid(&path, "chat_template must be a text or a list"));
            }
        }
    }
    Ok(None)
}

/// A token in a configuration: a text, or an object with its `content`.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

fn read_json(folder: &Folder, name: &str) -> Result<Option<Value>, TextError> {
    let Some(bytes) = folder.read(name)? else { return Ok(None) };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| TextError::invalid(&folder.path().join(name), error))
}

/// Names the GGUF file in a message that does not. [`FormatError`] already does.
fn in_file<E: Into<GgufTokenizerError>>(path: &Path) -> impl Fn(E) -> TextError {
    let path = path.to_owned();
    move |error| match error.into() {
        GgufTokenizerError::Metadata(error) => metadata_error(&path, &error),
        error => TextError::invalid(&path, error),
    }
}

fn metadata_error(path: &Path, error: &FormatError) -> TextError {
    let message = error.to_string();
    let prefix = format!("{}: ", path.display());
    TextError::invalid(path, message.strip_prefix(&prefix).unwrap_or(&message))
}
