//! Task groups: what an operation becomes when it is cut into tasks.

use std::ops::Range;

use lithos_graph::{Graph, Reach, Rotary, Scope, ValueId};

/// Index of a buffer within its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The index into [`crate::Schedule::buffers`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a prepared operand within its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PreparedId(pub u32);

impl PreparedId {
    /// The index into [`crate::Schedule::prepared`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many rows a buffer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferRows {
    /// One per row of the pass.
    Pass,
    /// One per row that wants logits.
    Logit,
}

/// An intermediate array of f32, `[rows, width]`.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Name, after the graph value that it holds.
    pub name: String,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub rows: BufferRows,
    /// Another buffer whose memory this one takes over, because its writer updates that one in place.
    pub in_place_of: Option<BufferId>,
    /// Byte offset in the arena, set by the memory plan. A multiple of 64.
    pub offset: usize,
}

/// A layer norm that the reader of its output computes on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The weight.
    pub weight: ValueId,
    /// Added to the mean square.
    pub epsilon: f32,
    /// Added to the weight.
    pub weight_offset: f32,
}

/// Heads on their way to attention: an optional norm per head, then an optional rotation.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadStage {
    /// The projection's output.
    pub buffer: BufferId,
    /// Norm per head.
    pub norm: Option<Norm>,
    /// Rotation by position.
    pub rotary: Option<Rotary>,
}

/// What a projection multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinearInput {
    /// A buffer, through a norm if there is one; each worker brings it into operand form for itself. Cheaper than a join
    /// for a few rows.
    Inline {
        /// The buffer.
        buffer: BufferId,
        /// Norm on the way.
        norm: Option<Norm>,
    },
    /// Partial results of attention; each worker merges them in the order of their ranges, applies the output gate and brings
    /// the rows into operand form for itself. Few rows.
    Merged {
        /// Partial results, as of [`TaskKind::AttendRange`].
        partials: BufferId,
        /// Sigmoid gate of attention's output.
        gate: Option<BufferId>,
        /// Key/value state, for its shape.
        state: ValueId,
        /// Which positions were seen.
        reach: Reach,
    },
    /// An operand that an earlier phase prepared, for many rows.
    Prepared(PreparedId),
}

/// An operand in the form that projections multiply, prepared once by all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// What it is made from.
    pub buffer: BufferId,
    /// Norm on the way.
    pub norm: Option<Norm>,
    /// Weights that multiply it; their formats decide the operand's form.
    pub readers: Vec<ValueId>,
}

/// Which rows of the pass a group works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSet {
    /// All rows of the pass.
    Pass,
    /// The rows that want logits.
    Logit,
}

