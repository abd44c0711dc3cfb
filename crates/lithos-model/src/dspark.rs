//! DSpark drafters (arXiv 2607.05147): a small transformer that proposes a block of tokens at once.
//!
//! A drafter reads features of its target: the residual stream after some of its layers (the taps), through `fc` and a norm. Keys and
//! values of every position that the target has taken in come from them, so they are made by the target's own pass, which this adds to
//! the target's graph. A block is a pass of another graph over the same states: the last token and masks, whose rows see each other and
//! all positions before. Its logits are corrected from left to right by the Markov head, and the confidence head says how likely each
//! token is accepted; both are small and are left to the caller ([`DraftHead`]).

mod markov;

use std::collections::BTreeMap;
use std::path::Path;

use lithos_format::Checkpoint;
use lithos_graph::{
    Graph, GraphBuilder, Op, OpKind, Part, Reach, Rotary, RowMap, StateKind, ValueId,
};
use serde_json::Value;

use crate::architectures::{WeightLoader, feed_forward};
use crate::config::Config;
use crate::model::{Model, ModelError};
pub use markov::{Markov, Projection};
use markov::{MarkovKind, sigmoid};

/// What the drafter's tensors are called beside the target's.
const PREFIX: &str = "draft.";

/// A drafter that was added to a model.
pub struct Drafter {
    /// The pass over a block. It shares values, states among them, with the model's graph.
    pub block: Graph,
    /// What becomes of the block's rows.
    pub head: DraftHead,
}

/// The Markov and confidence heads of a drafter, and what goes into a block.
#[derive(Clone, Debug)]
pub struct DraftHead {
    /// Rows of a block, each of which proposes a token.
    pub block: usize,
    /// The token that stands for those to be proposed.
    pub mask: u32,
    /// Weight of the norm of a block's rows before the heads, and what is added to the mean square.
    pub norm: (Vec<f32>, f32),
    /// Rank of the Markov head.
    pub rank: usize,
    /// `[vocabulary, rank]`: what a token is to the one after it.
    pub markov_from: Vec<f32>,
    /// `[vocabulary, rank]`: what a token wants of the one before it.
    pub markov_to: Vec<f32>,
    /// What lies between the tables.
    pub markov: Markov,
    /// The confidence head, if there is one.
    pub confidence: Option<Confidence>,
}

/// How likely a proposed token is accepted: `sigmoid((weight . [row, markov_from] + bias) / temperature)`.
#[derive(Clone, Debug)]
pub struct Confidence {
    /// For the normed row, then for the Markov head's vector if it is read.
    pub weight: Vec<f32>,
    /// Added.
    pub bias: f32,
    /// Of each place in the block, from calibration.
    pub temperatures: Vec<f32>,
}

/// What a configuration says of a drafter.
struct Sizes {
    hidden: usize,
    layers: usize,
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
    intermediate: usize,
    epsilon: f32,
    rotary: Rotary,
    taps: Vec<usize>,
    block: usize,
    mask: u32,
    rank: usize,
    markov: MarkovKind,
}

/// Adds a drafter to a model: its context to the model's graph, its tensors to the model's checkpoint.
///
/// # Errors
/// [`ModelError`] if the drafter was made for another model, or is of a kind that is not supported; before weights are read.
pub fn attach(model: Model, drafter: Checkpoint) -> Result<(Model, Drafter), ModelError> {
    let file = drafter.path().join("config.json");
    let Some(config) = drafter.config().cloned() else {
        let problem = "no config.json beside the drafter's weights".to_owned();
        return Err(ModelError::Config { file, problem });
    };
    let sizes = Sizes::read(&config, &file, &model.graph)?;
    sizes.check_tensors(&drafter, &file, &model.graph)?;
    check_tokenizer(&model.checkpoint, &drafter)?;
    let Model { checkpoint, mut graph, notices } = model;
    let checkpoint = checkpoint.with_part(PREFIX, drafter)?;
    let weights = WeightLoader { checkpoint: &checkpoint };
    let mut builder = GraphBuilder::continuing(&graph);
    let mut states = Vec::new();
    let (features, context) = sizes.context(&mut builder, &weights, &graph, &mut states)?;
    let mut block = sizes.block_graph(&mut builder, &weights, &graph, &states)?;
    for (layer, ops) in features {
        let after = last_of_layer(&graph, layer).map_or(0, |(index, _)| index + 1);
        graph.ops.splice(after..after, ops);
    }
    let head = graph.ops.iter().position(|op| op.scope.part == Part::Head);
    let head = head.unwrap_or(graph.ops.len());
    graph.ops.splice(head..head, context);
    graph.values = builder.values().to_vec();
    block.values.clone_from(&graph.values);
    graph.validate()?;
    block.validate()?;
    let head = sizes.head(&checkpoint, &config, graph.limits.vocabulary)?;
    Ok((Model { checkpoint, graph, notices }, Drafter { block, head }))
}

