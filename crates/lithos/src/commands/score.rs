//! `lithos score`: how well a model predicts a text, and the logits behind it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::{ArgGroup, Args};
use lithos_engine::{Engine, EngineOptions, TokenId};
use lithos_format::{DType, write_safetensors};
use lithos_model::text::{SpecialTokens, Tokenizer};
use serde_json::{Value, json};

use crate::args::{EngineArgs, count};
use crate::{model, output};

/// Most likely tokens that are shown for each position.
const SHOWN: usize = 5;

/// The arguments of `score`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["text", "ids"]),
    after_help = "Examples:
  lithos score smollm2.gguf --text book.txt
  lithos score smollm2.gguf --text book.txt --fusion none --chunk 64 --json
  lithos score ./Qwen3-0.6B --ids 1,2,3 --logits logits.safetensors

A text is cut into windows of tokens, each scored from a fresh start: behind the tokens with which a document begins, if \
the model has such tokens; otherwise the first token of a window is not scored.

Perplexity is e to the mean negative log-likelihood of the scored tokens; bits per byte is the sum of their negative \
log2-likelihoods over the bytes that they stand for."
)]
pub struct ScoreArgs {
    /// A Hugging Face directory or a GGUF file
    #[arg(env = "LITHOS_MODEL", hide_env_values = true)]
    model: Option<PathBuf>,
    /// Score this text (UTF-8; `-` for standard input): perplexity and bits per byte
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Run these token ids, separated by commas, and show the most likely next tokens after each
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    ids: Vec<u32>,
    /// Write the logits to this file: `logits`, F32, [tokens, vocabulary]
    #[arg(long, value_name = "FILE.safetensors", requires = "ids", conflicts_with = "text")]
    logits: Option<PathBuf>,
    /// Tokens of a window at most
    #[arg(long, value_name = "TOKENS", default_value = "2048", value_parser = count(), conflicts_with = "ids")]
    window: usize,
    /// Tokens that are taken in together [default: the backend's choice]
    #[arg(long, value_name = "TOKENS", value_parser = count())]
    chunk: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Scores a text or a list of ids.
pub fn run(args: &ScoreArgs) -> anyhow::Result<ExitCode> {
    let path = model::given(args.model.as_deref())?;
    let text = args.text.as_deref().map(read_text).transpose()?;
    let options = EngineOptions { chunk: args.chunk, ..args.engine.options() };
    let mut engine = model::open(path, options)?.engine;
    match text {
        Some(text) => score_text(args, &mut engine, &text)?,
        None => score_ids(args, &mut engine)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let (name, bytes) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        ("standard input".into(), io::stdin().read_to_end(&mut bytes).map(|_| bytes))
    } else {
        (path.display().to_string(), fs::read(path))
    };
    let bytes = bytes.map_err(|error| anyhow!("{name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{name}: not UTF-8 text: byte {at} is not part of a character")
    })
}

/// What the scored tokens add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Score {
    /// Negative log-likelihood, in nats.
    surprise: f64,
    tokens: usize,
    bytes: usize,
}

impl Score {
    fn add(&mut self, logits: &[f32], next: TokenId, bytes: usize) {
        self.surprise += surprise(logits, next);
        self.tokens += 1;
        self.bytes += bytes;
    }

    fn perplexity(&self) -> f64 {
        (self.surprise / self.tokens as f64).exp()
    }

    fn bits_per_byte(&self) -> f64 {
        self.surprise / std::f64::consts::LN_2 / self.bytes as f64
    }
}

/// The negative log of a token's softmax probability.
fn surprise(logits: &[f32], token: TokenId) -> f64 {
    let maximum = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = logits.iter().map(|logit| (f64::from(*logit) - maximum).exp()).sum();
    total.ln() + maximum - f64::from(logits[token.index()])
}

fn score_text(args: &ScoreArgs, engine: &mut Engine, text: &str) -> anyhow::Result<()> {
    let tokenizer = engine.text()?.tokenizer().clone();
    let start = tokenizer.start_tokens().to_vec();
    let tokens = tokenizer.encode(text, SpecialTokens::AsText)?;
    let window = args.window.min(engine.context());
    let room = window.saturating_sub(start.len());
    if room == 0 || window < 2 {
        bail!("a window of {window} tokens has no room for a prediction: raise --window");
    }
    let progress = output::bar("scoring", tokens.len(), "tokens");
    let (mut score, mut windows) = (Score::default(), 0);
    for part in tokens.chunks(room) {
        let context = [&start[..], part].concat();
        score_window(engine, &tokenizer, &context, start.len().max(1), &mut score)?;
        windows += 1;
        progress.inc(part.len() as u64);
    }
    progress.finish_and_clear();
    if score.tokens == 0 {
        bail!("the text has {} tokens: too few to predict one from another", tokens.len());
    }
    if args.json {
        let result = json!({
            "model": engine.name(),
            "backend": engine.backend().name(),
            "fusion": model::fusion_name(engine),
            "perplexity": score.perplexity(),
            "bits_per_byte": score.bits_per_byte(),
            "tokens": score.tokens,
            "bytes": score.bytes,
            "text_tokens": tokens.len(),
            "text_bytes": text.len(),
            "window": window,
            "windows": windows,
        });
        return output::print(&format!("{result}\n"));
    }
    let plural = if windows == 1 { "" } else { "s" };
    output::print(&format!(
        "perplexity     {:.4}\nbits per byte  {:.4}\ntokens         {} of {} scored, in {windows} window{plural} of {window} at most\nbytes          {} of {}\n",
        score.perplexity(),
        score.bits_per_byte(),
        score.tokens,
        tokens.len(),
        score.bytes,
        text.len(),
    ))
}

