//! The model that is part of the program.

use anyhow::{anyhow, bail};
use lithos_format::{Checkpoint, Folder};

/// What the built-in model is called where a path could stand.
pub const NAME: &str = "lithos-mini";

/// Its folder.
///
/// # Errors
/// If this build has none; the line says what to do.
pub fn folder() -> anyhow::Result<Folder> {
    let files = files().ok_or_else(|| {
        anyhow!(
            "this build has no built-in model: name a Hugging Face directory or a GGUF file, with --model PATH (MODEL for score, eval and bench) or in LITHOS_MODEL, or build with the feature `builtin` and models/{NAME}"
        )
    })?;
    Ok(Folder::embedded(NAME, files))
}

/// Opens it.
///
/// # Errors
/// As [`folder`], or if its files are damaged.
pub fn open() -> anyhow::Result<Checkpoint> {
    Ok(Checkpoint::open_folder(folder()?)?)
}

/// What the model is, from what, how well it does, and its licence.
///
/// # Errors
/// As [`folder`].
pub fn card() -> anyhow::Result<String> {
    match folder()?.read("README.md")? {
        Some(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        None => bail!("{NAME} has no model card"),
    }
}

#[cfg(feature = "builtin")]
fn files() -> Option<&'static [lithos_format::EmbeddedFile]> {
    lithos_builtin::files()
}

#[cfg(not(feature = "builtin"))]
fn files() -> Option<&'static [lithos_format::EmbeddedFile]> {
    None
}
