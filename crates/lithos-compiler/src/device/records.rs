//! The call and the parameter record of each task group.

use bytemuck::Pod;
use lithos_graph::{Graph, OpKind, Reach, StateKind, ValueId};
use lithos_kernels::records::{
    AttendRecord, ChooseRecord, CombineRecord, ConvolveRecord, DeltaRecord, ElementwiseRecord,
    ExpertDownRecord, ExpertGateUpRecord, GateUpRecord, GatherRecord, HeadNormRecord, HeadRecord,
    KeptRecord, LinearRecord, MatrixRecord, MergeRecord, NOTHING, OperandRecord, RouteRecord,
};
use lithos_kernels::{MOST_TEAMS, STAGED_COLUMN_BYTES};

use super::lanes::{LaneLayout, TILE_ROWS};
use super::places::{KeyValues, MOST_SLICED, Places, grains};
use super::program::{DeviceError, DeviceOptions, FINE_RANGES};
use crate::MAX_DECODE_ROWS;
use crate::schedule::Schedule;
use crate::task::{
    BufferId, Elementwise, HeadStage, LinearInput, Norm, RowSet, TaskGroup, TaskKind,
};

/// A call of a task body: the function with its template arguments, its record's type, and the record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) function: String,
    pub(crate) record_type: &'static str,
    pub(crate) words: Vec<u32>,
    /// Tiles of the matrix that it multiplies; 0 for a body that projects nothing.
    pub(crate) tiles: usize,
}

impl Call {
    fn new<R: Pod>(function: impl Into<String>, record: R) -> Self {
        let name = std::any::type_name::<R>();
        Call {
            function: function.into(),
            record_type: name.rsplit("::").next().unwrap_or(name),
            words: bytemuck::cast_slice(std::slice::from_ref(&record)).to_vec(),
            tiles: 0,
        }
    }
}

/// Makes calls of groups.
pub(crate) struct Recorder<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) schedule: &'a Schedule,
    pub(crate) options: &'a DeviceOptions,
    pub(crate) places: &'a mut Places,
    pub(crate) slices: Slices,
    /// Where workers keep candidates, in bytes of the arena.
    pub(crate) lists: usize,
}

/// What projections whose columns are cut into slices need beside their operands.
#[derive(Debug)]
pub(crate) struct Slices {
    /// Bytes of an operand that a worker can stage.
    most_staged: usize,
    /// Where their results begin, in bytes of the arena.
    start: usize,
    /// Where the results of the phase end.
    end: usize,
    /// Where those of any phase end.
    most: usize,
    /// Projections of the phase.
    count: usize,
}

impl Slices {
    /// Slices for workers that can stage `most_staged` bytes, with results from byte `start` of the arena on.
    pub(crate) fn new(most_staged: usize, start: usize) -> Self {
        Slices { most_staged, start, end: start, most: 0, count: 0 }
    }

    /// End of all results in the arena; 0 if there are none.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Begins a phase: the results of the one before were read.
    pub(crate) fn begin_phase(&mut self) {
        (self.end, self.count) = (self.start, 0);
    }

    /// Slices of a matrix, the place of their results in floats, and the place of its counters among all in grains.
    fn take(&mut self, layout: &LaneLayout) -> (u32, u32, u32) {
        let columns = layout.units() * 4 * layout.lane_cols();
        let slices = (columns * STAGED_COLUMN_BYTES).div_ceil(self.most_staged);
        if slices == 1 || self.count == MOST_SLICED {
            return (1, 0, 0);
        }
        let (partials, index) = (self.end, self.count);
        self.end += slices * layout.tiles() * TILE_ROWS * MAX_DECODE_ROWS * 4;
        self.most = self.most.max(self.end);
        self.count += 1;
        (slices as u32, (partials / 4) as u32, grains(index * MOST_TEAMS * 4))
    }
}

