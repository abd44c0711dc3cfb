//! Qwen3.5 and 3.6 with mixtures of experts (`qwen3_5_moe`): the layers of [`qwen3_5`], with a router, experts and a shared expert
//! in the place of each feed-forward network. Equations as in Hugging Face transformers' `modeling_qwen3_5_moe`.

use lithos_format::Checkpoint;
use lithos_graph::{EXPERT, Graph, GraphBuilder, RowMap, ValueId};

use crate::architectures::qwen3_5::{self, FeedForward};
use crate::architectures::{Architecture, WeightLoader};
use crate::config::Config;
use crate::model::ModelError;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
    from_config,
    from_gguf: None,
    further: Some(further_from_config),
};

/// Sizes of a mixture of experts.
pub(super) struct Mixture {
    experts: usize,
    chosen: usize,
    /// Width of an expert.
    intermediate: usize,
    /// Width of the shared expert.
    shared: usize,
}

fn from_config(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Graph, ModelError> {
    let mixture = FeedForward::Mixture(mixture(checkpoint, config)?);
    qwen3_5::describe(checkpoint, config, "qwen3_5_moe", mixture)
}

fn further_from_config(
    checkpoint: &Checkpoint,
    config: &Config<'_>,
    target: &Graph,
    builder: &mut GraphBuilder,
) -> Result<Graph, ModelError> {
    let mixture = FeedForward::Mixture(mixture(checkpoint, config)?);
    qwen3_5::describe_further(checkpoint, config, mixture, target, builder)
}

fn mixture(checkpoint: &Checkpoint, config: &Config<'_>) -> Result<Mixture, ModelError> {
    let mixture = Mixture {
        experts: config.size("num_experts")?,
        chosen: config.size("num_experts_per_tok")?,
        intermediate: config.size("moe_intermediate_size")?,
        shared: config.size("shared_expert_intermediate_size")?,
    };
    let fail = |problem: &str| {
        let file = super::config_file(checkpoint);
        Err(ModelError::Config { file, problem: problem.into() })
    };
    // Weights of a row's experts are always divided by their sum, and every layer has a mixture.
    if !config.flag_or("norm_topk_prob", true)? {
        return fail("norm_topk_prob false is not supported");
    }
    if config.optional_size("decoder_sparse_step")?.is_some_and(|step| step != 1) {
        return fail("decoder_sparse_step other than 1 is not supported");
    }
    if config.lists_something("mlp_only_layers")? {
        return fail("mlp_only_layers is not supported");
    }
    Ok(mixture)
}

impl Mixture {
    /// `combine(experts(x), shared(x))`. Independent projections come first, so that they can share a phase.
    pub(super) fn build(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        x: ValueId,
        name: impl Fn(&str) -> String,
        hidden: usize,
    ) -> Result<ValueId, ModelError> {
        let project = |b: &mut GraphBuilder, part: &str, short, x, rows, columns| {
            let matrix = weights.matrix(b, name(part), RowMap::All, rows, columns)?;
            Ok::<_, ModelError>(b.linear(short, x, matrix))
        };
        let logits = project(b, "mlp.gate", "router", x, self.experts, hidden)?;
        let shared_gate = project(b, "mlp.shared_expert_gate", "shared_expert_gate", x, 1, hidden)?;
        let shared = "mlp.shared_expert.";
        let gate = project(b, &format!("{shared}gate_proj"), "gate", x, self.shared, hidden)?;
        let up = project(b, &format!("{shared}up_proj"), "up", x, self.shared, hidden)?;
        let activated = b.silu_multiply("activated", gate, up);
        let routes = b.route("routes", logits, self.chosen);
        let down = format!("{shared}down_proj");
        let shared = project(b, &down, "shared_expert", activated, hidden, self.shared)?;
        let matrices = self.matrices(b, weights, &name, hidden)?;
        let experts = b.experts("experts", x, routes, matrices);
        Ok(b.combine("combined", experts, routes, shared, shared_gate))
    }

    /// Gates, ups and downs: of one tensor for all experts, as Hugging Face publishes them, or of one for each, as quantized files and
    /// transformers' own have them.
    fn matrices(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        name: impl Fn(&str) -> String,
        hidden: usize,
    ) -> Result<[ValueId; 3], ModelError> {
        let (experts, inner) = (self.experts, self.intermediate);
        let (gate_up, down) = (name("mlp.experts.gate_up_proj"), name("mlp.experts.down_proj"));
        if weights.checkpoint.tensor(&gate_up).is_some() {
            let part = |offset| RowMap::HeadPart { rows: inner, stride: 2 * inner, offset };
            let shape = [experts, inner, hidden];
            return Ok([
                weights.stacked_experts(b, gate_up.clone(), part(0), shape)?,
                weights.stacked_experts(b, gate_up, part(inner), shape)?,
                weights.stacked_experts(b, down, RowMap::All, [experts, hidden, inner])?,
            ]);
        }
        let of_each = |part: &str| name(&format!("mlp.experts.{EXPERT}.{part}_proj"));
        Ok([
            weights.experts(b, of_each("gate"), [experts, inner, hidden])?,
            weights.experts(b, of_each("up"), [experts, inner, hidden])?,
            weights.experts(b, of_each("down"), [experts, hidden, inner])?,
        ])
    }
}
