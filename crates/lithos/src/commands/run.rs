//! `lithos run`: a program whose client of OpenAI's or Anthropic's API is to talk to the served model.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::agents::NO_KEY;
use crate::commands::agent::HIDDEN;
use crate::endpoint::{Endpoint, EndpointArgs};
use crate::launch::Launch;
use crate::output;

/// The arguments of `run`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos run -- python ask.py
  lithos run --print -- python ask.py

Sets the variables that `lithos env` writes, for this program only.")]
pub struct RunArgs {
    /// Print what would be run, without keys, and run nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    server: EndpointArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = "Program")]
    command: Vec<OsString>,
}

/// Keys under another name, which clients would prefer.
pub const REMOVED: &[&str] = &["ANTHROPIC_AUTH_TOKEN"];

/// The variables that clients of both APIs read.
pub fn variables(endpoint: &Endpoint, key: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OPENAI_BASE_URL", format!("{}/v1", endpoint.url)),
        ("OPENAI_API_KEY", key.to_owned()),
        ("OPENAI_MODEL", endpoint.model.clone()),
        ("ANTHROPIC_BASE_URL", endpoint.url.clone()),
        ("ANTHROPIC_API_KEY", key.to_owned()),
        ("ANTHROPIC_MODEL", endpoint.model.clone()),
    ]
}

/// Runs the program.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let key = args.server.key.key()?;
    let url = &args.server.url;
    let endpoint = Endpoint::find(url, key.as_deref()).map_err(|missing| missing.explain(url))?;
    let shown = match &key {
        Some(_) if args.print => HIDDEN,
        key => key.as_deref().unwrap_or(NO_KEY),
    };
    let launch = Launch {
        program: args.command[0].clone(),
        arguments: args.command[1..].to_vec(),
        variables: variables(&endpoint, shown),
        removed: REMOVED,
    };
    if args.print {
        output::print(&launch.in_shell())?;
        return Ok(ExitCode::SUCCESS);
    }
    launch.run(None, None)
}
