//! `lithos bench`: how fast a model runs on this machine, against what its memory can deliver.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::TypedValueParser;
use indicatif::ProgressBar;
use lithos_engine::{
    BackendKind, DraftLength, Engine, EngineOptions, Fusion, MAX_DECODE_ROWS, TokenId, largest,
};
use serde_json::{Value, json};

use crate::args::{backend, count, draft, fusion, model_path};
use crate::commands::bench_passes::{self, Passes};
use crate::commands::bench_speculation::{self, Comparison};
use crate::draft_source::DraftSource;
use crate::statistics::Spread;
use crate::stream::Stream;
use crate::table::align;
use crate::trace::TraceFile;
use crate::{memory, model, output};

/// Rounds of the warm-up of each variant.
const WARM_UP_TOKENS: usize = 8;

/// Longer than workers without a job stay awake, so that they do not read beside the stream.
const SETTLE: Duration = Duration::from_millis(5);

/// The arguments of `bench`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos bench
  lithos bench smollm2.gguf --fusion none,step --prompt-tokens 128 --gen 32 --repeat 9
  lithos bench ./Qwen3-0.6B --threads 2 --json > bench.json
  lithos bench synthetic:qwen3.8-27b-nvfp4 --backend cuda --rows 1,8 --context 128

In each repeat every fusion level has its turn, in an order that rotates: read stream, prefill of a prompt of \
pseudo-random ids, then greedy decoding. Ratios are taken within a turn or a repeat, and their median is shown, so that a machine \
that slows down for a while changes them little. Figures are median (least..most); 1 GB is 10^9 bytes.

The read stream is a plain sequential read of a buffer of 1 GiB (less where memory is short) by as many \
threads, in pages as large as those of the weights, or the card's own reads of 8 GiB. Decode GB/s are the weights, keys and values that \
a decode pass reads, times passes per second; what part of the stream they are is shown, and what part the weights alone are.

With --rows, single passes are timed on a card, with the time of each kernel.

