//! Flags that say what form an answer has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use lithos_engine::Form;

/// What form the answer has; at most one.
#[derive(Args)]
#[group(id = "form", multiple = false)]
#[command(next_help_heading = "Form of the answer (at most one)")]
pub struct FormArgs {
    /// Answer in JSON that is valid against this JSON schema: a file, or the schema itself, which begins with `{`
    #[arg(long, value_name = "FILE|TEXT")]
    json_schema: Option<String>,
    /// Answer in text that matches this regular expression as a whole
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
    /// Answer in text of the grammar in this file, in Lark's notation
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
}

impl FormArgs {
    /// The form, if one was asked for.
    ///
    /// # Errors
    /// If its file cannot be read, or a schema is not JSON.
    pub fn form(&self) -> anyhow::Result<Option<Form>> {
        Ok(if let Some(given) = &self.json_schema {
            let inline = given.trim_start().starts_with('{');
            let text = if inline { given.clone() } else { read("--json-schema", given.as_ref())? };
            let schema = serde_json::from_str(&text)
                .map_err(|error| anyhow!("--json-schema is not JSON: {error}"))?;
            Some(Form::JsonSchema(schema))
        } else if let Some(file) = &self.grammar {
            Some(Form::Lark(read("--grammar", file)?))
        } else {
            self.regex.clone().map(Form::Regex)
        })
    }
}

fn read(flag: &str, file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).map_err(|error| anyhow!("{flag}: {}: {error}", file.display()))
}
