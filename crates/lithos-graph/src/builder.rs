//! Builds graphs: one method per operation, shapes worked out here.

use lithos_format::Encoding;

use crate::graph::{Graph, Limits};
use crate::op::{Op, OpKind, Part, Reach, Scope};
use crate::rotary::Rotary;
use crate::validate::GraphError;
use crate::value::{
    DType, Dimension, RowMap, StateKind, Value, ValueId, ValueKind, WeightForm, WeightSource,
};

/// Builds a [`Graph`] operation by operation.
///
/// Names are made from the current scope (`layers.3.mixer.`) and the name given. [`GraphBuilder::finish`] validates.
pub struct GraphBuilder {
    values: Vec<Value>,
    ops: Vec<Op>,
    tokens: ValueId,
    scope: Scope,
}

impl Default for GraphBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphBuilder {
    /// An empty graph with its token input.
    pub fn new() -> Self {
        let tokens = Value {
            name: "tokens".into(),
            shape: vec![Dimension::Rows],
            dtype: DType::Token,
            kind: ValueKind::Input,
        };
        GraphBuilder {
            values: vec![tokens],
            ops: Vec::new(),
            tokens: ValueId(0),
            scope: Scope { layer: None, part: Part::Embedding },
        }
    }

    /// The values of a graph, to which more are added, without its operations.
    pub fn continuing(graph: &Graph) -> Self {
        GraphBuilder {
            values: graph.values.clone(),
            ops: Vec::new(),
            tokens: graph.tokens,
            scope: Scope { layer: None, part: Part::Embedding },
        }
    }