/// What a task of the group computes. Fields name buffers, weights and states.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskKind {
    /// A row of the embedding table per token. Task: a row.
    Gather {
        /// The table.
        table: ValueId,
        /// Output.
        output: BufferId,
    },
    /// Brings rows into operand form. Task: a block of rows.
    Prepare {
        /// The operand.
        prepared: PreparedId,
    },
    /// Projection, with the residual added in place if there is one. Task: tiles of output columns (and, for many rows, a
    /// block of rows).
    Linear {
        /// What is multiplied.
        input: LinearInput,
        /// The matrix.
        weight: ValueId,
        /// Output.
        output: BufferId,
        /// The output already holds the residual, and the product is added to it.
        add: bool,
        /// Rows.
        rows: RowSet,
    },
    /// `silu(gate x) * up x`. Task: as [`TaskKind::Linear`].
    GateUp {
        /// What is multiplied.
        input: LinearInput,
        /// Gate matrix.
        gate: ValueId,
        /// Up matrix.
        up: ValueId,
        /// Output.
        output: BufferId,
    },
    /// Norms and turns queries, norms and turns keys and appends them and the values. Task: a block of rows. Many rows.
    StageHeads {
        /// Queries, staged in place.
        q: HeadStage,
        /// Keys.
        k: HeadStage,
        /// Values.
        v: BufferId,
        /// Key/value state.
        state: ValueId,
    },
    /// Attention of all query rows of a key/value head over one range of keys, staging queries and keys on the way and
    /// appending the new rows where they fall in the range. Task: (slot, key/value head, range). Few rows.
    AttendRange {
        /// Queries.
        q: HeadStage,
        /// Keys of the pass's rows.
        k: HeadStage,
        /// Values of the pass's rows.
        v: BufferId,
        /// Key/value state.
        state: ValueId,
        /// Factor of the scores.
        scale: f32,
        /// Which positions are seen.
        reach: Reach,
        /// Partial results: `[key/value head][range][row][query head]`, each the target's
        /// running maximum and sum, then `head_dim` weighted values.
        partials: BufferId,
    },
    /// Merges partial results in the order of their ranges, and applies the output gate. Task: a row.
    MergeRanges {
        /// Partial results.
        partials: BufferId,
        /// Sigmoid gate of the output.
        gate: Option<BufferId>,
        /// Key/value state, for its shape.
        state: ValueId,
        /// Which positions were seen.
        reach: Reach,
        /// Output.
        output: BufferId,
    },
    /// Norms and turns keys and appends them and the values, where no attention of the pass reads them. Task: a block of rows.
    Append {
        /// Keys.
        k: HeadStage,
        /// Values.
        v: BufferId,
        /// Key/value state.
        state: ValueId,
    },
    /// Attention of a block of query rows of a key/value head over all keys, and the output gate. Task: (key/value head, block of
    /// rows). Many rows.
    AttendBlock {
        /// Staged queries.
        q: BufferId,
        /// Key/value state.
        state: ValueId,
        /// Factor of the scores.
        scale: f32,
        /// Sigmoid gate of the output.
        gate: Option<BufferId>,
        /// Output.
        output: BufferId,
    },
    /// Causal depthwise convolution and SiLU, and the history's new rows. Task: (slot, range of channels).
    Convolve {
        /// Rows that enter.
        input: BufferId,
        /// Taps.
        weight: ValueId,
        /// History.
        state: ValueId,
        /// Output.
        output: BufferId,
    },
    /// Gated delta rule. Task: (slot, value head, slice of its columns).
    GatedDelta {
        /// Convolved q, k, v.
        qkv: BufferId,
        /// Decay input.
        a: BufferId,
        /// Correction input.
        b: BufferId,
        /// Decay weight.
        a_log: ValueId,
        /// Decay bias.
        dt_bias: ValueId,
        /// State and its log.
        state: ValueId,
        /// Heads of queries and keys.
        key_heads: usize,
        /// Output.
        output: BufferId,
    },
    /// Norm per head, then a SiLU gate. Task: a row.
    GatedNorm {
        /// Normalised.
        input: BufferId,
        /// Gate.
        gate: BufferId,
        /// Weight.
        norm: Norm,
        /// Output.
        output: BufferId,
    },
    /// The experts of each row and their weights. Task: a row; or all rows, where the target groups them by expert meanwhile.
    Route {
        /// Logits of all experts.
        logits: BufferId,
        /// Experts of a row.
        chosen: usize,
        /// Output: [`route_words`] of each row, in the target's order.
        routes: BufferId,
    },
    /// `silu(gate x) * up x` of each row's experts. Task: tiles of output columns of one expert, for all rows that chose it. Other
    /// experts' matrices are not read.
    ExpertGateUp {
        /// What is multiplied.
        input: LinearInput,
        /// Experts of the rows.
        routes: BufferId,
        /// Experts of a row.
        chosen: usize,
        /// Gate matrices.
        gates: ValueId,
        /// Up matrices.
        ups: ValueId,
        /// Output: a part for each of the row's experts.
        output: BufferId,
    },
    /// Projections of what [`TaskKind::ExpertGateUp`] found by the same experts. Task: as of it.
    ExpertDown {
        /// What is multiplied.
        input: BufferId,
        /// Experts of the rows.
        routes: BufferId,
        /// Experts of a row.
        chosen: usize,
        /// Down matrices.
        downs: ValueId,
        /// Output: a part for each of the row's experts.
        output: BufferId,
    },
    /// The weighted sum of the row's experts, in the order of its routes, plus the gated shared expert, plus the residual that the
    /// output already holds if there is one. Task: columns of a row.
    Combine {
        /// Outputs of the row's experts.
        experts: BufferId,
        /// Their weights.
        routes: BufferId,
        /// Experts of a row.
        chosen: usize,
        /// Output of the shared expert.
        shared: BufferId,
        /// Sigmoid gate of the shared expert: one of a row.
        gate: BufferId,
        /// Output.
        output: BufferId,
        /// The output already holds the residual, and the sum is added to it.
        add: bool,
    },
    /// A norm that nothing could take in. Task: a row.
    RmsNorm {
        /// Input.
        input: BufferId,
        /// Weight and constants.
        norm: Norm,
        /// Output.
        output: BufferId,
    },
    /// A rotation that nothing could take in. Task: a row.
    Rotate {
        /// Input.
        input: BufferId,
        /// Elements of a head.
        head_dim: usize,
        /// Frequencies.
        rotary: Rotary,
        /// Output.
        output: BufferId,
    },
    /// Rows beside each other. Task: a row.
    Concatenate {
        /// Inputs, in order.
        inputs: Vec<BufferId>,
        /// Output.
        output: BufferId,
    },
    /// An elementwise operation that nothing could take in. Task: a row.
    Elementwise {
        /// Which.
        op: Elementwise,
        /// First input.
        a: BufferId,
        /// Second input.
        b: BufferId,
        /// Output.
        output: BufferId,
    },
}

