//! The tensors of a checkpoint, by shape and format: names and layouts as in the published files.

use lithos_format::{DType, GeneratedTensor};
use lithos_model::shape::{Delta, DrafterShape, Experts, Format, MatrixFormat, Shape, TAPS};

use crate::bytes::{Key, RandomBytes, Recipe};
use crate::distribution::{Distribution, MatrixRecipe, Tables};

/// Deviation of logits: the weights of embedding table and head are so much larger than the inverse root of the width.
/// With less, a vocabulary of 250,000 tokens would be one plateau.
const LOGIT_SPREAD: f64 = 3.0;

/// Deviation of norm weights from their mean.
const NORM_SPREAD: f64 = 0.1;

/// The tensors of a language model: the text model and, of a hybrid, its multi-token prediction layer.
pub(crate) fn of_model(shape: &Shape, format: Format, seed: u64) -> Vec<GeneratedTensor> {
    let mut list = List::new(seed);
    let matrices = format.matrices();
    let prefix = if shape.delta.is_some() { "model.language_model." } else { "model." };
    let layers = Layers {
        shape,
        mixer: matrices.mixer,
        feed_forward: matrices.feed_forward,
        // Qwen3.5 stores the distance of these norms from one.
        norm: if shape.delta.is_some() { 0.0 } else { 1.0 },
    };
    let (rows, cols) = (size(shape.vocabulary), size(shape.hidden));
    list.spread_matrix(&format!("{prefix}embed_tokens"), rows, cols, matrices.embedding);
    for layer in 0..shape.layers {
        let name = format!("{prefix}layers.{layer}.");
        layers.add(&mut list, &name, shape.delta.filter(|_| !shape.is_attention(layer)));
    }
    list.norm(&format!("{prefix}norm.weight"), shape.hidden, layers.norm);
    if !shape.tied {
        list.spread_matrix("lm_head", rows, cols, matrices.head);
    }
    if shape.delta.is_some() {
        let plain =
            Layers { mixer: MatrixFormat::Bf16, feed_forward: MatrixFormat::Bf16, ..layers };
        list.matrix("mtp.fc", cols, 2 * cols, MatrixFormat::Bf16);
        for norm in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"] {
            list.norm(&format!("mtp.{norm}.weight"), shape.hidden, plain.norm);
        }
        plain.add(&mut list, "mtp.layers.0.", None);
    }
    list.tensors
}

/// The tensors of a DSpark drafter. In a quantized one the tables of the small heads and all vectors stay in BF16.
pub(crate) fn of_drafter(
    shape: &DrafterShape,
    format: MatrixFormat,
    seed: u64,
) -> Vec<GeneratedTensor> {
    let mut list = List::new(seed);
    let [hidden, features, rank, vocabulary, intermediate] = [
        shape.hidden,
        shape.taps.len() as u64 * shape.target_hidden,
        shape.markov_rank,
        shape.vocabulary,
        shape.intermediate,
    ]
    .map(size);
    list.matrix("fc", hidden, features, format);
    list.norm("hidden_norm.weight", shape.hidden, 1.0);
    let attention = Attention {
        hidden: shape.hidden,
        queries: shape.heads * shape.head_dim,
        outputs: shape.heads * shape.head_dim,
        keys: shape.key_value_heads * shape.head_dim,
        head_norm: Some(shape.head_dim),
        norm: 1.0,
        format,
    };
    for layer in 0..shape.layers {
        let name = format!("layers.{layer}.");
        list.norm(&format!("{name}input_layernorm.weight"), shape.hidden, 1.0);
        attention.add(&mut list, &name);
        list.norm(&format!("{name}post_attention_layernorm.weight"), shape.hidden, 1.0);
        list.feed_forward(&format!("{name}mlp."), hidden, intermediate, format);
    }
    list.norm("norm.weight", shape.hidden, 1.0);
    list.matrix("markov_head.markov_w1", vocabulary, rank, MatrixFormat::Bf16);
    list.matrix("markov_head.markov_w2", vocabulary, rank, format);
    list.matrix("confidence_head.proj", 1, hidden + rank, MatrixFormat::Bf16);
    let small = Distribution::Normal { mean: 0.0, deviation: 0.1 };
    list.array("confidence_head.proj.bias", &[1], small);
    list.tensors
}

