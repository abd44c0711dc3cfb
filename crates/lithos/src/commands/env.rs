//! `lithos env`: the variables of `lithos run`, for a shell.

use std::process::ExitCode;

use clap::Args;

use crate::agents::NO_KEY;
use crate::commands::run::{REMOVED, variables};
use crate::endpoint::{Endpoint, EndpointArgs};
use crate::{output, shell};

/// The arguments of `env`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos env
  eval \"$(lithos env)\"
  eval \"$(lithos env --api-key-env LITHOS_KEY)\"

A key is not written out: the lines refer to where it is.")]
pub struct EnvArgs {
    #[command(flatten)]
    server: EndpointArgs,
}

/// Stands for the key until the lines are written.
const PLACE: &str = "\0";

/// Writes the lines.
pub fn run(args: &EnvArgs) -> anyhow::Result<ExitCode> {
    let key = args.server.key.key()?;
    let url = &args.server.url;
    let endpoint = Endpoint::find(url, key.as_deref()).map_err(|missing| missing.explain(url))?;
    let mut lines: String = REMOVED.iter().map(|name| format!("unset {name}\n")).collect();
    for (name, value) in variables(&endpoint, PLACE) {
        let value = match args.server.key.in_shell() {
            Some(key) if value == PLACE => format!("\"{key}\""),
            None if value == PLACE => NO_KEY.to_owned(),
            _ => shell::quote(&value),
        };
        lines += &format!("export {name}={value}\n");
    }
    output::print(&lines)?;
    Ok(ExitCode::SUCCESS)
}