/// The last operation of a layer and what it writes: the residual stream after it.
fn last_of_layer(graph: &Graph, layer: usize) -> Option<(usize, ValueId)> {
    let index = graph.ops.iter().rposition(|op| op.scope.layer == Some(layer))?;
    Some((index, *graph.ops[index].outputs.first()?))
}

/// A field at the top of a configuration or in one of the objects that drafters put theirs in.
fn field<'c>(config: &'c Value, key: &str) -> Option<&'c Value> {
    let nested = ["dspark_config", "dflash_config"].map(|object| config.get(object));
    let inner = nested.into_iter().flatten().find_map(|object| object.get(key));
    let prefixed = || config.get(format!("dspark_{key}"));
    inner.or_else(|| config.get(key)).or_else(prefixed).filter(|value| !value.is_null())
}

impl Sizes {
    fn read(config: &Value, file: &Path, target: &Graph) -> Result<Self, ModelError> {
        let wrong = |problem: String| ModelError::Config { file: file.to_path_buf(), problem };
        let read = Config::text_model(config, file.to_path_buf());
        read.require_silu()?;
        read.require_unset("attention_bias")?;
        let number = |key: &str| {
            let value = field(config, key).map(|value| {
                value
                    .as_u64()
                    .ok_or_else(|| wrong(format!("`{key}` must be a number, found {value}")))
            });
            value.transpose()
        };
        let required = |key: &str| number(key)?.ok_or_else(|| wrong(format!("`{key}` is missing")));
        if field(config, "target_layer_ids").is_none() {
            return Err(wrong("this is no DSpark drafter: `target_layer_ids` is missing".into()));
        }
        let vocabulary = number("draft_vocab_size")?
            .map_or_else(|| read.size("vocab_size"), |size| Ok(size as usize))?;
        let limits = target.limits;
        if vocabulary != limits.vocabulary {
            return Err(wrong(format!(
                "the drafter was made for a vocabulary of {vocabulary} tokens, and the model has {}",
                limits.vocabulary
            )));
        }
        if let Some(layers) = number("num_target_layers")?
            && layers as usize != limits.layers
        {
            return Err(wrong(format!(
                "the drafter was made for a model of {layers} layers, and the model has {}",
                limits.layers
            )));
        }
        let width = target_width(target);
        if let Some(wanted) = number("target_hidden_size")?
            && width.is_some_and(|width| width as u64 != wanted)
        {
            return Err(wrong(format!(
                "the drafter was made for a model {wanted} wide, and the model is {}",
                width.unwrap_or(0)
            )));
        }
        let kind =
            field(config, "markov_head_type").map_or("vanilla", |k| k.as_str().unwrap_or(""));
        let markov = MarkovKind::ALL.into_iter().find(|known| known.name() == kind);
        let markov = markov.ok_or_else(|| {
            let known = MarkovKind::ALL.map(MarkovKind::name).join(", ");
            wrong(format!("markov_head_type \"{kind}\" is not supported (supported: {known})"))
        })?;
        let mask = required("mask_token_id")?;
        if mask >= vocabulary as u64 {
            return Err(wrong(format!(
                "`mask_token_id` is {mask}, outside the vocabulary of {vocabulary} tokens"
            )));
        }
        if let Some(kinds) = read.layer_types()?
            && let Some(other) = kinds.iter().find(|kind| *kind != "full_attention")
        {
            return Err(wrong(format!("layer type \"{other}\" is not supported in a drafter")));
        }
        let taps: Option<Vec<usize>> = field(config, "target_layer_ids")
            .and_then(Value::as_array)
            .and_then(|ids| ids.iter().map(|id| id.as_u64().map(|id| id as usize)).collect());
        let taps = taps.filter(|taps| !taps.is_empty() && taps.is_sorted()).ok_or_else(|| {
            wrong("`target_layer_ids` must be a list of layers in ascending order".into())
        })?;
        if let Some(tap) = taps.iter().find(|tap| **tap >= limits.layers) {
            return Err(wrong(format!(
                "the drafter reads layer {tap}, and the model has {}",
                limits.layers
            )));
        }
        let (hidden, heads) = (read.size("hidden_size")?, read.size("num_attention_heads")?);
        let head_dim = read.optional_size("head_dim")?.unwrap_or(hidden / heads);
        Ok(Sizes {
            hidden,
            layers: read.size("num_hidden_layers")?,
            heads,
            key_value_heads: read.optional_size("num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            intermediate: read.size("intermediate_size")?,
            epsilon: read.number_or("rms_norm_eps", 1e-6)? as f32,
            rotary: read.drafter_rotary(head_dim)?,
            taps,
            block: number("block_size")?.unwrap_or(7).clamp(1, 16) as usize,
            mask: mask as u32,
            rank: required("markov_rank")? as usize,
            markov,
        })
    }

    /// What can be said of a drafter's tensors before they are the model's: that it has those of its Markov head, and that tables which it
    /// shares with the model are as wide as it is.
    fn check_tensors(
        &self,
        drafter: &Checkpoint,
        file: &Path,
        target: &Graph,
    ) -> Result<(), ModelError> {
        let wrong = |problem| Err(ModelError::Config { file: file.to_path_buf(), problem });
        let has = |name: &str| {
            [name.to_owned(), format!("model.{name}")].iter().any(|name| drafter.has_matrix(name))
        };
        if let Some(projection) = self.markov.projection()
            && !has(&format!("markov_head.{projection}"))
        {
            return wrong(format!(
                "markov_head_type is \"{}\", and the tensor `markov_head.{projection}.weight` is missing",
                self.markov.name()
            ));
        }
        match target_width(target) {
            Some(width) if width != self.hidden && !(has("embed_tokens") && has("lm_head")) => {
                wrong(format!(
                    "the drafter is {} wide and shares tables with the model, which is {width} wide: it was made for another model",
                    self.hidden
                ))
            }
            _ => Ok(()),
        }
    }

    /// A tensor's name within the joined checkpoint.
    fn name(name: &str) -> String {
        format!("{PREFIX}{name}")
    }

    /// What the target's pass does for the drafter: operations after each tapped layer, and those before the target's head.
    #[expect(
        clippy::type_complexity,
        reason = "operations by the layer that they follow, and others"
    )]
    fn context(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        target: &Graph,
        states: &mut Vec<ValueId>,
    ) -> Result<(Vec<(usize, Vec<Op>)>, Vec<Op>), ModelError> {
        let mut after = Vec::new();
        let mut features: Option<ValueId> = None;
        let mut width = 0;
        for layer in &self.taps {
            let Some((_, residual)) = last_of_layer(target, *layer) else { continue };
            b.scope(Some(*layer), Part::FeedForward);
            // Copied at once: the next layer adds to the residual stream in place.
            let inputs = features.into_iter().chain([residual]).collect();
            features = Some(b.concatenate("features", inputs));
            width += target.value(residual).width();
            after.push((*layer, b.take_ops()));
        }
        b.scope(None, Part::Draft);
        let fc = weights.matrix(b, Self::name("fc"), RowMap::All, self.hidden, width)?;
        let norm = weights.array(b, Self::name("hidden_norm.weight"), &[self.hidden])?;
        let Some(features) = features else { return Ok((after, Vec::new())) };
        let f = b.linear("features", features, fc);
        let f = b.rms_norm("hidden_norm", f, norm, self.epsilon, 0.0);
        for layer in 0..self.layers {
            let (k, v) = self.keys_and_values(b, weights, layer, f)?;
            let kind = StateKind::KeyValue { heads: self.key_value_heads, head_dim: self.head_dim };
            let state = b.state(&format!("key_value.{layer}"), kind);
            b.append_key_value(k, v, state);
            states.push(state);
        }
        Ok((after, b.take_ops()))
    }

    /// Keys, normed and turned, and values of a layer.
    fn keys_and_values(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        layer: usize,
        x: ValueId,
    ) -> Result<(ValueId, ValueId), ModelError> {
        let name = |name: &str| Self::name(&format!("layers.{layer}.self_attn.{name}"));
        let width = self.key_value_heads * self.head_dim;
        let mut project = |short: &str| {
            let matrix = name(&format!("{short}_proj"));
            let matrix = weights.matrix(b, matrix, RowMap::All, width, self.hidden)?;
            Ok::<_, ModelError>(b.linear(short, x, matrix))
        };
        let (k, v) = (project("k")?, project("v")?);
        let norm = weights.array(b, name("k_norm.weight"), &[self.head_dim])?;
        let k = b.rms_norm("k_norm", k, norm, self.epsilon, 0.0);
        Ok((b.rotary("k_rotary", k, self.head_dim, &self.rotary), v))
    }

    /// The pass over a block.
    fn block_graph(
        &self,
        b: &mut GraphBuilder,
        weights: &WeightLoader<'_>,
        target: &Graph,
        states: &[ValueId],
    ) -> Result<Graph, ModelError> {
        let limits = target.limits;
        b.scope(None, Part::Embedding);
        let own = |b: &mut GraphBuilder, name: &str| {
            let name = Self::name(name);
            let there = weights.checkpoint.has_matrix(&name);
            let load = |b| weights.matrix(b, name, RowMap::All, limits.vocabulary, self.hidden);
            there.then(|| load(b)).transpose()
        };
        let shared = |kind: OpKind, output: Option<ValueId>| {
            let reads = |op: &&Op| op.kind == kind && output.is_none_or(|id| op.outputs == [id]);
            target.ops.iter().find(reads).map(|op| op.inputs[usize::from(output.is_some())])
        };
        let missing = || ModelError::MissingTensor {
            file: weights.checkpoint.path().to_path_buf(),
            tensor: "embed_tokens".into(),
        };
        let table = match own(b, "embed_tokens")? {
            Some(table) => table,
            None => shared(OpKind::Embedding, None).ok_or_else(missing)?,
        };
        let mut h = b.embedding(table);
        for (layer, state) in states.iter().enumerate() {
            let name = |name: &str| Self::name(&format!("layers.{layer}.{name}"));
            b.scope(Some(layer), Part::Mixer);
            let norm = weights.array(b, name("input_layernorm.weight"), &[self.hidden])?;
            let x = b.rms_norm("norm", h, norm, self.epsilon, 0.0);
            let queries = self.heads * self.head_dim;
            let matrix = name("self_attn.q_proj");
            let matrix = weights.matrix(b, matrix, RowMap::All, queries, self.hidden)?;
            let q = b.linear("q", x, matrix);
            let (k, v) = self.keys_and_values(b, weights, layer, x)?;
            let norm = weights.array(b, name("self_attn.q_norm.weight"), &[self.head_dim])?;
            let q = b.rms_norm("q_norm", q, norm, self.epsilon, 0.0);
            let q = b.rotary("q_rotary", q, self.head_dim, &self.rotary);
            b.append_key_value(k, v, *state);
            let scale = 1.0 / (self.head_dim as f32).sqrt();
            let o = b.attention_within("core", q, *state, self.heads, scale, Reach::Pass);
            let matrix = name("self_attn.o_proj");
            let matrix = weights.matrix(b, matrix, RowMap::All, self.hidden, queries)?;
            let mixed = b.linear("output", o, matrix);
            h = b.add("residual", h, mixed);
            b.scope(Some(layer), Part::FeedForward);
            let norm = weights.array(b, name("post_attention_layernorm.weight"), &[self.hidden])?;
            let x = b.rms_norm("norm", h, norm, self.epsilon, 0.0);
            let y = feed_forward(b, weights, x, name, self.hidden, self.intermediate)?;
            h = b.add("residual", h, y);
        }
        b.scope(None, Part::Head);
        let norm = weights.array(b, Self::name("norm.weight"), &[self.hidden])?;
        let x = b.rms_norm("norm", h, norm, self.epsilon, 0.0);
        let head = match own(b, "lm_head")? {
            Some(head) => head,
            None => shared(OpKind::Linear, Some(target.logits)).ok_or_else(missing)?,
        };
        let logits = b.linear("logits", x, head);
        Ok(Graph {
            architecture: "dspark".into(),
            values: b.values().to_vec(),
            ops: b.take_ops(),
            tokens: b.tokens(),
            logits,
            limits,
        })
    }

    /// Reads the Markov and confidence heads.
    fn head(
        &self,
        checkpoint: &Checkpoint,
        config: &Value,
        vocabulary: usize,
    ) -> Result<DraftHead, ModelError> {
        let array = |name: &str| crate::weights::array(checkpoint, &Self::name(name));
        let table = |name: &str| {
            let tensor = Self::name(&format!("markov_head.{name}"));
            let matrix = checkpoint.matrix(&tensor)?;
            if (matrix.rows(), matrix.cols()) != (vocabulary, self.rank) {
                return Err(ModelError::Shape {
                    file: checkpoint.file_of(matrix.name()).to_path_buf(),
                    tensor,
                    found: vec![matrix.rows(), matrix.cols()],
                    wanted: vec![vocabulary, self.rank],
                });
            }
            let mut rows = vec![0.0; vocabulary * self.rank];
            for (row, out) in rows.chunks_mut(self.rank).enumerate() {
                matrix.decode_row(row, out);
            }
            Ok::<_, ModelError>(rows)
        };
        let confidence = match checkpoint.has_matrix(&Self::name("confidence_head.proj")) {
            false => None,
            true => {
                let given = field(config, "confidence_temperatures").and_then(Value::as_array);
                let given = given.into_iter().flatten().filter_map(Value::as_f64);
                let ones = std::iter::repeat(1.0);
                let temperatures = given.chain(ones).take(self.block).map(|t| t as f32).collect();
                let weight = array("confidence_head.proj.weight")?;
                let bias = array("confidence_head.proj.bias")?.first().copied().unwrap_or(0.0);
                if weight.len() < self.hidden || weight.len() > self.hidden + self.rank {
                    return Err(ModelError::Shape {
                        file: checkpoint.path().to_path_buf(),
                        tensor: Self::name("confidence_head.proj.weight"),
                        found: vec![weight.len()],
                        wanted: vec![self.hidden + self.rank],
                    });
                }
                Some(Confidence { weight, bias, temperatures })
            }
        };
        Ok(DraftHead {
            block: self.block,
            mask: self.mask,
            norm: (array("norm.weight")?, self.epsilon),
            rank: self.rank,
            markov_from: table("markov_w1")?,
            markov_to: table("markov_w2")?,
            markov: Markov::read(
                self.markov,
                checkpoint,
                |name| Self::name(&format!("markov_head.{name}")),
                self.rank,
                self.hidden,
            )?,
            confidence,
        })
    }
}

