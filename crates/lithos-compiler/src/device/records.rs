//! The call and the parameter record of each task group.

use bytemuck::Pod;
use lithos_graph::{Graph, OpKind, Reach, StateKind, ValueId};
use lithos_kernels::records::{
    AppendRecord, AttendRecord, ChooseRecord, CombineRecord, ConcatenateRecord, ConvolveRecord,
    DeltaRecord, ElementwiseRecord, ExpertDownRecord, ExpertGateUpRecord, GateUpRecord,
    GatherRecord, HeadNormRecord, HeadRecord, KeptRecord, LinearRecord, MatrixRecord, MergeRecord,
    NOTHING, OperandRecord, RouteRecord,
};
use lithos_kernels::{MOST_TEAMS, STAGED_COLUMN_BYTES};

use super::lanes::{LaneLayout, TILE_ROWS, UNIT_BYTES};
use super::places::{GRAIN, KeyValues, MOST_SLICED, Places, grains};
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
    /// Tiles of the matrix that it multiplies, which is known before the pass; 0 where it multiplies none, or those of experts.
    pub(crate) tiles: usize,
    /// Whether it stages rows in the memory of a launch.
    pub(crate) stages: bool,
    /// Whether it goes on where the call before it ends: the same operand, and a matrix that lies behind the other's.
    pub(crate) goes_on: bool,
    /// Whether it takes the operand that another call of the phase has staged.
    pub(crate) beside: bool,
}

impl Call {
    fn new<R: Pod>(function: impl Into<String>, record: R) -> Self {
        let name = std::any::type_name::<R>();
        Call {
            function: function.into(),
            record_type: name.rsplit("::").next().unwrap_or(name),
            words: bytemuck::cast_slice(std::slice::from_ref(&record)).to_vec(),
            tiles: 0,
            stages: false,
            goes_on: false,
            beside: false,
        }
    }

    /// Notes that a projection goes on where the one before it ends, if it does. Matrices with scales have them between their codes.
    pub(crate) fn join_to(&mut self, before: &Call) {
        const PLAIN: &str = "SCALES_NONE, SCALES_NONE>";
        if self.function != before.function
            || !self.function.starts_with("linear<")
            || !self.function.ends_with(PLAIN)
        {
            return;
        }
        let record = |call: &Call| -> LinearRecord {
            bytemuck::pod_read_unaligned(bytemuck::cast_slice(&call.words))
        };
        let (first, second) = (record(before), record(self));
        let grains = first.outputs.div_ceil(TILE_ROWS as u32) * first.matrix.units * UNIT_GRAINS;
        let plain = |record: &LinearRecord| (record.add, record.slices) == (0, 1);
        self.goes_on = plain(&first)
            && plain(&second)
            && first.row_set == second.row_set
            && first.operand == second.operand
            && first.matrix.units == second.matrix.units
            && first.matrix.codes + grains == second.matrix.codes;
    }
}

/// Makes projections of BF16 take their operand as another one of the phase stages it, if that one multiplies the same rows in halves.
pub(crate) fn lay_beside(calls: &mut [Call]) {
    // Columns of a lane in a unit of formats that are multiplied in halves.
    const HALVES: [(&str, usize); 2] =
        [("<CODES_E4M3, SCALES_NONE,", 8), ("<CODES_E2M1, SCALES_E4M3,", 16)];
    const PLAIN: &str = "linear<CODES_BF16, SCALES_NONE, SCALES_NONE>";
    let linear = |call: &Call| call.function.starts_with("linear<");
    let record = |call: &Call| -> LinearRecord {
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(&call.words))
    };
    let staged: Vec<(usize, LinearRecord)> = calls
        .iter()
        .filter(|call| linear(call))
        .filter_map(|call| {
            let (_, columns) = HALVES.iter().find(|(format, _)| call.function.contains(format))?;
            Some((*columns, record(call)))
        })
        .filter(|(_, record)| record.slices == 1)
        .collect();
    for call in calls.iter_mut().filter(|call| call.function == PLAIN) {
        let own = record(call);
        let same = |(_, other): &&(usize, LinearRecord)| {
            (other.operand, other.row_set) == (own.operand, own.row_set)
        };
        if let Some((columns, _)) = staged.iter().find(same) {
            call.function =
                format!("linear_beside<CODES_BF16, SCALES_NONE, SCALES_NONE, {columns}>");
            call.beside = true;
            // Each is a call of its own.
            call.goes_on = false;
        }
    }
}

/// Places, in grains, that a unit of a tile takes.
const UNIT_GRAINS: u32 = (UNIT_BYTES / GRAIN) as u32;

/// Tiles of a matrix whose columns are cut into slices only so that more workers share it, at most; columns of such a slice at least; and
/// slices at most.
const FEW_TILES: usize = 8;
const LEAST_SLICE: usize = 1024;
const MOST_SLICES: usize = 8;

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
    /// Slices of the phase's projections.
    taken: Vec<usize>,
    /// Which counters there are: for projections of so many slices, the first, second and so on of a phase. Counters only grow, so all
    /// that count by one must count to the same number.
    counters: Vec<(usize, usize)>,
}

impl Slices {
    /// Slices for workers that can stage `most_staged` bytes, with results from byte `start` of the arena on.
    pub(crate) fn new(most_staged: usize, start: usize) -> Self {
        Slices { most_staged, start, end: start, most: 0, taken: Vec::new(), counters: Vec::new() }
    }

    /// End of all results in the arena; 0 if there are none.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Begins a phase: the results of the one before were read.
    pub(crate) fn begin_phase(&mut self) {
        self.end = self.start;
        self.taken.clear();
    }

