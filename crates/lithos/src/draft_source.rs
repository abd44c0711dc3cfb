//! Where drafts come from, as the command line names it: a source, or a drafter's directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lithos_engine::Draft;

/// A source of drafts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftSource {
    /// One that a model brings, or that needs none.
    Named(Draft),
    /// A DSpark drafter in a directory of its own.
    At(PathBuf),
}

impl DraftSource {
    /// What kind of drafts it gives.
    pub fn draft(&self) -> Draft {
        match self {
            DraftSource::Named(draft) => *draft,
            DraftSource::At(_) => Draft::Dspark,
        }
    }

    /// The drafter's directory, if it has one of its own.
    pub fn path(&self) -> Option<&Path> {
        match self {
            DraftSource::Named(_) => None,
            DraftSource::At(path) => Some(path),
        }
    }

    /// A name of a source, or else the path of a directory that is there.
    ///
    /// # Errors
    /// One line that says what it can be.
    pub fn parse(text: OsString) -> Result<Self, String> {
        if let Some(draft) = text.to_str().and_then(|name| name.parse().ok()) {
            return Ok(DraftSource::Named(draft));
        }
        let path = PathBuf::from(text);
        if path.is_dir() {
            return Ok(DraftSource::At(path));
        }
        let names = Draft::ALL.map(Draft::name).join(", ");
        Err(format!("neither a source of drafts ({names}) nor the directory of a drafter"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_directories_and_others_are_refused() {
        let parse = |text: &str| DraftSource::parse(text.into());
        assert_eq!(parse("mtp"), Ok(DraftSource::Named(Draft::Mtp)));
        let folder = tempfile::tempdir().expect("a folder");
        let source = DraftSource::parse(folder.path().into()).expect("is there");
        assert_eq!((source.draft(), source.path()), (Draft::Dspark, Some(folder.path())));
        assert!(parse("mpt").unwrap_err().contains("dspark, mtp, copy"));
    }
}
