//! `lithos claude`, `codex`, `opencode`, `hermes`: a coding agent with the served model.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use crate::agents::{Agent, NO_KEY, Session};
use crate::args::ModelArgs;
use crate::endpoint::{Endpoint, EndpointArgs, Missing};
use crate::output;
use crate::serving::Serving;

/// What stands for a key where one would be shown.
pub const HIDDEN: &str = "***";

/// The arguments of every agent.
#[derive(Args)]
pub struct AgentArgs {
    /// Print what would be run, without keys, and run nothing
    #[arg(long, conflicts_with = "serve")]
    print: bool,
    /// Only tools to read, write and run: a shorter first prompt, which a small model answers sooner
    #[arg(long)]
    lean: bool,
    /// Serve the model of --model for as long as the agent runs, if no server answers
    #[arg(long)]
    serve: bool,
    #[command(flatten)]
    server: EndpointArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// Arguments of the agent
    #[arg(last = true, value_name = "ARGS", help_heading = "Agent")]
    arguments: Vec<OsString>,
}

/// What the help of an agent ends with.
pub fn examples(name: &str, arguments: &str) -> String {
    format!(
        "Examples:
  lithos {name}
  lithos {name} -- {arguments}
  lithos {name} --serve --model ./Qwen3-0.6B
  lithos {name} --print

The server is asked for its model and context, and the agent is told of them by variables and arguments of its own process: no file \
is written. Flags of the model count only with --serve."
    )
}

/// Runs an agent.
pub fn run(agent: &Agent, args: &AgentArgs) -> anyhow::Result<ExitCode> {
    let key = args.server.key.key()?;
    let url = &args.server.url;
    let (endpoint, serving) = match Endpoint::find(url, key.as_deref()) {
        Ok(endpoint) => (endpoint, None),
        Err(Missing::Nobody) if args.serve => {
            let serving = Serving::start(&args.model)?;
            let url = serving.url();
            let found = Endpoint::find(&url, None).map_err(|missing| missing.explain(&url))?;
            (found, Some(serving))
        }
        Err(missing) => return Err(missing.explain(url)),
    };
    agent.check(&endpoint, key.is_some() && serving.is_none())?;
    let key = key.as_deref().unwrap_or(NO_KEY);
    let shown = if key != NO_KEY && args.print { HIDDEN } else { key };
    let (lean, arguments) = (args.lean, &args.arguments[..]);
    let launch = agent.launch(&Session { endpoint: &endpoint, key: shown, lean, arguments });
    if args.print {
        output::print(&launch.in_shell())?;
        return Ok(ExitCode::SUCCESS);
    }
    launch.run(serving, Some(agent.install))
}
