//! Weights as the backend holds them: matrices packed, small arrays in f32, embedding tables left in the checkpoint.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lithos_compiler::layout::{Layout, LayoutError, Packed};
use lithos_format::{Checkpoint, FormatError, Matrix};
use lithos_graph::{Graph, ValueId, WeightForm, WeightSource};
use thiserror::Error;

use crate::linear;
use crate::workers::{LaunchError, Workers};

/// Tiles that a worker packs at a time.
const TILES_PER_PART: usize = 16;

/// Weights of one model, shared by all its programs.
pub struct Weights {
    checkpoint: Arc<Checkpoint>,
    matrices: HashMap<ValueId, Arc<Packed>>,
    arrays: HashMap<ValueId, Arc<[f32]>>,
}

/// Why weights could not be loaded.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    Missing(String),
    /// No packed form for a matrix.
    #[error("tensor `{tensor}`: {source}")]
    Layout {
        /// The matrix.
        tensor: String,
        /// Why.
        source: LayoutError,
    },
    /// A worker failed while packing.
    #[error("packing weights: {0}")]
    Launch(#[from] LaunchError),
}

impl Weights {
    /// Packs every matrix of `multiplied` and decodes the small arrays of the graph, with all workers.
    ///
    /// A tensor's pages are given back to the operating system as soon as it is packed, so that file and pack are not
    /// resident together.
    ///
    /// # Errors
    /// [`WeightsError`] names the tensor.
    pub fn load(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        multiplied: &HashSet<ValueId>,
        workers: &mut Workers,
    ) -> Result<Self, WeightsError> {
        let mut weights = Weights {
            checkpoint: Arc::clone(checkpoint),
            matrices: HashMap::new(),
            arrays: HashMap::new(),
        };
        let mut region = linear::large_page_region(region_bytes(checkpoint, graph, multiplied)?);
        for id in graph.weights() {
            let Some(source) = graph.value(id).weight() else { continue };
            match source.form {
                WeightForm::Matrix(_) if multiplied.contains(&id) => {
                    let matrix = checkpoint.matrix(&source.tensor)?;
                    let layout = layout_of(graph, id, source, &matrix)?;
                    let mut packed = layout.allocate_in(&mut region, matrix.tensor_scale());
                    pack(&mut packed, &matrix, source, workers)?;
                    weights.matrices.insert(id, Arc::new(packed));
                    for tensor in checkpoint.companions(&source.tensor) {
                        checkpoint.release_pages(tensor);
                    }
                }
                WeightForm::Matrix(_) => {}
                WeightForm::Array => {
                    let tensor = checkpoint
                        .tensor(&source.tensor)
                        .ok_or_else(|| WeightsError::Missing(source.tensor.clone()))?;
                    weights.arrays.insert(id, tensor.to_f32()?.into());
                }
            }
        }
        Ok(weights)
    }

    /// A packed matrix.
    pub(crate) fn matrix(&self, id: ValueId) -> Arc<Packed> {
        Arc::clone(self.matrices.get(&id).expect("every multiplied matrix was packed"))
    }

    /// A small array.
    pub(crate) fn array(&self, id: ValueId) -> Arc<[f32]> {
        Arc::clone(self.arrays.get(&id).expect("every array was decoded"))
    }

    /// Bytes of packed matrices that one pass reads, for the given matrices.
    pub fn packed_bytes(&self, ids: impl IntoIterator<Item = ValueId>) -> u64 {
        let bytes = |id| self.matrices.get(&id).map_or(0, |packed| packed.layout().bytes() as u64);
        ids.into_iter().map(bytes).sum()
    }

    /// Bytes of all packed matrices and arrays.
    pub fn resident_bytes(&self) -> u64 {
        let arrays: usize = self.arrays.values().map(|array| array.len() * 4).sum();
        self.packed_bytes(self.matrices.keys().copied()) + arrays as u64
    }

    /// Decodes one row of an embedding table straight from the checkpoint.
    pub(crate) fn embedding_row(&self, source: &WeightSource, row: usize, out: &mut [f32]) {
        match self.checkpoint.matrix(&source.tensor) {
            Ok(table) if row < table.rows() => table.decode_row(source.rows.source_row(row), out),
            // The table was checked when the graph was built and tokens when they came in; poison shows a fault.
            _ => out.fill(f32::NAN),
        }
    }
}

/// What all packed matrices take up, in the order in which a pass reads them.
fn region_bytes(
    checkpoint: &Checkpoint,
    graph: &Graph,
    multiplied: &HashSet<ValueId>,
) -> Result<usize, WeightsError> {
    let mut bytes = 0;
    for id in graph.weights().filter(|id| multiplied.contains(id)) {
        let Some(source) = graph.value(id).weight() else { continue };
        let matrix = checkpoint.matrix(&source.tensor)?;
        bytes += layout_of(graph, id, source, &matrix)?.region_bytes();
    }
    Ok(bytes)
}

fn layout_of(
    graph: &Graph,
    id: ValueId,
    source: &WeightSource,
    matrix: &Matrix<'_>,
) -> Result<Layout, WeightsError> {
    let rows = match graph.value(id).shape.first() {
        Some(lithos_graph::Dimension::Fixed(rows)) => *rows,
        _ => 0,
    };
    Layout::for_encoding(rows, matrix.cols(), &matrix.encoding())
        .map_err(|error| WeightsError::Layout { tensor: source.tensor.clone(), source: error })
}

/// Fills a packed matrix with all workers.
fn pack(
    packed: &mut Packed,
    matrix: &Matrix<'_>,
    source: &WeightSource,
    workers: &mut Workers,
) -> Result<(), WeightsError> {
    let parts: Vec<_> =
        packed.parts(TILES_PER_PART).into_iter().map(std::sync::Mutex::new).collect();
    let next = AtomicUsize::new(0);
    workers.launch(|_, _| {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Each part is taken by one worker only; a poisoned lock means that worker panicked, which ends the launch.
            if let Ok(mut part) = part.lock() {
                part.fill(matrix, &|row| source.rows.source_row(row));
            }
        }
        Ok(())
    })?;
    Ok(())
}
