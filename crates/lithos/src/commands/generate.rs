//! `lithos generate`: one prompt, one answer.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use lithos_engine::{Completion, Engine, FinishReason, Request, TokenId};
use lithos_model::text::{SpecialTokens, Text};
use serde_json::{Value, json};

use crate::answer::{self, Streaming};
use crate::args::{AnswerArgs, ModelArgs, SamplingArgs};
use crate::conversation::{self, Conversation};
use crate::interrupt::{self, Again};
use crate::model::{self, Opened};
use crate::trace::TraceFile;
use crate::{INTERRUPTED, output};

/// The arguments of `generate`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos generate \"What is the capital of France?\"
  lithos generate --model ./Qwen3-0.6B --raw --max-tokens 50 \"Once upon a time\"
  git diff | lithos generate --model ./Qwen3-0.6B --system \"Write a commit message.\"
  lithos generate --model smollm2.gguf --temperature 0.8 --seed 1 --json \"A haiku.\"

Ctrl-C ends the answer; the exit code is then 130.")]
pub struct GenerateArgs {
    /// What to answer; without it, or with `-`, it is read from standard input (a line break at the end does not count)
    prompt: Option<OsString>,
    /// Continue the prompt as plain text, without the model's chat template
    #[arg(long, conflicts_with_all = ["system", "thinking"])]
    raw: bool,
    /// Go on past the tokens that end an answer
    #[arg(long)]
    ignore_eos: bool,
    /// Print one JSON object at the end instead of the text: model, backend, fusion, prompt_tokens, cached_tokens (of those, not
    /// computed again), generated_tokens, token_ids, text, finish_reason (stop, length or cancelled), timings in seconds and tokens per second, and what became of
    /// drafts (speculation; null where there are none)
    #[arg(long)]
    json: bool,
    /// Write what was done when to this file, for chrome://tracing or ui.perfetto.dev: prefill chunks; of each round drafting,
    /// verifying and accepting
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    model: ModelArgs,
}

/// Answers the prompt.
pub fn run(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let model = model::given(args.model.model.as_deref())?;
    interrupt::install()?;
    args.sampling.check()?;
    let prompt = read_prompt(args.prompt.as_deref())?;
    let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
    let Opened { mut engine, load } = args.model.open(model)?;
    let tokens = prompt_tokens(args, &engine, &prompt)?;
    let request = Request {
        ignore_end: args.ignore_eos,
        // Only on disk can there be something of earlier prompts.
        reuse: args.model.prefixes.options().disk.is_some(),
        ..conversation::request(&engine, tokens, &args.answer, &args.sampling)?
    };
    engine.set_trace(trace.is_some());
    let streaming = if args.json { Streaming::Silent } else { Streaming::Pieces };
    let completion = answer::stream(&mut engine, &request, streaming, Again::Exits)?;
    if let Some(trace) = trace {
        trace.write(&engine.take_trace())?;
    }
    if args.json {
        let result = result_json(&engine, &completion, load);
        output::print(&format!("{result}\n"))?;
    } else {
        if output::stdout_is_terminal() && !completion.text.ends_with('\n') {
            output::print("\n")?;
        }
        if output::stderr_is_terminal() {
            output::line(&output::dim(&answer::speed_line(&completion)));
        }
    }
    Ok(match completion.finish {
        FinishReason::Cancelled => ExitCode::from(INTERRUPTED),
        FinishReason::Stop | FinishReason::Length => ExitCode::SUCCESS,
    })
}

/// The prompt as text, from the command line or standard input.
fn read_prompt(given: Option<&OsStr>) -> anyhow::Result<String> {
    if let Some(prompt) = given.filter(|prompt| *prompt != "-") {
        let not_text = || anyhow!("the prompt on the command line is not UTF-8 text");
        return prompt.to_str().map(str::to_owned).ok_or_else(not_text);
    }
    if io::stdin().is_terminal() {
        output::note("reading the prompt from the terminal; Ctrl-D on an empty line ends it");
    }
    let mut bytes = Vec::new();
    io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| anyhow!("cannot read the prompt from standard input: {error}"))?;
    let mut prompt = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!(
            "the prompt on standard input is not UTF-8 text: byte {at} is not part of a character"
        )
    })?;
    if prompt.ends_with('\n') {
        prompt.pop();
        if prompt.ends_with('\r') {
            prompt.pop();
        }
    }
    Ok(prompt)
}

fn prompt_tokens(
    args: &GenerateArgs,
    engine: &Engine,
    prompt: &str,
) -> anyhow::Result<Vec<TokenId>> {
    if args.raw {
        return raw_tokens(engine.text()?, prompt);
    }
    if prompt.is_empty() {
        bail!("the prompt is empty: give one on the command line or on standard input");
    }
    let mut conversation = Conversation::new(args.answer.system.clone());
    conversation.ask(prompt.to_owned());
    conversation.tokens(engine, args.answer.thinking)
}

fn raw_tokens(text: &Text, prompt: &str) -> anyhow::Result<Vec<TokenId>> {
    let tokenizer = text.tokenizer();
    let mut tokens = tokenizer.start_tokens().to_vec();
    tokens.extend(tokenizer.encode(prompt, SpecialTokens::Parse)?);
    Ok(tokens)
}

fn result_json(engine: &Engine, completion: &Completion, load: Duration) -> Value {
    let Completion { tokens, text, finish, prompt_tokens, reused_tokens, timings, speculation } =
        completion;
    json!({
        "model": engine.name(),
        "backend": engine.backend().name(),
        "fusion": model::fusion_name(engine),
        "prompt_tokens": prompt_tokens,
        "cached_tokens": reused_tokens,
        "generated_tokens": tokens.len(),
        "token_ids": tokens,
        "text": text,
        "finish_reason": finish,
        "timings": {
            "load_s": load.as_secs_f64(),
            "prefill_s": timings.prefill.as_secs_f64(),
            "decode_s": timings.decode.as_secs_f64(),
            "prefill_tokens_per_s": timings.prefill_tokens_per_second(prompt_tokens - reused_tokens),
            "decode_tokens_per_s": timings.decode_tokens_per_second(tokens.len()),
        },
        "speculation": speculation,
    })
}
