//! Llama (`LlamaForCausalLM`) and what shares its shape: SmolLM2, Llama 3.

use lithos_format::Checkpoint;
use lithos_graph::{Graph, Rotary, RotaryScaling, RowMap};

use crate::architectures::dense::DenseTransformer;
use crate::architectures::{Architecture, gguf};
use crate::config::Config;
use crate::model::ModelError;
use crate::naming::Naming;

pub(super) const ARCHITECTURE: Architecture =
    Architecture { model_types: &["llama"], from_config, from_gguf: Some(("llama", from_gguf)) };

fn from_config(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Graph, ModelError> {
    config.require_silu()?;
    config.require_unset("attention_bias")?;
    config.require_unset("mlp_bias")?;
    let (hidden, heads) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    let head_dim = config.optional_size("head_dim")?.unwrap_or(hidden / heads);
    DenseTransformer {
        architecture: "llama",
        hidden,
        layers: config.size("num_hidden_layers")?,
        heads,
        key_value_heads: config.optional_size("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        intermediate: config.size("intermediate_size")?,
        vocabulary: config.size("vocab_size")?,
        context: config.optional_size("max_position_embeddings")?.unwrap_or(2048),
        epsilon: config.number_or("rms_norm_eps", 1e-6)? as f32,
        rotary: config.rotary(head_dim, 10_000.0)?,
        tied: config.tied_embeddings(false)?,
        head_norms: false,
        naming: Naming::HuggingFace { prefix: "model." },
        rotary_rows: RowMap::All,
    }
    .build(checkpoint)
}

fn from_gguf(checkpoint: &Checkpoint) -> Result<Graph, ModelError> {
    let sizes = gguf::Sizes::read(checkpoint, "llama")?;
    let scaling = match checkpoint.tensor("rope_freqs.weight") {
        Some(divisors) => {
            let divisors = divisors.to_f32()?;
            if divisors.len() != sizes.rotary_dim / 2 || divisors.iter().any(|d| *d <= 0.0) {
                let problem = format!(
                    "rope_freqs.weight must hold {} positive divisors, has {}",
                    sizes.rotary_dim / 2,
                    divisors.len()
                );
                let file = checkpoint.path().to_path_buf();
                return Err(ModelError::Config { file, problem });
            }
            RotaryScaling::Divisors(divisors)
        }
        None => RotaryScaling::None,
    };
    let rotary = Rotary { dim: sizes.rotary_dim, theta: sizes.theta(10_000.0), scaling };
    let rotary_rows = RowMap::RotaryPairs { head_dim: sizes.head_dim };
    sizes.into_dense("llama", rotary, rotary_rows, false).build(checkpoint)
}