    /// The operations since the last time, which leaves the builder without any.
    pub fn take_ops(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.ops)
    }

    /// The values so far.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The token input.
    pub fn tokens(&self) -> ValueId {
        self.tokens
    }

    /// Rows of this width that are given with each pass, beside the tokens.
    pub fn input(&mut self, name: impl Into<String>, width: usize) -> ValueId {
        self.values.push(Value {
            name: name.into(),
            shape: vec![Dimension::Rows, Dimension::Fixed(width)],
            dtype: DType::F32,
            kind: ValueKind::Input,
        });
        ValueId(self.values.len() as u32 - 1)
    }

    /// Sets the scope of the operations that follow.
    pub fn scope(&mut self, layer: Option<usize>, part: Part) {
        self.scope = Scope { layer, part };
    }

    /// A matrix weight `[rows, columns]` (after `map`) that stays packed in its format.
    pub fn matrix(
        &mut self,
        tensor: impl Into<String>,
        map: RowMap,
        rows: usize,
        columns: usize,
        encoding: Encoding,
    ) -> ValueId {
        self.weight(tensor.into(), map, &[rows, columns], WeightForm::Matrix(encoding))
    }

    /// Matrices `[rows, columns]` of `experts` experts (after `map`), all in one format.
    pub fn experts_matrices(
        &mut self,
        tensor: impl Into<String>,
        map: RowMap,
        shape: [usize; 3],
        encoding: Encoding,
    ) -> ValueId {
        self.weight(tensor.into(), map, &shape, WeightForm::Experts(encoding))
    }

    /// A small weight that is decoded to f32 once.
    pub fn array(&mut self, tensor: impl Into<String>, shape: &[usize]) -> ValueId {
        self.weight(tensor.into(), RowMap::All, shape, WeightForm::Array)
    }

    /// A state of the current layer.
    pub fn state(&mut self, name: &str, kind: StateKind) -> ValueId {
        let shape = match kind {
            StateKind::KeyValue { heads, head_dim } => vec![2, heads, head_dim],
            StateKind::ConvolutionHistory { channels, width } => vec![width - 1, channels],
            StateKind::DeltaRule { heads, key_dim, value_dim } => vec![heads, key_dim, value_dim],
        };
        let value = Value {
            name: self.qualified(name),
            shape: shape.into_iter().map(Dimension::Fixed).collect(),
            dtype: DType::F32,
            kind: ValueKind::State(kind),
        };
        self.push_value(value)
    }

    /// [`OpKind::Embedding`].
    pub fn embedding(&mut self, table: ValueId) -> ValueId {
        let width = self.fixed(table, 1);
        self.op("embedding", OpKind::Embedding, vec![table, self.tokens], width)
    }

    /// [`OpKind::RmsNorm`].
    pub fn rms_norm(
        &mut self,
        name: &str,
        x: ValueId,
        weight: ValueId,
        epsilon: f32,
        weight_offset: f32,
    ) -> ValueId {
        let width = self.width(x);
        self.op(name, OpKind::RmsNorm { epsilon, weight_offset }, vec![x, weight], width)
    }

    /// [`OpKind::Linear`].
    pub fn linear(&mut self, name: &str, x: ValueId, matrix: ValueId) -> ValueId {
        let width = self.fixed(matrix, 0);
        self.op(name, OpKind::Linear, vec![x, matrix], width)
    }

    /// [`OpKind::Add`].
    pub fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        let width = self.width(a);
        self.op(name, OpKind::Add, vec![a, b], width)
    }

    /// [`OpKind::SiluMultiply`].
    pub fn silu_multiply(&mut self, name: &str, gate: ValueId, up: ValueId) -> ValueId {
        let width = self.width(gate);
        self.op(name, OpKind::SiluMultiply, vec![gate, up], width)
    }

    /// [`OpKind::SigmoidMultiply`].
    pub fn sigmoid_multiply(&mut self, name: &str, x: ValueId, gate: ValueId) -> ValueId {
        let width = self.width(x);
        self.op(name, OpKind::SigmoidMultiply, vec![x, gate], width)
    }

    /// [`OpKind::Rotary`].
    pub fn rotary(&mut self, name: &str, x: ValueId, head_dim: usize, rotary: &Rotary) -> ValueId {
        let width = self.width(x);
        let kind = OpKind::Rotary { head_dim, rotary: rotary.clone() };
        self.op(name, kind, vec![x], width)
    }

    /// [`OpKind::AppendKeyValue`].
    pub fn append_key_value(&mut self, k: ValueId, v: ValueId, state: ValueId) {
        self.push_op(OpKind::AppendKeyValue, vec![k, v], vec![], vec![state]);
    }

    /// [`OpKind::Attention`] of rows that see positions up to their own.
    pub fn attention(
        &mut self,
        name: &str,
        q: ValueId,
        state: ValueId,
        heads: usize,
        scale: f32,
    ) -> ValueId {
        self.attention_within(name, q, state, heads, scale, Reach::Own)
    }

    /// [`OpKind::Attention`].
    pub fn attention_within(
        &mut self,
        name: &str,
        q: ValueId,
        state: ValueId,
        heads: usize,
        scale: f32,
        reach: Reach,
    ) -> ValueId {
        let Some(StateKind::KeyValue { heads: key_value_heads, head_dim }) =
            self.values[state.index()].state().cloned()
        else {
            panic!("attention needs a key/value state");
        };
        let kind = OpKind::Attention { heads, key_value_heads, head_dim, scale, reach };
        self.op(name, kind, vec![q, state], heads * head_dim)
    }

    /// [`OpKind::Concatenate`].
    pub fn concatenate(&mut self, name: &str, inputs: Vec<ValueId>) -> ValueId {
        let width = inputs.iter().map(|input| self.width(*input)).sum();
        self.op(name, OpKind::Concatenate, inputs, width)
    }

    /// [`OpKind::Convolution`].
    pub fn convolution(
        &mut self,
        name: &str,
        u: ValueId,
        weight: ValueId,
        history: ValueId,
        width: usize,
    ) -> ValueId {
        let channels = self.width(u);
        let kind = OpKind::Convolution { width };
        self.op_with_state(name, kind, vec![u, weight, history], channels, history)
    }

    /// [`OpKind::GatedDelta`] with `inputs = [qkv, a, b, a_log, dt_bias]`.
    pub fn gated_delta(
        &mut self,
        name: &str,
        inputs: [ValueId; 5],
        state: ValueId,
        key_heads: usize,
    ) -> ValueId {
        let Some(StateKind::DeltaRule { heads, key_dim, value_dim }) =
            self.values[state.index()].state().cloned()
        else {
            panic!("the gated delta rule needs a delta-rule state");
        };
        let kind = OpKind::GatedDelta { key_heads, value_heads: heads, key_dim, value_dim };
        let mut inputs = inputs.to_vec();
        inputs.push(state);
        self.op_with_state(name, kind, inputs, heads * value_dim, state)
    }

    /// [`OpKind::GatedNorm`].
    pub fn gated_norm(
        &mut self,
        name: &str,
        o: ValueId,
        z: ValueId,
        weight: ValueId,
        epsilon: f32,
    ) -> ValueId {
        let width = self.width(o);
        self.op(name, OpKind::GatedNorm { epsilon }, vec![o, z, weight], width)
    }

    /// [`OpKind::Route`].
    pub fn route(&mut self, name: &str, logits: ValueId, chosen: usize) -> ValueId {
        self.op(name, OpKind::Route { chosen }, vec![logits], 2 * chosen)
    }

    /// [`OpKind::Experts`] with `matrices = [gates, ups, downs]`.
    pub fn experts(
        &mut self,
        name: &str,
        x: ValueId,
        routes: ValueId,
        matrices: [ValueId; 3],
    ) -> ValueId {
        let chosen = self.width(routes) / 2;
        let width = chosen * self.fixed(matrices[2], 1);
        let mut inputs = vec![x, routes];
        inputs.extend(matrices);
        self.op(name, OpKind::Experts { chosen }, inputs, width)
    }

    /// [`OpKind::Combine`].
    pub fn combine(
        &mut self,
        name: &str,
        experts: ValueId,
        routes: ValueId,
        shared: ValueId,
        gate: ValueId,
    ) -> ValueId {
        let (chosen, width) = (self.width(routes) / 2, self.width(shared));
        self.op(name, OpKind::Combine { chosen }, vec![experts, routes, shared, gate], width)
    }

    /// Validates and returns the graph.
    ///
    /// # Errors
    /// [`GraphError`] names the operation that does not fit its inputs.
    pub fn finish(
        self,
        architecture: impl Into<String>,
        logits: ValueId,
        limits: Limits,
    ) -> Result<Graph, GraphError> {
        let graph = Graph {
            architecture: architecture.into(),
            values: self.values,
            ops: self.ops,
            tokens: self.tokens,
            logits,
            limits,
        };
        graph.validate()?;
        Ok(graph)
    }

    fn weight(
        &mut self,
        tensor: String,
        rows: RowMap,
        shape: &[usize],
        form: WeightForm,
    ) -> ValueId {
        let name = match rows {
            RowMap::HeadPart { offset, .. } if offset > 0 => format!("{tensor}[part {offset}]"),
            _ => tensor.clone(),
        };
        // A tied table is one weight with two uses.
        let existing = self.values.iter().position(|value| value.name == name);
        if let Some(index) = existing {
            return ValueId(index as u32);
        }
        self.push_value(Value {
            name,
            shape: shape.iter().map(|extent| Dimension::Fixed(*extent)).collect(),
            dtype: DType::F32,
            kind: ValueKind::Weight(WeightSource { tensor, rows, form }),
        })
    }

    fn op(&mut self, name: &str, kind: OpKind, inputs: Vec<ValueId>, width: usize) -> ValueId {
        let output = self.produced(name, width);
        self.push_op(kind, inputs, vec![output], vec![]);
        output
    }

    fn op_with_state(
        &mut self,
        name: &str,
        kind: OpKind,
        inputs: Vec<ValueId>,
        width: usize,
        state: ValueId,
    ) -> ValueId {
        let output = self.produced(name, width);
        self.push_op(kind, inputs, vec![output], vec![state]);
        output
    }

    fn push_op(
        &mut self,
        kind: OpKind,
        inputs: Vec<ValueId>,
        outputs: Vec<ValueId>,
        updates: Vec<ValueId>,
    ) {
        self.ops.push(Op { kind, inputs, outputs, updates, scope: self.scope });
    }

    fn produced(&mut self, name: &str, width: usize) -> ValueId {
        let value = Value {
            name: self.qualified(name),
            shape: vec![Dimension::Rows, Dimension::Fixed(width)],
            dtype: DType::F32,
            kind: ValueKind::Produced,
        };
        self.push_value(value)
    }

    fn push_value(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    fn qualified(&self, name: &str) -> String {
        let part = match self.scope.part {
            Part::Embedding => "embedding",
            Part::Mixer => "mixer",
            Part::FeedForward => "feed_forward",
            Part::Draft => "draft",
            Part::Head => "head",
        };
        match self.scope.layer {
            Some(layer) => format!("layers.{layer}.{part}.{name}"),
            None => format!("{part}.{name}"),
        }
    }

    fn width(&self, id: ValueId) -> usize {
        self.values[id.index()].width()
    }

    fn fixed(&self, id: ValueId, axis: usize) -> usize {
        match self.values[id.index()].shape.get(axis) {
            Some(Dimension::Fixed(extent)) => *extent,
            _ => 0,
        }
    }
}
