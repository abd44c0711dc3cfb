//! Model architectures as graphs, and the text around them: tokenizer, chat template, generation defaults.
//!
//! [`Model::open`] reads a checkpoint and describes it as a [`lithos_graph::Graph`]. Each architecture is one file under
//! `architectures/`; nothing else in the engine knows about a particular model.

mod architectures;
mod config;
pub mod dspark;
mod model;
pub mod mtp;
mod naming;
pub mod shape;
pub mod text;
mod weights;

pub use architectures::known_architectures;
pub use model::{Model, ModelError};
pub use weights::CheckpointWeights;
