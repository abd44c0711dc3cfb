//! Llama (`LlamaForCausalLM`) and what shares its shape: SmolLM2, Llama 3.

use lithos_format::Checkpoint;
use lithos_graph::{Graph, Rotary, RotaryScaling, RowMap};

use crate::architectures::dense::{DenseTransformer, Family};
use crate::architectures::{Architecture, gguf};
use crate::config::Config;
use crate::model::ModelError;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    model_types: &["llama"],
    from_config,
    from_gguf: Some(("llama", from_gguf)),
    further: None,
};

fn from_config(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Graph, ModelError> {
    config.require_unset("mlp_bias")?;
    let family = Family { architecture: "llama", head_norms: false, head_dim: None, context: 2048 };
    DenseTransformer::from_config(config, family)?.build(checkpoint)
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