    /// Slices of a matrix, the place of their results in floats, and the place of its counters among all in grains.
    fn take(&mut self, layout: &LaneLayout) -> (u32, u32, u32) {
        let columns = layout.units() * 4 * layout.lane_cols();
        let mut slices = (columns * STAGED_COLUMN_BYTES).div_ceil(self.most_staged);
        // A few tiles, beside those of other matrices, would take their workers longer than all others.
        if layout.tiles() <= FEW_TILES {
            slices = slices.max((columns / LEAST_SLICE).min(MOST_SLICES));
        }
        if slices == 1 {
            return (1, 0, 0);
        }
        let wanted = (slices, self.taken.iter().filter(|taken| **taken == slices).count());
        let known = self.counters.iter().position(|counter| *counter == wanted);
        let index = known.unwrap_or(self.counters.len());
        if index == MOST_SLICED {
            return (1, 0, 0);
        }
        if known.is_none() {
            self.counters.push(wanted);
        }
        let partials = self.end;
        self.end += slices * layout.tiles() * TILE_ROWS * MAX_DECODE_ROWS * 4;
        self.most = self.most.max(self.end);
        self.taken.push(slices);
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
                Call { tiles: self.tiles(*weight), stages: true, ..call }
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
                Call { tiles: self.tiles(*weight), stages: true, ..call }
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
                Call { tiles: self.tiles(*gate), stages: true, ..call }
            }
            TaskKind::AttendRange { q, k, v, state, scale, partials, reach } => {
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
                let reach = match reach {
                    Reach::Own => "",
                    Reach::Pass => ", REACH_PASS",
                };
                Call::new(format!("attend_range<{}{reach}>", self.keys()), record)
            }
            TaskKind::Append { k, v, state } => {
                let record = AppendRecord {
                    kept: self.kept(*state),
                    key_stage: self.head(k),
                    value_input: self.buffer(*v),
                };
                Call::new(format!("append<{}>", self.keys()), record)
            }
            TaskKind::MergeRanges { partials, gate, state, output, reach } => {
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
                let function = match reach {
                    Reach::Own => "merge_ranges",
                    Reach::Pass => "merge_ranges<REACH_PASS>",
                };
                Call::new(function, record)
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
            TaskKind::Concatenate { inputs, output } => {
                let (first, second) = match inputs.as_slice() {
                    [first] => (*first, None),
                    [first, second] => (*first, Some(*second)),
                    _ => {
                        let kind = "concatenate of more than two";
                        return Err(DeviceError::Unsupported { kind });
                    }
                };
                let record = ConcatenateRecord {
                    first: self.buffer(first),
                    second: self.buffer(second.unwrap_or(first)),
                    output: self.buffer(*output),
                    first_width: self.width(first),
                    second_width: second.map_or(0, |second| self.width(second)),
                };
                Call::new("concatenate", record)
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
                let function = format!("expert_gate_up<{}>", self.format(*gates));
                Call { stages: true, ..Call::new(function, record) }
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
                let function = format!("expert_down<{}>", self.format(*downs));
                Call { stages: true, ..Call::new(function, record) }
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
            | TaskKind::AttendBlock { .. }
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

    /// Template argument for the type of keys and values.
    fn keys(&self) -> &'static str {
        match self.options.key_values {
            KeyValues::F32 => "KEYS_F32",
            KeyValues::Bf16 => "KEYS_BF16",
        }
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

#[cfg(test)]
mod tests {
    use lithos_format::{Codes, Encoding};

    use super::*;

    #[test]
    fn counters_count_to_one_number() {
        let encoding = Encoding { codes: Codes::Bf16, zero_point: 0, blocks: None };
        let layout = |rows, cols| LaneLayout::new(rows, cols, encoding).expect("a layout");
        let (few, long) = (layout(48, 5120), layout(5120, 17408));
        let mut slices = Slices::new(192 << 10, 0);
        let mut counted_to = std::collections::HashMap::new();
        for phase in [vec![&few, &few], vec![&long], vec![&long, &few]] {
            slices.begin_phase();
            let mut counters = Vec::new();
            for layout in phase {
                let (count, _, arrivals) = slices.take(layout);
                assert!(count > 1);
                assert_eq!(*counted_to.entry(arrivals).or_insert(count), count);
                assert!(!counters.contains(&arrivals), "two of a phase share a counter");
                counters.push(arrivals);
            }
        }
        assert_eq!(slices.take(&layout(4096, 1024)).0, 1);
        assert_eq!(slices.take(&layout(48, 1024)).0, 1);
    }

    fn linear(format: &str, codes: u32) -> Call {
        let mut record: LinearRecord = bytemuck::Zeroable::zeroed();
        (record.outputs, record.slices) = (48, 1);
        (record.matrix.units, record.matrix.codes) = (10, codes);
        Call::new(format!("linear<CODES_{format}, SCALES_NONE, SCALES_NONE>"), record)
    }

    #[test]
    fn small_matrices_take_the_rows_of_one_that_is_multiplied_in_halves() {
        // Three tiles of ten units: the second of BF16 lies behind the first.
        let mut calls = vec![linear("E4M3", 0), linear("BF16", 5000), linear("BF16", 5960)];
        let before = calls[1].clone();
        calls[2].join_to(&before);
        assert!(calls[2].goes_on, "alone they are a run");
        let mut alone = calls[1..].to_vec();
        lay_beside(&mut alone);
        assert_eq!(alone, calls[1..]);
        lay_beside(&mut calls);
        assert_eq!(calls[0], linear("E4M3", 0));
        for call in &calls[1..] {
            assert_eq!(call.function, "linear_beside<CODES_BF16, SCALES_NONE, SCALES_NONE, 8>");
            assert!(call.beside && !call.goes_on);
        }
    }
}
