//! The command line: what every command takes, and what several share.

use std::path::PathBuf;

use clap::builder::{
    NonEmptyStringValueParser, OsStringValueParser, PossibleValuesParser, TypedValueParser,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lithos_engine::{
    BackendKind, DraftLength, EngineOptions, Fusion, Proposals, Sampling, TokenId,
};

use crate::commands;
use crate::commands::agent::AgentArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::chat::ChatArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::env::EnvArgs;
use crate::commands::eval::EvalArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::generate::GenerateArgs;
use crate::commands::models::ModelsArgs;
use crate::commands::run::RunArgs;
use crate::commands::score::ScoreArgs;
use crate::commands::serve::ServeArgs;
use crate::draft_source::DraftSource;
use crate::model::{self, Given, Opened};
use crate::prefix_args::PrefixArgs;

/// Run language models on this machine
#[derive(Parser)]
#[command(
    name = "lithos",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  lithos generate \"What is the capital of France?\"
  lithos models
  lithos chat --model ./Qwen3-0.6B
  lithos score ./Qwen3-0.6B --text book.txt

`lithos COMMAND --help` explains a command."
)]
pub struct Cli {
    /// Write notes (what was left out of a model, for instance) also where standard error is no terminal
    #[arg(short, long, global = true, display_order = 1000)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Answer one prompt, or continue a text
    Generate(GenerateArgs),
    /// Talk with a model
    Chat(ChatArgs),
    /// Measure how well a model predicts a text, or print its logits
    Score(ScoreArgs),
    /// Measure how well a model predicts several texts, in one table
    Eval(EvalArgs),
    /// Answer over HTTP, as OpenAI's and Anthropic's APIs do
    Serve(ServeArgs),
    /// Run Claude Code with the served model
    #[command(after_help = commands::agent::examples("claude", "-p \"Explain this repository\""))]
    Claude(AgentArgs),
    /// Run Codex with the served model
    #[command(after_help = commands::agent::examples("codex", "exec \"Explain this repository\""))]
    Codex(AgentArgs),
    /// Run OpenCode with the served model
    #[command(after_help = commands::agent::examples("opencode", "run \"Explain this repository\""))]
    Opencode(AgentArgs),
    /// Run Hermes with the served model
    #[command(after_help = commands::agent::examples("hermes", "chat -q \"Explain this repository\""))]
    Hermes(AgentArgs),
    /// Run a program whose OpenAI or Anthropic client is to talk to the served model
    Run(RunArgs),
    /// Write the variables with which such clients talk to the served model, for a shell
    Env(EnvArgs),
    /// Measure how fast a model runs on this machine
    Bench(BenchArgs),
    /// Show what a model is compiled to: regions, phases, or the text of its kernels
    Explain(ExplainArgs),
    /// List models: the built-in one, and some to download
    Models(ModelsArgs),
    /// Write completions for a shell
    Completions(CompletionsArgs),
}

/// The model, as a flag.
#[derive(Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// A Hugging Face directory (config.json, safetensors, tokenizer.json) or a GGUF file [default: the built-in model]
    #[arg(short, long, env = "LITHOS_MODEL", hide_env_values = true, value_name = "PATH", value_parser = model_path())]
    pub model: Option<PathBuf>,
    /// How the model is run.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Tokens that prompt and answer can have together [default: what the model was made for, at most 65536, where
    /// memory allows]
    #[arg(long, value_name = "TOKENS", value_parser = count())]
    pub context: Option<usize>,
    /// What is drafted.
    #[command(flatten)]
    pub drafts: DraftArgs,
    /// Where prefixes are kept.
    #[command(flatten)]
    pub prefixes: PrefixArgs,
}

/// What is drafted. It changes how many passes a text takes.
#[derive(Args)]
#[command(next_help_heading = "Speculation (changes speed, not what a text is like)")]
pub struct DraftArgs {
    /// Where drafts come from, which a pass verifies together: copies of what stood in the conversation before (copy), the
    /// DSpark drafter in the folder draft beside the model (dspark) or in this directory (DIR), the model's own multi-token
    /// prediction layer (mtp), what is likely to pay (auto: copies), or nowhere (none). On a card, trained drafters have not been tried yet
    #[arg(long, default_value = "auto", value_name = "auto|dspark|mtp|copy|none|DIR", value_parser = draft())]
    pub draft: DraftSource,
    /// What a trained drafter proposes where the text is drawn (temperature above 0): its likeliest tokens, with which the text
    /// of a seed is that without drafts, or tokens drawn as it expects them (drawn), with which the text is another one, as
    /// likely, and more drafts may be accepted
    #[arg(long, default_value = "likeliest", value_name = "WHAT", value_parser = proposals())]
    pub draft_proposals: Proposals,
    /// How many drafts a pass verifies: as many as pay, by what passes take here (auto), at most N, or those before the first that is
    /// accepted with less than probability P (threshold:P). What passes take is measured once, in a second at most, and kept in
    /// ~/.cache/lithos/costs
    #[arg(long, default_value = "auto", value_name = "auto|N|threshold:P")]
    pub draft_len: DraftLength,
}

/// How a model is run.
#[derive(Args)]
#[command(next_help_heading = "Model")]
pub struct EngineArgs {
    /// What computes: this machine's cores, an NVIDIA card, a card if there is one with room (auto), or, slow and to compare
    /// with, an f32 interpreter or the emulator of Metal kernels
    #[arg(long, default_value = "cpu", value_parser = backend())]
    pub backend: BackendKind,
    /// How much of a pass is one launch: one for each kind of task, for each mixer, for each layer, or one for the whole
    /// step. The answer is the same. The interpreter has no levels
    #[arg(long, default_value = "step", value_name = "LEVEL", value_parser = fusion())]
    pub fusion: Fusion,
    /// Worker threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = count())]
    pub threads: Option<usize>,
}