With --speculate, the prompts of bench/prompts are answered with and without drafts, in alternation; times are from prompt to \
last token. The answers must be the same, or the command fails.")]
pub struct BenchArgs {
    /// A Hugging Face directory or a GGUF file [default: the built-in model]
    #[arg(env = "LITHOS_MODEL", hide_env_values = true, value_parser = model_path())]
    model: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(long, value_name = "TOKENS", default_value = "512", value_parser = count())]
    prompt_tokens: usize,
    /// Tokens to generate after it
    #[arg(long = "gen", value_name = "TOKENS", default_value = "128", value_parser = count())]
    generated: usize,
    /// Worker threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = count())]
    threads: Option<usize>,
    /// What computes
    #[arg(long, default_value = "cpu", value_parser = backend())]
    backend: BackendKind,
    /// Measure single passes of so many rows on a card, instead of prompts and answers
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = rows())]
    rows: Vec<usize>,
    /// Tokens before the rows of a single pass
    #[arg(long, value_name = "TOKENS", default_value = "128", value_parser = count(), requires = "rows")]
    context: usize,
    /// Compare answers to the prompts of bench/prompts with and without drafts, of at most --gen tokens
    #[arg(long, conflicts_with_all = ["rows", "prompt_tokens"])]
    speculate: bool,
    /// Where drafts come from
    #[arg(long, default_value = "auto", value_name = "auto|dspark|mtp|copy|none|DIR", value_parser = draft(), requires = "speculate")]
    draft: DraftSource,
    /// How many drafts a pass verifies: as many as pay (auto), at most N, or those before the first that is accepted with less than
    /// probability P (threshold:P)
    #[arg(long, default_value = "auto", value_name = "auto|N|threshold:P", requires = "speculate")]
    draft_len: DraftLength,
    /// Write what the answers with drafts did when to this file, for chrome://tracing or ui.perfetto.dev
    #[arg(long, value_name = "FILE", requires = "speculate")]
    trace: Option<PathBuf>,
    /// Fusion levels to compare, separated by commas [default: all]
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', value_parser = fusion())]
    fusion: Vec<Fusion>,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = count())]
    repeat: usize,
    /// Print one JSON object with all samples
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let model = model::given(args.model.as_deref())?;
    let threads =
        args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut levels: Vec<Fusion> = Vec::new();
    for level in if args.fusion.is_empty() { &Fusion::ALL[..] } else { &args.fusion } {
        if !levels.contains(level) {
            levels.push(*level);
        }
    }
    let mut options = EngineOptions {
        backend: model::chosen_backend(args.backend, model)?,
        threads: args.threads,
        context: Some(args.prompt_tokens + args.generated),
        ..EngineOptions::default()
    };
    if args.speculate {
        let fusion = args.fusion.last().copied().unwrap_or(Fusion::Step);
        let options = EngineOptions {
            fusion,
            context: None,
            draft: args.draft.draft(),
            draft_length: args.draft_len,
            ..options
        };
        let (tokens, repeats) = (args.generated, args.repeat);
        let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
        let drafter = args.draft.path();
        let comparison = Comparison { model, drafter, options, trace, tokens, repeats };
        output::print(&bench_speculation::run(comparison, args.json)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.rows.is_empty() {
        options.context = Some(args.context + MAX_DECODE_ROWS);
        let (rows, context, repeats) = (&args.rows[..], args.context, args.repeat);
        let passes = Passes { model, options, levels: &levels, rows, context, repeats };
        let vocabulary = model::vocabulary(model)?;
        let tokens = prompt(vocabulary, args.context + MAX_DECODE_ROWS);
        output::print(&bench_passes::run(&passes, args.json, &tokens)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.backend == BackendKind::Cpu {
        options.threads = Some(threads);
    }
    let mut variants: Vec<Variant> = Vec::new();
    for fusion in &levels {
        if let Some(first) = variants.first()
            && options.backend == BackendKind::Cpu
        {
            memory::check_more(
                &first.engine,
                levels.len() - variants.len(),
                "measuring all levels",
            )?;
        }
        let engine = model::open(model, None, EngineOptions { fusion: *fusion, ..options })?.engine;
        variants.push(Variant { fusion: *fusion, engine, samples: Vec::new() });
    }
    let stream = Stream::of(options.backend, threads);
    measure(args, &stream, &mut variants)?;
    let report = Report { args, threads, stream_bytes: stream.bytes(), variants: &variants };
    let result = report.json();
    output::print(&if args.json { format!("{result}\n") } else { report.table() })?;
    Ok(ExitCode::SUCCESS)
}

/// One fusion level, open, and what was measured of it.
struct Variant {
    fusion: Fusion,
    engine: Engine,
    samples: Vec<Sample>,
}

/// What one turn measured.
#[derive(Clone, Copy)]
struct Sample {
    /// Bytes per second.
    stream: f64,
    /// Tokens per second.
    prefill: f64,
    /// Tokens per second; a pass makes one.
    decode: f64,
}

fn measure(args: &BenchArgs, stream: &Stream, variants: &mut [Variant]) -> anyhow::Result<()> {
    let count = variants.len();
    let progress = output::bar("measuring", args.repeat * count, "turns");
    for variant in &mut *variants {
        let prompt = prompt(variant.engine.vocabulary(), args.prompt_tokens);
        let warm_up = WARM_UP_TOKENS.min(args.generated);
        turn(&mut variant.engine, stream, &prompt, warm_up)?;
    }
    for repeat in 0..args.repeat {
        for place in 0..count {
            let variant = &mut variants[(repeat + place) % count];
            let prompt = prompt(variant.engine.vocabulary(), args.prompt_tokens);
            let sample = turn(&mut variant.engine, stream, &prompt, args.generated)?;
            variant.samples.push(sample);
            report_turn(&progress, args, repeat, variant.fusion, sample);
        }
    }
    progress.finish_and_clear();
    Ok(())
}

fn report_turn(
    progress: &ProgressBar,
    args: &BenchArgs,
    repeat: usize,
    fusion: Fusion,
    sample: Sample,
) {
    progress.inc(1);
    if progress.is_hidden() {
        output::line(&format!(
            "repeat {} of {}, {fusion}: stream {:.1} GB/s, prefill {:.1} tokens/s, decode {:.1} tokens/s",
            repeat + 1,
            args.repeat,
            sample.stream / 1e9,
            sample.prefill,
            sample.decode
        ));
    }
}

/// The stream, a prefill and a greedy decode past any end.
fn turn(
    engine: &mut Engine,
    stream: &Stream,
    prompt: &[TokenId],
    generated: usize,
) -> anyhow::Result<Sample> {
    std::thread::sleep(SETTLE);
    let stream = stream.measure(engine)?;
    let mut sequence = engine.sequence();
    sequence.reset();
    let started = Instant::now();
    let mut token = TokenId(0);
    sequence.prefill(prompt, 1, |_, logits| token = largest(logits))?;
    let prefill = prompt.len() as f64 / started.elapsed().as_secs_f64();
    let started = Instant::now();
    for _ in 0..generated {
        token = largest(sequence.decode(&[token])?);
        sequence.accept(1);
    }
    let decode = generated as f64 / started.elapsed().as_secs_f64();
    Ok(Sample { stream, prefill, decode })
}

/// Rows that a decode pass can have.
fn rows() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u32).range(1..=MAX_DECODE_ROWS as i64).map(|value| value as usize)
}

/// The same pseudo-random ids in every run: a linear congruential generator with Knuth's constants (MMIX).
fn prompt(vocabulary: usize, tokens: usize) -> Vec<TokenId> {
    let mut state = 1u64;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        TokenId(((state >> 33) % vocabulary as u64) as u32)
    };
    (0..tokens).map(next).collect()
}

