//! Operations and where in the model they stand.

use crate::rotary::Rotary;
use crate::value::ValueId;

/// One operation of a graph.
#[derive(Clone, Debug)]
pub struct Op {
    /// What it computes.
    pub kind: OpKind,
    /// Values and states that it reads, in the order that [`OpKind`] documents.
    pub inputs: Vec<ValueId>,
    /// Values that it writes.
    pub outputs: Vec<ValueId>,
    /// States that it changes.
    pub updates: Vec<ValueId>,
    /// Where in the model it stands.
    pub scope: Scope,
}

/// Where in the model an operation stands. Fusion levels cut by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Layer index; `None` before the first and after the last layer.
    pub layer: Option<usize>,
    /// Part of the model or of the layer.
    pub part: Part,
}

/// A part of a model or of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The gather of token embeddings.
    Embedding,
    /// The token mixer of a layer, with its norm and residual.
    Mixer,
    /// The feed-forward network of a layer, with its norm and residual.
    FeedForward,
    /// What a drafter's context takes in of a pass.
    Draft,
    /// Final norm and vocabulary projection.
    Head,
}

/// Which positions a row's attention sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Those up to its own.
    #[default]
    Own,
    /// Those of its whole pass as well: the rows of a block see each other.
    Pass,
}

/// What an operation computes. Shapes are per row unless said otherwise; inputs are in brackets.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    /// `[table, tokens] -> y`: row `tokens[t]` of the table.
    Embedding,
    /// `[x, weight] -> y = x * rsqrt(mean(x^2) + epsilon) * (weight_offset + weight)` over groups of the weight's width:
    /// the whole row for layer norms, each head for query and key norms.
    RmsNorm {
        /// Added to the mean square.
        epsilon: f32,
        /// 1 where the checkpoint stores the weight's distance from one, else 0.
        weight_offset: f32,
    },
    /// `[x, matrix] -> y = x * matrix^T`.
    Linear,
    /// `[a, b] -> a + b`.
    Add,
    /// `[gate, up] -> silu(gate) * up`.
    SiluMultiply,
    /// `[x, gate] -> x * sigmoid(gate)`.
    SigmoidMultiply,
    /// `[x] -> y`: each head turned by its row's position.
    Rotary {
        /// Elements of a head.
        head_dim: usize,
        /// Frequencies.
        rotary: Rotary,
    },
    /// `[k, v]`, updates a key/value state: appends the rows at their positions.
    AppendKeyValue,
    /// `[q, key/value state] -> o`: softmax attention over positions up to the row's, or to its pass's last, in groups of query
    /// heads that share a key/value head.
    Attention {
        /// Query heads.
        heads: usize,
        /// Key/value heads.
        key_value_heads: usize,
        /// Elements of a head.
        head_dim: usize,
        /// Factor of the scores.
        scale: f32,
        /// Which positions are seen.
        reach: Reach,
    },
    /// `[a, b, ...] -> y`: the rows beside each other.
    Concatenate,
    /// `[u, weight, history] -> silu(depthwise causal convolution of u)`, updates the history.
    Convolution {
        /// Taps.
        width: usize,
    },
    /// `[qkv, a, b, a_log, dt_bias, state] -> o`, updates the state: the gated delta rule.
    ///
    /// Per value head `h` with key head `h / (value_heads / key_heads)`: `q`, `k` are normalised to length one (`q` then scaled by
    /// `1/sqrt(key_dim)`), `beta = sigmoid(b)`, `g = -exp(a_log) * softplus(a + dt_bias)`, then for each row
    /// `S <- e^g S`, `delta = beta (v - S^T k)`, `S <- S + k delta^T`, `o = S^T q`
    /// (Yang et al., Gated Delta Networks, arXiv 2412.06464).
    GatedDelta {
        /// Heads of queries and keys.
        key_heads: usize,
        /// Heads of values.
        value_heads: usize,
        /// Elements of a key head.
        key_dim: usize,
        /// Elements of a value head.
        value_dim: usize,
    },
    /// `[o, z, weight] -> rmsnorm(o) * weight * silu(z)` over groups of the weight's width.
    GatedNorm {
        /// Added to the mean square.
        epsilon: f32,
    },
    /// `[logits] -> routes`: the experts of a row and their weights. They are those of the `chosen` largest logits, of equal
    /// ones that with the lower index first (NaN counts as the smallest), and the weights are the softmax over these logits:
    /// what the softmax over all gives them, divided by their sum. A row of routes is `chosen` indices, then as many weights.
    Route {
        /// Experts of a row.
        chosen: usize,
    },
    /// `[x, routes, gates, ups, downs] -> y`, matrices of all experts: for each expert `e` of the row, in the order of its routes,
    /// `down_e(silu(gate_e x) * up_e x)`. Only the chosen experts' matrices are read.
    Experts {
        /// Experts of a row.
        chosen: usize,
    },
    /// `[experts, routes, shared, gate] -> y`: the sum of the row's experts times their weights, plus `shared` times the sigmoid of
    /// the row's one gate.
    Combine {
        /// Experts of a row.
        chosen: usize,
    },
}

impl OpKind {
    /// A short name for messages and listings.
    pub fn name(&self) -> &'static str {
        match self {
            OpKind::Embedding => "embedding",
            OpKind::RmsNorm { .. } => "rms_norm",
            OpKind::Linear => "linear",
            OpKind::Add => "add",
            OpKind::SiluMultiply => "silu_multiply",
            OpKind::SigmoidMultiply => "sigmoid_multiply",
            OpKind::Rotary { .. } => "rotary",
            OpKind::AppendKeyValue => "append_key_value",
            OpKind::Attention { .. } => "attention",
            OpKind::Concatenate => "concatenate",
            OpKind::Convolution { .. } => "convolution",
            OpKind::GatedDelta { .. } => "gated_delta",
            OpKind::GatedNorm { .. } => "gated_norm",
            OpKind::Route { .. } => "route",
            OpKind::Experts { .. } => "experts",
            OpKind::Combine { .. } => "combine",
        }
    }
}
