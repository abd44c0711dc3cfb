//! `lithos completions`: what a shell needs to complete our commands and flags.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output;

/// The arguments of `completions`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos completions bash > ~/.local/share/bash-completion/completions/lithos
  lithos completions zsh > ~/.zfunc/_lithos
  lithos completions fish > ~/.config/fish/completions/lithos.fish")]
pub struct CompletionsArgs {
    /// The shell to write completions for
    shell: Shell,
}

/// Writes the completions to standard output.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lithos", &mut script);
    output::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
