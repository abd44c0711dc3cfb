//! Where a server's key comes from. It is never an argument, which every user of the machine could see.

use std::fs;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;

use crate::shell;

/// Where the key is.
#[derive(Args)]
pub struct KeyArgs {
    /// The environment variable that holds the server's key, which clients must send
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file", value_parser = variable_name)]
    api_key_env: Option<String>,
    /// The file whose first line is the server's key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
}

impl KeyArgs {
    /// The key, where one was named.
    ///
    /// # Errors
    /// One line that names the variable or file that holds none.
    pub fn key(&self) -> anyhow::Result<Option<String>> {
        let (key, place) = if let Some(name) = &self.api_key_env {
            let key = std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => anyhow!("--api-key-env: {name} is not set"),
                std::env::VarError::NotUnicode(_) => {
                    anyhow!("--api-key-env: {name} is not UTF-8 text")
                }
            })?;
            (key, name.clone())
        } else if let Some(file) = &self.api_key_file {
            let text =
                fs::read_to_string(file).map_err(|error| anyhow!("{}: {error}", file.display()))?;
            (text.lines().next().unwrap_or_default().to_owned(), file.display().to_string())
        } else {
            return Ok(None);
        };
        let key = key.trim();
        if key.is_empty() {
            bail!("{place}: the key is empty");
        }
        Ok(Some(key.to_owned()))
    }

    /// What stands for the key between double quotes of a shell, so that it need not be written out.
    pub fn in_shell(&self) -> Option<String> {
        let name = self.api_key_env.as_ref().map(|name| format!("${name}"));
        name.or_else(|| {
            let file = self.api_key_file.as_ref()?.to_string_lossy();
            Some(format!("$(head -n 1 {})", shell::quote(&file)))
        })
    }
}

/// A name that shells take.
fn variable_name(text: &str) -> Result<String, String> {
    let right = |(index, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || index > 0 && c.is_ascii_digit()
    };
    if !text.is_empty() && text.chars().enumerate().all(right) {
        Ok(text.to_owned())
    } else {
        Err("the name of a variable, not a key: letters, digits and _".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_are_told_from_keys() {
        assert!(variable_name("LITHOS_KEY2").is_ok());
        for wrong in ["", "2A", "sk-1234", "a b", "$A"] {
            assert!(variable_name(wrong).is_err(), "{wrong}");
        }
    }
}
