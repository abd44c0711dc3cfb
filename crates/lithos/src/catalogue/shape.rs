//! How large a model is, from its shape and the format of its weights.

use lithos_graph::{Graph, StateKind};

/// Bytes of a key's or a value's element: BF16.
const KEY_VALUE_BYTES: u64 = 2;

/// Bytes of an element of a recurrent state: F32.
const STATE_BYTES: u64 = 4;

/// Taps of the convolution before a delta rule.
const TAPS: u64 = 4;

/// Memory besides weights, keys, values and states: vocabulary, activations of a prompt, the program. The largest part
/// grows with a prefill chunk of the widest models; the tests bound it on a real model.
const OVERHEAD: u64 = 200_000_000;

/// A dense transformer, or a hybrid of gated delta rule layers and gated attention.
#[derive(Clone, Copy)]
pub struct Shape {
    /// `qwen3_5`, `qwen3` or `llama`.
    pub architecture: &'static str,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key/value heads.
    pub key_value_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Width of the feed-forward network.
    pub intermediate: u64,
    /// Rows of the embedding table.
    pub vocabulary: u64,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Positions that the model was made for.
    pub context: u64,
    /// The delta rule of a hybrid's other layers.
    pub delta: Option<Delta>,
}

/// The gated delta rule of `qwen3_5`.
#[derive(Clone, Copy)]
pub struct Delta {
    /// One layer in so many is attention.
    pub attention_every: u64,
    /// Key heads.
    pub key_heads: u64,
    /// Value heads.
    pub value_heads: u64,
    /// Elements of a key head.
    pub key_dim: u64,
    /// Elements of a value head.
    pub value_dim: u64,
}

/// How a file stores a model's weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// BF16 throughout.
    Bf16,
    /// ModelOpt: layers in FP8 with one scale per matrix, tables in BF16.
    Fp8,
    /// ModelOpt: feed-forward networks and head in NVFP4, mixers in FP8, the rest in BF16.
    Nvfp4Fp8,
    /// MLX: all matrices in affine INT4, groups of 64 with BF16 scale and bias.
    AffineInt4,
    /// GGUF: all matrices in Q8_0, the rest in F32.
    Q8_0,
}

/// Parameters by what formats treat alike.
struct Parameters {
    embedding: u64,
    /// None if it is the embedding table.
    head: u64,
    feed_forward: u64,
    mixer: u64,
    /// Norms, gates' small projections, convolutions.
    small: u64,
}

/// Bits per parameter, in the same parts.
struct Bits {
    embedding: f64,
    head: f64,
    feed_forward: f64,
    mixer: f64,
    small: f64,
}

/// Bytes that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Weights of the text model, in the file and in memory.
    pub weights: u64,
    /// Keys and values of one token.
    pub per_token: u64,
    /// Recurrent states.
    pub states: u64,
    /// Positions that the model was made for.
    pub most_context: u64,
}

impl Format {
    /// Its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Format::Bf16 => "BF16",
            Format::Fp8 => "FP8",
            Format::Nvfp4Fp8 => "NVFP4, FP8",
            Format::AffineInt4 => "INT4 (MLX)",
            Format::Q8_0 => "Q8_0 (GGUF)",
        }
    }

    fn bits(self) -> Bits {
        let plain =
            Bits { embedding: 16.0, head: 16.0, feed_forward: 16.0, mixer: 16.0, small: 16.0 };
        // Four bits, and an eight-bit scale for 16 columns.
        let nvfp4 = 4.0 + 8.0 / 16.0;
        // Four bits, and two 16-bit numbers for 64 columns.
        let affine = 4.0 + 32.0 / 64.0;
        // 34 bytes for 32 columns.
        let q8_0 = 8.0 * 34.0 / 32.0;
        match self {
            Format::Bf16 => plain,
            Format::Fp8 => Bits { feed_forward: 8.0, mixer: 8.0, ..plain },
            Format::Nvfp4Fp8 => Bits { head: nvfp4, feed_forward: nvfp4, mixer: 8.0, ..plain },
            Format::AffineInt4 => Bits {
                embedding: affine,
                head: affine,
                feed_forward: affine,
                mixer: affine,
                ..plain
            },
            Format::Q8_0 => {
                Bits { embedding: q8_0, head: q8_0, feed_forward: q8_0, mixer: q8_0, small: 32.0 }
            }
        }
    }
}

impl Shape {
    /// Parameters of the text model, without multi-token prediction layers.
    pub fn parameters(&self) -> u64 {
        let Parameters { embedding, head, feed_forward, mixer, small } = self.parts();
        embedding + head + feed_forward + mixer + small
    }

