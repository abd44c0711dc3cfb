//! Shapes of models, and how large a model is: from its shape and the format of its weights. [`known`] lists shapes of
//! published models.

mod drafter;
pub mod known;

use lithos_graph::{Graph, StateKind};

pub use drafter::{DrafterShape, Yarn};

/// Bytes of a key's or a value's element: BF16.
const KEY_VALUE_BYTES: u64 = 2;

/// Bytes of an element of a recurrent state: F32.
const STATE_BYTES: u64 = 4;

/// Taps of the convolution before a delta rule.
pub const TAPS: u64 = 4;

/// Memory besides weights, keys, values and states: vocabulary, activations of a prompt, the program. The largest part
/// grows with a prefill chunk of the widest models; the tests bound it on a real model.
const OVERHEAD: u64 = 200_000_000;

/// A transformer, or a hybrid of gated delta rule layers and gated attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// `qwen3_5`, `qwen3_5_moe`, `qwen3` or `llama`.
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
    /// Width of the feed-forward network, or of an expert.
    pub intermediate: u64,
    /// Rows of the embedding table.
    pub vocabulary: u64,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Positions that the model was made for.
    pub context: u64,
    /// The delta rule of a hybrid's other layers.
    pub delta: Option<Delta>,
    /// The experts of a mixture, which stand in the place of a feed-forward network.
    pub experts: Option<Experts>,
    /// Base of the rotary frequencies.
    pub theta: f64,
    /// Factor of the `llama3` scaling of the rotary frequencies, where there is one.
    pub rotary_factor: Option<f64>,
}

/// A mixture of experts. Beside those that are chosen, one shared expert as wide as any sees every token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts of a layer to choose from.
    pub count: u64,
    /// How many are chosen for a token.
    pub chosen: u64,
}

/// The gated delta rule of `qwen3_5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// How one matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixFormat {
    /// BF16.
    Bf16,
    /// FP8 with one scale.
    Fp8,
    /// NVFP4: blocks of 16 columns with a scale in FP8.
    Nvfp4,
    /// Affine INT4, groups of 64 columns with scale and bias in BF16.
    AffineInt4,
    /// GGUF's blocks of 32 columns with a scale in F16.
    Q8_0,
}

/// How the matrices of a model are stored, by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixFormats {
    /// The embedding table.
    pub embedding: MatrixFormat,
    /// The head, where it is not the embedding table.
    pub head: MatrixFormat,
    /// Feed-forward networks and experts.
    pub feed_forward: MatrixFormat,
    /// Projections of attention and of the delta rule.
    pub mixer: MatrixFormat,
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

    /// How it stores each part's matrices. The small projections of gates and routers stay in BF16.
    pub fn matrices(self) -> MatrixFormats {
        let all = |format| MatrixFormats {
            embedding: format,
            head: format,
            feed_forward: format,
            mixer: format,
        };
        let plain = all(MatrixFormat::Bf16);
        let fp8 = MatrixFormat::Fp8;
        match self {
            Format::Bf16 => plain,
            Format::Fp8 => MatrixFormats { feed_forward: fp8, mixer: fp8, ..plain },
            Format::Nvfp4Fp8 => MatrixFormats {
                head: MatrixFormat::Nvfp4,
                feed_forward: MatrixFormat::Nvfp4,
                mixer: fp8,
                ..plain
            },
            Format::AffineInt4 => all(MatrixFormat::AffineInt4),
            Format::Q8_0 => all(MatrixFormat::Q8_0),
        }
    }

    /// Bits of a parameter that is in no matrix of a part.
    fn small_bits(self) -> f64 {
        if self == Format::Q8_0 { 32.0 } else { 16.0 }
    }
}

impl MatrixFormat {
    /// Bits of a weight, scales included.
    pub fn bits(self) -> f64 {
        match self {
            MatrixFormat::Bf16 => 16.0,
            MatrixFormat::Fp8 => 8.0,
            // Four bits, and an eight-bit scale for 16 columns.
            MatrixFormat::Nvfp4 => 4.0 + 8.0 / 16.0,
            // Four bits, and two 16-bit numbers for 64 columns.
            MatrixFormat::AffineInt4 => 4.0 + 32.0 / 64.0,
            // 34 bytes for 32 columns.
            MatrixFormat::Q8_0 => 8.0 * 34.0 / 32.0,
        }
    }
}

