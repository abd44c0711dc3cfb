//! Where prefixes of prompts are kept, on the command line.

use std::fs::DirBuilder;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use lithos_engine::{PrefixDisk, PrefixOptions};

use crate::args::model_path;

/// Where prefixes are kept.
#[derive(Args)]
#[command(
    next_help_heading = "Prefixes (what prompts have in common is read once; answers stay the same)"
)]
pub struct PrefixArgs {
    /// Memory for what was read of earlier prompts, such as 512M or 2G; 0 for none [default: an eighth of what is free, at most
    /// 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub prefix_memory: Option<u64>,
    /// Keep it in this directory, too, where later runs of the same model find it. What is there can be told back to prompts:
    /// the directory is as private as they are
    #[arg(long, value_name = "DIR", env = "LITHOS_PREFIX_DIR", hide_env_values = true, value_parser = model_path())]
    pub prefix_dir: Option<PathBuf>,
    /// What the directory may hold, of all models together; what was not used for longest goes first
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = size)]
    pub prefix_disk: u64,
}

impl PrefixArgs {
    /// Makes the directory, which is better refused before a model is opened.
    ///
    /// # Errors
    /// One line that names it.
    pub fn check(&self) -> anyhow::Result<()> {
        let Some(PrefixDisk { folder, .. }) = self.options().disk else { return Ok(()) };
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let made = builder.create(&folder);
        made.map_err(|error| {
            anyhow!("{}: prefixes cannot be kept there: {error}", folder.display())
        })
    }

    /// What to tell the engine.
    pub fn options(&self) -> PrefixOptions {
        let folder = self.prefix_dir.clone().filter(|folder| !folder.as_os_str().is_empty());
        let disk = folder.map(|folder| PrefixDisk { folder, quota: self.prefix_disk });
        PrefixOptions { memory: self.prefix_memory, disk }
    }
}

/// Bytes, or KB, MB, GB or TB of 1024 each, by their first letters.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a number of bytes, or one with K, M, G or T behind it, as in 512M".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_numbers_with_a_unit() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2gib"), Ok(2 << 30));
        for wrong in ["", "M", "1.5G", "-1", "3X", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