/// How the tokens of an answer are chosen.
#[derive(Args)]
#[command(next_help_heading = "Sampling (defaults are those of the model's generation_config)")]
pub struct SamplingArgs {
    /// Randomness: 0 always takes the most likely token, 1 follows the model's probabilities
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Choose among the K most likely tokens; 0 for all
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Choose among the most likely tokens that together reach probability P (0 to 1)
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Leave out tokens less likely than P times the most likely one (0 to 1)
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Divide the logits of tokens that occurred by R (multiply, where negative); 1 for none
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Subtract P from the logits of tokens that were generated
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Subtract F from the logits of tokens for each time that they were generated
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// Add BIAS to the logit of the token with this id; may be repeated
    #[arg(long, value_name = "ID=BIAS", value_delimiter = ',', value_parser = logit_bias)]
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Make the same choices in every run [default: others each time]
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
}

/// Where an answer begins and ends.
#[derive(Args)]
#[command(next_help_heading = "Answer")]
pub struct AnswerArgs {
    /// Generate at most this many tokens [default: what the context has room for]
    #[arg(short = 'n', long, value_name = "N")]
    pub max_tokens: Option<usize>,
    /// End the answer before this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Instructions that precede the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Have a reasoning model think before it answers, or not [default: as its chat template says]
    #[arg(long, value_name = "SWITCH")]
    pub thinking: Option<Switch>,
}

/// On or off.
// Comments on the values would be shown by the help, each on lines of its own.
#[derive(Clone, Copy, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl ModelArgs {
    /// What to open the model with.
    pub fn options(&self) -> EngineOptions {
        EngineOptions {
            context: self.context,
            draft: self.drafts.draft.draft(),
            draft_length: self.drafts.draft_len,
            proposals: self.drafts.draft_proposals,
            ..self.engine.options()
        }
    }

    /// Opens the model, with the drafter and the place for prefixes that were named.
    ///
    /// # Errors
    /// As [`model::open`]; or if prefixes cannot be kept there.
    pub fn open(&self, model: Given<'_>) -> anyhow::Result<Opened> {
        self.open_with_slots(model, 1)
    }

    /// The same, for so many generations side by side at most.
    ///
    /// # Errors
    /// As [`ModelArgs::open`].
    pub fn open_with_slots(&self, model: Given<'_>, slots: usize) -> anyhow::Result<Opened> {
        self.prefixes.check()?;
        let options = EngineOptions { slots, ..self.options() };
        let mut opened = model::open(model, self.drafts.draft.path(), options)?;
        opened.engine.keep_prefixes(&self.prefixes.options())?;
        Ok(opened)
    }
}

impl EngineArgs {
    /// What to open the model with.
    pub fn options(&self) -> EngineOptions {
        EngineOptions {
            backend: self.backend,
            fusion: self.fusion,
            threads: self.threads,
            ..EngineOptions::default()
        }
    }
}

impl SamplingArgs {
    /// A model's defaults, with what was given in their place.
    pub fn over(&self, defaults: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            logit_bias: if self.logit_bias.is_empty() {
                defaults.logit_bias
            } else {
                self.logit_bias.clone()
            },
            seed: self.seed.or(defaults.seed),
        }
    }

    /// Checks ranges before a model is opened, which can take long.
    ///
    /// # Errors
    /// One line that names the parameter and its range.
    pub fn check(&self) -> anyhow::Result<()> {
        self.over(Sampling::greedy()).validate().map_err(anyhow::Error::msg)
    }
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        matches!(self, Switch::On)
    }
}

/// Where a model is. An empty path, as an emptied environment variable gives, is as good as none.
pub fn model_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// A number of things of which there is at least one.
pub fn count() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u32).range(1..).map(|value| value as usize)
}

/// What computes, by name.
pub fn backend() -> impl TypedValueParser<Value = BackendKind> {
    let names = BackendKind::ALL.map(BackendKind::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<BackendKind>())
}

/// A source of drafts by name, or a drafter's directory.
pub fn draft() -> impl TypedValueParser<Value = DraftSource> {
    OsStringValueParser::new().try_map(DraftSource::parse)
}

/// What trained drafters propose, by name.
fn proposals() -> impl TypedValueParser<Value = Proposals> {
    let names = Proposals::ALL.map(Proposals::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Proposals>())
}

/// A fusion level by name.
pub fn fusion() -> impl TypedValueParser<Value = Fusion> {
    PossibleValuesParser::new(Fusion::ALL.map(Fusion::name)).try_map(|name| name.parse::<Fusion>())
}

fn logit_bias(text: &str) -> Result<(TokenId, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("write a token id and a bias, as in 42=-1.5")?;
    let id = id.trim().parse().map_err(|_| format!("`{id}` is not a token id"))?;
    let bias = bias.trim().parse().map_err(|_| format!("`{bias}` is not a number"))?;
    Ok((TokenId(id), bias))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_logit_bias_is_an_id_and_a_number() {
        assert_eq!(logit_bias("42=-1.5"), Ok((TokenId(42), -1.5)));
        assert!(
            logit_bias("42").is_err() && logit_bias("a=1").is_err() && logit_bias("1=b").is_err()
        );
    }
}