impl Shape {
    /// Parameters of the text model, without multi-token prediction layers.
    pub fn parameters(&self) -> u64 {
        let Parameters { embedding, head, feed_forward, mixer, small } = self.parts();
        embedding + head + feed_forward + mixer + small
    }

    /// Parameters of the multi-token prediction layer that Qwen3.5's checkpoints hold beside the text model: a
    /// projection of two features, an attention layer, three norms. 0 for other architectures.
    pub fn prediction_parameters(&self) -> u64 {
        let Some(delta) = self.delta else { return 0 };
        // One attention layer: what two models differ in of which one has a layer more.
        let layers =
            |layers| Shape { layers, delta: Some(Delta { attention_every: 1, ..delta }), ..*self };
        let layer = layers(2).parameters() - layers(1).parameters();
        2 * self.hidden * self.hidden + layer + 3 * self.hidden
    }

    /// What the model takes in a format.
    pub fn footprint(&self, format: Format) -> Footprint {
        let (parts, matrices) = (self.parts(), format.matrices());
        let total_bits = parts.embedding as f64 * matrices.embedding.bits()
            + parts.head as f64 * matrices.head.bits()
            + parts.feed_forward as f64 * matrices.feed_forward.bits()
            + parts.mixer as f64 * matrices.mixer.bits()
            + parts.small as f64 * format.small_bits();
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

    /// Layers that attend to all positions.
    pub fn attention_layers(&self) -> u64 {
        self.delta.map_or(self.layers, |delta| self.layers / delta.attention_every)
    }

    /// Whether a layer attends to all positions; the others of a hybrid follow the delta rule.
    pub fn is_attention(&self, layer: u64) -> bool {
        self.delta.is_none_or(|delta| (layer + 1).is_multiple_of(delta.attention_every))
    }

    /// Whether queries and keys are normalised per head.
    pub fn has_head_norms(&self) -> bool {
        self.architecture != "llama"
    }

    fn parts(&self) -> Parameters {
        let table = self.vocabulary * self.hidden;
        let (queries, keys) = (self.heads * self.head_dim, self.key_value_heads * self.head_dim);
        // A hybrid's query projection has the output gate beside each query.
        let gate = if self.delta.is_some() { queries } else { 0 };
        let attention = self.hidden * (queries + gate + 2 * keys + queries);
        let head_norms = if self.has_head_norms() { 2 * self.head_dim } else { 0 };
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
        let mut networks = 1;
        if let Some(experts) = self.experts {
            networks = experts.count + 1;
            // The router, and the gate of the shared expert.
            small += self.layers * self.hidden * (experts.count + 1);
        }
        Parameters {
            embedding: table,
            head: if self.tied { 0 } else { table },
            feed_forward: self.layers * networks * 3 * self.hidden * self.intermediate,
            mixer,
            small,
        }
    }
}

impl Delta {
    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> u64 {
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

    use super::*;
    use crate::Model;

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
            ..known::QWEN3_0_6B
        };
        let delta =
            Delta { attention_every: 4, key_heads: 2, value_heads: 6, key_dim: 32, value_dim: 32 };
        let hybrid = Shape { architecture: "qwen3_5", layers: 8, delta: Some(delta), ..dense };
        let mixture = Shape {
            architecture: "qwen3_5_moe",
            hidden: 64,
            key_value_heads: 1,
            intermediate: 32,
            vocabulary: 256,
            delta: Some(Delta { value_heads: 4, key_dim: 16, value_dim: 16, ..delta }),
            experts: Some(Experts { count: 8, chosen: 2 }),
            ..hybrid
        };
        let shapes = [("tiny_qwen3", dense), ("tiny_qwen35", hybrid), ("tiny_qwen35_moe", mixture)];
        for (name, shape) in shapes {
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