impl DraftHead {
    /// Width of a block's rows.
    pub fn hidden(&self) -> usize {
        self.norm.0.len()
    }

    /// A row of a block after the norm that the heads read it through.
    pub fn normed(&self, row: &[f32]) -> Vec<f32> {
        let (norm, epsilon) = &self.norm;
        let squares: f32 = row.iter().map(|x| x * x).sum();
        let factor = (squares / row.len() as f32 + epsilon).sqrt().recip();
        row.iter().zip(norm).map(|(x, w)| x * factor * w).collect()
    }

    /// How likely the token at a place of the block is accepted, from the block's normed row there and the vector of the token before;
    /// one half without a confidence head.
    pub fn confidence(&self, place: usize, normed: &[f32], vector: &[f32]) -> f32 {
        let Some(Confidence { weight, bias, temperatures }) = &self.confidence else { return 0.5 };
        let inputs = normed.iter().chain(vector);
        let sum = inputs.zip(weight).map(|(x, w)| x * w).sum::<f32>() + bias;
        sigmoid(sum / temperatures.get(place).copied().unwrap_or(1.0))
    }
}

/// Width of a model's residual stream: that of its embedding table.
fn target_width(target: &Graph) -> Option<usize> {
    let embedding = target.ops.iter().find(|op| op.kind == OpKind::Embedding)?;
    Some(target.value(*embedding.outputs.first()?).width())
}