/// Scores the tokens of a window from `first` on, each by what precedes it.
fn score_window(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    window: &[TokenId],
    first: usize,
    score: &mut Score,
) -> anyhow::Result<()> {
    let Some(predictions) = window.len().checked_sub(first).filter(|count| *count > 0) else {
        return Ok(());
    };
    let mut sequence = engine.sequence();
    sequence.reset();
    // Nothing is predicted from the last token.
    sequence.prefill(&window[..window.len() - 1], predictions, |index, logits| {
        let next = window[index + 1];
        score.add(logits, next, tokenizer.token_bytes(next).map_or(0, |bytes| bytes.len()));
    })?;
    Ok(())
}

/// A position's most likely next tokens.
type Top = Vec<(TokenId, f32)>;

fn score_ids(args: &ScoreArgs, engine: &mut Engine) -> anyhow::Result<()> {
    let ids: Vec<TokenId> = args.ids.iter().copied().map(TokenId).collect();
    let keep = args.logits.is_some();
    let (mut all, mut tops): (Vec<f32>, Vec<Top>) = (Vec::new(), Vec::new());
    let vocabulary = engine.vocabulary();
    engine.sequence().prefill(&ids, ids.len(), |_, logits| {
        tops.push(top(logits));
        if keep {
            all.extend_from_slice(logits);
        }
    })?;
    if let Some(path) = &args.logits {
        let shape = [ids.len(), vocabulary];
        write_safetensors(path, &[("logits", DType::F32, &shape, bytemuck::cast_slice(&all))])?;
    }
    let tokenizer = engine.text().ok().map(|text| text.tokenizer());
    if args.json {
        let result = json!({
            "model": engine.name(),
            "backend": engine.backend().name(),
            "fusion": model::fusion_name(engine),
            "ids": ids,
            "top": tops.iter().map(|top| top_json(top, tokenizer)).collect::<Vec<_>>(),
        });
        return output::print(&format!("{result}\n"));
    }
    let mut out = String::new();
    for (position, (id, top)) in ids.iter().zip(&tops).enumerate() {
        out += &format!("after {position}: {}\n", shown(*id, tokenizer));
        for (id, logit) in top {
            out += &format!("  {logit:>10.4}  {}\n", shown(*id, tokenizer));
        }
    }
    output::print(&out)
}

/// The largest logits, in descending order; of equal ones the smaller id first.
fn top(logits: &[f32]) -> Top {
    let mut top: Top = Vec::with_capacity(SHOWN + 1);
    for (id, logit) in logits.iter().enumerate() {
        let place = top.partition_point(|(_, other)| other.total_cmp(logit).is_ge());
        if place < SHOWN {
            top.insert(place, (TokenId(id as u32), *logit));
            top.truncate(SHOWN);
        }
    }
    top
}

fn top_json(top: &Top, tokenizer: Option<&Tokenizer>) -> Value {
    let entry = |(id, logit): &(TokenId, f32)| {
        let bytes = tokenizer.and_then(|tokenizer| tokenizer.token_bytes(*id));
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        json!({"id": id, "text": text, "logit": logit})
    };
    Value::Array(top.iter().map(entry).collect())
}

/// A token's id and, where there is a tokenizer, its text with everything unprintable escaped.
fn shown(id: TokenId, tokenizer: Option<&Tokenizer>) -> String {
    let bytes = tokenizer.and_then(|tokenizer| tokenizer.token_bytes(id));
    match bytes {
        None => format!("{:>6}", id.0),
        Some(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => format!("{:>6}  {text:?}", id.0),
            Err(_) => format!("{:>6}  \"{}\"", id.0, bytes.escape_ascii()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_are_equally_surprising() {
        let mut score = Score::default();
        score.add(&[1000.0; 4], TokenId(2), 1);
        score.add(&[-1000.0; 4], TokenId(0), 1);
        assert!((score.perplexity() - 4.0).abs() < 1e-9);
        assert!((score.bits_per_byte() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_likely_token_is_less_surprising() {
        let logits = [0.9f32.ln(), 0.1f32.ln()];
        assert!((surprise(&logits, TokenId(0)) + 0.9f64.ln()).abs() < 1e-6);
        assert!((surprise(&logits, TokenId(1)) + 0.1f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn the_top_is_sorted() {
        let ids: Vec<u32> =
            top(&[0.5, 3.0, -1.0, 3.0, 2.0, 1.0, 0.0]).iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [1, 3, 4, 5, 0]);
    }
}
