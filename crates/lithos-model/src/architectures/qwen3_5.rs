//! Qwen3.5, 3.6 and 3.8 (`qwen3_5`): gated delta rule layers with a gated full-attention layer among every few, dense
//! feed-forward networks. Equations as in Hugging Face transformers' `modeling_qwen3_5`.

use lithos_format::Checkpoint;
use lithos_graph::{Graph, GraphBuilder, Limits, OpKind, Part, Rotary, RowMap, StateKind, ValueId};

use crate::architectures::dense::feed_forward;
use crate::architectures::qwen3_5_moe::Mixture;
use crate::architectures::{Architecture, WeightLoader};
use crate::config::Config;
use crate::model::ModelError;
use crate::naming::Naming;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    model_types: &["qwen3_5", "qwen3_5_text"],
    from_config,
    from_gguf: None,
    further: Some(further_from_config),
};

/// Layer and head norms store their distance from one; the gated norm stores the weight itself.
const NORM_OFFSET: f32 = 1.0;

struct Qwen35 {
    hidden: usize,
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
    epsilon: f32,
    rotary: Rotary,
    feed_forward: FeedForward,
    delta: DeltaSizes,
    naming: Naming,
}

/// What follows the mixer of every layer.
pub(super) enum FeedForward {
    /// One network of this width.
    Dense(usize),
    /// A mixture of experts.
    Mixture(Mixture),
}

/// Sizes of the gated delta rule mixer.
struct DeltaSizes {
    key_heads: usize,
    value_heads: usize,
    key_dim: usize,
    value_dim: usize,
    taps: usize,
}