/// A drafter that brings a tokenizer must have been made for the model's: the same token means the same text to both.
fn check_tokenizer(target: &Checkpoint, drafter: &Checkpoint) -> Result<(), ModelError> {
    const FILE: &str = "tokenizer.json";
    let read = |checkpoint: &Checkpoint| match checkpoint.folder() {
        Some(folder) => folder.read(FILE),
        None => Ok(None),
    };
    let (Some(own), Some(targets)) = (read(drafter)?, read(target)?) else { return Ok(()) };
    if own == targets {
        return Ok(());
    }
    let file = drafter.path().join(FILE);
    let tokens = |bytes: &[u8]| -> Result<BTreeMap<u64, String>, ModelError> {
        let json: Value = serde_json::from_slice(bytes).map_err(|error| ModelError::Config {
            file: file.clone(),
            problem: format!("not a tokenizer: {error}"),
        })?;
        let vocabulary = json.pointer("/model/vocab").and_then(Value::as_object);
        let listed = vocabulary.into_iter().flatten();
        let mut tokens: BTreeMap<u64, String> =
            listed.filter_map(|(text, id)| Some((id.as_u64()?, text.clone()))).collect();
        let added = json.get("added_tokens").and_then(Value::as_array);
        tokens.extend(added.into_iter().flatten().filter_map(|token| {
            Some((token.get("id")?.as_u64()?, token.get("content")?.as_str()?.to_owned()))
        }));
        Ok(tokens)
    };
    let (own, targets) = (tokens(&own)?, tokens(&targets)?);
    let differs = targets.iter().find(|(id, text)| own.get(id).is_some_and(|own| own != *text));
    match differs {
        None => Ok(()),
        Some((id, text)) => Err(ModelError::Config {
            problem: format!(
                "the drafter was made for another tokenizer: token {id} is {:?}, and {text:?} in the model",
                own.get(id).map_or("", String::as_str)
            ),
            file,
        }),
    }
}
