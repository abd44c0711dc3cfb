//! Qwen3 dense (`Qwen3ForCausalLM`): Llama's shape with normalised query and key heads.

use lithos_format::Checkpoint;
use lithos_graph::{Graph, Rotary, RotaryScaling, RowMap};

use crate::architectures::dense::{DenseTransformer, Family};
use crate::architectures::{Architecture, gguf};
use crate::config::Config;
use crate::model::ModelError;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    model_types: &["qwen3"],
    from_config,
    from_gguf: Some(("qwen3", from_gguf)),
    further: None,
};

fn from_config(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Graph, ModelError> {
    config.require_unset("use_sliding_window")?;
    let family =
        Family { architecture: "qwen3", head_norms: true, head_dim: Some(128), context: 32768 };
    DenseTransformer::from_config(config, family)?.build(checkpoint)
}

fn from_gguf(checkpoint: &Checkpoint) -> Result<Graph, ModelError> {
    let sizes = gguf::Sizes::read(checkpoint, "qwen3")?;
    let rotary = Rotary {
        dim: sizes.rotary_dim,
        theta: sizes.theta(1_000_000.0),
        scaling: RotaryScaling::None,
    };
    sizes.into_dense("qwen3", rotary, RowMap::All, true).build(checkpoint)
}
