//! Qwen3 dense (`Qwen3ForCausalLM`): Llama's shape with normalised query and key heads.

use lithos_format::Checkpoint;
use lithos_graph::{Graph, Rotary, RotaryScaling, RowMap};

use crate::architectures::dense::DenseTransformer;
use crate::architectures::{Architecture, gguf};
use crate::config::Config;
use crate::model::ModelError;
use crate::naming::Naming;

pub(super) const ARCHITECTURE: Architecture =
    Architecture { model_types: &["qwen3"], from_config, from_gguf: Some(("qwen3", from_gguf)) };

fn from_config(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Graph, ModelError> {
    config.require_silu()?;
    config.require_unset("attention_bias")?;
    config.require_unset("use_sliding_window")?;
    let heads = config.size("num_attention_heads")?;
    let head_dim = config.optional_size("head_dim")?.unwrap_or(128);
    DenseTransformer {
        architecture: "qwen3",
        hidden: config.size("hidden_size")?,
        layers: config.size("num_hidden_layers")?,
        heads,
        key_value_heads: config.optional_size("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        intermediate: config.size("intermediate_size")?,
        vocabulary: config.size("vocab_size")?,
        context: config.optional_size("max_position_embeddings")?.unwrap_or(32768),
        epsilon: config.number_or("rms_norm_eps", 1e-6)? as f32,
        rotary: config.rotary(head_dim, 10_000.0)?,
        tied: config.tied_embeddings(false)?,
        head_norms: true,
        naming: Naming::HuggingFace { prefix: "model." },
        rotary_rows: RowMap::All,
    }
    .build(checkpoint)
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
