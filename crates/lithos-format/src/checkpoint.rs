//! A model's files, opened together.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::folder::Folder;
use crate::formats;
use crate::gguf;
use crate::mapped::MappedFile;
use crate::safetensors::read_header;
use crate::{DType, FormatError, GeneratedBytes, GgufMetadata, Matrix, Tensor, TensorBytes};

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const SINGLE_FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// What kind of file holds the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Container {
    /// A directory as on the Hugging Face hub, with its weights in one or more safetensors files.
    Safetensors,
    /// One GGUF file.
    Gguf,
}

/// A tensor, and where its bytes are.
#[derive(Debug)]
pub(crate) struct StoredTensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) place: Place,
}

/// Where a tensor's bytes are.
#[derive(Debug)]
pub(crate) enum Place {
    File {
        index: usize,
        /// Lies within the file: readers check it.
        range: Range<usize>,
    },
    Generated {
        source: Box<dyn GeneratedBytes>,
        len: usize,
    },
}

/// A tensor whose bytes are computed where they are needed, see [`Checkpoint::generated`].
#[derive(Debug)]
pub struct GeneratedTensor {
    /// The full name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// What computes its bytes.
    pub source: Box<dyn GeneratedBytes>,
}

/// A model's weights, memory-mapped or generated, with its configuration.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    /// Where the files beside the weights are; GGUF holds everything itself.
    folder: Option<Folder>,
    container: Container,
    config: Option<Value>,
    generation_config: Option<Value>,
    gguf: Option<GgufMetadata>,
    files: Vec<MappedFile>,
    tensors: Vec<StoredTensor>,
    by_name: HashMap<String, usize>,
}