/// What is shown of the measurements.
struct Report<'a> {
    args: &'a BenchArgs,
    threads: usize,
    stream_bytes: Option<usize>,
    variants: &'a [Variant],
}

/// The figures of one level.
struct Figures {
    stream: Spread,
    prefill: Spread,
    decode: Spread,
    /// Bytes of weights, keys and values per second of decoding.
    moved: Spread,
    /// What part of the stream of the same turn that is.
    fraction: Spread,
    /// What part the weights alone are.
    weights_fraction: Spread,
    /// Against `none` of the same repeat.
    prefill_ratio: Option<Spread>,
    decode_ratio: Option<Spread>,
}

impl Report<'_> {
    fn figures(&self, variant: &Variant) -> Option<Figures> {
        let weights = variant.engine.memory().read_per_pass as f64;
        let moved = weights + self.key_value_bytes(&variant.engine) as f64;
        let of = |value: &dyn Fn(&Sample) -> f64| Spread::of(variant.samples.iter().map(value));
        let control = self.variants.iter().find(|other| other.fusion == Fusion::None);
        let against = |value: &dyn Fn(&Sample) -> f64| {
            let pairs = variant.samples.iter().zip(&control?.samples);
            Spread::of(pairs.map(|(own, other)| value(own) / value(other)))
        };
        Some(Figures {
            stream: of(&|sample| sample.stream)?,
            prefill: of(&|sample| sample.prefill)?,
            decode: of(&|sample| sample.decode)?,
            moved: of(&|sample| sample.decode * moved)?,
            fraction: of(&|sample| sample.decode * moved / sample.stream)?,
            weights_fraction: of(&|sample| sample.decode * weights / sample.stream)?,
            prefill_ratio: against(&|sample| sample.prefill),
            decode_ratio: against(&|sample| sample.decode),
        })
    }

    /// Keys and values that a decode pass reads on average.
    fn key_value_bytes(&self, engine: &Engine) -> u64 {
        let memory = engine.memory();
        let positions = self.args.prompt_tokens + self.args.generated / 2;
        memory.per_page * positions as u64 / memory.page_tokens.max(1) as u64
    }

    fn table(&self) -> String {
        let Some(first) = self.variants.first() else { return String::new() };
        let memory = first.engine.memory();
        let mut out = format!(
            "{}, {}\nprompt of {} tokens, {} generated, {} repeats; a decode pass reads {:.1} MB of weights and on average {:.1} MB of keys and values\n",
            first.engine.name(),
            first.engine.describe_backend(),
            self.args.prompt_tokens,
            self.args.generated,
            self.args.repeat,
            memory.read_per_pass as f64 / 1e6,
            self.key_value_bytes(&first.engine) as f64 / 1e6,
        );
        // Two tables: one would be wider than most terminals.
        for (header, row) in [(&SPEEDS[..], speeds as fn(&Figures) -> _), (&RATIOS, ratios)] {
            let mut rows = vec![header.iter().map(ToString::to_string).collect::<Vec<_>>()];
            for variant in self.variants {
                let Some(figures) = self.figures(variant) else { continue };
                rows.push([&[variant.fusion.name().to_owned()], &row(&figures)[..]].concat());
            }
            out.push('\n');
            out += &align(&rows, 1);
        }
        out
    }

    fn json(&self) -> Value {
        let first = self.variants.first();
        let memory = first.map(|variant| variant.engine.memory());
        json!({
            "model": first.map(|variant| variant.engine.name()),
            "backend": first.map(|variant| variant.engine.backend().name()),
            "processor": first.map(|variant| variant.engine.describe_backend()),
            "threads": self.threads,
            "prompt_tokens": self.args.prompt_tokens,
            "generated_tokens": self.args.generated,
            "repeats": self.args.repeat,
            "weight_bytes_per_pass": memory.map(|memory| memory.read_per_pass),
            "key_value_bytes_per_pass": first.map(|variant| self.key_value_bytes(&variant.engine)),
            "stream_buffer_bytes": self.stream_bytes,
            "levels": self.variants.iter().map(|variant| self.level(variant)).collect::<Vec<_>>(),
        })
    }

    fn level(&self, variant: &Variant) -> Value {
        let samples = |sample: &Sample| {
            json!({
                "stream_gb_per_s": sample.stream / 1e9,
                "prefill_tokens_per_s": sample.prefill,
                "decode_tokens_per_s": sample.decode,
            })
        };
        let spread = |spread: Spread, unit: f64| {
            let Spread { median, least, most } = spread.in_units_of(unit);
            json!({"median": median, "min": least, "max": most})
        };
        let mut level = json!({
            "fusion": variant.fusion.name(),
            "samples": variant.samples.iter().map(samples).collect::<Vec<_>>(),
        });
        if let Some(figures) = self.figures(variant) {
            level["stream_gb_per_s"] = spread(figures.stream, 1e9);
            level["prefill_tokens_per_s"] = spread(figures.prefill, 1.0);
            level["decode_tokens_per_s"] = spread(figures.decode, 1.0);
            level["decode_gb_per_s"] = spread(figures.moved, 1e9);
            level["decode_fraction_of_stream"] = spread(figures.fraction, 1.0);
            level["weights_fraction_of_stream"] = spread(figures.weights_fraction, 1.0);
            level["prefill_against_none"] =
                json!(figures.prefill_ratio.map(|ratio| spread(ratio, 1.0)));
            level["decode_against_none"] =
                json!(figures.decode_ratio.map(|ratio| spread(ratio, 1.0)));
        }
        level
    }
}

