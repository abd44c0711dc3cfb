//! Text to token ids and back to bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokenizers::normalizer::Range as NormalizedRange;
use tokenizers::{
    AddedToken, Model as _, ModelWrapper, NormalizedString, Normalizer as _, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer as _, Token,
};

use super::added_tokens::{AddedTokens, Found, SpecialTokens};
use super::spelling::Spelling;
use super::token::TokenId;
use super::tokenizer_json::check_merges;

/// Why a tokenizer could not be made or a text could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The description of the tokenizer is not one that can be used.
    #[error("{origin}: not a usable tokenizer: {cause}")]
    Invalid {
        /// The file, or the kind of description.
        origin: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The vocabulary cannot express the text.
    #[error("the tokenizer cannot encode this text: {cause}")]
    Encode {
        /// What the tokenizer said.
        cause: String,
    },
}

impl TokenizerError {
    pub(super) fn invalid(origin: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Invalid { origin: origin.to_string(), cause: one_line(cause) }
    }

    fn encode(cause: impl fmt::Display) -> Self {
        Self::Encode { cause: one_line(cause) }
    }
}

fn one_line(text: impl fmt::Display) -> String {
    text.to_string().replace(['\n', '\r'], " ")
}

/// A model's tokenizer. Clones share one vocabulary.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    library: tokenizers::Tokenizer,
    /// Matched in the text as it is: the special tokens, and those that the normalizer must not touch.
    raw_added: AddedTokens,
    /// Matched in the normalized text.
    normalized_added: AddedTokens,
    special: HashSet<TokenId>,
    start: Vec<TokenId>,
    bytes: TokenBytes,
}

