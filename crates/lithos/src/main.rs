//! `lithos`: run language models from the command line.

mod agents;
mod answer;
mod args;
mod builtin;
mod catalogue;
mod commands;
mod conversation;
mod draft_source;
mod endpoint;
mod interrupt;
mod key;
mod launch;
mod memory;
mod model;
mod output;
mod prefix_args;
mod prompts;
mod scoring;
mod serving;
mod shell;
mod statistics;
mod stream;
mod table;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::output::ClosedOutput;

/// What the shell is told after Ctrl-C: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        // Whoever read our output has seen enough: that is no failure.
        Err(error) if error.is::<ClosedOutput>() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    output::set_verbose(cli.verbose);
    match cli.command {
        Command::Generate(args) => commands::generate::run(&args),
        Command::Chat(args) => commands::chat::run(&args),
        Command::Score(args) => commands::score::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Claude(args) => commands::agent::run(&agents::CLAUDE, &args),
        Command::Codex(args) => commands::agent::run(&agents::CODEX, &args),
        Command::Opencode(args) => commands::agent::run(&agents::OPENCODE, &args),
        Command::Hermes(args) => commands::agent::run(&agents::HERMES, &args),
        Command::Run(args) => commands::run::run(&args),
        Command::Env(args) => commands::env::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Models(args) => commands::models::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
    }
}