/// Sizes of known shapes are far below 2^32.
fn size(extent: u64) -> usize {
    extent as usize
}

/// Tensors as they are added, each with a recipe for its bytes.
struct List {
    seed: u64,
    tables: Tables,
    tensors: Vec<GeneratedTensor>,
}

impl List {
    fn new(seed: u64) -> Self {
        List { seed, tables: Tables::new(), tensors: Vec::new() }
    }

    fn push(&mut self, name: String, dtype: DType, shape: &[usize], recipe: Recipe) {
        let key = Key::new(self.seed, &name);
        self.push_with_key(key, name, dtype, shape, recipe);
    }

    fn push_with_key(
        &mut self,
        key: Key,
        name: String,
        dtype: DType,
        shape: &[usize],
        recipe: Recipe,
    ) {
        let source = Box::new(RandomBytes { key, recipe });
        self.tensors.push(GeneratedTensor { name, dtype, shape: shape.to_vec(), source });
    }

    /// A small BF16 tensor.
    fn array(&mut self, name: &str, shape: &[usize], distribution: Distribution) {
        let recipe = self.tables.array(distribution);
        self.push(name.to_owned(), DType::Bf16, shape, recipe);
    }

    fn norm(&mut self, name: &str, width: u64, mean: f64) {
        let distribution = Distribution::Normal { mean, deviation: NORM_SPREAD };
        self.array(name, &[size(width)], distribution);
    }

    /// A matrix whose outputs are spread as its inputs.
    fn matrix(&mut self, base: &str, rows: usize, cols: usize, format: MatrixFormat) {
        self.matrix_of(base, rows, cols, format, 1.0 / (cols as f64).sqrt());
    }

    /// A matrix whose outputs are logits.
    fn spread_matrix(&mut self, base: &str, rows: usize, cols: usize, format: MatrixFormat) {
        self.matrix_of(base, rows, cols, format, LOGIT_SPREAD / (cols as f64).sqrt());
    }

    /// `down(silu(gate x) * up x)`.
    fn feed_forward(&mut self, prefix: &str, hidden: usize, inner: usize, format: MatrixFormat) {
        self.matrix(&format!("{prefix}gate_proj"), inner, hidden, format);
        self.matrix(&format!("{prefix}up_proj"), inner, hidden, format);
        self.matrix(&format!("{prefix}down_proj"), hidden, inner, format);
    }

    fn matrix_of(
        &mut self,
        base: &str,
        rows: usize,
        cols: usize,
        format: MatrixFormat,
        deviation: f64,
    ) {
        let name = |suffix: &str| format!("{base}.{suffix}");
        let recipe = match format {
            MatrixFormat::Bf16 => self.tables.bf16(deviation),
            MatrixFormat::Fp8 => self.tables.fp8(deviation),
            MatrixFormat::Nvfp4 => self.tables.nvfp4(deviation),
            // Q8_0 exists in GGUF files only; no name asks for it.
            MatrixFormat::AffineInt4 | MatrixFormat::Q8_0 => self.tables.affine_int4(deviation),
        };
        match recipe {
            MatrixRecipe::Bf16 { weight } => {
                self.push(name("weight"), DType::Bf16, &[rows, cols], weight);
            }
            MatrixRecipe::Fp8 { weight, scale } => {
                self.push(name("weight"), DType::F8E4m3, &[rows, cols], weight);
                self.push(name("weight_scale"), DType::F32, &[], Recipe::Constant(scale));
            }
            MatrixRecipe::Nvfp4 { weight, scales, scale } => {
                self.push(name("weight"), DType::U8, &[rows, cols / 2], weight);
                self.push(name("weight_scale"), DType::F8E4m3, &[rows, cols / 16], scales);
                self.push(name("weight_scale_2"), DType::F32, &[], Recipe::Constant(scale));
            }
            MatrixRecipe::AffineInt4 { weight, scales, biases } => {
                let groups = [rows, cols / 64];
                self.push(name("weight"), DType::U32, &[rows, cols / 8], weight);
                // A group's bias belongs to its scale: both are drawn by the same bits.
                let key = Key::new(self.seed, &name("scales"));
                self.push_with_key(key, name("scales"), DType::Bf16, &groups, scales);
                self.push_with_key(key, name("biases"), DType::Bf16, &groups, biases);
            }
        }
    }
}

