//! One file per architecture. Each reads a configuration and builds a graph; the list below is all that knows them.

mod dense;
mod gguf;
mod llama;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;

pub(crate) use dense::feed_forward;

use std::path::PathBuf;

use lithos_format::{Checkpoint, Container};
use lithos_graph::{EXPERT, Graph, GraphBuilder, RowMap, ValueId};
use serde_json::Value;

use crate::config::Config;
use crate::model::ModelError;

/// Builds the graph of a GGUF file.
type FromGguf = fn(&Checkpoint) -> Result<Graph, ModelError>;

/// Builds the pass of a layer beside the model that predicts the token after the next one, over the values of the model's graph.
type Further = fn(&Checkpoint, &Config<'_>, &Graph, &mut GraphBuilder) -> Result<Graph, ModelError>;

/// A model family that can be described as a graph.
pub(crate) struct Architecture {
    /// `model_type` values of `config.json` that mean this family.
    model_types: &'static [&'static str],
    /// Builds the graph of a Hugging Face directory.
    from_config: fn(&Checkpoint, &Config<'_>) -> Result<Graph, ModelError>,
    /// `general.architecture` of a GGUF file that means this family, and what builds its graph.
    from_gguf: Option<(&'static str, FromGguf)>,
    /// What builds the pass of a multi-token prediction layer, if models of this family have one.
    further: Option<Further>,
}

const ARCHITECTURES: &[&Architecture] = &[
    &qwen3_5::ARCHITECTURE,
    &qwen3_5_moe::ARCHITECTURE,
    &qwen3::ARCHITECTURE,
    &llama::ARCHITECTURE,
];

/// The `model_type` names that can be opened.
pub fn known_architectures() -> Vec<&'static str> {
    ARCHITECTURES.iter().flat_map(|architecture| architecture.model_types).copied().collect()
}

/// Describes a checkpoint as a graph.
pub(crate) fn describe(checkpoint: &Checkpoint) -> Result<Graph, ModelError> {
    match checkpoint.container() {
        Container::Safetensors => {
            let file = config_file(checkpoint);
            let Some(config) = checkpoint.config() else {
                let problem = "no config.json beside the weights".to_string();
                return Err(ModelError::Config { file, problem });
            };
            // A drafter's `model_type` is that of the layers it is made of.
            if let Some(name) = drafter_name(config) {
                return Err(ModelError::Drafter { file, name: name.to_string() });
            }
            let name = config.get("model_type").and_then(|name| name.as_str()).unwrap_or("");
            let found = ARCHITECTURES.iter().find(|known| known.model_types.contains(&name));
            let Some(architecture) = found else {
                let (name, known) = (name.to_string(), known_architectures());
                return Err(ModelError::UnknownArchitecture { file, name, known });
            };
            (architecture.from_config)(checkpoint, &Config::text_model(config, file))
        }
        Container::Gguf => {
            let name = match checkpoint.gguf() {
                Some(metadata) => metadata.string("general.architecture")?.to_string(),
                None => String::new(),
            };
            let builders = || ARCHITECTURES.iter().filter_map(|known| known.from_gguf);
            let Some((_, build)) = builders().find(|(known, _)| *known == name) else {
                let file = checkpoint.path().to_path_buf();
                let known = builders().map(|(known, _)| known).collect();
                return Err(ModelError::UnknownArchitecture { file, name, known });
            };
            build(checkpoint)
        }
    }
}

/// Builds the pass of the multi-token prediction layer of a model; `None` if its family has none.
pub(crate) fn further(
    checkpoint: &Checkpoint,
    target: &Graph,
    builder: &mut GraphBuilder,
) -> Option<Result<Graph, ModelError>> {
    let config = checkpoint.config()?;
    let name = config.get("model_type").and_then(|name| name.as_str())?;
    let known = ARCHITECTURES.iter().find(|known| known.model_types.contains(&name))?;
    let config = Config::text_model(config, config_file(checkpoint));
    known.further.map(|further| further(checkpoint, &config, target, builder))
}

/// The architecture that a DSpark drafter names: `DSparkDraftModel` or `Qwen3DSparkModel`.
fn drafter_name(config: &Value) -> Option<&str> {
    let names = config.get("architectures")?.as_array()?;
    names.iter().filter_map(Value::as_str).find(|name| name.contains("DSpark"))
}

fn config_file(checkpoint: &Checkpoint) -> PathBuf {
    checkpoint.path().join("config.json")
}

/// Adds weights to a graph, each checked against the checkpoint.
pub(crate) struct WeightLoader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
}

