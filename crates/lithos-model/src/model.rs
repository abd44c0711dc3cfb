//! Opening a checkpoint as a model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use thiserror::Error;

use lithos_format::{Checkpoint, Container, FormatError};
use lithos_graph::{Graph, GraphError, WeightForm};

use crate::architectures;

/// A checkpoint and its description as a graph.
pub struct Model {
    /// The open checkpoint; its tensors stay memory-mapped.
    pub checkpoint: Checkpoint,
    /// What it computes.
    pub graph: Graph,
    /// What was left out, one line each.
    pub notices: Vec<String>,
}

/// Why a checkpoint cannot be used as a model.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The graph does not hold together: a fault of the architecture's description.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The configuration lacks or contradicts something.
    #[error("{}: {problem}", file.display())]
    Config {
        /// The configuration file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An architecture that no file describes.
    #[error("{}: architecture `{name}` is not supported (supported: {})", file.display(), known.join(", "))]
    UnknownArchitecture {
        /// The configuration file.
        file: PathBuf,
        /// The name found.
        name: String,
        /// The names known.
        known: Vec<&'static str>,
    },
    /// A drafter, which only works together with a model.
    #[error("{}: `{name}` is a drafter: it proposes tokens for the model that it was made for, and cannot answer by itself", file.display())]
    Drafter {
        /// The configuration file.
        file: PathBuf,
        /// The architecture's name.
        name: String,
    },
    /// No layer that predicts tokens after the next one.
    #[error("{}: the model has no multi-token prediction layer (tensors under `mtp.`)", file.display())]
    NoFurther {
        /// The checkpoint.
        file: PathBuf,
    },
    /// A tensor that the architecture needs.
    #[error("{}: tensor `{tensor}` is missing", file.display())]
    MissingTensor {
        /// The checkpoint.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// A tensor of another shape than the configuration says.
    #[error("{}: tensor `{tensor}` is {found:?}, the configuration needs {wanted:?}", file.display())]
    Shape {
        /// The file that holds the tensor.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape needed.
        wanted: Vec<usize>,
    },
}

impl Model {
    /// Opens a Hugging Face directory or a GGUF file and describes it.
    ///
    /// # Errors
    /// [`ModelError`], one line that names the file and the cause.
    pub fn open(path: &Path) -> Result<Model, ModelError> {
        Self::from_checkpoint(Checkpoint::open(path)?)
    }

    /// Describes an open checkpoint.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Result<Model, ModelError> {
        let graph = architectures::describe(&checkpoint)?;
        let notices = left_out(&checkpoint, &graph);
        Ok(Model { checkpoint, graph, notices })
    }

    /// Parameters that the graph uses; a table that is also the head counts once.
    pub fn parameters(&self) -> u64 {
        self.graph.weights().map(|id| self.graph.value(id).width() as u64).sum()
    }

    /// A name for listings: the last part of the checkpoint's path.
    pub fn name(&self) -> String {
        let path = self.checkpoint.path();
        let name = match self.checkpoint.container() {
            Container::Gguf => path.file_stem(),
            Container::Safetensors => path.file_name(),
        };
        name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
    }
}

/// One line per group of tensors that the graph does not use.
pub(crate) fn left_out(checkpoint: &Checkpoint, graph: &Graph) -> Vec<String> {
    let mut used: BTreeSet<String> = BTreeSet::new();
    for value in graph.weights().map(|id| graph.value(id)) {
        let Some(source) = value.weight() else { continue };
        match source.form {
            WeightForm::Matrix(_) => {
                used.extend(checkpoint.companions(&source.tensor).into_iter().map(str::to_string));
            }
            WeightForm::Experts(_) if source.is_per_expert() => {
                for name in source.stored_names(value.experts()) {
                    used.extend(checkpoint.companions(&name).into_iter().map(str::to_string));
                }
            }
            WeightForm::Experts(_) | WeightForm::Array => {
                used.insert(source.tensor.clone());
            }
        }
    }
    let mut groups: BTreeMap<String, usize> = BTreeMap::new();
    for name in checkpoint.tensor_names().filter(|name| !used.contains(*name)) {
        // GGUF files carry the rotary divisors of llama3 scaling as a tensor; they are in the graph's rotary tables.
        if name == "rope_freqs.weight" || name.ends_with(".rotary_emb.inv_freq") {
            continue;
        }
        *groups.entry(group(name)).or_default() += 1;
    }
    groups
        .into_iter()
        .map(|(group, count)| match count {
            1 => format!("left out: tensor {group}"),
            _ => format!("left out: {count} tensors under {group}"),
        })
        .collect()
}

/// The leading part of a tensor's name that says what it belongs to.
fn group(name: &str) -> String {
    if name.starts_with("mtp.") {
        return "mtp (multi-token prediction layer)".into();
    }
    if name.contains("visual.") || name.contains("vision") {
        return format!("{} (vision)", name.split('.').take(2).collect::<Vec<_>>().join("."));
    }
    let parts: Vec<&str> = name.split('.').collect();
    match parts.iter().position(|part| part.parse::<usize>().is_ok()) {
        Some(index) if index > 0 => parts[..index].join("."),
        _ => name.to_string(),
    }
}