impl Checkpoint {
    /// Opens a directory with `config.json` and `model.safetensors` (or the shards that `model.safetensors.index.json`
    /// names), a GGUF file, or a directory that holds exactly one GGUF file. Weights are mapped, not read.
    ///
    /// # Errors
    /// If there is no such model, a part of it is missing, or a file is malformed.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let metadata = fs::metadata(path).map_err(|source| FormatError::io(path, source))?;
        if !metadata.is_dir() {
            return match path.extension().and_then(|extension| extension.to_str()) {
                Some("safetensors") => Err(FormatError::no_model(
                    path,
                    "a safetensors file alone is not a model: name the directory that holds it and its config.json",
                )),
                _ => Self::open_gguf(path),
            };
        }
        Self::open_folder(Folder::on_disk(path))
    }

    /// Opens the model in a folder, which may be part of the program. What is needed in it is as for
    /// [`Checkpoint::open`].
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_folder(folder: Folder) -> Result<Self, FormatError> {
        if folder.contains(SINGLE_FILE) {
            return Self::open_safetensors(folder, &[SINGLE_FILE]);
        }
        if folder.contains(INDEX) {
            return Self::open_sharded(folder);
        }
        match folder.names_with_extension("gguf")?.as_slice() {
            [file] => Self::open_mapped_gguf(folder.map(file)?),
            [] => Err(FormatError::no_model(folder.path(), no_weights(&folder)?)),
            several => Err(FormatError::no_model(
                folder.path(),
                format!(
                    "holds {} GGUF files, name one of them: {}",
                    several.len(),
                    several.join(", ")
                ),
            )),
        }
    }

    /// Opens one safetensors file as nothing but tensors: no configuration, no side files. For reference values and
    /// other tensors that are not a model.
    ///
    /// # Errors
    /// If the file cannot be mapped or is malformed.
    pub fn open_safetensors_file(path: &Path) -> Result<Self, FormatError> {
        let mut checkpoint = Self::empty(path, Container::Safetensors);
        checkpoint.add_file(MappedFile::open(path)?)?;
        Ok(checkpoint)
    }

    /// A model whose tensors are computed where they are needed: no weight is stored anywhere. The folder holds
    /// `config.json` and what else belongs to a model besides its weights.
    ///
    /// # Errors
    /// If there is no `config.json`, a name comes twice, or a type is no plain one that is read.
    pub fn generated(folder: Folder, tensors: Vec<GeneratedTensor>) -> Result<Self, FormatError> {
        let mut checkpoint = Self::open_safetensors(folder, &[])?;
        let mut placed = Vec::with_capacity(tensors.len());
        for GeneratedTensor { name, dtype, shape, source } in tensors {
            let Some(len) = dtype.bytes(&shape) else {
                return Err(FormatError::malformed(
                    &checkpoint.path,
                    format!("tensor {name:?} cannot be {dtype} {shape:?}"),
                ));
            };
            placed.push(StoredTensor {
                name,
                dtype,
                shape,
                place: Place::Generated { source, len },
            });
        }
        checkpoint.add_tensors(placed)?;
        Ok(checkpoint)
    }

    /// The same with the tensors of another checkpoint beside its own, under names that begin with `prefix`; a `model.` that theirs
    /// begin with is left out. Its configuration is not taken over.
    ///
    /// # Errors
    /// If a name comes twice.
    pub fn with_part(mut self, prefix: &str, part: Checkpoint) -> Result<Self, FormatError> {
        let first = self.files.len();
        self.files.extend(part.files);
        let moved = |StoredTensor { name, dtype, shape, place }| {
            let name = format!("{prefix}{}", name.strip_prefix("model.").unwrap_or(&name));
            let place = match place {
                Place::File { index, range } => Place::File { index: first + index, range },
                generated => generated,
            };
            StoredTensor { name, dtype, shape, place }
        };
        self.add_tensors(part.tensors.into_iter().map(moved).collect())?;
        Ok(self)
    }

    /// What was opened: the directory, or the GGUF file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What kind of file holds the weights.
    pub fn container(&self) -> Container {
        self.container
    }

    /// `config.json` of a safetensors directory.
    pub fn config(&self) -> Option<&Value> {
        self.config.as_ref()
    }

    /// `generation_config.json` of a safetensors directory, if it has one.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// The metadata of a GGUF file.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        self.gguf.as_ref()
    }

    /// Where the files beside the weights are, such as `tokenizer.json`. `None` for GGUF, which holds everything itself.
    pub fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// The file that holds a tensor; the whole checkpoint for a tensor that it does not have.
    pub fn file_of(&self, tensor: &str) -> &Path {
        match self.by_name.get(tensor) {
            Some(index) => self.path_of(&self.tensors[*index]),
            None => &self.path,
        }
    }

    /// A tensor by its full name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let stored = &self.tensors[*self.by_name.get(name)?];
        Some(Tensor {
            name: &stored.name,
            dtype: stored.dtype.clone(),
            shape: &stored.shape,
            bytes: match &stored.place {
                Place::File { index, range } => {
                    TensorBytes::Stored(&self.files[*index].bytes()[range.clone()])
                }
                Place::Generated { source, len } => {
                    TensorBytes::Generated { source: &**source, len: *len }
                }
            },
        })
    }

    /// The names of all tensors, in the order of their bytes in the files.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// The weight matrix whose tensors begin with `base` (`base.weight`, and the scales that go with it). How it is
    /// stored is found out from the tensors' types and shapes.
    ///
    /// # Errors
    /// If there is no such matrix, its format is not supported, or its tensors' shapes do not fit each other.
    pub fn matrix(&self, base: &str) -> Result<Matrix<'_>, FormatError> {
        formats::detect(self, base)
    }

    /// A tensor `[count, rows, columns]` of plain numbers as one matrix, its matrices one under the other. `name` is the
    /// tensor's full name.
    ///
    /// # Errors
    /// If there is no such tensor, it has another number of extents, or holds codes that need scales.
    pub fn stacked_matrix(&self, name: &str) -> Result<Matrix<'_>, FormatError> {
        formats::detect_stacked(self, name)
    }

    /// Whether a weight is stored under `base`, in any format, also in those that [`Checkpoint::matrix`] refuses.
    pub fn has_matrix(&self, base: &str) -> bool {
        formats::code_tensor(self, base).is_some()
    }

    /// The names of all tensors that belong to the matrix `base`: codes, scales, biases, and those that are ignored,
    /// such as activation scales.
    pub fn companions(&self, base: &str) -> Vec<&str> {
        formats::companion_suffixes()
            .filter_map(|suffix| self.by_name.get(&format!("{base}.{suffix}")))
            .map(|index| self.tensors[*index].name.as_str())
            .collect()
    }

    /// Tells the system that a tensor's pages are not needed any more, so that resident memory does not hold both the
    /// file and what was made from it. The tensor can still be read; its pages then come back from the file. For a large
    /// tensor this can be called again and again while it is read. Does nothing where the system is not a Unix.
    pub fn release_pages(&self, tensor: &str) {
        if let Some(stored) = self.by_name.get(tensor).map(|index| &self.tensors[*index])
            && let Place::File { index, range } = &stored.place
        {
            self.files[*index].release(range.clone());
        }
    }

    /// Bytes of all tensors.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.place.bytes() as u64).sum()
    }

    fn empty(path: &Path, container: Container) -> Self {
        Self {
            path: path.to_owned(),
            folder: None,
            container,
            config: None,
            generation_config: None,
            gguf: None,
            files: Vec::new(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    fn open_gguf(path: &Path) -> Result<Self, FormatError> {
        Self::open_mapped_gguf(MappedFile::open(path)?)
    }

    fn open_mapped_gguf(file: MappedFile) -> Result<Self, FormatError> {
        let mut checkpoint = Self::empty(file.path(), Container::Gguf);
        let (metadata, tensors) = gguf::read(&file, 0)?;
        checkpoint.files.push(file);
        checkpoint.gguf = Some(metadata);
        checkpoint.add_tensors(tensors)?;
        Ok(checkpoint)
    }

    fn open_safetensors(folder: Folder, files: &[&str]) -> Result<Self, FormatError> {
        let mut checkpoint = Self::empty(folder.path(), Container::Safetensors);
        checkpoint.config = read_json(&folder, CONFIG)?;
        if checkpoint.config.is_none() {
            return Err(FormatError::no_model(
                folder.path(),
                "there are weights but no config.json: download it from where the weights came from",
            ));
        }
        checkpoint.generation_config = read_json(&folder, GENERATION_CONFIG)?;
        for file in files {
            checkpoint.add_file(folder.map(file)?)?;
        }
        checkpoint.folder = Some(folder);
        Ok(checkpoint)
    }

    fn open_sharded(folder: Folder) -> Result<Self, FormatError> {
        let shards = read_index(&folder)?;
        if let Some(missing) = shards.keys().find(|shard| !folder.contains(shard)) {
            return Err(FormatError::no_model(
                &folder.path().join(missing),
                format!("this shard is missing, {INDEX} names it: download it again"),
            ));
        }
        let files: Vec<&str> = shards.keys().map(String::as_str).collect();
        let checkpoint = Self::open_safetensors(folder, &files)?;
        for (shard, names) in &shards {
            let path = checkpoint.path.join(shard);
            for name in names {
                if checkpoint.file_of(name) != path {
                    return Err(FormatError::malformed(
                        &path,
                        format!(
                            "tensor {name:?} is missing, {INDEX} says that it is in this shard"
                        ),
                    ));
                }
            }
        }
        Ok(checkpoint)
    }

    fn add_file(&mut self, file: MappedFile) -> Result<(), FormatError> {
        let tensors = read_header(&file, self.files.len())?;
        self.files.push(file);
        self.add_tensors(tensors)
    }

    fn add_tensors(&mut self, tensors: Vec<StoredTensor>) -> Result<(), FormatError> {
        for tensor in tensors {
            let index = self.tensors.len();
            if let Some(earlier) = self.by_name.insert(tensor.name.clone(), index) {
                let other = self.path_of(&self.tensors[earlier]);
                return Err(FormatError::malformed(
                    self.path_of(&tensor),
                    format!(
                        "tensor {:?} is also in {}: one of the shards is wrong",
                        tensor.name,
                        other.display()
                    ),
                ));
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }

    /// The file that holds a tensor, or the whole checkpoint if none does.
    fn path_of(&self, tensor: &StoredTensor) -> &Path {
        match &tensor.place {
            Place::File { index, .. } => self.files[*index].path(),
            Place::Generated { .. } => &self.path,
        }
    }
}

impl Place {
    fn bytes(&self) -> usize {
        match self {
            Place::File { range, .. } => range.len(),
            Place::Generated { len, .. } => *len,
        }
    }
}

fn read_json(folder: &Folder, name: &str) -> Result<Option<Value>, FormatError> {
    let Some(bytes) = folder.read(name)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        FormatError::malformed(&folder.path().join(name), format!("not valid JSON: {error}"))
    })
}

/// The tensors that an index places in each shard.
fn read_index(folder: &Folder) -> Result<BTreeMap<String, Vec<String>>, FormatError> {
    let path = &folder.path().join(INDEX);
    let json = read_json(folder, INDEX)?.unwrap_or_default();
    let Some(map) = json.get("weight_map").and_then(Value::as_object) else {
        return Err(FormatError::malformed(path, "there is no object \"weight_map\" in it"));
    };
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, shard) in map {
        let shard = shard.as_str().filter(|shard| is_plain_file_name(shard));
        let Some(shard) = shard else {
            return Err(FormatError::malformed(
                path,
                format!("tensor {name:?} is not mapped to the name of a file beside the index"),
            ));
        };
        shards.entry(shard.to_owned()).or_default().push(name.clone());
    }
    if shards.is_empty() {
        return Err(FormatError::malformed(path, "\"weight_map\" is empty"));
    }
    Ok(shards)
}

/// An index must not reach outside of its directory.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

/// Why a folder is not a model, with a hint from what is there instead.
fn no_weights(folder: &Folder) -> Result<String, FormatError> {
    let expected = format!("no model here: expected {SINGLE_FILE}, {INDEX} or one .gguf file");
    let safetensors = folder.names_with_extension("safetensors")?;
    if !safetensors.is_empty() {
        return Ok(format!(
            "{expected}; there is {}, but nothing says that it is the whole model",
            safetensors.join(", ")
        ));
    }
    for extension in ["bin", "pth", "pt"] {
        let pickles = folder.names_with_extension(extension)?;
        if !pickles.is_empty() {
            return Ok(format!(
                "{expected}; {} must first be converted to safetensors",
                pickles.join(", ")
            ));
        }
    }
    Ok(expected)
}
