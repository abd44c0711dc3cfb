//! `lithos score`: how well a model predicts a text, and the logits behind it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{ArgGroup, Args};
use lithos_engine::{Engine, EngineOptions, TokenId};
use lithos_format::{DType, write_safetensors};
use lithos_model::text::{SpecialTokens, Tokenizer};
use serde_json::{Value, json};

use crate::args::{EngineArgs, count, model_path};
use crate::scoring::{Scorer, read_text};
use crate::{model, output};

/// Most likely tokens that are shown for each position.
const SHOWN: usize = 5;

/// The arguments of `score`.
#[derive(Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["text", "ids"]),
    after_help = "Examples:
  lithos score --text book.txt
  lithos score smollm2.gguf --text book.txt --fusion none --chunk 64 --json
  lithos score ./Qwen3-0.6B --ids 1,2,3 --logits logits.safetensors

A text is cut into windows of tokens, each scored from a fresh start: behind the tokens with which a document begins, if \
the model has such tokens; otherwise the first token of a window is not scored.

Perplexity is e to the mean negative log-likelihood of the scored tokens; bits per byte is the sum of their negative \
log2-likelihoods over the bytes that they stand for."
)]
pub struct ScoreArgs {
    /// A Hugging Face directory or a GGUF file [default: the built-in model]
    #[arg(env = "LITHOS_MODEL", hide_env_values = true, value_parser = model_path())]
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
    let model = model::given(args.model.as_deref())?;
    let text = args.text.as_deref().map(read_text).transpose()?;
    let options = EngineOptions { chunk: args.chunk, ..args.engine.options() };
    let mut engine = model::open(model, None, options)?.engine;
    match text {
        Some(text) => score_text(args, &mut engine, &text)?,
        None => score_ids(args, &mut engine)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn score_text(args: &ScoreArgs, engine: &mut Engine, text: &str) -> anyhow::Result<()> {
    let mut scorer = Scorer::new(engine, args.window)?;
    let window = scorer.window();
    let tokens = scorer.tokenizer().encode(text, SpecialTokens::AsText)?;
    let start = scorer.tokenizer().start_tokens().to_vec();
    let progress = output::bar("scoring", tokens.len(), "tokens");
    let score = scorer.score(&start, &tokens, |done| progress.inc(done as u64))?;
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
            "windows": score.windows,
        });
        return output::print(&format!("{result}\n"));
    }
    let plural = if score.windows == 1 { "" } else { "s" };
    output::print(&format!(
        "perplexity     {:.4}\nbits per byte  {:.4}\ntokens         {} of {} scored, in {} window{plural} of {window} at most\nbytes          {} of {}\n",
        score.perplexity(),
        score.bits_per_byte(),
        score.tokens,
        tokens.len(),
        score.windows,
        score.bytes,
        text.len(),
    ))
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
    fn the_top_is_sorted() {
        let ids: Vec<u32> =
            top(&[0.5, 3.0, -1.0, 3.0, 2.0, 1.0, 0.0]).iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [1, 3, 4, 5, 0]);
    }
}
