//! Values: what operations read and write.

use std::fmt;

use lithos_format::Encoding;

/// Index of a value within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The index into [`crate::Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One extent of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// The rows of the running pass: one per token.
    Rows,
    /// A fixed extent.
    Fixed(usize),
}

/// Element type of a value that is not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// Token ids, 32-bit unsigned.
    Token,
}

/// A value of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Unique name, `layers.3.mixer.q` for instance.
    pub name: String,
    /// Extents, outermost first. Rows come first where they occur.
    pub shape: Vec<Dimension>,
    /// Element type (weights: the type they are decoded to).
    pub dtype: DType,
    /// Where the value comes from.
    pub kind: ValueKind,
}

impl Value {
    /// Elements of one row: the product of the fixed extents.
    pub fn width(&self) -> usize {
        self.shape
            .iter()
            .map(|dimension| match dimension {
                Dimension::Rows => 1,
                Dimension::Fixed(extent) => *extent,
            })
            .product()
    }

    /// Experts that the value is a weight of; 1 if it is none of a mixture.
    pub fn experts(&self) -> usize {
        match (self.weight().map(|source| source.form), self.shape.first()) {
            (Some(WeightForm::Experts(_)), Some(Dimension::Fixed(experts))) => *experts,
            _ => 1,
        }
    }

    /// The weight's source, if the value is one.
    pub fn weight(&self) -> Option<&WeightSource> {
        match &self.kind {
            ValueKind::Weight(source) => Some(source),
            _ => None,
        }
    }

    /// The state's kind, if the value is one.
    pub fn state(&self) -> Option<&StateKind> {
        match &self.kind {
            ValueKind::State(kind) => Some(kind),
            _ => None,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum ValueKind {
    /// Given with each pass.
    Input,
    /// Read from the checkpoint.
    Weight(WeightSource),
    /// Kept between passes, per slot.
    State(StateKind),
    /// Written by an operation.
    Produced,
}

/// What a state holds. Every state belongs to one layer and exists once per slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Keys and values of every position.
    KeyValue {
        /// Key/value heads.
        heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// The last `width - 1` rows that entered a causal convolution.
    ConvolutionHistory {
        /// Channels of a row.
        channels: usize,
        /// Taps of the convolution.
        width: usize,
    },
    /// The recurrent matrix of a gated delta rule: one `[key_dim, value_dim]` matrix per value head.
    DeltaRule {
        /// Value heads.
        heads: usize,
        /// Rows of a head's matrix.
        key_dim: usize,
        /// Columns of a head's matrix.
        value_dim: usize,
    },
}

/// Stands in a name for the number of each expert.
pub const EXPERT: char = '*';

/// How a weight is used, and so how it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightForm {
    /// A matrix `[rows, columns]` that multiplies activations; it stays packed in its own format.
    Matrix(Encoding),
    /// A matrix `[rows, columns]` for each expert of a mixture, all in one format: a value `[experts, rows, columns]`.
    Experts(Encoding),
    /// A small array that is decoded to f32 once.
    Array,
}

/// Where a weight's rows come from.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightSource {
    /// The checkpoint's name: the base name of a matrix (without `.weight`), the full name of an array. Of experts, either
    /// the base names of their matrices, with [`EXPERT`] in the place of the expert's number, or the full name of one tensor
    /// that holds all of them.
    pub tensor: String,
    /// Which rows of the stored tensor make up the value, in which order. Matrices of experts count as one under the other.
    pub rows: RowMap,
    /// Matrix or array.
    pub form: WeightForm,
}

/// A selection and order of a stored tensor's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowMap {
    /// All rows as stored.
    All,
    /// One part of every head, where a head's rows are stored together: row `h * rows + r` of the value is row
    /// `h * stride + offset + r` of the tensor. Splits a projection that interleaves queries and gates by head.
    HeadPart {
        /// Rows taken from each head.
        rows: usize,
        /// Rows stored for each head.
        stride: usize,
        /// First row taken within a head.
        offset: usize,
    },
    /// Undoes the interleaving of rotary pairs that GGUF conversions of Llama apply to query and key projections:
    /// there, rows `2i` and `2i + 1` of a head are the pair `(i, i + head_dim / 2)` of the original.
    RotaryPairs {
        /// Rows of a head.
        head_dim: usize,
    },
}

impl WeightSource {
    /// Whether every expert has a matrix of its own.
    pub fn is_per_expert(&self) -> bool {
        matches!(self.form, WeightForm::Experts(_)) && self.tensor.contains(EXPERT)
    }

    /// The names of what is stored: one for each of `experts` where each has a matrix of its own, else one.
    pub fn stored_names(&self, experts: usize) -> Vec<String> {
        match self.is_per_expert() {
            true => (0..experts)
                .map(|expert| self.tensor.replace(EXPERT, &expert.to_string()))
                .collect(),
            false => vec![self.tensor.clone()],
        }
    }
}

impl RowMap {
    /// The stored row behind row `row` of the value.
    pub fn source_row(&self, row: usize) -> usize {
        match *self {
            RowMap::All => row,
            RowMap::HeadPart { rows, stride, offset } => {
                (row / rows) * stride + offset + row % rows
            }
            RowMap::RotaryPairs { head_dim } => {
                let (head, within, half) = (row / head_dim, row % head_dim, head_dim / 2);
                head * head_dim + (within % half) * 2 + within / half
            }
        }
    }

    /// How many rows the value has when the stored tensor has `stored`.
    pub fn rows(&self, stored: usize) -> usize {
        match *self {
            RowMap::All | RowMap::RotaryPairs { .. } => stored,
            RowMap::HeadPart { rows, stride, .. } => stored / stride * rows,
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dimension::Rows => formatter.write_str("T"),
            Dimension::Fixed(extent) => write!(formatter, "{extent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_parts_split_queries_from_gates() {
        let gate = RowMap::HeadPart { rows: 2, stride: 4, offset: 2 };
        let rows: Vec<usize> = (0..4).map(|row| gate.source_row(row)).collect();
        assert_eq!(rows, [2, 3, 6, 7]);
        assert_eq!(gate.rows(8), 4);
    }

    #[test]
    fn rotary_pairs_return_to_halves() {
        let map = RowMap::RotaryPairs { head_dim: 4 };
        // Stored: pairs (0, 2) and (1, 3) interleaved; wanted: 0, 1, 2, 3.
        let rows: Vec<usize> = (0..8).map(|row| map.source_row(row)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
