//! `lithos eval`: how well a model predicts several texts, in one table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use clap::Args;
use lithos_engine::{BackendKind, Draft, Engine, EngineOptions, TokenId};
use lithos_model::text::{SpecialTokens, TemplateOptions, Text};
use serde_json::{Map, Value, json};

use super::eval_drafts::{self, Drafts};
use crate::args::{EngineArgs, count, model_path};
use crate::prompts::{self, Prompt, TIME_OF_TEMPLATES};
use crate::scoring::{Score, Scorer, read_text};
use crate::table::align;
use crate::{model, output};

/// The arguments of `eval`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos eval
  lithos eval ./Qwen3-0.6B
  lithos eval ./Qwen3-0.6B --text book.txt --text notes.md --json > eval.json

Without --text, the prompts of bench/prompts are scored: code, code edits, mathematics, chat, prose and tool use, eight \
each, written as the model's own chat template writes them. Where a drafter lies beside the model, in the folder draft, they are then \
answered with its drafts, to say how many tokens it makes a round (on the CPU).

Bits per byte compare models whatever their tokenizers are; perplexity is per token. Special tokens are context and are \
not scored, nor is the first token of a window, if nothing precedes it.")]
pub struct EvalArgs {
    /// A Hugging Face directory or a GGUF file [default: the built-in model]
    #[arg(env = "LITHOS_MODEL", hide_env_values = true, value_parser = model_path())]
    model: Option<PathBuf>,
    /// Score this text (UTF-8; `-` for standard input) instead of the prompts; may be repeated
    #[arg(long, value_name = "FILE")]
    text: Vec<PathBuf>,
    /// Tokens of a window at most
    #[arg(long, value_name = "TOKENS", default_value = "2048", value_parser = count())]
    window: usize,
    /// Tokens that are taken in together [default: the backend's choice]
    #[arg(long, value_name = "TOKENS", value_parser = count())]
    chunk: Option<usize>,
    /// Tokens of an answer at most, where a drafter is measured; 0 leaves that out
    #[arg(long, value_name = "TOKENS", default_value = "160")]
    answers: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Scores and prints.
pub fn run(args: &EvalArgs) -> anyhow::Result<ExitCode> {
    let model = model::given(args.model.as_deref())?;
    let texts: Vec<(String, String)> = args
        .text
        .iter()
        .map(|path| Ok((path.display().to_string(), read_text(path)?)))
        .collect::<anyhow::Result<_>>()?;
    let options = EngineOptions { chunk: args.chunk, ..args.engine.options() };
    let drafts = texts.is_empty() && args.answers > 0 && options.backend == BackendKind::Cpu;
    let options = EngineOptions {
        draft: if drafts && model.has_drafter() { Draft::Dspark } else { Draft::None },
        draft_length: eval_drafts::LENGTH,
        ..options
    };
    let mut engine = model::open(model, None, options)?.engine;
    let subjects = match texts.is_empty() {
        true => prompt_subjects(engine.text()?)?,
        false => text_subjects(engine.text()?, &texts)?,
    };
    let mut scorer = Scorer::new(&mut engine, args.window)?;
    let window = scorer.window();
    let rows = evaluate(&mut scorer, &subjects)?;
    let drafts = match options.draft {
        Draft::None => None,
        _ => Some(eval_drafts::measure(&mut engine, args.answers)?),
    };
    let report = Report { engine: &engine, window, rows, drafts };
    output::print(&if args.json { format!("{}\n", report.json()) } else { report.table() })?;
    Ok(ExitCode::SUCCESS)
}

/// What one row of the table is about: a text, or the prompts of a kind.
struct Subject {
    name: String,
    sequences: Vec<Sequence>,
}

/// Tokens that are scored from a fresh start.
struct Sequence {
    /// What precedes them, and each window of them.
    start: Vec<TokenId>,
    tokens: Vec<TokenId>,
}

fn text_subjects(text: &Text, texts: &[(String, String)]) -> anyhow::Result<Vec<Subject>> {
    let tokenizer = text.tokenizer();
    let subject = |(name, text): &(String, String)| {
        let tokens = tokenizer.encode(text, SpecialTokens::AsText)?;
        if tokens.len() + tokenizer.start_tokens().len() < 2 {
            bail!("{name}: the text is too short: nothing in it is predicted from anything");
        }
        let start = tokenizer.start_tokens().to_vec();
        Ok(Subject { name: name.clone(), sequences: vec![Sequence { start, tokens }] })
    };
    texts.iter().map(subject).collect()
}

fn prompt_subjects(text: &Text) -> anyhow::Result<Vec<Subject>> {
    text.template().map_err(|error| {
        anyhow!("{error}; `eval` needs it for its prompts: name texts, with --text")
    })?;
    let options = TemplateOptions {
        now: Some(SystemTime::UNIX_EPOCH + TIME_OF_TEMPLATES),
        ..TemplateOptions::default()
    };
    let sequence = |Prompt { id, messages, tools }: &Prompt| {
        // A template writes its own beginning.
        let tokens = text
            .encode_chat(messages, tools.as_ref(), &options)
            .map_err(|error| anyhow!("prompt {id}: {error}"))?;
        Ok(Sequence { start: Vec::new(), tokens })
    };
    let subject = |kind: &prompts::Prompts| {
        let sequences = kind.prompts.iter().map(sequence).collect::<anyhow::Result<_>>()?;
        Ok(Subject { name: kind.kind.to_owned(), sequences })
    };
    prompts::all()?.iter().map(subject).collect()
}

/// What was measured of one subject.
struct Row {
    name: String,
    score: Score,
}

fn evaluate(scorer: &mut Scorer<'_>, subjects: &[Subject]) -> anyhow::Result<Vec<Row>> {
    let sequences = || subjects.iter().flat_map(|subject| &subject.sequences);
    let total = sequences().map(|sequence| sequence.tokens.len()).sum();
    let progress = output::bar("scoring", total, "tokens");
    let mut rows = Vec::new();
    for subject in subjects {
        let mut score = Score::default();
        for Sequence { start, tokens } in &subject.sequences {
            score.merge(scorer.score(start, tokens, |done| progress.inc(done as u64))?);
        }
        rows.push(Row { name: subject.name.clone(), score });
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// One figure of a row.
struct Column {
    heading: &'static str,
    key: &'static str,
    value: fn(&Row) -> Value,
    cell: fn(&Row) -> String,
}

/// What the table and the JSON show of each row, in this order.
const COLUMNS: &[Column] = &[
    Column {
        heading: "tokens",
        key: "tokens",
        value: |row| row.score.tokens.into(),
        cell: |row| row.score.tokens.to_string(),
    },
    Column {
        heading: "bytes",
        key: "bytes",
        value: |row| row.score.bytes.into(),
        cell: |row| row.score.bytes.to_string(),
    },
    Column {
        heading: "bits per byte",
        key: "bits_per_byte",
        value: |row| row.score.bits_per_byte().into(),
        cell: |row| format!("{:.4}", row.score.bits_per_byte()),
    },
    Column {
        heading: "perplexity",
        key: "perplexity",
        value: |row| row.score.perplexity().into(),
        cell: |row| format!("{:.4}", row.score.perplexity()),
    },
];

/// What is shown.
struct Report<'a> {
    engine: &'a Engine,
    window: usize,
    rows: Vec<Row>,
    drafts: Option<Drafts>,
}

impl Report<'_> {
    fn total(&self) -> Row {
        let mut score = Score::default();
        self.rows.iter().for_each(|row| score.merge(row.score));
        Row { name: "total".to_owned(), score }
    }

    fn table(&self) -> String {
        let headings = COLUMNS.iter().map(|column| column.heading.to_owned());
        let cells = |row: &Row| {
            let cells = COLUMNS.iter().map(|column| (column.cell)(row));
            std::iter::once(row.name.clone()).chain(cells).collect()
        };
        let mut rows = vec![std::iter::once("text".to_owned()).chain(headings).collect()];
        rows.extend(self.rows.iter().map(cells));
        if self.rows.len() > 1 {
            rows.push(cells(&self.total()));
        }
        let head = format!(
            "{}, {}, windows of {} tokens at most\n\n",
            self.engine.name(),
            self.engine.describe_backend(),
            self.window
        );
        let drafts = self.drafts.as_ref().map(|drafts| format!("\n{}", drafts.table()));
        head + &align(&rows, 1) + &drafts.unwrap_or_default()
    }

    fn json(&self) -> Value {
        let figures = |row: &Row| {
            let entry = |column: &Column| (column.key.to_owned(), (column.value)(row));
            COLUMNS.iter().map(entry).collect::<Map<String, Value>>()
        };
        let named = |row: &Row| {
            let mut entry = Map::from_iter([("name".to_owned(), row.name.clone().into())]);
            entry.extend(figures(row));
            entry
        };
        json!({
            "model": self.engine.name(),
            "backend": self.engine.backend().name(),
            "fusion": model::fusion_name(self.engine),
            "window": self.window,
            "texts": self.rows.iter().map(named).collect::<Vec<_>>(),
            "total": figures(&self.total()),
            "drafts": self.drafts.as_ref().map(Drafts::json),
        })
    }
}