/// Floats of a row's routes: an index and a weight for each of its experts, what targets need beside them to group rows by
/// expert, and one more.
pub const fn route_words(chosen: usize) -> usize {
    5 * chosen + 1
}

/// An elementwise operation of two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// `a + b`
    Add,
    /// `silu(a) * b`
    SiluMultiply,
    /// `a * sigmoid(b)`
    SigmoidMultiply,
}

impl TaskKind {
    /// A short name for listings. Fusion level `none` cuts where it changes.
    pub fn name(&self) -> &'static str {
        match self {
            TaskKind::Gather { .. } => "gather",
            TaskKind::Prepare { .. } => "prepare",
            TaskKind::Linear { .. } => "linear",
            TaskKind::GateUp { .. } => "gate_up",
            TaskKind::StageHeads { .. } => "stage_heads",
            TaskKind::AttendRange { .. } => "attend_range",
            TaskKind::MergeRanges { .. } => "merge_ranges",
            TaskKind::Append { .. } => "append",
            TaskKind::AttendBlock { .. } => "attend_block",
            TaskKind::Convolve { .. } => "convolve",
            TaskKind::GatedDelta { .. } => "gated_delta",
            TaskKind::GatedNorm { .. } => "gated_norm",
            TaskKind::Route { .. } => "route",
            TaskKind::ExpertGateUp { .. } => "expert_gate_up",
            TaskKind::ExpertDown { .. } => "expert_down",
            TaskKind::Combine { .. } => "combine",
            TaskKind::RmsNorm { .. } => "rms_norm",
            TaskKind::Rotate { .. } => "rotate",
            TaskKind::Concatenate { .. } => "concatenate",
            TaskKind::Elementwise { .. } => "elementwise",
        }
    }

    /// The matrices that the group reads.
    pub fn matrices(&self) -> Vec<ValueId> {
        match self {
            TaskKind::Gather { table, .. } => vec![*table],
            TaskKind::Linear { weight, .. } => vec![*weight],
            TaskKind::GateUp { gate, up, .. } => vec![*gate, *up],
            TaskKind::ExpertGateUp { gates, ups, .. } => vec![*gates, *ups],
            TaskKind::ExpertDown { downs, .. } => vec![*downs],
            _ => Vec::new(),
        }
    }

    /// Which part of its matrices a group reads at most in a pass of `rows` rows, as a numerator and a denominator: all, or those
    /// of the experts that rows chose.
    pub fn part_read(&self, graph: &Graph, rows: usize) -> (u64, u64) {
        match self {
            TaskKind::ExpertGateUp { gates: matrices, chosen, .. }
            | TaskKind::ExpertDown { downs: matrices, chosen, .. } => {
                let experts = graph.value(*matrices).experts();
                ((rows * chosen).min(experts) as u64, experts as u64)
            }
            _ => (1, 1),
        }
    }
}

/// What an access touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A buffer.
    Buffer(BufferId),
    /// A prepared operand.
    Prepared(PreparedId),
    /// A state.
    State(ValueId),
}

/// A range of columns of a buffer or state that a group reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What.
    pub place: Place,
    /// Which columns.
    pub columns: Range<usize>,
}

impl Access {
    /// Whether two accesses touch a common element.
    pub fn overlaps(&self, other: &Access) -> bool {
        self.place == other.place
            && self.columns.start < other.columns.end
            && other.columns.start < self.columns.end
    }
}

/// An operation cut into tasks, with its effects.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    /// What its tasks compute.
    pub kind: TaskKind,
    /// Where in the model it stands.
    pub scope: Scope,
    /// What it reads.
    pub reads: Vec<Access>,
    /// What it writes.
    pub writes: Vec<Access>,
}

impl TaskGroup {
    /// Whether the groups must not run at once.
    pub fn conflicts(&self, other: &TaskGroup) -> bool {
        let any = |left: &[Access], right: &[Access]| {
            left.iter().any(|access| right.iter().any(|other| access.overlaps(other)))
        };
        any(&self.writes, &other.reads)
            || any(&self.reads, &other.writes)
            || any(&self.writes, &other.writes)
    }
}