    /// What the model takes in a format.
    pub fn footprint(&self, format: Format) -> Footprint {
        let (parts, bits) = (self.parts(), format.bits());
        let total_bits = parts.embedding as f64 * bits.embedding
            + parts.head as f64 * bits.head
            + parts.feed_forward as f64 * bits.feed_forward
            + parts.mixer as f64 * bits.mixer
            + parts.small as f64 * bits.small;
        let state = |delta: Delta| {
            delta.value_heads * delta.key_dim * delta.value_dim + delta.channels() * (TAPS - 1)
        };
        Footprint {
            weights: (total_bits / 8.0).round() as u64,
            per_token: self.attention_layers()
                * 2
                * self.key_value_heads
                * self.head_dim
                * KEY_VALUE_BYTES,
            states: self.delta.map_or(0, |delta| {
                (self.layers - self.attention_layers()) * state(delta) * STATE_BYTES
            }),
            most_context: self.context,
        }
    }

    fn attention_layers(&self) -> u64 {
        self.delta.map_or(self.layers, |delta| self.layers / delta.attention_every)
    }

    fn parts(&self) -> Parameters {
        let table = self.vocabulary * self.hidden;
        let (queries, keys) = (self.heads * self.head_dim, self.key_value_heads * self.head_dim);
        // A hybrid's query projection has the output gate beside each query.
        let gate = if self.delta.is_some() { queries } else { 0 };
        let attention = self.hidden * (queries + gate + 2 * keys + queries);
        let head_norms = if self.architecture == "llama" { 0 } else { 2 * self.head_dim };
        let attention_layers = self.attention_layers();
        let mut mixer = attention_layers * attention;
        let mut small = (2 * self.layers + 1) * self.hidden + attention_layers * head_norms;
        if let Some(delta) = self.delta {
            let layers = self.layers - attention_layers;
            let values = delta.value_heads * delta.value_dim;
            mixer += layers * self.hidden * (delta.channels() + values + values);
            // Two small projections, two arrays, the convolution, the norm.
            small += layers
                * (2 * delta.value_heads * self.hidden
                    + 2 * delta.value_heads
                    + delta.channels() * TAPS
                    + delta.value_dim);
        }
        Parameters {
            embedding: table,
            head: if self.tied { 0 } else { table },
            feed_forward: self.layers * 3 * self.hidden * self.intermediate,
            mixer,
            small,
        }
    }
}

impl Delta {
    /// Channels of the convolution: queries, keys and values.
    fn channels(&self) -> u64 {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

impl Footprint {
    /// Of an open model.
    pub fn of(graph: &Graph, weights: u64) -> Self {
        let (mut per_token, mut states) = (0, 0);
        for kind in graph.states().filter_map(|id| graph.value(id).state()) {
            match *kind {
                StateKind::KeyValue { heads, head_dim } => {
                    per_token += (2 * heads * head_dim) as u64 * KEY_VALUE_BYTES;
                }
                StateKind::ConvolutionHistory { channels, width } => {
                    states += (channels * (width - 1)) as u64 * STATE_BYTES;
                }
                StateKind::DeltaRule { heads, key_dim, value_dim } => {
                    states += (heads * key_dim * value_dim) as u64 * STATE_BYTES;
                }
            }
        }
        Footprint { weights, per_token, states, most_context: graph.limits.context as u64 }
    }

    /// Keys and values of a context, or of the longest one if that is less.
    pub fn key_values(&self, context: u64) -> u64 {
        self.per_token * context.min(self.most_context)
    }

    /// All that the model needs to run with a context.
    pub fn memory(&self, context: u64) -> u64 {
        self.weights + self.key_values(context) + self.states + OVERHEAD
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lithos_model::Model;

    use super::*;

    /// The shapes of two reference checkpoints against what their files hold.
    #[test]
    fn a_shape_is_as_large_as_a_checkpoint_of_it() {
        let dense = Shape {
            architecture: "qwen3",
            hidden: 128,
            layers: 4,
            heads: 4,
            key_value_heads: 2,
            head_dim: 64,
            intermediate: 256,
            vocabulary: 512,
            tied: false,
            context: 4096,
            delta: None,
        };
        let delta =
            Delta { attention_every: 4, key_heads: 2, value_heads: 6, key_dim: 32, value_dim: 32 };
        let hybrid = Shape { architecture: "qwen3_5", layers: 8, delta: Some(delta), ..dense };
        for (name, shape) in [("tiny_qwen3", dense), ("tiny_qwen35", hybrid)] {
            let folder =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens").join(name);
            let model = Model::open(&folder).unwrap();
            let config = model.checkpoint.config().unwrap();
            let tied = config["tie_word_embeddings"] == true;
            let size = |key: &str| config[key].as_u64().unwrap();
            let shape = Shape {
                tied,
                layers: size("num_hidden_layers"),
                head_dim: size("head_dim"),
                heads: size("num_attention_heads"),
                context: size("max_position_embeddings"),
                ..shape
            };
            assert_eq!(shape.parameters(), model.parameters(), "{name}");
            let found = shape.footprint(Format::Bf16);
            assert_eq!(found.weights, 2 * model.parameters(), "{name}");
            assert_eq!(found, Footprint::of(&model.graph, found.weights), "{name}");
        }
    }
}
