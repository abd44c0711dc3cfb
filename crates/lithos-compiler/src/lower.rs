//! Lowering: operations of the graph become task groups.
//!
//! What can be computed on the way is not a group of its own: a layer norm becomes the prologue of the projections that read
//! it, a residual the epilogue of the projection before it, head norms and rotations part of attention, an output gate part
//! of the merge. An operation in an arrangement that has no such place becomes a plain group.

use std::collections::HashMap;

use lithos_graph::{
    DType, Dimension, Graph, Op, OpKind, Part, Reach, StateKind, ValueId, ValueKind,
};

use crate::schedule::{CompileError, MergeIn, Options, PassKind};
use crate::task::{
    Access, Buffer, BufferId, BufferRows, Elementwise, HeadStage, LinearInput, Norm, Place,
    Prepared, PreparedId, RowSet, TaskGroup, TaskKind, route_words,
};

/// What lowering yields: groups in order, with their buffers not yet placed.
pub(crate) struct Lowered {
    pub(crate) groups: Vec<TaskGroup>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) inputs: Vec<BufferId>,
    pub(crate) logits: BufferId,
}

pub(crate) fn lower(graph: &Graph, options: Options) -> Result<Lowered, CompileError> {
    let mut lowering = Lowering {
        graph,
        options,
        readers: readers(graph),
        buffer_of: HashMap::new(),
        norm_of: HashMap::new(),
        stage_of: HashMap::new(),
        appended: HashMap::new(),
        merged_of: HashMap::new(),
        prepared_of: HashMap::new(),
        absorbed: vec![false; graph.ops.len()],
        groups: Vec::new(),
        buffers: Vec::new(),
        prepared: Vec::new(),
    };
    // Tokens are not among them: they are numbers that only a gather reads.
    let given = |id: &ValueId| {
        let value = graph.value(*id);
        matches!(value.kind, ValueKind::Input) && value.dtype == DType::F32
    };
    let mut given: Vec<ValueId> = lowering.readers.keys().copied().filter(given).collect();
    given.sort_unstable();
    let inputs = given.into_iter().map(|id| lowering.buffer(id, BufferRows::Pass)).collect();
    for index in 0..graph.ops.len() {
        if !lowering.absorbed[index] {
            lowering.op(index)?;
        }
    }
    let logits = lowering.buffer_of[&graph.logits];
    Ok(Lowered {
        groups: lowering.groups,
        buffers: lowering.buffers,
        prepared: lowering.prepared,
        inputs,
        logits,
    })
}

/// Indices of the operations that read each value.
fn readers(graph: &Graph) -> HashMap<ValueId, Vec<usize>> {
    let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (index, op) in graph.ops.iter().enumerate() {
        for input in &op.inputs {
            readers.entry(*input).or_default().push(index);
        }
    }
    readers
}

struct Lowering<'g> {
    graph: &'g Graph,
    options: Options,
    readers: HashMap<ValueId, Vec<usize>>,
    /// Buffers that hold values.
    buffer_of: HashMap<ValueId, BufferId>,
    /// Values that are norms of others, computed by their readers.
    norm_of: HashMap<ValueId, (ValueId, Norm)>,
    /// Values that are heads on their way to attention.
    stage_of: HashMap<ValueId, HeadStage>,
    /// The keys and values last appended to each state.
    appended: HashMap<ValueId, (HeadStage, BufferId)>,
    /// Values that are merged from partial results of attention by their readers.
    merged_of: HashMap<ValueId, LinearInput>,
    /// Operands already prepared.
    prepared_of: HashMap<ValueId, PreparedId>,
    /// Operations that an earlier group has taken in.
    absorbed: Vec<bool>,
    groups: Vec<TaskGroup>,
    buffers: Vec<Buffer>,
    prepared: Vec<Prepared>,
}

