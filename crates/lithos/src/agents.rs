//! Coding agents, and how each is told to talk to a server: one file per agent. Only its environment and arguments are used, so its
//! own files of configuration stay as they are and go on to apply otherwise.

mod claude;
mod codex;
mod hermes;
mod opencode;

pub use claude::CLAUDE;
pub use codex::CODEX;
pub use hermes::HERMES;
pub use opencode::OPENCODE;

use std::ffi::OsString;

use anyhow::bail;

use crate::endpoint::Endpoint;
use crate::launch::Launch;

/// What is sent as a key to servers that ask for none, to agents that insist on one.
pub const NO_KEY: &str = "none";

/// An agent.
pub struct Agent {
    /// What people call it.
    pub name: &'static str,
    /// Its program.
    pub program: &'static str,
    /// How it is installed.
    pub install: &'static str,
    /// Tokens of context without which it does not begin.
    pub least_context: usize,
    /// Whether it can be told to send a key.
    pub takes_key: bool,
    /// Adds what it takes to a launch.
    pub prepare: fn(&mut Launch, &Session<'_>),
}

/// What an agent is told.
pub struct Session<'s> {
    /// The server.
    pub endpoint: &'s Endpoint,
    /// Its key, or what stands for it.
    pub key: &'s str,
    /// Whether to leave out tools that can be done without, so that the first prompt is short.
    pub lean: bool,
    /// The arguments that its user gives it.
    pub arguments: &'s [OsString],
}

impl Agent {
    /// Checks that the agent can use a server.
    ///
    /// # Errors
    /// One line that says what it lacks and what to do.
    pub fn check(&self, endpoint: &Endpoint, has_key: bool) -> anyhow::Result<()> {
        let Agent { name, least_context: least, .. } = self;
        let Endpoint { model, context, .. } = endpoint;
        if context < least {
            bail!(
                "{name} needs {least} tokens of context, and {model} is served with {context}: serve a model that has more, or start the server with --context {least}"
            );
        }
        if has_key && !self.takes_key {
            bail!(
                "{name} sends no key that the environment names: use a server without a key, on 127.0.0.1"
            );
        }
        Ok(())
    }

    /// What is run.
    pub fn launch(&self, session: &Session<'_>) -> Launch {
        let mut launch = Launch { program: self.program.into(), ..Launch::default() };
        (self.prepare)(&mut launch, session);
        launch
    }
}
