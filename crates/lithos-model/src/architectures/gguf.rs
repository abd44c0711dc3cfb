//! Sizes of a dense transformer from GGUF metadata.

use lithos_format::Checkpoint;
use lithos_graph::{Rotary, RowMap};

use crate::architectures::dense::DenseTransformer;
use crate::model::ModelError;
use crate::naming::Naming;

/// What GGUF metadata says of a dense transformer.
pub(super) struct Sizes {
    hidden: usize,
    layers: usize,
    heads: usize,
    key_value_heads: usize,
    pub(super) head_dim: usize,
    intermediate: usize,
    vocabulary: usize,
    context: usize,
    epsilon: f32,
    pub(super) rotary_dim: usize,
    theta: Option<f32>,
    tied: bool,
}

impl Sizes {
    /// Reads the keys under `architecture`.
    pub(super) fn read(checkpoint: &Checkpoint, architecture: &str) -> Result<Self, ModelError> {
        let file = checkpoint.path().to_path_buf();
        let fail = |problem: String| ModelError::Config { file: file.clone(), problem };
        let Some(metadata) = checkpoint.gguf() else {
            return Err(fail("not a GGUF file".into()));
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let size = |name: &str| -> Result<usize, ModelError> {
            let value = metadata.u64(&key(name))?;
            match usize::try_from(value) {
                Ok(size) if size > 0 && size < 1 << 31 => Ok(size),
                _ => Err(fail(format!("`{}` must be a positive size, found {value}", key(name)))),
            }
        };
        let optional = |name: &str| -> Result<Option<usize>, ModelError> {
            if metadata.contains(&key(name)) { size(name).map(Some) } else { Ok(None) }
        };
        if metadata.contains(&key("rope.scaling.type")) {
            let kind = metadata.string(&key("rope.scaling.type"))?;
            if kind != "none" {
                return Err(fail(format!("rotary scaling `{kind}` is not supported")));
            }
        }
        let (hidden, heads) = (size("embedding_length")?, size("attention.head_count")?);
        let head_dim = optional("attention.key_length")?.unwrap_or(hidden / heads);
        let vocabulary = match checkpoint.tensor("token_embd.weight") {
            Some(table) => table.shape[0],
            None => {
                let tensor = "token_embd.weight".to_string();
                return Err(ModelError::MissingTensor { file, tensor });
            }
        };
        let theta_key = key("rope.freq_base");
        Ok(Sizes {
            hidden,
            layers: size("block_count")?,
            heads,
            key_value_heads: optional("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            intermediate: size("feed_forward_length")?,
            vocabulary,
            context: size("context_length")?,
            epsilon: metadata.f32(&key("attention.layer_norm_rms_epsilon"))?,
            rotary_dim: optional("rope.dimension_count")?.unwrap_or(head_dim),
            theta: if metadata.contains(&theta_key) {
                Some(metadata.f32(&theta_key)?)
            } else {
                None
            },
            tied: checkpoint.tensor("output.weight").is_none(),
        })
    }

    /// The rotary base, or the family's default.
    pub(super) fn theta(&self, default: f64) -> f64 {
        self.theta.map_or(default, f64::from)
    }

    /// The transformer's description.
    pub(super) fn into_dense(
        self,
        architecture: &'static str,
        rotary: Rotary,
        rotary_rows: RowMap,
        head_norms: bool,
    ) -> DenseTransformer {
        DenseTransformer {
            architecture,
            hidden: self.hidden,
            layers: self.layers,
            heads: self.heads,
            key_value_heads: self.key_value_heads,
            head_dim: self.head_dim,
            intermediate: self.intermediate,
            vocabulary: self.vocabulary,
            context: self.context,
            epsilon: self.epsilon,
            rotary,
            tied: self.tied,
            head_norms,
            naming: Naming::Gguf,
            rotary_rows,
        }
    }
}