/// The bytes of every token, one after the other.
struct TokenBytes {
    bytes: Vec<u8>,
    /// By token id; an id without a token has an empty range that begins past all bytes.
    ranges: Vec<Range<u32>>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`.
    ///
    /// # Errors
    /// If the file cannot be read or does not describe a tokenizer.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        let json = std::fs::read(path)
            .map_err(|source| TokenizerError::Io { path: path.to_owned(), source })?;
        Self::parse(&json, &path.display(), None)
    }

    /// Reads the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// If it does not describe a tokenizer.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        Self::parse(json, &"tokenizer.json", None)
    }

    /// Reads the content of a `tokenizer.json` and adds the tokens that only the `added_tokens_decoder` of
    /// `tokenizer_config.json` names: Hugging Face transformers does so too.
    pub(super) fn parse(
        json: &[u8],
        origin: &dyn fmt::Display,
        config: Option<&Value>,
    ) -> Result<Self, TokenizerError> {
        check_merges(json).map_err(|cause| TokenizerError::invalid(origin, cause))?;
        let mut library = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|error| TokenizerError::invalid(origin, error))?;
        if let Some(config) = config {
            add_configured_tokens(&mut library, config)?;
        }
        Self::from_library(library, origin)
    }

    pub(super) fn from_library(
        library: tokenizers::Tokenizer,
        origin: &dyn fmt::Display,
    ) -> Result<Self, TokenizerError> {
        let invalid = |error: Box<dyn std::error::Error + Send + Sync>| {
            TokenizerError::invalid(origin, error)
        };
        let mut raw = Vec::new();
        let mut normalized = Vec::new();
        let mut special = HashSet::new();
        for (id, token) in library.get_added_tokens_decoder() {
            let id = TokenId(id);
            if token.special {
                special.insert(id);
            }
            if token.special || !token.normalized {
                raw.push((id, token));
            } else {
                let mut spelled = NormalizedString::from(token.content.as_str());
                if let Some(normalizer) = library.get_normalizer() {
                    normalizer.normalize(&mut spelled).map_err(invalid)?;
                }
                let content = spelled.get().to_owned();
                normalized.push((id, AddedToken { content, ..token }));
            }
        }
        let start = start_tokens(&library).map_err(invalid)?;
        let bytes = TokenBytes::new(&library).map_err(invalid)?;
        Ok(Self {
            inner: Arc::new(Inner {
                library,
                raw_added: AddedTokens::new(raw),
                normalized_added: AddedTokens::new(normalized),
                special,
                start,
                bytes,
            }),
        })
    }

    /// The ids of a text, without the tokens that begin a document ([`Tokenizer::start_tokens`]).
    ///
    /// # Errors
    /// If the vocabulary cannot express the text; a byte-level vocabulary expresses every text.
    pub fn encode(
        &self,
        text: &str,
        special: SpecialTokens,
    ) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode_where(text, |_, token| token.special && special == SpecialTokens::AsText)
    }

    /// The ids of a text in which a spelled added token is text wherever `is_text` says so.
    pub(super) fn encode_where(
        &self,
        text: &str,
        is_text: impl FnMut(&Range<usize>, &AddedToken) -> bool,
    ) -> Result<Vec<TokenId>, TokenizerError> {
        let inner = &*self.inner;
        let mut pieces = PreTokenizedString::from(text);
        let mut found = Some(inner.raw_added.find(text, is_text));
        // A fresh string is one piece, so this is called once.
        pieces
            .split(|_, piece| cut(&piece, &found.take().unwrap_or_default()))
            .map_err(TokenizerError::encode)?;
        pieces
            .split(|_, mut piece| {
                if let Some(normalizer) = inner.library.get_normalizer() {
                    normalizer.normalize(&mut piece)?;
                }
                let found = inner.normalized_added.find(piece.get(), |_, _| false);
                cut(&piece, &found)
            })
            .map_err(TokenizerError::encode)?;
        if let Some(pre_tokenizer) = inner.library.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(TokenizerError::encode)?;
        }
        let model = inner.library.get_model();
        pieces.tokenize(|piece| model.tokenize(piece.get())).map_err(TokenizerError::encode)?;
        let ids = pieces
            .get_splits(OffsetReferential::Normalized, OffsetType::None)
            .into_iter()
            .filter_map(|(_, _, tokens)| tokens.as_ref())
            .flatten()
            .map(|token| TokenId(token.id))
            .collect();
        Ok(ids)
    }

    /// The tokens with which a document begins (Llama 3: `<|begin_of_text|>`); often none. A chat template writes its
    /// own.
    pub fn start_tokens(&self) -> &[TokenId] {
        &self.inner.start
    }

    /// One more than the largest id. The model's embedding may have more rows, as padding.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.bytes.ranges.len()
    }

    /// The id of a token by its spelling in the vocabulary; a special token is spelled as in text.
    pub fn token_id(&self, token: &str) -> Option<TokenId> {
        self.inner.library.token_to_id(token).map(TokenId)
    }

    /// The bytes of text that a token stands for; not always whole characters. `None` if there is no such token.
    pub fn token_bytes(&self, id: TokenId) -> Option<Cow<'_, [u8]>> {
        self.token_slice(id).map(Cow::Borrowed)
    }

    /// Whether a token is special: it steers the model and is not part of the text.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.inner.special.contains(&id)
    }

    pub(super) fn token_slice(&self, id: TokenId) -> Option<&[u8]> {
        let table = &self.inner.bytes;
        let range = table.ranges.get(id.index())?;
        table.bytes.get(range.start as usize..range.end as usize)
    }

    pub(super) fn raw_added_tokens(&self) -> &AddedTokens {
        &self.inner.raw_added
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("special", &self.inner.special.len())
            .field("start", &self.inner.start)
            .finish_non_exhaustive()
    }
}

/// Far more tokens than any vocabulary has: a table with one entry per id stays small even if the file lies.
const MAX_VOCABULARY: usize = 1 << 24;

impl TokenBytes {
    fn new(library: &tokenizers::Tokenizer) -> tokenizers::Result<Self> {
        let decoder = library
            .get_decoder()
            .and_then(|decoder| serde_json::to_value(decoder).ok())
            .unwrap_or_default();
        let spelling = Spelling::from_decoder(&decoder);
        let added = library.get_added_vocabulary().get_added_tokens_decoder();
        let mut spelled = model_spellings(library.get_model())?;
        let size = added.keys().max().map_or(0, |id| *id as usize + 1).max(spelled.len());
        check_size(size)?;
        spelled.resize(size, None);
        let mut table = Self { bytes: Vec::new(), ranges: Vec::with_capacity(size) };
        for (id, token) in spelled.iter().enumerate() {
            // A vocabulary is far below 2^32 bytes: its file would be larger still.
            let start = table.bytes.len() as u32;
            match (added.get(&(id as u32)), token) {
                (Some(token), _) => table.bytes.extend_from_slice(token.content.as_bytes()),
                (None, Some(token)) => table.bytes.extend(spelling.bytes(token)),
                (None, None) => {
                    table.ranges.push(u32::MAX..u32::MAX);
                    continue;
                }
            }
            table.ranges.push(start..table.bytes.len() as u32);
        }
        Ok(table)
    }
}

/// The spelling of each id of the model's own vocabulary.
fn model_spellings(model: &ModelWrapper) -> tokenizers::Result<Vec<Option<String>>> {
    let count = model.get_vocab_size();
    check_size(count)?;
    let dense: Vec<_> = (0..count as u32).map(|id| model.id_to_token(id)).collect();
    if dense.iter().all(Option::is_some) {
        return Ok(dense);
    }
    // Ids with gaps: slower, since the whole vocabulary is copied.
    let vocabulary = model.get_vocab();
    let size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
    check_size(size)?;
    let mut spelled = vec![None; size];
    for (token, id) in vocabulary {
        spelled[id as usize] = Some(token);
    }
    Ok(spelled)
}

fn check_size(size: usize) -> tokenizers::Result<()> {
    if size > MAX_VOCABULARY {
        return Err(format!("the token id {} is too large", size - 1).into());
    }
    Ok(())
}

/// The tokens that the post-processor puts before a text.
fn start_tokens(library: &tokenizers::Tokenizer) -> tokenizers::Result<Vec<TokenId>> {
    const PROBE: &str = "a";
    let plain = library.encode_fast(PROBE, false)?;
    let full = library.encode_fast(PROBE, true)?;
    let (plain, full) = (plain.get_ids(), full.get_ids());
    let at = full.windows(plain.len().max(1)).position(|window| window == plain).unwrap_or(0);
    Ok(full[..at].iter().copied().map(TokenId).collect())
}

/// Cuts a piece of text at its added tokens, which get their ids.
fn cut(
    piece: &NormalizedString,
    found: &[Found],
) -> tokenizers::Result<Vec<(NormalizedString, Option<Vec<Token>>)>> {
    let slice = |range: Range<usize>| {
        piece
            .slice(NormalizedRange::Normalized(range))
            .ok_or("an added token does not lie on character boundaries")
    };
    let mut parts = Vec::with_capacity(2 * found.len() + 1);
    let mut end = 0;
    for token in found {
        parts.push((slice(end..token.range.start)?, None));
        let text = slice(token.range.clone())?;
        let content = text.get().to_owned();
        let offsets = (0, content.len());
        parts.push((text, Some(vec![Token::new(token.id.0, content, offsets)])));
        end = token.range.end;
    }
    parts.push((slice(end..piece.get().len())?, None));
    Ok(parts)
}

/// Adds the tokens of `added_tokens_decoder` that `tokenizer.json` lacks.
fn add_configured_tokens(
    library: &mut tokenizers::Tokenizer,
    config: &Value,
) -> Result<(), TokenizerError> {
    const ORIGIN: &str = "tokenizer_config.json";
    let Some(entries) = config["added_tokens_decoder"].as_object() else {
        return Ok(());
    };
    let mut missing = Vec::new();
    for (id, entry) in entries {
        let (Ok(id), Some(content)) = (id.parse::<u32>(), entry["content"].as_str()) else {
            return Err(TokenizerError::invalid(
                ORIGIN,
                format_args!(
                    "added_tokens_decoder has the entry {id:?} without an id or a content"
                ),
            ));
        };
        if library.token_to_id(content).is_none() && !content.is_empty() {
            let flag = |key: &str| entry[key].as_bool().unwrap_or(false);
            let token = AddedToken::from(content, flag("special"))
                .single_word(flag("single_word"))
                .lstrip(flag("lstrip"))
                .rstrip(flag("rstrip"))
                .normalized(flag("normalized"));
            missing.push((id, token));
        }
    }
    missing.sort_by_key(|(id, _)| *id);
    let names: Vec<(u32, String)> =
        missing.iter().map(|(id, token)| (*id, token.content.clone())).collect();
    library
        .add_tokens(missing.into_iter().map(|(_, token)| token))
        .map_err(|error| TokenizerError::invalid(ORIGIN, error))?;
    for (id, content) in names {
        if library.token_to_id(&content) != Some(id) {
            return Err(TokenizerError::invalid(
                ORIGIN,
                format_args!(
                    "added_tokens_decoder gives {content:?} the id {id}, which does not follow the ids of tokenizer.json"
                ),
            ));
        }
    }
    Ok(())
}
