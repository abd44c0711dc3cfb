//! Parameter records: what a task group is told, one 32-bit word after the other. A record's C text is made from its Rust definition.

use bytemuck::{Pod, Zeroable};

/// A field that is not there: no norm, no gate.
pub const NOTHING: u32 = u32::MAX;

/// The C type of a record's field.
trait Field {
    const NAME: &'static str;
}

impl Field for u32 {
    const NAME: &'static str = "uint";
}

impl Field for f32 {
    const NAME: &'static str = "float";
}

macro_rules! records {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty,)+ })+) => {
        $(
            $(#[doc = $doc])+
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
            pub struct $name {
                $($(#[doc = $field_doc])+ pub $field: $type,)+
            }

            impl Field for $name {
                const NAME: &'static str = stringify!($name);
            }
        )+

        /// C definitions of all records.
        pub fn text() -> String {
            let mut text = String::new();
            $(
                $(text += &format!("//{}\n", $doc);)+
                text += &format!("struct {} {{\n", stringify!($name));
                $(
                    $(text += &format!("    //{}\n", $field_doc);)+
                    text += &format!("    {} {};\n", <$type as Field>::NAME, stringify!($field));
                )+
                text += "};\n\n";
            )+
            text
        }
    };
}

records! {
    /// A packed matrix. Offsets count 16 bytes from the start of the weights.
    MatrixRecord {
        /// Its codes.
        codes: u32,
        /// Its block scales.
        scales: u32,
        /// Its block biases.
        biases: u32,
        /// Factor of the whole matrix.
        tensor_scale: f32,
        /// Subtracted from unsigned codes.
        zero_point: u32,
        /// Units of a tile.
        units: u32,
        /// Columns of a block.
        block_columns: u32,
        /// Blocks of a row.
        blocks: u32,
    }
    /// What a projection multiplies. Offsets into the arena count floats.
    OperandRecord {
        /// The rows.
        input: u32,
        /// Floats of a row.
        width: u32,
        /// Weight of the norm, among the small arrays; or nothing.
        norm: u32,
        /// Added to the mean square.
        epsilon: f32,
        /// Added to the weight.
        norm_offset: f32,
    }
    /// Rows of an embedding table.
    GatherRecord {
        /// The table.
        table: MatrixRecord,
        /// Output, in the arena.
        output: u32,
        /// Floats of a row.
        width: u32,
    }
    /// A projection.
    LinearRecord {
        /// The matrix.
        matrix: MatrixRecord,
        /// What it multiplies.
        operand: OperandRecord,
        /// Output, in the arena.
        output: u32,
        /// Floats of an output row.
        outputs: u32,
        /// Whether the output already holds a residual.
        add: u32,
        /// 0: all rows of the pass; 1: those that want logits.
        row_set: u32,
        /// Slices of the columns, each by other workers.
        slices: u32,
        /// What slices found, in the arena: `[8 rows][slice][column][row]`.
        partials: u32,
        /// Counters of workers that have come to the end of a slice, in the states.
        arrivals: u32,
    }
    /// The head, and what becomes of its logits.
    ChooseRecord {
        /// The matrix.
        matrix: MatrixRecord,
        /// What it multiplies.
        operand: OperandRecord,
        /// Logits, in the arena.
        output: u32,
        /// Tokens of the vocabulary.
        outputs: u32,
        /// What workers keep of each row, in the arena: `[row][worker][entry][logit or score, token]`.
        lists: u32,
        /// Counter of workers that have come to the end, in the states.
        arrivals: u32,
        /// Chosen tokens, in the states: `[slot][place]`.
        ring: u32,
        /// How often tokens were there before, in the states: `[slot][token]`.
        counts: u32,
        /// Biases of tokens, in the states: `[slot][token]`.
        biases: u32,
        /// Tokens that may be chosen, in the states, one bit each: `[slot][word]`.
        masks: u32,
    }
    /// The two projections of a feed-forward network, and SiLU of the first times the second.
    GateUpRecord {
        /// Gate.
        gate: MatrixRecord,
        /// Up.
        up: MatrixRecord,
        /// What they multiply.
        operand: OperandRecord,
        /// Output, in the arena.
        output: u32,
        /// Floats of an output row.
        outputs: u32,
    }
    /// The choice of experts.
    RouteRecord {
        /// Logits, in the arena.
        logits: u32,
        /// Experts of the mixture.
        experts: u32,
        /// Experts of a row.
        chosen: u32,
        /// What is found, in the arena: `Routes`.
        routes: u32,
    }
    /// The two projections of each chosen expert, and SiLU of the first times the second.
    ExpertGateUpRecord {
        /// Gates of all experts.
        gates: MatrixRecord,
        /// Ups of all experts.
        ups: MatrixRecord,
        /// What they multiply.
        operand: OperandRecord,
        /// Factor of each gate, among the small arrays.
        gate_factors: u32,
        /// Factor of each up, among the small arrays.
        up_factors: u32,
        /// Experts of the rows, in the arena.
        routes: u32,
        /// Experts of a row.
        chosen: u32,
        /// Output, in the arena: a row for each pair of row and expert.
        output: u32,
        /// Floats of an output row.
        outputs: u32,
    }
    /// The last projection of each chosen expert.
    ExpertDownRecord {
        /// Downs of all experts.
        downs: MatrixRecord,
        /// What they multiply: a row for each pair.
        operand: OperandRecord,
        /// Factor of each, among the small arrays.
        factors: u32,
        /// Experts of the rows, in the arena.
        routes: u32,
        /// Experts of a row.
        chosen: u32,
        /// Output, in the arena: a row for each pair.
        output: u32,
        /// Floats of an output row.
        outputs: u32,
    }
    /// The sum of a row's experts.
    CombineRecord {
        /// Outputs of experts, in the arena: a row for each pair.
        experts: u32,
        /// Weights of the rows' experts, in the arena.
        routes: u32,
        /// Experts of a row.
        chosen: u32,
        /// Output of the shared expert, in the arena.
        shared: u32,
        /// Its gate, in the arena: one of each row.
        gate: u32,
        /// Output, in the arena.
        output: u32,
        /// Floats of a row.
        width: u32,
        /// Whether the output already holds a residual.
        add: u32,
    }
    /// How a head is brought into the form of attention.
    HeadRecord {
        /// The rows, in the arena.
        input: u32,
        /// Weight of the norm, among the small arrays; or nothing.
        norm: u32,
        /// Added to the mean square.
        epsilon: f32,
        /// Added to the weight.
        norm_offset: f32,
        /// Frequencies of the rotation, and the factor of what turns, among the small arrays.
        frequencies: u32,
        /// Elements that turn.
        rotary_width: u32,
    }
    /// Pages of keys and values of one layer. Offsets count 16 bytes from the start of the states.
    KeptRecord {
        /// Keys.
        keys: u32,
        /// Values.
        values: u32,
        /// Key/value heads.
        heads: u32,
        /// Elements of a head.
        width: u32,
        /// Entries of a slot in the page table.
        pages_per_slot: u32,
    }
    /// Attention over ranges of keys.
    AttendRecord {
        /// Pages.
        kept: KeptRecord,
        /// How queries are staged.
        query_stage: HeadRecord,
        /// How keys are staged.
        key_stage: HeadRecord,
        /// Values of the pass's rows, in the arena.
        value_input: u32,
        /// Query heads of a key/value head.
        group: u32,
        /// Factor of the scores.
        scale: f32,
        /// Partial results, in the arena.
        partials: u32,
        /// Ranges of 32 keys that come first.
        fine_ranges: u32,
        /// Keys of a range after them.
        range_keys: u32,
        /// Ranges at most.
        ranges: u32,
    }
    /// Keys and values that no attention of the pass reads.
    AppendRecord {
        /// Pages.
        kept: KeptRecord,
        /// How keys are staged.
        key_stage: HeadRecord,
        /// Values of the pass's rows, in the arena.
        value_input: u32,
    }
    /// Merge of ranges.
    MergeRecord {
        /// Partial results, in the arena.
        partials: u32,
        /// Gate of the output, in the arena; or nothing.
        gate: u32,
        /// Output, in the arena.
        output: u32,
        /// Key/value heads.
        kept_heads: u32,
        /// Query heads of a key/value head.
        group: u32,
        /// Elements of a head.
        width: u32,
        /// Ranges of 32 keys that come first.
        fine_ranges: u32,
        /// Keys of a range after them.
        range_keys: u32,
        /// Ranges at most.
        ranges: u32,
    }
    /// Causal convolution.
    ConvolveRecord {
        /// Rows that enter, in the arena.
        input: u32,
        /// Output, in the arena.
        output: u32,
        /// Weights, the taps of a channel adjacent, among the small arrays.
        weight: u32,
        /// History, in the states.
        history: u32,
        /// Channels.
        channels: u32,
        /// Taps.
        taps: u32,
    }
    /// Gated delta rule.
    DeltaRecord {
        /// Convolved queries, keys and values, in the arena.
        qkv: u32,
        /// Decay input, in the arena.
        a: u32,
        /// Correction input, in the arena.
        b: u32,
        /// Decay weights, among the small arrays.
        a_log: u32,
        /// Decay biases, among the small arrays.
        dt_bias: u32,
        /// State and log of slot 0, in the states.
        state: u32,
        /// Floats of a slot's state and log.
        slot_floats: u32,
        /// Heads of queries and keys.
        key_heads: u32,
        /// Heads of values.
        value_heads: u32,
        /// Elements of a key.
        key_width: u32,
        /// Elements of a value.
        value_width: u32,
        /// Output, in the arena.
        output: u32,
    }
    /// Norm of each head, or of a whole row as one head; then a SiLU gate.
    HeadNormRecord {
        /// Normalised, in the arena.
        input: u32,
        /// Gate, in the arena; or nothing.
        gate: u32,
        /// Output, in the arena.
        output: u32,
        /// Heads of a row.
        heads: u32,
        /// Elements of a head.
        head_width: u32,
        /// Weight, among the small arrays.
        norm: u32,
        /// Added to the mean square.
        epsilon: f32,
        /// Added to the weight.
        norm_offset: f32,
    }
    /// An elementwise operation.
    ElementwiseRecord {
        /// First input, in the arena.
        a: u32,
        /// Second input, in the arena.
        b: u32,
        /// Output, in the arena.
        output: u32,
        /// Floats of a row.
        width: u32,
    }
    /// Rows beside each other.
    ConcatenateRecord {
        /// First part, in the arena.
        first: u32,
        /// Second part, in the arena.
        second: u32,
        /// Output, in the arena.
        output: u32,
        /// Floats of a row of the first.
        first_width: u32,
        /// Floats of a row of the second; 0 if there is none.
        second_width: u32,
    }
}
