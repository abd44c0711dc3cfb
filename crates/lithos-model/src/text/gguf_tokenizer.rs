//! A tokenizer from the metadata of a GGUF file.

use std::collections::HashSet;
use std::fmt;

use lithos_format::{FormatError, GgufMetadata};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use super::token::TokenId;
use super::tokenizer::{Tokenizer, TokenizerError};

/// What a GGUF file says about its tokenizer (`tokenizer.ggml.*`).
#[derive(Clone, Debug)]
pub struct GgufVocabulary<'a> {
    /// `model`: the kind of vocabulary. `gpt2`, byte-level BPE, is the one that is known.
    pub model: &'a str,
    /// `pre`: how text is cut before merging, by the name of a model that does so.
    pub pre: &'a str,
    /// `tokens`: the spelling of each token, by id.
    pub tokens: &'a [String],
    /// `token_type` of each token: 1 normal, 2 unknown, 3 control, 4 defined by the user, 5 unused, 6 byte. Empty if
    /// all are normal.
    pub token_types: Vec<i64>,
    /// `merges`: pairs of spellings with a space between, the most important first.
    pub merges: &'a [String],
    /// `bos_token_id`: begins a document.
    pub bos: Option<TokenId>,
    /// `eos_token_id`: ends a document or a turn.
    pub eos: Option<TokenId>,
    /// `unknown_token_id`.
    pub unknown: Option<TokenId>,
    /// `padding_token_id`.
    pub padding: Option<TokenId>,
    /// `add_bos_token`: whether a document begins with `bos`. `None` leaves it to `pre`.
    pub add_bos: Option<bool>,
}

