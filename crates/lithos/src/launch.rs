//! A program that is to talk to a server: its arguments, and the changes of its environment. Nothing else is changed, and no file
//! is written.

use std::ffi::{OsStr, OsString};
use std::process::{Command, ExitCode};

use anyhow::bail;

use crate::serving::Serving;
use crate::shell;

/// What shells tell of a program that was ended by a signal: this and the signal's number.
#[cfg(unix)]
const SIGNALLED: i32 = 128;

/// What is run, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program, by name or path.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables that are set.
    pub variables: Vec<(&'static str, String)>,
    /// Variables that are taken away, since they would lead the program elsewhere.
    pub removed: &'static [&'static str],
}

impl Launch {
    /// The same as a line for a shell.
    pub fn in_shell(&self) -> String {
        let removed = self.removed.iter().map(|name| format!("-u {name}"));
        let set =
            self.variables.iter().map(|(name, value)| format!("{name}={}", shell::quote(value)));
        let command = std::iter::once(&self.program).chain(&self.arguments);
        let command: Vec<String> =
            command.map(|word| shell::quote(&word.to_string_lossy())).collect();
        let mut parts = vec!["env".to_owned()];
        parts.extend(removed.chain(set).chain([command.join(" ")]));
        parts.join(" \\\n  ") + "\n"
    }

    /// Runs it, with a server beside it or without; returns how it ended. Without one it takes this process's place, where the
    /// system has such a thing.
    ///
    /// # Errors
    /// If there is no such program; `install` says how to get it.
    pub fn run(&self, server: Option<Serving>, install: Option<&str>) -> anyhow::Result<ExitCode> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for name in self.removed {
            command.env_remove(name);
        }
        let failed = |error: std::io::Error| {
            let name = self.program.to_string_lossy().into_owned();
            match (error.kind(), install) {
                (std::io::ErrorKind::NotFound, Some(install)) => {
                    anyhow::anyhow!("{name} is not on the PATH: install it with `{install}`")
                }
                _ => anyhow::anyhow!("{name} cannot be run: {error}"),
            }
        };
        #[cfg(unix)]
        if server.is_none() {
            use std::os::unix::process::CommandExt;
            // It returns only if it failed.
            return Err(failed(command.exec()));
        }
        // Ctrl-C is the program's, which gets it as well.
        ctrlc::set_handler(|| {})?;
        let ended = command.spawn().map_err(failed)?.wait()?;
        drop(server);
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&ended) {
            return Ok(ExitCode::from((SIGNALLED + signal) as u8));
        }
        match ended.code().map(u8::try_from) {
            Some(Ok(code)) => Ok(ExitCode::from(code)),
            _ => bail!("{} ended with {ended}", OsStr::to_string_lossy(&self.program)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_a_line_for_a_shell() {
        let launch = Launch {
            program: "tool".into(),
            arguments: vec!["-p".into(), "hello there".into()],
            variables: vec![("A", "1".into()), ("B", "{\"c\": 2}".into())],
            removed: &["KEY"],
        };
        let wanted =
            "env \\\n  -u KEY \\\n  A=1 \\\n  B='{\"c\": 2}' \\\n  tool -p 'hello there'\n";
        assert_eq!(launch.in_shell(), wanted);
    }
}
