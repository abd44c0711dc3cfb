//! Weights as the backend holds them: matrices packed, small arrays in f32, embedding tables left in the checkpoint.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lithos_compiler::layout::{Layout, LayoutError, Packed};
use lithos_format::{Checkpoint, FormatError};
use lithos_graph::{Graph, StoredWeight, ValueId, WeightForm, WeightSource};
use thiserror::Error;

use crate::linear;
use crate::workers::{LaunchError, Workers};

/// Tiles that a worker packs at a time.
const TILES_PER_PART: usize = 16;

/// Weights of one model, shared by all its programs.
pub struct Weights {
    checkpoint: Arc<Checkpoint>,
    /// One for each expert of a mixture, else one.
    matrices: HashMap<ValueId, Vec<Arc<Packed>>>,
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
                WeightForm::Matrix(_) | WeightForm::Experts(_) if multiplied.contains(&id) => {
                    let Some(stored) = StoredWeight::open(checkpoint, graph.value(id))? else {
                        continue;
                    };
                    let layout = layout_of(source, &stored)?;
                    let mut packed: Vec<Packed> = (0..stored.experts())
                        .map(|expert| layout.allocate_in(&mut region, stored.tensor_scale(expert)))
                        .collect();
                    pack(&mut packed, &stored, workers)?;
                    weights.matrices.insert(id, packed.into_iter().map(Arc::new).collect());
                    for name in source.stored_names(stored.experts()) {
                        for tensor in checkpoint.companions(&name) {
                            checkpoint.release_pages(tensor);
                        }
                        checkpoint.release_pages(&name);
                    }
                }
                WeightForm::Matrix(_) | WeightForm::Experts(_) => {}
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
        Arc::clone(&self.packed(id)[0])
    }

    /// The packed matrices of all experts.
    pub(crate) fn experts(&self, id: ValueId) -> Vec<Arc<Packed>> {
        self.packed(id).to_vec()
    }

    fn packed(&self, id: ValueId) -> &[Arc<Packed>] {
        self.matrices.get(&id).expect("every multiplied matrix was packed")
    }

    /// A small array.
    pub(crate) fn array(&self, id: ValueId) -> Arc<[f32]> {
        Arc::clone(self.arrays.get(&id).expect("every array was decoded"))
    }

    /// Bytes of the packed matrices of a weight.
    pub fn packed_bytes(&self, id: ValueId) -> u64 {
        let packed = self.matrices.get(&id).map_or(&[][..], Vec::as_slice);
        packed.iter().map(|packed| packed.layout().bytes() as u64).sum()
    }

    /// Bytes of all packed matrices and arrays.
    pub fn resident_bytes(&self) -> u64 {
        let arrays: usize = self.arrays.values().map(|array| array.len() * 4).sum();
        let matrices: u64 = self.matrices.keys().map(|id| self.packed_bytes(*id)).sum();
        matrices + arrays as u64
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
        let value = graph.value(id);
        let Some(source) = value.weight() else { continue };
        let Some(stored) = StoredWeight::open(checkpoint, value)? else { continue };
        bytes += stored.experts() * layout_of(source, &stored)?.region_bytes();
    }
    Ok(bytes)
}

/// The layout of a matrix, or of each expert's.
fn layout_of(source: &WeightSource, stored: &StoredWeight<'_>) -> Result<Layout, WeightsError> {
    let encoding = stored.matrices()[0].encoding();
    Layout::for_encoding(stored.rows(), stored.columns(), &encoding)
        .map_err(|error| WeightsError::Layout { tensor: source.tensor.clone(), source: error })
}

/// Fills packed matrices, one for each expert, with all workers.
fn pack(
    packed: &mut [Packed],
    stored: &StoredWeight<'_>,
    workers: &mut Workers,
) -> Result<(), WeightsError> {
    let parts: Vec<_> = packed
        .iter_mut()
        .enumerate()
        .flat_map(|(expert, packed)| {
            let parts = packed.parts(TILES_PER_PART).into_iter();
            parts.map(move |part| std::sync::Mutex::new((expert * stored.rows(), part)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    workers.launch(|_, _| {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Each part is taken by one worker only; a poisoned lock means that worker panicked, which ends the launch.
            if let Ok(mut part) = part.lock() {
                let (first, part) = &mut *part;
                let matrix = stored.row(*first).0;
                part.fill(matrix, &|row| stored.row(*first + row).1);
            }
        }
        Ok(())
    })?;
    Ok(())
}