/// Why a GGUF file's tokenizer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GgufTokenizerError {
    /// A key is missing or has another type.
    #[error(transparent)]
    Metadata(#[from] FormatError),
    /// A kind of vocabulary or of cutting that is not known.
    #[error("tokenizer.ggml.{key} is {found:?}, which is not known: it must be one of {known}")]
    Unknown {
        /// `model` or `pre`.
        key: &'static str,
        /// What the file says.
        found: String,
        /// The names that are known.
        known: String,
    },
    /// The parts do not fit together.
    #[error(transparent)]
    Invalid(#[from] TokenizerError),
}

const ORIGIN: &str = "GGUF metadata";
const BYTE_LEVEL_BPE: &str = "gpt2";
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// How text is cut into pieces that are encoded on their own.
#[derive(Clone, Copy)]
enum Cutting {
    /// By the expression of GPT-2, which the `tokenizers` crate holds; with each digit on its own or not.
    Gpt2 { single_digits: bool },
    /// By this expression.
    Pattern(&'static str),
}

/// A known way to prepare text for byte-level BPE.
struct PreTokenization {
    /// The values of `pre` that mean it.
    names: &'static [&'static str],
    cutting: Cutting,
    /// Bring text to Unicode's composed form first.
    compose: bool,
    /// A piece that is itself a token is that token, whatever the merges say.
    whole_pieces_first: bool,
    add_bos: bool,
}

/// The expressions are those of each model's published `tokenizer.json`.
const PRE_TOKENIZATIONS: [PreTokenization; 5] = [
    PreTokenization {
        names: &["gpt-2"],
        cutting: Cutting::Gpt2 { single_digits: false },
        compose: false,
        whole_pieces_first: false,
        add_bos: false,
    },
    PreTokenization {
        names: &["smollm"],
        cutting: Cutting::Gpt2 { single_digits: true },
        compose: false,
        whole_pieces_first: false,
        add_bos: false,
    },
    PreTokenization {
        names: &["llama-bpe", "llama3", "llama-v3"],
        cutting: Cutting::Pattern(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        compose: false,
        whole_pieces_first: true,
        add_bos: true,
    },
    PreTokenization {
        names: &["qwen2", "deepseek-r1-qwen"],
        cutting: Cutting::Pattern(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        compose: true,
        whole_pieces_first: false,
        add_bos: false,
    },
    PreTokenization {
        names: &["qwen35"],
        cutting: Cutting::Pattern(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        compose: true,
        whole_pieces_first: false,
        add_bos: false,
    },
];

impl<'a> GgufVocabulary<'a> {
    /// Reads the `tokenizer.ggml.*` keys.
    ///
    /// # Errors
    /// If a key that every vocabulary has is missing, or one has another type.
    pub fn from_metadata(metadata: &'a GgufMetadata) -> Result<Self, FormatError> {
        let id = |key: &str| -> Result<Option<TokenId>, FormatError> {
            Ok(metadata.optional(key, GgufMetadata::u32)?.map(TokenId))
        };
        let types = metadata.optional("tokenizer.ggml.token_type", GgufMetadata::integer_array)?;
        let merges = metadata.optional("tokenizer.ggml.merges", GgufMetadata::string_array)?;
        Ok(Self {
            model: metadata.string("tokenizer.ggml.model")?,
            pre: metadata
                .optional("tokenizer.ggml.pre", GgufMetadata::string)?
                .unwrap_or("(missing)"),
            tokens: metadata.string_array("tokenizer.ggml.tokens")?,
            token_types: types.unwrap_or_default(),
            merges: merges.unwrap_or_default(),
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            unknown: id("tokenizer.ggml.unknown_token_id")?,
            padding: id("tokenizer.ggml.padding_token_id")?,
            add_bos: metadata.optional("tokenizer.ggml.add_bos_token", GgufMetadata::bool)?,
        })
    }

    /// Makes the tokenizer.
    ///
    /// # Errors
    /// If the kind of vocabulary is not known, or its parts do not fit together.
    pub fn tokenizer(&self) -> Result<Tokenizer, GgufTokenizerError> {
        if self.model != BYTE_LEVEL_BPE {
            return Err(GgufTokenizerError::Unknown {
                key: "model",
                found: self.model.to_owned(),
                known: BYTE_LEVEL_BPE.to_owned(),
            });
        }
        let pre = PRE_TOKENIZATIONS
            .iter()
            .find(|known| known.names.contains(&self.pre))
            .ok_or_else(|| GgufTokenizerError::Unknown {
                key: "pre",
                found: self.pre.to_owned(),
                known: known_pre_tokenizations(),
            })?;
        self.check()?;
        let mut library = tokenizers::Tokenizer::new(self.model(pre)?);
        if pre.compose {
            library.with_normalizer(Some(NFC)).map_err(invalid)?;
        }
        library.with_pre_tokenizer(Some(pre.cutting.pre_tokenizer()?));
        library.with_decoder(Some(ByteLevel::new(false, false, false)));
        library.add_tokens(self.added_tokens()).map_err(invalid)?;
        if let Some(bos) = self.bos.filter(|_| self.add_bos.unwrap_or(pre.add_bos)) {
            library.with_post_processor(Some(start_with(self.spelling(bos)?, bos)?));
        }
        Ok(Tokenizer::from_library(library, &ORIGIN)?)
    }

    /// The spelling of a token.
    pub(super) fn spelling(&self, id: TokenId) -> Result<&'a str, TokenizerError> {
        self.tokens.get(id.index()).map(String::as_str).ok_or_else(|| {
            invalid(format_args!("token {id} is named but there are {} tokens", self.tokens.len()))
        })
    }

    /// The control tokens with one of these spellings.
    pub(super) fn control_tokens(&self, spellings: &[&str]) -> Vec<TokenId> {
        (0..)
            .zip(self.tokens)
            .zip(&self.token_types)
            .filter(|((_, token), kind)| **kind == CONTROL && spellings.contains(&token.as_str()))
            .map(|((id, _), _)| TokenId(id))
            .collect()
    }

    fn check(&self) -> Result<(), TokenizerError> {
        let (tokens, types) = (self.tokens.len(), self.token_types.len());
        if tokens == 0 {
            return Err(invalid("there are no tokens"));
        }
        if types != 0 && types != tokens {
            return Err(invalid(format_args!("there are {tokens} tokens but {types} token types")));
        }
        for id in [self.bos, self.eos, self.unknown, self.padding].into_iter().flatten() {
            self.spelling(id)?;
        }
        Ok(())
    }

    fn model(&self, pre: &PreTokenization) -> Result<BPE, TokenizerError> {
        let known: HashSet<&str> = self.tokens.iter().map(String::as_str).collect();
        let mut merges = Vec::with_capacity(self.merges.len());
        for merge in self.merges {
            let Some((left, right)) = merge.split_once(' ') else {
                return Err(invalid(format_args!("the merge {merge:?} is not two texts")));
            };
            let merged = format!("{left}{right}");
            // The builder would also notice a missing part, but panics on a result longer than every token.
            for part in [left, right, &merged] {
                if !known.contains(part) {
                    return Err(invalid(format_args!(
                        "the merge {merge:?} needs the token {part:?}, which is missing"
                    )));
                }
            }
            merges.push((left.to_owned(), right.to_owned()));
        }
        let mut vocabulary = Vocab::with_capacity(self.tokens.len());
        for (id, token) in (0..).zip(self.tokens) {
            // Padding may repeat a spelling: the first one is the token.
            vocabulary.entry(token.clone()).or_insert(id);
        }
        BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .ignore_merges(pre.whole_pieces_first)
            .build()
            .map_err(invalid)
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        self.tokens
            .iter()
            .zip(&self.token_types)
            .filter(|(token, kind)| !token.is_empty() && matches!(**kind, CONTROL | USER_DEFINED))
            .map(|(token, kind)| AddedToken::from(token, *kind == CONTROL).normalized(false))
            .collect()
    }
}

impl Cutting {
    fn pre_tokenizer(self) -> Result<PreTokenizerWrapper, TokenizerError> {
        let (first, bytes): (PreTokenizerWrapper, _) = match self {
            Self::Gpt2 { single_digits } => {
                let bytes = ByteLevel::new(false, true, true);
                if !single_digits {
                    return Ok(bytes.into());
                }
                (Digits::new(true).into(), bytes)
            }
            Self::Pattern(pattern) => {
                let pattern = SplitPattern::Regex(pattern.to_owned());
                let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
                (split.map_err(invalid)?.into(), ByteLevel::new(false, false, false))
            }
        };
        Ok(Sequence::new(vec![first, bytes.into()]).into())
    }
}

fn start_with(spelling: &str, id: TokenId) -> Result<TemplateProcessing, TokenizerError> {
    // The name inside the template is ours, so that a spelling with a colon or a dollar sign does no harm.
    const START: &str = "start";
    let token = tokenizers::processors::template::SpecialToken::new(
        START.to_owned(),
        vec![id.0],
        vec![spelling.to_owned()],
    );
    TemplateProcessing::builder()
        .try_single(format!("{START} $A"))
        .map_err(invalid)?
        .special_tokens(vec![token.map_err(invalid)?])
        .build()
        .map_err(invalid)
}

fn known_pre_tokenizations() -> String {
    let names: Vec<&str> =
        PRE_TOKENIZATIONS.iter().flat_map(|known| known.names.iter().copied()).collect();
    names.join(", ")
}

fn invalid(cause: impl fmt::Display) -> TokenizerError {
    TokenizerError::invalid(ORIGIN, cause)
}