const SPEEDS: [&str; 4] = ["fusion", "stream GB/s", "prefill tokens/s", "decode tokens/s"];

fn speeds(figures: &Figures) -> Vec<String> {
    vec![
        format!("{:.1}", figures.stream.in_units_of(1e9)),
        format!("{:.1}", figures.prefill),
        format!("{:.1}", figures.decode),
    ]
}

const RATIOS: [&str; 6] = [
    "fusion",
    "decode GB/s",
    "% of the stream",
    "weights alone, %",
    "prefill against none",
    "decode against none",
];

fn ratios(figures: &Figures) -> Vec<String> {
    let ratio = |ratio: Option<Spread>| match ratio {
        Some(ratio) => format!("{ratio:.2}"),
        None => "-".to_owned(),
    };
    vec![
        format!("{:.1}", figures.moved.in_units_of(1e9)),
        format!("{:.0}", figures.fraction.in_units_of(0.01)),
        format!("{:.0}", figures.weights_fraction.in_units_of(0.01)),
        ratio(figures.prefill_ratio),
        ratio(figures.decode_ratio),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_valid_and_the_same_each_time() {
        let ids = prompt(100, 500);
        assert_eq!(ids, prompt(100, 500));
        assert!(ids.iter().all(|id| id.0 < 100));
        assert!(ids.iter().collect::<std::collections::HashSet<_>>().len() > 90);
    }
}