impl Recorder<'_> {
    pub(crate) fn call(&mut self, group: &TaskGroup) -> Result<Call, DeviceError> {
        Ok(match &group.kind {
            TaskKind::Gather { table, output } => {
                let record = GatherRecord {
                    table: self.matrix(*table),
                    output: self.buffer(*output),
                    width: self.width(*output),
                };
                Call::new(format!("gather<{}>", self.format(*table)), record)
            }
            TaskKind::Linear { input, weight, output, add: false, rows: RowSet::Logit }
                if *output == self.schedule.logits =>
            {
                let choices = &self.places.states.choices;
                let record = ChooseRecord {
                    matrix: self.matrix(*weight),
                    operand: self.operand(input)?,
                    output: self.buffer(*output),
                    outputs: self.width(*output),
                    lists: (self.lists / 4) as u32,
                    arrivals: grains(choices.arrivals),
                    ring: grains(choices.ring),
                    counts: grains(choices.counts),
                    biases: grains(choices.biases),
                    masks: grains(choices.masks),
                };
                let call = Call::new(format!("head<{}>", self.format(*weight)), record);
                Call { tiles: self.tiles(*weight), ..call }
            }
            TaskKind::Linear { input, weight, output, add, rows } => {
                let (slices, partials, arrivals) =
                    self.slices.take(&self.places.weights.matrices[weight].1);
                let record = LinearRecord {
                    matrix: self.matrix(*weight),
                    operand: self.operand(input)?,
                    output: self.buffer(*output),
                    outputs: self.width(*output),
                    add: u32::from(*add),
                    row_set: u32::from(*rows == RowSet::Logit),
                    slices,
                    partials,
                    arrivals: grains(self.places.states.arrivals.start) + arrivals,
                };
                let call = Call::new(format!("linear<{}>", self.format(*weight)), record);
                Call { tiles: self.tiles(*weight), ..call }
            }
            TaskKind::GateUp { input, gate, up, output } => {
                let record = GateUpRecord {
                    gate: self.matrix(*gate),
                    up: self.matrix(*up),
                    operand: self.operand(input)?,
                    output: self.buffer(*output),
                    outputs: self.width(*output),
                };
                let encoding = |id| self.places.weights.matrices[id].1.encoding();
                if encoding(gate) != encoding(up) {
                    return Err(DeviceError::Unsupported { kind: "gate_up of two formats" });
                }
                let call = Call::new(format!("gate_up<{}>", self.format(*gate)), record);
                Call { tiles: self.tiles(*gate), ..call }
            }
            TaskKind::AttendRange { reach: Reach::Pass, .. } => {
                return Err(DeviceError::Unsupported { kind: "attend_range within a block" });
            }
            TaskKind::AttendRange { q, k, v, state, scale, partials, reach: Reach::Own } => {
                let kept = self.kept(*state);
                let record = AttendRecord {
                    query_stage: self.head(q),
                    key_stage: self.head(k),
                    value_input: self.buffer(*v),
                    group: self.width(q.buffer) / kept.width / kept.heads,
                    scale: *scale,
                    partials: self.buffer(*partials),
                    fine_ranges: FINE_RANGES as u32,
                    range_keys: self.options.range_keys as u32,
                    ranges: self.schedule.attention_ranges as u32,
                    kept,
                };
                let keys = match self.options.key_values {
                    KeyValues::F32 => "KEYS_F32",
                    KeyValues::Bf16 => "KEYS_BF16",
                };
                Call::new(format!("attend_range<{keys}>"), record)
            }
            TaskKind::MergeRanges { partials, gate, state, output, .. } => {
                let kept = self.kept(*state);
                let record = MergeRecord {
                    partials: self.buffer(*partials),
                    gate: gate.map_or(NOTHING, |gate| self.buffer(gate)),
                    output: self.buffer(*output),
                    kept_heads: kept.heads,
                    group: self.width(*output) / kept.width / kept.heads,
                    width: kept.width,
                    fine_ranges: FINE_RANGES as u32,
                    range_keys: self.options.range_keys as u32,
                    ranges: self.schedule.attention_ranges as u32,
                };
                Call::new("merge_ranges", record)
            }
            TaskKind::Convolve { input, weight, state, output } => {
                let channels = self.width(*input);
                let record = ConvolveRecord {
                    input: self.buffer(*input),
                    output: self.buffer(*output),
                    weight: self.places.weights.array(*weight),
                    history: grains(self.places.states.histories[state]),
                    channels,
                    taps: self.taps(*state),
                };
                Call::new("convolve", record)
            }
            TaskKind::GatedDelta { qkv, a, b, a_log, dt_bias, state, key_heads, output } => {
                let (offset, slot_floats) = self.places.states.deltas[state];
                let Some(StateKind::DeltaRule { heads, key_dim, value_dim }) =
                    self.graph.value(*state).state()
                else {
                    return Err(DeviceError::Unsupported { kind: group.kind.name() });
                };
                let record = DeltaRecord {
                    qkv: self.buffer(*qkv),
                    a: self.buffer(*a),
                    b: self.buffer(*b),
                    a_log: self.places.weights.array(*a_log),
                    dt_bias: self.places.weights.array(*dt_bias),
                    state: grains(offset),
                    slot_floats: slot_floats as u32,
                    key_heads: *key_heads as u32,
                    value_heads: *heads as u32,
                    key_width: *key_dim as u32,
                    value_width: *value_dim as u32,
                    output: self.buffer(*output),
                };
                Call::new("gated_delta", record)
            }
            TaskKind::GatedNorm { input, gate, norm, output } => {
                self.head_norm(*input, Some(*gate), norm, *output)
            }
            TaskKind::RmsNorm { input, norm, output } => {
                self.head_norm(*input, None, norm, *output)
            }
            TaskKind::Elementwise { op, a, b, output } => {
                let record = ElementwiseRecord {
                    a: self.buffer(*a),
                    b: self.buffer(*b),
                    output: self.buffer(*output),
                    width: self.width(*output),
                };
                let operation = match op {
                    Elementwise::Add => "ELEMENTWISE_ADD",
                    Elementwise::SiluMultiply => "ELEMENTWISE_SILU_MULTIPLY",
                    Elementwise::SigmoidMultiply => "ELEMENTWISE_SIGMOID_MULTIPLY",
                };
                Call::new(format!("elementwise<{operation}>"), record)
            }
            TaskKind::Route { logits, chosen, routes } => {
                let record = RouteRecord {
                    logits: self.buffer(*logits),
                    experts: self.width(*logits),
                    chosen: *chosen as u32,
                    routes: self.buffer(*routes),
                };
                Call::new("route", record)
            }
            TaskKind::ExpertGateUp { input, routes, chosen, gates, ups, output } => {
                let encoding = |id| self.places.weights.matrices[id].1.encoding();
                if encoding(gates) != encoding(ups) {
                    return Err(DeviceError::Unsupported { kind: "expert_gate_up of two formats" });
                }
                let record = ExpertGateUpRecord {
                    gates: self.matrix(*gates),
                    ups: self.matrix(*ups),
                    operand: self.operand(input)?,
                    gate_factors: self.places.weights.factors(*gates),
                    up_factors: self.places.weights.factors(*ups),
                    routes: self.buffer(*routes),
                    chosen: *chosen as u32,
                    output: self.buffer(*output),
                    outputs: self.width(*output) / *chosen as u32,
                };
                Call::new(format!("expert_gate_up<{}>", self.format(*gates)), record)
            }
            TaskKind::ExpertDown { input, routes, chosen, downs, output } => {
                let chosen = *chosen as u32;
                let operand = self.operand(&LinearInput::Inline { buffer: *input, norm: None })?;
                let record = ExpertDownRecord {
                    downs: self.matrix(*downs),
                    operand: OperandRecord { width: operand.width / chosen, ..operand },
                    factors: self.places.weights.factors(*downs),
                    routes: self.buffer(*routes),
                    chosen,
                    output: self.buffer(*output),
                    outputs: self.width(*output) / chosen,
                };
                Call::new(format!("expert_down<{}>", self.format(*downs)), record)
            }
            TaskKind::Combine { experts, routes, chosen, shared, gate, output, add } => {
                let record = CombineRecord {
                    experts: self.buffer(*experts),
                    routes: self.buffer(*routes),
                    chosen: *chosen as u32,
                    shared: self.buffer(*shared),
                    gate: self.buffer(*gate),
                    output: self.buffer(*output),
                    width: self.width(*output),
                    add: u32::from(*add),
                };
                Call::new("combine", record)
            }
            kind @ (TaskKind::Prepare { .. }
            | TaskKind::StageHeads { .. }
            | TaskKind::Append { .. }
            | TaskKind::AttendBlock { .. }
            | TaskKind::Concatenate { .. }
            | TaskKind::Rotate { .. }) => {
                return Err(DeviceError::Unsupported { kind: kind.name() });
            }
        })
    }

    fn head_norm(
        &self,
        input: BufferId,
        gate: Option<BufferId>,
        norm: &Norm,
        output: BufferId,
    ) -> Call {
        let head_width = self.elements(norm.weight);
        let record = HeadNormRecord {
            input: self.buffer(input),
            gate: gate.map_or(NOTHING, |gate| self.buffer(gate)),
            output: self.buffer(output),
            heads: self.width(output) / head_width,
            head_width,
            norm: self.places.weights.array(norm.weight),
            epsilon: norm.epsilon,
            norm_offset: norm.weight_offset,
        };
        Call::new("head_norm", record)
    }

    /// Place of a buffer in the arena, in floats.
    fn buffer(&self, id: BufferId) -> u32 {
        (self.schedule.buffer(id).offset / 4) as u32
    }

    fn width(&self, id: BufferId) -> u32 {
        self.schedule.buffer(id).width as u32
    }

    fn elements(&self, id: ValueId) -> u32 {
        self.places.weights.arrays[&id].1 as u32
    }

    fn matrix(&self, id: ValueId) -> MatrixRecord {
        let (offset, layout) = self.places.weights.matrices[&id];
        let encoding = layout.encoding();
        let scales = offset + layout.code_bytes();
        MatrixRecord {
            codes: grains(offset),
            scales: grains(scales),
            biases: grains(scales + layout.scale_bytes()),
            // Known when the weights are read; `Program::set_tensor_scales` fills it in. Experts have factors of their own.
            tensor_scale: 1.0,
            zero_point: u32::from(encoding.zero_point),
            units: layout.units() as u32,
            block_columns: encoding.blocks.map_or(1, |blocks| blocks.cols as u32),
            blocks: layout.blocks() as u32,
        }
    }

    fn tiles(&self, matrix: ValueId) -> usize {
        self.places.weights.matrices[&matrix].1.tiles()
    }

    /// Template arguments of a matrix.
    fn format(&self, id: ValueId) -> String {
        self.places.weights.matrices[&id].1.format()
    }

    fn norm(&self, norm: Option<&Norm>) -> (u32, f32, f32) {
        norm.map_or((NOTHING, 0.0, 0.0), |norm| {
            (self.places.weights.array(norm.weight), norm.epsilon, norm.weight_offset)
        })
    }

    fn operand(&self, input: &LinearInput) -> Result<OperandRecord, DeviceError> {
        let LinearInput::Inline { buffer, norm } = input else {
            return Err(DeviceError::Unsupported { kind: "prepare" });
        };
        let (weight, epsilon, norm_offset) = self.norm(norm.as_ref());
        Ok(OperandRecord {
            input: self.buffer(*buffer),
            width: self.width(*buffer),
            norm: weight,
            epsilon,
            norm_offset,
        })
    }

    fn head(&mut self, stage: &HeadStage) -> HeadRecord {
        let (norm, epsilon, norm_offset) = self.norm(stage.norm.as_ref());
        let rotary = stage.rotary.as_ref();
        HeadRecord {
            input: self.buffer(stage.buffer),
            norm,
            epsilon,
            norm_offset,
            frequencies: rotary.map_or(0, |rotary| self.places.weights.rotary(rotary)),
            rotary_width: rotary.map_or(0, |rotary| rotary.dim as u32),
        }
    }

    fn kept(&self, state: ValueId) -> KeptRecord {
        let (keys, values) = self.places.states.key_values[&state];
        let (heads, width) = match self.graph.value(state).state() {
            Some(StateKind::KeyValue { heads, head_dim }) => (*heads as u32, *head_dim as u32),
            _ => (1, 1),
        };
        KeptRecord {
            keys: grains(keys),
            values: grains(values),
            heads,
            width,
            pages_per_slot: self.places.pages_per_slot as u32,
        }
    }

    fn taps(&self, state: ValueId) -> u32 {
        let updates = |op: &&lithos_graph::Op| op.updates.contains(&state);
        match self.graph.ops.iter().find(updates).map(|op| &op.kind) {
            Some(OpKind::Convolution { width }) => *width as u32,
            _ => 1,
        }
    }
}