/// What the layers of a model have in common.
#[derive(Clone, Copy)]
struct Layers<'a> {
    shape: &'a Shape,
    mixer: MatrixFormat,
    feed_forward: MatrixFormat,
    /// Mean of the weights of layer and head norms.
    norm: f64,
}

impl Layers<'_> {
    /// One layer; with a delta rule in the place of attention if there is one.
    fn add(&self, list: &mut List, name: &str, delta: Option<Delta>) {
        let shape = self.shape;
        list.norm(&format!("{name}input_layernorm.weight"), shape.hidden, self.norm);
        match delta {
            Some(delta) => self.delta_rule(list, &format!("{name}linear_attn."), delta),
            None => self.attention().add(list, name),
        }
        list.norm(&format!("{name}post_attention_layernorm.weight"), shape.hidden, self.norm);
        let (hidden, inner) = (size(shape.hidden), size(shape.intermediate));
        match shape.experts {
            Some(experts) => self.mixture(list, &format!("{name}mlp."), experts),
            None => list.feed_forward(&format!("{name}mlp."), hidden, inner, self.feed_forward),
        }
    }

    fn attention(&self) -> Attention {
        let shape = self.shape;
        let outputs = shape.heads * shape.head_dim;
        Attention {
            hidden: shape.hidden,
            // A hybrid's query projection has the output gate beside each query.
            queries: if shape.delta.is_some() { 2 * outputs } else { outputs },
            outputs,
            keys: shape.key_value_heads * shape.head_dim,
            head_norm: shape.has_head_norms().then_some(shape.head_dim),
            norm: self.norm,
            format: self.mixer,
        }
    }

    fn delta_rule(&self, list: &mut List, name: &str, delta: Delta) {
        let [hidden, channels, heads, values] = [
            self.shape.hidden,
            delta.channels(),
            delta.value_heads,
            delta.value_heads * delta.value_dim,
        ]
        .map(size);
        list.matrix(&format!("{name}in_proj_qkv"), channels, hidden, self.mixer);
        list.matrix(&format!("{name}in_proj_z"), values, hidden, self.mixer);
        list.matrix(&format!("{name}in_proj_b"), heads, hidden, MatrixFormat::Bf16);
        list.matrix(&format!("{name}in_proj_a"), heads, hidden, MatrixFormat::Bf16);
        let deviation = 1.0 / (TAPS as f64).sqrt();
        let taps = Distribution::Normal { mean: 0.0, deviation };
        list.array(&format!("{name}conv1d.weight"), &[channels, 1, size(TAPS)], taps);
        list.array(&format!("{name}A_log"), &[heads], Distribution::DecayLogarithm);
        list.array(&format!("{name}dt_bias"), &[heads], Distribution::StepBias);
        // The gated norm stores its weight itself.
        list.norm(&format!("{name}norm.weight"), delta.value_dim, 1.0);
        list.matrix(&format!("{name}out_proj"), hidden, values, self.mixer);
    }

    /// BF16 files hold all experts of a layer in two tensors, quantized ones each expert's matrices.
    fn mixture(&self, list: &mut List, name: &str, experts: Experts) {
        let [hidden, inner, count] =
            [self.shape.hidden, self.shape.intermediate, experts.count].map(size);
        list.matrix(&format!("{name}gate"), count, hidden, MatrixFormat::Bf16);
        list.matrix(&format!("{name}shared_expert_gate"), 1, hidden, MatrixFormat::Bf16);
        list.feed_forward(&format!("{name}shared_expert."), hidden, inner, self.feed_forward);
        if self.feed_forward == MatrixFormat::Bf16 {
            let mut fused = |part: &str, rows: usize, cols: usize| {
                let deviation = 1.0 / (cols as f64).sqrt();
                let distribution = Distribution::Normal { mean: 0.0, deviation };
                let name = format!("{name}experts.{part}");
                list.array(&name, &[count, rows, cols], distribution);
            };
            fused("gate_up_proj", 2 * inner, hidden);
            fused("down_proj", hidden, inner);
        } else {
            for expert in 0..count {
                let name = format!("{name}experts.{expert}.");
                list.feed_forward(&name, hidden, inner, self.feed_forward);
            }
        }
    }
}

