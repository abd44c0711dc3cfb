//! Checkpoints of known shapes with pseudo-random weights, for measuring where nothing can be downloaded and for tests.
//!
//! `synthetic:NAME[?seed=N&format=F]` names one, see [`SyntheticName`]. Nothing is stored: each byte of a tensor is a
//! function of the seed, the tensor's name and the byte's place, computed where it is used, so that a model of any size
//! opens at once. Configuration, tensor names, shapes and formats are those of the published checkpoints. The values are
//! plausible (spread as trained weights are, so that activations stay bounded and logits are spread) but the model knows
//! nothing: it is to be timed and compared, not talked to.

mod bytes;
mod config;
mod distribution;
mod name;
mod tensors;
mod text;

pub use name::{DRAFTERS, FORMATS, PREFIX, SHAPES, SyntheticError, SyntheticName, is_synthetic};

use lithos_format::Checkpoint;

/// Opens the checkpoint that `synthetic:NAME[?seed=N&format=F]` names. A drafter opens too, but is no model by itself.
///
/// # Errors
/// [`SyntheticError`], one line that says which part of the name is wrong and what it could be.
pub fn open(name: &str) -> Result<Checkpoint, SyntheticError> {
    name.parse::<SyntheticName>()?.checkpoint()
}
