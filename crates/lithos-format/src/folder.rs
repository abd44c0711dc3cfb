//! Where the files of a model are: in a directory on disk, in the program itself, or in memory.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::FormatError;
use crate::mapped::MappedFile;

/// A file that is part of the program: its path within the folder, with `/` between parts, and its bytes.
pub type EmbeddedFile = (&'static str, &'static [u8]);

/// The folder that a model's files are in. Files are named by their path within it, with `/` between parts.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The directory, or what stands for it in messages.
    path: PathBuf,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Disk,
    Held {
        files: Files,
        /// What the names of this folder's files begin with: empty, or ending in `/`.
        prefix: String,
    },
}

/// Files that are not on disk.
#[derive(Clone, Debug)]
enum Files {
    Program(&'static [EmbeddedFile]),
    Memory(Arc<[(String, Vec<u8>)]>),
}

impl Folder {
    /// A directory on disk.
    pub fn on_disk(path: &Path) -> Self {
        Self { path: path.to_owned(), place: Place::Disk }
    }

    /// Files that are part of the program. Messages and [`Folder::path`] call the folder `name`.
    pub fn embedded(name: &str, files: &'static [EmbeddedFile]) -> Self {
        Self::held(name, Files::Program(files))
    }

    /// Files that are held in memory: the path of each within the folder, and its bytes. Messages and [`Folder::path`]
    /// call the folder `name`.
    pub fn in_memory(name: &str, files: Vec<(String, Vec<u8>)>) -> Self {
        Self::held(name, Files::Memory(files.into()))
    }

    fn held(name: &str, files: Files) -> Self {
        let place = Place::Held { files, prefix: String::new() };
        Self { path: PathBuf::from(name), place }
    }

    /// The directory; of files that are not on disk a name that stands for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the files are part of the program.
    pub fn is_embedded(&self) -> bool {
        matches!(self.place, Place::Held { files: Files::Program(_), .. })
    }

    /// A folder within this one, such as the one in which a drafter is; it need not exist.
    #[must_use]
    pub fn subfolder(&self, name: &str) -> Self {
        let place = match &self.place {
            Place::Disk => Place::Disk,
            Place::Held { files, prefix } => {
                Place::Held { files: files.clone(), prefix: format!("{prefix}{name}/") }
            }
        };
        Self { path: self.path.join(name), place }
    }

    /// Whether there is something of this name; on disk it need not be a file, which reading it then says.
    pub fn contains(&self, name: &str) -> bool {
        match &self.place {
            Place::Disk => self.path.join(name).exists(),
            Place::Held { files, prefix } => files.position(prefix, name).is_some(),
        }
    }

    /// The bytes of a file; `None` if there is none.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>, FormatError> {
        if !self.contains(name) {
            return Ok(None);
        }
        match &self.place {
            Place::Disk => {
                let path = self.path.join(name);
                let bytes = fs::read(&path).map_err(|source| FormatError::io(&path, source))?;
                Ok(Some(Cow::Owned(bytes)))
            }
            Place::Held { files, prefix } => Ok(files.bytes(prefix, name)),
        }
    }

    /// Opens a file to be used where it lies.
    pub(crate) fn map(&self, name: &str) -> Result<MappedFile, FormatError> {
        let path = self.path.join(name);
        let Place::Held { files, prefix } = &self.place else { return MappedFile::open(&path) };
        match (files.bytes(prefix, name), files) {
            (Some(bytes), _) => Ok(MappedFile::held(path, bytes)),
            (None, Files::Program(_)) => {
                Err(FormatError::no_model(&path, "this file is not in the program"))
            }
            (None, Files::Memory(_)) => {
                Err(FormatError::no_model(&path, "there is no such file in memory"))
            }
        }
    }

