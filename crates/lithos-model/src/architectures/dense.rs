//! The dense transformer that Llama and Qwen3 share: attention with rotary positions, a gated feed-forward network.

use lithos_format::Checkpoint;
use lithos_graph::{Graph, GraphBuilder, Limits, Part, Rotary, RowMap, StateKind, ValueId};

use crate::architectures::WeightLoader;
use crate::config::Config;
use crate::model::ModelError;
use crate::naming::Naming;

/// Sizes and choices of a dense transformer.
pub(super) struct DenseTransformer {
    pub(super) architecture: &'static str,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) key_value_heads: usize,
    pub(super) head_dim: usize,
    pub(super) intermediate: usize,
    pub(super) vocabulary: usize,
    pub(super) context: usize,
    pub(super) epsilon: f32,
    pub(super) rotary: Rotary,
    /// The vocabulary projection is the embedding table.
    pub(super) tied: bool,
    /// Queries and keys are normalised per head before they turn.
    pub(super) head_norms: bool,
    pub(super) naming: Naming,
    /// Order of the stored rows of the query and key projections.
    pub(super) rotary_rows: RowMap,
}

/// What families differ in, beside their configuration's values.
pub(super) struct Family {
    pub(super) architecture: &'static str,
    pub(super) head_norms: bool,
    /// Head size where the configuration does not say; `None` divides the width by the heads.
    pub(super) head_dim: Option<usize>,
    /// Positions where the configuration does not say.
    pub(super) context: usize,
}

impl DenseTransformer {
    /// Reads a Hugging Face configuration.
    pub(super) fn from_config(config: &Config<'_>, family: Family) -> Result<Self, ModelError> {
        config.require_silu()?;
        config.require_unset("attention_bias")?;
        let (hidden, heads) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
        let default_head_dim = family.head_dim.unwrap_or(hidden / heads);
        let head_dim = config.optional_size("head_dim")?.unwrap_or(default_head_dim);
        Ok(DenseTransformer {
            architecture: family.architecture,
            hidden,
            layers: config.size("num_hidden_layers")?,
            heads,
            key_value_heads: config.optional_size("num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            intermediate: config.size("intermediate_size")?,
            vocabulary: config.size("vocab_size")?,
            context: config.optional_size("max_position_embeddings")?.unwrap_or(family.context),
            epsilon: config.number_or("rms_norm_eps", 1e-6)? as f32,
            rotary: config.rotary(head_dim, 10_000.0)?,
            tied: config.tied_embeddings(false)?,
            head_norms: family.head_norms,
            naming: Naming::HuggingFace { prefix: "model." },
            rotary_rows: RowMap::All,
        })
    }

    /// Builds the graph, checking every tensor's shape.
    pub(super) fn build(&self, checkpoint: &Checkpoint) -> Result<Graph, ModelError> {
        let weights = WeightLoader { checkpoint };
        let mut builder = GraphBuilder::new();
        let b = &mut builder;
        let table = weights.matrix(
            b,
            self.naming.global("embed_tokens"),
            RowMap::All,
            self.vocabulary,
            self.hidden,
        )?;
        let mut h = b.embedding(table);
        for layer in 0..self.layers {
            b.scope(Some(layer), Part::Mixer);
            let mixed = self.attention(b, &weights, layer, h)?;
            h = b.add("residual", h, mixed);
            b.scope(Some(layer), Part::FeedForward);
            let norm = self.naming.layer(layer, "post_attention_layernorm") + ".weight";
            let norm = weights.array(b, norm, &[self.hidden])?;
            let x = b.rms_norm("norm", h, norm, self.epsilon, 0.0);
            let project = |name: &str| self.naming.layer(layer, name);
            let y = feed_forward(b, &weights, x, project, self.hidden, self.intermediate)?;
            h = b.add("residual", h, y);
        }
        b.scope(None, Part::Head);
        let norm = weights.array(b, self.naming.global("norm") + ".weight", &[self.hidden])?;
        let x = b.rms_norm("norm", h, norm, self.epsilon, 0.0);
        let head = if self.tied {
            table
        } else {
            let name = self.naming.global("lm_head");
            weights.matrix(b, name, RowMap::All, self.vocabulary, self.hidden)?
        };
        let logits = b.linear("logits", x, head);
        let limits =
            Limits { vocabulary: self.vocabulary, context: self.context, layers: self.layers };
        Ok(builder.finish(self.architecture, logits, limits)?)
    }

    fn attention(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        layer: usize,
        h: ValueId,
    ) -> Result<ValueId, ModelError> {
        let name = |name: &str| self.naming.layer(layer, name);
        let norm = weights.array(b, name("input_layernorm") + ".weight", &[self.hidden])?;
        let x = b.rms_norm("norm", h, norm, self.epsilon, 0.0);
        let (queries, keys) = (self.heads * self.head_dim, self.key_value_heads * self.head_dim);
        let project = |b: &mut GraphBuilder, part: &str, short, map: &RowMap, rows| {
            let tensor = name(&format!("self_attn.{part}_proj"));
            let matrix = weights.matrix(b, tensor, map.clone(), rows, self.hidden)?;
            Ok::<_, ModelError>(b.linear(short, x, matrix))
        };
        let mut q = project(b, "q", "q", &self.rotary_rows, queries)?;
        let mut k = project(b, "k", "k", &self.rotary_rows, keys)?;
        let v = project(b, "v", "v", &RowMap::All, keys)?;
        if self.head_norms {
            let norm = weights.array(b, name("self_attn.q_norm") + ".weight", &[self.head_dim])?;
            q = b.rms_norm("q_norm", q, norm, self.epsilon, 0.0);
            let norm = weights.array(b, name("self_attn.k_norm") + ".weight", &[self.head_dim])?;
            k = b.rms_norm("k_norm", k, norm, self.epsilon, 0.0);
        }
        let q = b.rotary("q_rotary", q, self.head_dim, &self.rotary);
        let k = b.rotary("k_rotary", k, self.head_dim, &self.rotary);
        let kind = StateKind::KeyValue { heads: self.key_value_heads, head_dim: self.head_dim };
        let state = b.state("key_value", kind);
        b.append_key_value(k, v, state);
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        let o = b.attention("attention", q, state, self.heads, scale);
        let output =
            weights.matrix(b, name("self_attn.o_proj"), RowMap::All, self.hidden, queries)?;
        Ok(b.linear("output", o, output))
    }
}

/// `down(silu(gate x) * up x)`.
pub(crate) fn feed_forward(
    b: &mut GraphBuilder,
    weights: &WeightLoader<'_>,
    x: ValueId,
    name: impl Fn(&str) -> String,
    hidden: usize,
    intermediate: usize,
) -> Result<ValueId, ModelError> {
    let gate = weights.matrix(b, name("mlp.gate_proj"), RowMap::All, intermediate, hidden)?;
    let gate = b.linear("gate", x, gate);
    let up = weights.matrix(b, name("mlp.up_proj"), RowMap::All, intermediate, hidden)?;
    let up = b.linear("up", x, up);
    let activated = b.silu_multiply("activated", gate, up);
    let down = weights.matrix(b, name("mlp.down_proj"), RowMap::All, hidden, intermediate)?;
    Ok(b.linear("down", activated, down))
}