impl Lowering<'_> {
    fn op(&mut self, index: usize) -> Result<(), CompileError> {
        let graph = self.graph;
        let op = &graph.ops[index];
        match &op.kind {
            OpKind::Embedding => {
                let output = self.buffer(op.outputs[0], BufferRows::Pass);
                self.push(
                    op,
                    TaskKind::Gather { table: op.inputs[0], output },
                    vec![],
                    vec![output],
                );
            }
            OpKind::RmsNorm { epsilon, weight_offset } => {
                let norm =
                    Norm { weight: op.inputs[1], epsilon: *epsilon, weight_offset: *weight_offset };
                self.rms_norm(op, norm);
            }
            OpKind::Linear => self.linear(index)?,
            OpKind::Add => self.elementwise(op, Elementwise::Add),
            OpKind::SiluMultiply => self.elementwise(op, Elementwise::SiluMultiply),
            OpKind::SigmoidMultiply => self.elementwise(op, Elementwise::SigmoidMultiply),
            OpKind::Rotary { head_dim, rotary } => {
                let attends = |kind: &OpKind| {
                    matches!(kind, OpKind::AppendKeyValue | OpKind::Attention { .. })
                };
                if self.all_readers(op.outputs[0], attends) {
                    let mut stage = self.stage(op.inputs[0]);
                    stage.rotary = Some(rotary.clone());
                    self.stage_of.insert(op.outputs[0], stage);
                } else {
                    let input = self.materialised(op, op.inputs[0])?;
                    let output = self.buffer(op.outputs[0], BufferRows::Pass);
                    let (head_dim, rotary) = (*head_dim, rotary.clone());
                    let kind = TaskKind::Rotate { input, head_dim, rotary, output };
                    self.push(op, kind, vec![input], vec![output]);
                }
            }
            OpKind::AppendKeyValue => {
                let v = self.materialised(op, op.inputs[1])?;
                let (k, state) = (self.stage(op.inputs[0]), op.updates[0]);
                let attends =
                    |op: &Op| matches!(op.kind, OpKind::Attention { .. }) && op.inputs[1] == state;
                if graph.ops[index..].iter().any(attends) {
                    self.appended.insert(state, (k, v));
                } else {
                    let reads = vec![k.buffer, v];
                    let kind = TaskKind::Append { k, v, state };
                    self.push_with_state(op, kind, reads, vec![], state);
                }
            }
            OpKind::Attention { scale, reach, .. } => self.attention(index, *scale, *reach)?,
            OpKind::Concatenate => {
                let inputs = op.inputs.iter().map(|input| self.materialised(op, *input));
                let inputs: Vec<BufferId> = inputs.collect::<Result<_, _>>()?;
                let output = self.buffer(op.outputs[0], BufferRows::Pass);
                let reads = inputs.clone();
                self.push(op, TaskKind::Concatenate { inputs, output }, reads, vec![output]);
            }
            OpKind::Convolution { .. } => {
                let input = self.materialised(op, op.inputs[0])?;
                let output = self.buffer(op.outputs[0], BufferRows::Pass);
                let (weight, state) = (op.inputs[1], op.updates[0]);
                let kind = TaskKind::Convolve { input, weight, state, output };
                self.push_with_state(op, kind, vec![input], vec![output], state);
            }
            OpKind::GatedDelta { key_heads, .. } => {
                let [qkv, a, b] = [
                    self.materialised(op, op.inputs[0])?,
                    self.materialised(op, op.inputs[1])?,
                    self.materialised(op, op.inputs[2])?,
                ];
                let output = self.buffer(op.outputs[0], BufferRows::Pass);
                let state = op.updates[0];
                let kind = TaskKind::GatedDelta {
                    qkv,
                    a,
                    b,
                    a_log: op.inputs[3],
                    dt_bias: op.inputs[4],
                    state,
                    key_heads: *key_heads,
                    output,
                };
                self.push_with_state(op, kind, vec![qkv, a, b], vec![output], state);
            }
            OpKind::GatedNorm { epsilon } => {
                let (input, gate) =
                    (self.materialised(op, op.inputs[0])?, self.materialised(op, op.inputs[1])?);
                let norm = Norm { weight: op.inputs[2], epsilon: *epsilon, weight_offset: 0.0 };
                let output = self.buffer(op.outputs[0], BufferRows::Pass);
                let kind = TaskKind::GatedNorm { input, gate, norm, output };
                self.push(op, kind, vec![input, gate], vec![output]);
            }
            OpKind::Route { chosen } => {
                let logits = self.materialised(op, op.inputs[0])?;
                let name = graph.value(op.outputs[0]).name.clone();
                let routes = self.new_buffer(name, route_words(*chosen), BufferRows::Pass);
                self.buffer_of.insert(op.outputs[0], routes);
                let kind = TaskKind::Route { logits, chosen: *chosen, routes };
                self.push(op, kind, vec![logits], vec![routes]);
            }
            OpKind::Experts { chosen } => self.experts(op, *chosen)?,
            OpKind::Combine { chosen } => self.combine(index, *chosen)?,
        }
        Ok(())
    }

    /// A norm goes to its readers if they are all projections (a layer norm) or all on the way to attention (head norms).
    fn rms_norm(&mut self, op: &Op, norm: Norm) {
        let (input, output) = (op.inputs[0], op.outputs[0]);
        let whole_row = self.graph.value(norm.weight).width() == self.graph.value(input).width();
        let multiplies = |kind: &OpKind| matches!(kind, OpKind::Linear | OpKind::Experts { .. });
        if whole_row && self.all_readers(output, multiplies) {
            self.norm_of.insert(output, (input, norm));
            return;
        }
        let heads = |kind: &OpKind| {
            matches!(
                kind,
                OpKind::Rotary { .. } | OpKind::AppendKeyValue | OpKind::Attention { .. }
            )
        };
        if self.all_readers(output, heads) && self.feeds_attention_only(output) {
            let stage = HeadStage { norm: Some(norm), ..self.stage(input) };
            self.stage_of.insert(output, stage);
            return;
        }
        let input = self.buffer_of[&input];
        let output = self.buffer(output, BufferRows::Pass);
        self.push(op, TaskKind::RmsNorm { input, norm, output }, vec![input], vec![output]);
    }

    /// Whether a value's rotations, if any, lead to attention and nothing else.
    fn feeds_attention_only(&self, value: ValueId) -> bool {
        self.readers_of(value).iter().all(|index| {
            let op = &self.graph.ops[*index];
            match op.kind {
                OpKind::Rotary { .. } => self.all_readers(op.outputs[0], |kind| {
                    matches!(kind, OpKind::AppendKeyValue | OpKind::Attention { .. })
                }),
                _ => true,
            }
        })
    }

    fn linear(&mut self, index: usize) -> Result<(), CompileError> {
        let graph = self.graph;
        let op = &graph.ops[index];
        if let Some((activation, up)) = self.gate_of(index) {
            self.absorbed[activation] = true;
            self.absorbed[up] = true;
            let (gate, up) = (op.inputs[1], graph.ops[up].inputs[1]);
            let output = self.buffer(graph.ops[activation].outputs[0], BufferRows::Pass);
            let (input, reads) = self.linear_input(op, &[gate, up])?;
            self.push_access(op, TaskKind::GateUp { input, gate, up, output }, reads, vec![output]);
            return Ok(());
        }
        let rows = match op.scope.part {
            Part::Head => RowSet::Logit,
            _ => RowSet::Pass,
        };
        let (input, mut reads) = self.linear_input(op, &[op.inputs[1]])?;
        let weight = op.inputs[1];
        let residual = self.residual_of(index);
        let Some((add, residual)) = residual else {
            let buffer_rows = match rows {
                RowSet::Logit => BufferRows::Logit,
                RowSet::Pass => BufferRows::Pass,
            };
            let output = self.buffer(op.outputs[0], buffer_rows);
            let kind = TaskKind::Linear { input, weight, output, add: false, rows };
            self.push_access(op, kind, reads, vec![output]);
            return Ok(());
        };
        self.absorbed[add] = true;
        let previous = self.buffer_of[&residual];
        let output = self.buffer(graph.ops[add].outputs[0], BufferRows::Pass);
        self.buffers[output.index()].in_place_of = Some(previous);
        reads.push(self.whole(previous));
        let kind = TaskKind::Linear { input, weight, output, add: true, rows };
        // The residual's own place changes too: nothing that still reads it may share the phase.
        self.push_access(op, kind, reads, vec![output, previous]);
        Ok(())
    }

    /// If the projection is the gate of `silu(gate) * up` with `up` a projection of the same input: the activation's index and
    /// the up projection's.
    fn gate_of(&self, index: usize) -> Option<(usize, usize)> {
        let op = &self.graph.ops[index];
        let activation = self.sole_reader(op.outputs[0])?;
        let activated = &self.graph.ops[activation];
        if activated.kind != OpKind::SiluMultiply || activated.inputs[0] != op.outputs[0] {
            return None;
        }
        let up = self
            .graph
            .ops
            .iter()
            .position(|up| up.outputs.first() == Some(&activated.inputs[1]))?;
        let same_input = self.graph.ops[up].kind == OpKind::Linear
            && self.graph.ops[up].inputs[0] == op.inputs[0]
            && self.sole_reader(activated.inputs[1]) == Some(activation);
        same_input.then_some((activation, up))
    }

    /// The two products of a mixture's experts. What lies between them has a part for each of a row's experts.
    fn experts(&mut self, op: &Op, chosen: usize) -> Result<(), CompileError> {
        let routes = self.materialised(op, op.inputs[1])?;
        let (gates, ups, downs) = (op.inputs[2], op.inputs[3], op.inputs[4]);
        let downs_value = self.graph.value(downs);
        let Some(Dimension::Fixed(inner)) = downs_value.shape.last().copied() else {
            unreachable!("validated: matrices of experts")
        };
        let name = format!("{}.activated", self.graph.value(op.outputs[0]).name);
        let activated = self.new_buffer(name, chosen * inner, BufferRows::Pass);
        let (input, mut reads) = self.linear_input(op, &[gates, ups])?;
        reads.push(self.whole(routes));
        let kind = TaskKind::ExpertGateUp { input, routes, chosen, gates, ups, output: activated };
        self.push_access(op, kind, reads, vec![activated]);
        let output = self.buffer(op.outputs[0], BufferRows::Pass);
        let kind = TaskKind::ExpertDown { input: activated, routes, chosen, downs, output };
        self.push(op, kind, vec![activated, routes], vec![output]);
        Ok(())
    }

    fn combine(&mut self, index: usize, chosen: usize) -> Result<(), CompileError> {
        let graph = self.graph;
        let op = &graph.ops[index];
        let [experts, routes, shared, gate] = [
            self.materialised(op, op.inputs[0])?,
            self.materialised(op, op.inputs[1])?,
            self.materialised(op, op.inputs[2])?,
            self.materialised(op, op.inputs[3])?,
        ];
        let mut reads = vec![experts, routes, shared, gate];
        let (value, previous) = match self.residual_of(index) {
            Some((add, residual)) => {
                self.absorbed[add] = true;
                (graph.ops[add].outputs[0], Some(self.buffer_of[&residual]))
            }
            None => (op.outputs[0], None),
        };
        let output = self.buffer(value, BufferRows::Pass);
        self.buffers[output.index()].in_place_of = previous;
        reads.extend(previous);
        let mut writes = vec![output];
        writes.extend(previous);
        let add = previous.is_some();
        let kind = TaskKind::Combine { experts, routes, chosen, shared, gate, output, add };
        self.push(op, kind, reads, writes);
        Ok(())
    }

    /// If the projection's only reader adds it to a value that nothing reads afterwards: that addition and the value.
    fn residual_of(&self, index: usize) -> Option<(usize, ValueId)> {
        let output = self.graph.ops[index].outputs[0];
        let add = self.sole_reader(output)?;
        let addition = &self.graph.ops[add];
        if addition.kind != OpKind::Add {
            return None;
        }
        let residual = *addition.inputs.iter().find(|input| **input != output)?;
        let free_after = self.readers_of(residual).iter().all(|reader| {
            // A norm of the residual is computed by its readers, so those count.
            *reader == add
                || (*reader < index
                    && self.graph.ops[*reader].outputs.iter().all(|value| {
                        !self.norm_of.contains_key(value)
                            || self.readers_of(*value).iter().all(|reader| *reader < index)
                    }))
        });
        (free_after && self.buffer_of.contains_key(&residual)).then_some((add, residual))
    }

    /// The operand of projections by `weights`: prepared for many rows, brought into form by each worker for few.
    fn linear_input(
        &mut self,
        op: &Op,
        weights: &[ValueId],
    ) -> Result<(LinearInput, Vec<Access>), CompileError> {
        let value = op.inputs[0];
        if let Some(merged) = self.merged_of.get(&value) {
            let LinearInput::Merged { partials, gate, .. } = *merged else {
                unreachable!("only merges are kept here")
            };
            let reads = [Some(partials), gate].into_iter().flatten().map(|id| self.whole(id));
            return Ok((*merged, reads.collect()));
        }
        let (source, norm) = match self.norm_of.get(&value) {
            Some((source, norm)) => (*source, Some(*norm)),
            None => (value, None),
        };
        let buffer = self.materialised(op, source)?;
        let inline = self.options.pass == PassKind::Decode || op.scope.part == Part::Head;
        if inline {
            return Ok((LinearInput::Inline { buffer, norm }, vec![self.whole(buffer)]));
        }
        let id = match self.prepared_of.get(&value) {
            Some(id) => *id,
            None => {
                let id = PreparedId(self.prepared.len() as u32);
                self.prepared.push(Prepared { buffer, norm, readers: Vec::new() });
                self.prepared_of.insert(value, id);
                let reads = vec![self.whole(buffer)];
                let access = self.prepared_access(id);
                self.groups.push(TaskGroup {
                    kind: TaskKind::Prepare { prepared: id },
                    scope: op.scope,
                    reads,
                    writes: vec![access],
                });
                id
            }
        };
        self.prepared[id.index()].readers.extend(weights);
        Ok((LinearInput::Prepared(id), vec![self.prepared_access(id)]))
    }

    fn attention(&mut self, index: usize, scale: f32, reach: Reach) -> Result<(), CompileError> {
        let graph = self.graph;
        let op = &graph.ops[index];
        let state = op.inputs[1];
        let Some((k, v)) = self.appended.get(&state).cloned() else {
            return Err(self.unsupported(op, "nothing was appended to its keys before it"));
        };
        let q = self.stage(op.inputs[0]);
        let (output, gate) = match self.output_gate_of(op) {
            Some((gated, gate)) => {
                self.absorbed[gated] = true;
                (graph.ops[gated].outputs[0], Some(gate))
            }
            None => (op.outputs[0], None),
        };
        match self.options.pass {
            PassKind::Decode => self.attend_ranges(op, q, k, v, state, scale, reach, gate, output),
            PassKind::Prefill { .. } if reach == Reach::Pass => {
                return Err(self.unsupported(op, "rows of many see only positions up to their own"));
            }
            PassKind::Prefill { .. } => self.attend_blocks(op, q, k, v, state, scale, gate, output),
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one attention")]
    fn attend_ranges(
        &mut self,
        op: &Op,
        q: HeadStage,
        k: HeadStage,
        v: BufferId,
        state: ValueId,
        scale: f32,
        reach: Reach,
        gate: Option<BufferId>,
        output: ValueId,
    ) {
        let Some(StateKind::KeyValue { head_dim, .. }) = self.graph.value(state).state() else {
            unreachable!("validated: attention reads a key/value state")
        };
        let heads = self.graph.value(output).width() / head_dim;
        let width =
            heads * self.options.attention_ranges * (head_dim + self.options.partial_header);
        let name = format!("{}.partials", self.graph.value(op.outputs[0]).name);
        let partials = self.new_buffer(name, width, BufferRows::Pass);
        let reads = vec![q.buffer, k.buffer, v];
        let kind = TaskKind::AttendRange { q, k, v, state, scale, reach, partials };
        self.push_with_state(op, kind, reads, vec![partials], state);
        let projected = self.all_readers(output, |kind| *kind == OpKind::Linear);
        if self.options.merge_in == MergeIn::Readers && projected {
            self.merged_of.insert(output, LinearInput::Merged { partials, gate, state, reach });
            return;
        }
        let output = self.buffer(output, BufferRows::Pass);
        let mut reads = vec![partials];
        reads.extend(gate);
        let kind = TaskKind::MergeRanges { partials, gate, state, reach, output };
        self.push(op, kind, reads, vec![output]);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one attention")]
    fn attend_blocks(
        &mut self,
        op: &Op,
        q: HeadStage,
        k: HeadStage,
        v: BufferId,
        state: ValueId,
        scale: f32,
        gate: Option<BufferId>,
        output: ValueId,
    ) {
        let output = self.buffer(output, BufferRows::Pass);
        let queries = q.buffer;
        let reads = vec![q.buffer, k.buffer, v];
        let writes = vec![queries];
        self.push_with_state(op, TaskKind::StageHeads { q, k, v, state }, reads, writes, state);
        let mut reads = vec![queries];
        reads.extend(gate);
        let kind = TaskKind::AttendBlock { q: queries, state, scale, gate, output };
        let mut group = self.group(op, kind, reads, vec![output]);
        group.reads.push(self.state_access(state));
        self.groups.push(group);
    }

    /// If attention's only reader gates it: that operation and the gate's buffer.
    fn output_gate_of(&self, op: &Op) -> Option<(usize, BufferId)> {
        let reader = self.sole_reader(op.outputs[0])?;
        let gated = &self.graph.ops[reader];
        if gated.kind != OpKind::SigmoidMultiply || gated.inputs[0] != op.outputs[0] {
            return None;
        }
        self.buffer_of.get(&gated.inputs[1]).map(|gate| (reader, *gate))
    }

    fn elementwise(&mut self, op: &Op, elementwise: Elementwise) {
        let (a, b) = (self.buffer_of[&op.inputs[0]], self.buffer_of[&op.inputs[1]]);
        let output = self.buffer(op.outputs[0], BufferRows::Pass);
        let kind = TaskKind::Elementwise { op: elementwise, a, b, output };
        self.push(op, kind, vec![a, b], vec![output]);
    }

    /// The buffer of a value that a group reads as it is.
    fn materialised(&self, op: &Op, value: ValueId) -> Result<BufferId, CompileError> {
        self.buffer_of.get(&value).copied().ok_or_else(|| {
            let name = &self.graph.value(value).name;
            self.unsupported(op, &format!("`{name}` was taken in by another operation"))
        })
    }

    fn stage(&self, value: ValueId) -> HeadStage {
        match self.stage_of.get(&value) {
            Some(stage) => stage.clone(),
            None => HeadStage { buffer: self.buffer_of[&value], norm: None, rotary: None },
        }
    }

    fn readers_of(&self, value: ValueId) -> &[usize] {
        self.readers.get(&value).map_or(&[], Vec::as_slice)
    }

    fn all_readers(&self, value: ValueId, test: impl Fn(&OpKind) -> bool) -> bool {
        let readers = self.readers_of(value);
        !readers.is_empty() && readers.iter().all(|index| test(&self.graph.ops[*index].kind))
    }

    fn sole_reader(&self, value: ValueId) -> Option<usize> {
        match self.readers_of(value) {
            [reader] if value != self.graph.logits => Some(*reader),
            _ => None,
        }
    }

    fn buffer(&mut self, value: ValueId, rows: BufferRows) -> BufferId {
        let graph = self.graph;
        let described = graph.value(value);
        let id = self.new_buffer(described.name.clone(), described.width(), rows);
        self.buffer_of.insert(value, id);
        id
    }

    fn new_buffer(&mut self, name: String, width: usize, rows: BufferRows) -> BufferId {
        self.buffers.push(Buffer { name, width, rows, in_place_of: None, offset: 0 });
        BufferId(self.buffers.len() as u32 - 1)
    }

    fn whole(&self, id: BufferId) -> Access {
        Access { place: Place::Buffer(id), columns: 0..self.buffers[id.index()].width }
    }

    fn prepared_access(&self, id: PreparedId) -> Access {
        let buffer = self.prepared[id.index()].buffer;
        Access { place: Place::Prepared(id), columns: 0..self.buffers[buffer.index()].width }
    }

    fn state_access(&self, state: ValueId) -> Access {
        Access { place: Place::State(state), columns: 0..self.graph.value(state).width() }
    }

    fn group(
        &self,
        op: &Op,
        kind: TaskKind,
        reads: Vec<BufferId>,
        writes: Vec<BufferId>,
    ) -> TaskGroup {
        let access = |ids: Vec<BufferId>| ids.into_iter().map(|id| self.whole(id)).collect();
        TaskGroup { kind, scope: op.scope, reads: access(reads), writes: access(writes) }
    }

    fn push(&mut self, op: &Op, kind: TaskKind, reads: Vec<BufferId>, writes: Vec<BufferId>) {
        let group = self.group(op, kind, reads, writes);
        self.groups.push(group);
    }

    fn push_access(&mut self, op: &Op, kind: TaskKind, reads: Vec<Access>, writes: Vec<BufferId>) {
        let mut group = self.group(op, kind, vec![], writes);
        group.reads = reads;
        self.groups.push(group);
    }

    fn push_with_state(
        &mut self,
        op: &Op,
        kind: TaskKind,
        reads: Vec<BufferId>,
        writes: Vec<BufferId>,
        state: ValueId,
    ) {
        let mut group = self.group(op, kind, reads, writes);
        group.reads.push(self.state_access(state));
        group.writes.push(self.state_access(state));
        self.groups.push(group);
    }

    fn unsupported(&self, op: &Op, problem: &str) -> CompileError {
        CompileError::Unsupported {
            op: op.kind.name(),
            layer: op.scope.layer,
            problem: problem.to_string(),
        }
    }
}