    /// The names of the files directly in this folder that end in `.extension`, sorted.
    pub(crate) fn names_with_extension(&self, extension: &str) -> Result<Vec<String>, FormatError> {
        let has_extension = |path: &Path| path.extension().is_some_and(|own| own == extension);
        let mut names = Vec::new();
        match &self.place {
            Place::Disk => {
                let failed = |source| FormatError::io(&self.path, source);
                for entry in fs::read_dir(&self.path).map_err(failed)? {
                    let path = entry.map_err(failed)?.path();
                    if let (true, true, Some(name)) =
                        (has_extension(&path), path.is_file(), path.file_name())
                    {
                        names.push(name.to_string_lossy().into_owned());
                    }
                }
            }
            Place::Held { files, prefix } => {
                let own = files.names().into_iter();
                let own = own.filter_map(|name| name.strip_prefix(prefix.as_str()));
                let direct = own.filter(|name| !name.contains('/'));
                names.extend(
                    direct.filter(|name| has_extension(Path::new(name))).map(str::to_owned),
                );
            }
        }
        names.sort();
        Ok(names)
    }
}

impl Files {
    /// The full names of all files.
    fn names(&self) -> Vec<&str> {
        match self {
            Files::Program(files) => files.iter().map(|(name, _)| *name).collect(),
            Files::Memory(files) => files.iter().map(|(name, _)| name.as_str()).collect(),
        }
    }

    fn position(&self, prefix: &str, name: &str) -> Option<usize> {
        self.names().into_iter().position(|stored| stored.strip_prefix(prefix) == Some(name))
    }

    fn bytes(&self, prefix: &str, name: &str) -> Option<Cow<'static, [u8]>> {
        let position = self.position(prefix, name)?;
        Some(match self {
            Files::Program(files) => Cow::Borrowed(files[position].1),
            Files::Memory(files) => Cow::Owned(files[position].1.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILES: &[EmbeddedFile] =
        &[("config.json", b"{}"), ("b.gguf", b"b"), ("draft/config.json", b"[]"), ("a.gguf", b"a")];

    #[test]
    fn embedded_files_are_found_by_name() {
        let folder = Folder::embedded("tiny", FILES);
        assert!(folder.is_embedded() && folder.contains("config.json"));
        assert_eq!(folder.read("config.json").unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(folder.read("absent.json").unwrap(), None);
        assert_eq!(folder.names_with_extension("gguf").unwrap(), ["a.gguf", "b.gguf"]);
        // A folder is not a file, nor are its files this folder's.
        assert!(!folder.contains("draft"));
        assert_eq!(folder.names_with_extension("json").unwrap(), ["config.json"]);
        let message = folder.map("absent.json").unwrap_err().to_string();
        assert!(message.contains("absent.json") && message.contains("program"), "{message}");
    }

    #[test]
    fn files_in_memory_are_found_by_name() {
        let files = FILES.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()));
        let folder = Folder::in_memory("made", files.collect());
        assert!(!folder.is_embedded() && folder.contains("config.json"));
        assert_eq!(folder.read("config.json").unwrap().as_deref(), Some(&b"{}"[..]));
        assert_eq!(folder.names_with_extension("gguf").unwrap(), ["a.gguf", "b.gguf"]);
        assert_eq!(folder.map("a.gguf").unwrap().bytes(), b"a");
        assert_eq!(folder.subfolder("draft").read("config.json").unwrap().unwrap(), &b"[]"[..]);
        let message = folder.map("absent.json").unwrap_err().to_string();
        assert!(message.contains("absent.json") && message.contains("memory"), "{message}");
    }

    #[test]
    fn subfolders_are_the_same_on_disk_and_in_the_program() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("draft")).unwrap();
        fs::write(directory.path().join("draft/config.json"), "[]").unwrap();
        for folder in [Folder::on_disk(directory.path()), Folder::embedded("tiny", FILES)] {
            let draft = folder.subfolder("draft");
            assert_eq!(draft.path(), folder.path().join("draft"));
            assert_eq!(draft.read("config.json").unwrap().as_deref(), Some(&b"[]"[..]));
            assert!(!draft.contains("a.gguf") && !folder.subfolder("other").contains("a.gguf"));
        }
    }
}