/// The projections of an attention layer.
struct Attention {
    hidden: u64,
    /// Rows of the query projection.
    queries: u64,
    /// Columns of the output projection.
    outputs: u64,
    /// Rows of the key and of the value projection.
    keys: u64,
    /// Width of the norms of queries and keys.
    head_norm: Option<u64>,
    /// Mean of their weights.
    norm: f64,
    format: MatrixFormat,
}

impl Attention {
    fn add(&self, list: &mut List, layer: &str) {
        let [hidden, queries, outputs, keys] =
            [self.hidden, self.queries, self.outputs, self.keys].map(size);
        let name = |part: &str| format!("{layer}self_attn.{part}");
        list.matrix(&name("q_proj"), queries, hidden, self.format);
        list.matrix(&name("k_proj"), keys, hidden, self.format);
        list.matrix(&name("v_proj"), keys, hidden, self.format);
        list.matrix(&name("o_proj"), hidden, outputs, self.format);
        if let Some(width) = self.head_norm {
            list.norm(&name("q_norm.weight"), width, self.norm);
            list.norm(&name("k_norm.weight"), width, self.norm);
        }
    }
}

#[cfg(test)]
mod tests {
    use lithos_model::shape::known;

    use super::*;

    fn parameters(tensors: &[GeneratedTensor]) -> u64 {
        tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>() as u64).sum()
    }

    #[test]
    fn a_model_has_the_parameters_of_its_shape() {
        let shapes = [
            known::SMOLLM2_135M,
            known::QWEN3_0_6B,
            known::QWEN3_5_0_8B,
            known::QWEN3_5_27B,
            known::QWEN3_5_35B_A3B,
            known::LLAMA_3_2_1B,
            known::LLAMA_3_1_70B,
        ];
        for shape in shapes {
            let found = parameters(&of_model(&shape, Format::Bf16, 0));
            assert_eq!(found, shape.parameters() + shape.prediction_parameters(), "{shape:?}");
        }
        let drafter = of_drafter(&known::QWEN3_8_27B_DSPARK, MatrixFormat::Bf16, 0);
        assert_eq!(parameters(&drafter), known::QWEN3_8_27B_DSPARK.parameters());
        assert_eq!(drafter.len(), 62);
    }

    #[test]
    fn a_mixed_export_has_as_many_quantized_matrices_as_nvidias() {
        let tensors = of_model(&known::QWEN3_5_27B, Format::Nvfp4Fp8, 0);
        let count = |suffix: &str| tensors.iter().filter(|t| t.name.ends_with(suffix)).count();
        // NVIDIA's export of Qwen3.6-27B: 193 in NVFP4, 208 in FP8.
        assert_eq!(count(".weight_scale_2"), 193);
        assert_eq!(count(".weight_scale"), 193 + 208);
        // RadixArk's drafter as exported by LithosAI: 37.
        let drafter = of_drafter(&known::QWEN3_8_27B_DSPARK, MatrixFormat::Nvfp4, 0);
        let quantized = drafter.iter().filter(|t| t.name.ends_with(".weight_scale_2")).count();
        assert_eq!(quantized, 37);
    }
}