fn from_config(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Graph, ModelError> {
    let feed_forward = FeedForward::Dense(config.size("intermediate_size")?);
    describe(checkpoint, config, "qwen3_5", feed_forward)
}

fn further_from_config(
    checkpoint: &Checkpoint,
    config: &Config<'_>,
    target: &Graph,
    builder: &mut GraphBuilder,
) -> Result<Graph, ModelError> {
    let feed_forward = FeedForward::Dense(config.size("intermediate_size")?);
    describe_further(checkpoint, config, feed_forward, target, builder)
}

/// Builds the graph of a configuration with these feed-forward networks.
pub(super) fn describe(
    checkpoint: &Checkpoint,
    config: &Config<'_>,
    architecture: &'static str,
    feed_forward: FeedForward,
) -> Result<Graph, ModelError> {
    let multimodal = checkpoint.has_matrix("model.language_model.embed_tokens");
    let prefix = if multimodal { "model.language_model." } else { "model." };
    let model = read(checkpoint, config, feed_forward, prefix)?;
    let limits = Limits {
        vocabulary: config.size("vocab_size")?,
        context: config.optional_size("max_position_embeddings")?.unwrap_or(32768),
        layers: config.size("num_hidden_layers")?,
    };
    let kinds = layer_kinds(checkpoint, config, limits.layers)?;
    let (logits, builder) =
        model.build(checkpoint, &kinds, limits, config.tied_embeddings(false)?)?;
    Ok(builder.finish(architecture, logits, limits)?)
}

/// Builds the pass of the layer that predicts the token after the next one: the `mtp` tensors beside the model's.
pub(super) fn describe_further(
    checkpoint: &Checkpoint,
    config: &Config<'_>,
    feed_forward: FeedForward,
    target: &Graph,
    builder: &mut GraphBuilder,
) -> Result<Graph, ModelError> {
    let model = read(checkpoint, config, feed_forward, "mtp.")?;
    model.further(checkpoint, target, builder)
}

/// Reads what the layers of a configuration have in common.
fn read(
    checkpoint: &Checkpoint,
    config: &Config<'_>,
    feed_forward: FeedForward,
    prefix: &'static str,
) -> Result<Qwen35, ModelError> {
    config.require_silu()?;
    config.require_unset("attention_bias")?;
    config.require_text("output_gate_type", &["swish", "silu"])?;
    if !config.flag_or("attn_output_gate", true)? {
        let problem = "attn_output_gate false is not supported".to_string();
        return Err(ModelError::Config { file: super::config_file(checkpoint), problem });
    }
    let heads = config.size("num_attention_heads")?;
    let head_dim = config.optional_size("head_dim")?.unwrap_or(256);
    Ok(Qwen35 {
        hidden: config.size("hidden_size")?,
        heads,
        key_value_heads: config.optional_size("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        epsilon: config.number_or("rms_norm_eps", 1e-6)? as f32,
        rotary: config.rotary(head_dim, 10_000_000.0)?,
        feed_forward,
        delta: DeltaSizes {
            key_heads: config.size("linear_num_key_heads")?,
            value_heads: config.size("linear_num_value_heads")?,
            key_dim: config.size("linear_key_head_dim")?,
            value_dim: config.size("linear_value_head_dim")?,
            taps: config.optional_size("linear_conv_kernel_dim")?.unwrap_or(4),
        },
        naming: Naming::HuggingFace { prefix },
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerKind {
    Delta,
    Attention,
}

/// The kind of each layer: listed, or one full-attention layer in every `full_attention_interval`.
fn layer_kinds(
    checkpoint: &Checkpoint,
    config: &Config<'_>,
    layers: usize,
) -> Result<Vec<LayerKind>, ModelError> {
    let fail =
        |problem: String| ModelError::Config { file: super::config_file(checkpoint), problem };
    let Some(names) = config.layer_types()? else {
        let interval = config.optional_size("full_attention_interval")?.unwrap_or(4);
        let kind = |layer: usize| match (layer + 1).is_multiple_of(interval) {
            true => LayerKind::Attention,
            false => LayerKind::Delta,
        };
        return Ok((0..layers).map(kind).collect());
    };
    if names.len() != layers {
        return Err(fail(format!("`layer_types` lists {} of {layers} layers", names.len())));
    }
    names
        .iter()
        .map(|name| match name.as_str() {
            "linear_attention" => Ok(LayerKind::Delta),
            "full_attention" => Ok(LayerKind::Attention),
            other => Err(fail(format!("layer type `{other}` is not supported"))),
        })
        .collect()
}

impl Qwen35 {
    fn build(
        &self,
        checkpoint: &Checkpoint,
        kinds: &[LayerKind],
        limits: Limits,
        tied: bool,
    ) -> Result<(ValueId, GraphBuilder), ModelError> {
        let weights = WeightLoader { checkpoint };
        let mut builder = GraphBuilder::new();
        let b = &mut builder;
        let table = self.naming.global("embed_tokens");
        let table = weights.matrix(b, table, RowMap::All, limits.vocabulary, self.hidden)?;
        let mut h = b.embedding(table);
        for (layer, kind) in kinds.iter().enumerate() {
            h = self.layer(b, &weights, layer, layer, *kind, h)?;
        }
        b.scope(None, Part::Head);
        let norm = weights.array(b, self.naming.global("norm.weight"), &[self.hidden])?;
        let x = b.rms_norm("norm", h, norm, self.epsilon, NORM_OFFSET);
        let head = if tied {
            table
        } else {
            let name = self.naming.global("lm_head");
            weights.matrix(b, name, RowMap::All, limits.vocabulary, self.hidden)?
        };
        let logits = b.linear("logits", x, head);
        Ok((logits, builder))
    }

    /// Layer `layer` of those that have the model's names, in place `scope` of the graph.
    fn layer(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        layer: usize,
        scope: usize,
        kind: LayerKind,
        h: ValueId,
    ) -> Result<ValueId, ModelError> {
        b.scope(Some(scope), Part::Mixer);
        let norm = self.naming.layer(layer, "input_layernorm.weight");
        let norm = weights.array(b, norm, &[self.hidden])?;
        let x = b.rms_norm("norm", h, norm, self.epsilon, NORM_OFFSET);
        let mixed = match kind {
            LayerKind::Delta => self.gated_delta(b, weights, layer, x)?,
            LayerKind::Attention => self.attention(b, weights, layer, x)?,
        };
        let h = b.add("residual", h, mixed);
        b.scope(Some(scope), Part::FeedForward);
        let norm = self.naming.layer(layer, "post_attention_layernorm.weight");
        let norm = weights.array(b, norm, &[self.hidden])?;
        let x = b.rms_norm("norm", h, norm, self.epsilon, NORM_OFFSET);
        let name = |name: &str| self.naming.layer(layer, name);
        let y = match &self.feed_forward {
            FeedForward::Dense(width) => feed_forward(b, weights, x, name, self.hidden, *width)?,
            FeedForward::Mixture(mixture) => mixture.build(b, weights, x, name, self.hidden)?,
        };
        Ok(b.add("residual", h, y))
    }

    /// `head(norm(layer(fc [norm(embedding); norm(hidden)])))`: the hidden rows, the target's after its last norm or those of this pass
    /// after theirs, are given; table and head are the target's.
    fn further(
        &self,
        checkpoint: &Checkpoint,
        target: &Graph,
        b: &mut GraphBuilder,
    ) -> Result<Graph, ModelError> {
        let weights = WeightLoader { checkpoint };
        let missing = |tensor: &str| ModelError::MissingTensor {
            file: checkpoint.path().to_path_buf(),
            tensor: tensor.into(),
        };
        let table = target.ops.iter().find(|op| op.kind == OpKind::Embedding);
        let table = table.map(|op| op.inputs[0]).ok_or_else(|| missing("embed_tokens"))?;
        let head = target.ops.iter().find(|op| op.outputs == [target.logits]);
        let head = head.map(|op| op.inputs[1]).ok_or_else(|| missing("lm_head"))?;
        let width = self.hidden;
        b.scope(None, Part::Embedding);
        let hidden = b.input("hidden", width);
        let normed = |b: &mut GraphBuilder, x, name: &str| {
            let norm = weights.array(b, self.naming.global(name), &[width])?;
            Ok::<_, ModelError>(b.rms_norm("norm", x, norm, self.epsilon, NORM_OFFSET))
        };
        let embedding = b.embedding(table);
        let embedding = normed(b, embedding, "pre_fc_norm_embedding.weight")?;
        let hidden = normed(b, hidden, "pre_fc_norm_hidden.weight")?;
        let pair = b.concatenate("pair", vec![embedding, hidden]);
        let fc = weights.matrix(b, self.naming.global("fc"), RowMap::All, width, 2 * width)?;
        let h = b.linear("fc", pair, fc);
        // After the target's layers, so that its state has a name of its own.
        let scope = target.limits.layers;
        let h = self.layer(b, &weights, 0, scope, LayerKind::Attention, h)?;
        b.scope(None, Part::Head);
        let x = normed(b, h, "norm.weight")?;
        let logits = b.linear("logits", x, head);
        Ok(Graph {
            architecture: "mtp".into(),
            values: b.values().to_vec(),
            ops: b.take_ops(),
            tokens: b.tokens(),
            logits,
            limits: target.limits,
        })
    }

    fn gated_delta(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        layer: usize,
        x: ValueId,
    ) -> Result<ValueId, ModelError> {
        let DeltaSizes { key_heads, value_heads, key_dim, value_dim, taps } = self.delta;
        let values = value_heads * value_dim;
        let channels = 2 * key_heads * key_dim + values;
        let name = |name: &str| self.naming.layer(layer, &format!("linear_attn.{name}"));
        let project = |b: &mut GraphBuilder, part: &str, short, rows| {
            let matrix = weights.matrix(b, name(part), RowMap::All, rows, self.hidden)?;
            Ok::<_, ModelError>(b.linear(short, x, matrix))
        };
        let u = project(b, "in_proj_qkv", "qkv", channels)?;
        let z = project(b, "in_proj_z", "z", values)?;
        let beta = project(b, "in_proj_b", "b", value_heads)?;
        let alpha = project(b, "in_proj_a", "a", value_heads)?;
        let taps_weight = weights.array(b, name("conv1d.weight"), &[channels, taps])?;
        let history = StateKind::ConvolutionHistory { channels, width: taps };
        let history = b.state("history", history);
        let qkv = b.convolution("convolved", u, taps_weight, history, taps);
        let a_log = weights.array(b, name("A_log"), &[value_heads])?;
        let dt_bias = weights.array(b, name("dt_bias"), &[value_heads])?;
        let state =
            b.state("delta", StateKind::DeltaRule { heads: value_heads, key_dim, value_dim });
        let inputs = [qkv, alpha, beta, a_log, dt_bias];
        let o = b.gated_delta("core", inputs, state, key_heads);
        let norm = weights.array(b, name("norm.weight"), &[value_dim])?;
        let o = b.gated_norm("gated", o, z, norm, self.epsilon);
        let output = weights.matrix(b, name("out_proj"), RowMap::All, self.hidden, values)?;
        Ok(b.linear("output", o, output))
    }

    fn attention(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        layer: usize,
        x: ValueId,
    ) -> Result<ValueId, ModelError> {
        let (heads, kv_heads, head_dim) = (self.heads, self.key_value_heads, self.head_dim);
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let name = |name: &str| self.naming.layer(layer, &format!("self_attn.{name}"));
        // Each head's rows of q_proj hold its query, then its output gate.
        let part = |offset| RowMap::HeadPart { rows: head_dim, stride: 2 * head_dim, offset };
        let project = |b: &mut GraphBuilder, tensor: &str, short, map, rows| {
            let matrix = weights.matrix(b, name(tensor), map, rows, self.hidden)?;
            Ok::<_, ModelError>(b.linear(short, x, matrix))
        };
        let q = project(b, "q_proj", "q", part(0), queries)?;
        let gate = project(b, "q_proj", "gate", part(head_dim), queries)?;
        let k = project(b, "k_proj", "k", RowMap::All, keys)?;
        let v = project(b, "v_proj", "v", RowMap::All, keys)?;
        let norm = weights.array(b, name("q_norm.weight"), &[head_dim])?;
        let q = b.rms_norm("q_norm", q, norm, self.epsilon, NORM_OFFSET);
        let norm = weights.array(b, name("k_norm.weight"), &[head_dim])?;
        let k = b.rms_norm("k_norm", k, norm, self.epsilon, NORM_OFFSET);
        let q = b.rotary("q_rotary", q, head_dim, &self.rotary);
        let k = b.rotary("k_rotary", k, head_dim, &self.rotary);
        let state = b.state("key_value", StateKind::KeyValue { heads: kv_heads, head_dim });
        b.append_key_value(k, v, state);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let o = b.attention("attention", q, state, heads, scale);
        let o = b.sigmoid_multiply("gated", o, gate);
        let output = weights.matrix(b, name("o_proj"), RowMap::All, self.hidden, queries)?;
        Ok(b.linear("output", o, output))
    }
}