impl WeightLoader<'_> {
    /// A matrix of `rows` by `columns`, taken from the stored tensor by `map`.
    pub(crate) fn matrix(
        &self,
        builder: &mut GraphBuilder,
        tensor: String,
        map: RowMap,
        rows: usize,
        columns: usize,
    ) -> Result<ValueId, ModelError> {
        let matrix = self.checkpoint.matrix(&tensor)?;
        if map.rows(matrix.rows()) != rows || matrix.cols() != columns {
            return Err(ModelError::Shape {
                file: self.checkpoint.file_of(matrix.name()).to_path_buf(),
                tensor,
                found: vec![matrix.rows(), matrix.cols()],
                wanted: vec![rows, columns],
            });
        }
        let encoding = matrix.encoding();
        Ok(builder.matrix(tensor, map, rows, columns, encoding))
    }

    /// Matrices of experts, `[experts, rows, columns]`, that each have a name of their own, with [`EXPERT`] in the place of the
    /// expert's number.
    fn experts(
        &self,
        builder: &mut GraphBuilder,
        tensor: String,
        shape: [usize; 3],
    ) -> Result<ValueId, ModelError> {
        let [experts, rows, columns] = shape;
        let mut encoding = None;
        for expert in 0..experts {
            let name = tensor.replace(EXPERT, &expert.to_string());
            let matrix = self.checkpoint.matrix(&name)?;
            let file = || self.checkpoint.file_of(matrix.name()).to_path_buf();
            let found = vec![matrix.rows(), matrix.cols()];
            if found != [rows, columns] {
                let (file, wanted) = (file(), vec![rows, columns]);
                return Err(ModelError::Shape { file, tensor: name, found, wanted });
            }
            if *encoding.get_or_insert(matrix.encoding()) != matrix.encoding() {
                let problem = format!(
                    "`{name}` has another format than expert 0: experts of a layer must have one"
                );
                return Err(ModelError::Config { file: file(), problem });
            }
        }
        let Some(encoding) = encoding else {
            let file = self.checkpoint.path().to_path_buf();
            return Err(ModelError::MissingTensor { file, tensor });
        };
        Ok(builder.experts_matrices(tensor, RowMap::All, shape, encoding))
    }

    /// Matrices of experts, `[experts, rows, columns]`, that one tensor holds: `map` takes the rows from all of its rows.
    fn stacked_experts(
        &self,
        builder: &mut GraphBuilder,
        tensor: String,
        map: RowMap,
        shape: [usize; 3],
    ) -> Result<ValueId, ModelError> {
        let [experts, rows, columns] = shape;
        let matrix = self.checkpoint.stacked_matrix(&tensor)?;
        if map.rows(matrix.rows()) != experts * rows || matrix.cols() != columns {
            let stored = self.checkpoint.tensor(&tensor).map(|tensor| tensor.shape.to_vec());
            let file = self.checkpoint.file_of(&tensor).to_path_buf();
            let (found, wanted) = (stored.unwrap_or_default(), shape.to_vec());
            return Err(ModelError::Shape { file, tensor, found, wanted });
        }
        let encoding = matrix.encoding();
        Ok(builder.experts_matrices(tensor, map, shape, encoding))
    }

    /// A small tensor, by its full name. Extents of one in the stored shape do not matter.
    pub(crate) fn array(
        &self,
        builder: &mut GraphBuilder,
        tensor: String,
        shape: &[usize],
    ) -> Result<ValueId, ModelError> {
        let file = self.checkpoint.file_of(&tensor).to_path_buf();
        let Some(stored) = self.checkpoint.tensor(&tensor) else {
            return Err(ModelError::MissingTensor { file, tensor });
        };
        let squeezed = |shape: &[usize]| -> Vec<usize> {
            shape.iter().copied().filter(|extent| *extent != 1).collect()
        };
        if squeezed(stored.shape) != squeezed(shape) {
            let (found, wanted) = (stored.shape.to_vec(), shape.to_vec());
            return Err(ModelError::Shape { file, tensor, found, wanted });
        }
        Ok(builder.array(tensor, shape))
    }
}
