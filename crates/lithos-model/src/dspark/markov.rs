//! The Markov head: what the token before, and in some heads the block's row and those before it, add to the logits of a place.
//!
//! With e = W_1[d_(k-1)] and h_k the block's row after its norm, the logits of place k get W_2 v_k, where v_k is
//! - `vanilla`: e;
//! - `gated`: sigmoid(W_g [h_k; e] + b) * e;
//! - `rnn`: tanh(o), with (g, c, o) = W [s; e; h_k] + b, after which s becomes sigmoid(g) s + (1 - sigmoid(g)) tanh(c); s is 0 before
//!   the first place.

use lithos_format::Checkpoint;

use super::DraftHead;
use crate::model::ModelError;

/// Kind of a Markov head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkovKind {
    Vanilla,
    Gated,
    Rnn,
}

impl MarkovKind {
    pub(super) const ALL: [MarkovKind; 3] =
        [MarkovKind::Vanilla, MarkovKind::Gated, MarkovKind::Rnn];

    /// The name in a configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            MarkovKind::Vanilla => "vanilla",
            MarkovKind::Gated => "gated",
            MarkovKind::Rnn => "rnn",
        }
    }
}

/// What a Markov head does with the vector of the token before.
#[derive(Clone, Debug)]
pub enum Markov {
    /// Nothing.
    Vanilla,
    /// It is gated by itself and the block's row.
    Gated(Projection),
    /// It goes through a recurrent cell with the block's row.
    Rnn(Projection),
}

/// A projection with a bias.
#[derive(Clone, Debug)]
pub struct Projection {
    /// `[rows, columns]`.
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Projection {
    fn apply(&self, parts: &[&[f32]]) -> Vec<f32> {
        let columns = self.weight.len() / self.bias.len();
        let rows = self.weight.chunks(columns).zip(&self.bias);
        rows.map(|(row, bias)| {
            let inputs = parts.iter().flat_map(|part| part.iter());
            row.iter().zip(inputs).map(|(w, x)| w * x).sum::<f32>() + bias
        })
        .collect()
    }
}

impl MarkovKind {
    /// The base name, within the head, of the projection that lies between its tables.
    pub(super) fn projection(self) -> Option<&'static str> {
        match self {
            MarkovKind::Vanilla => None,
            MarkovKind::Gated => Some("gate_proj"),
            MarkovKind::Rnn => Some("joint_proj"),
        }
    }
}

impl Markov {
    /// Reads what the head of this kind has beside its tables; `name` is the full name of a tensor of the head.
    pub(super) fn read(
        kind: MarkovKind,
        checkpoint: &Checkpoint,
        name: impl Fn(&str) -> String,
        rank: usize,
        hidden: usize,
    ) -> Result<Self, ModelError> {
        let Some(short) = kind.projection() else { return Ok(Markov::Vanilla) };
        let projection = |rows: usize, columns: usize| {
            let tensor = name(short);
            let matrix = checkpoint.matrix(&tensor)?;
            let found = [matrix.rows(), matrix.cols()];
            let wrong = |tensor: String, found: &[usize], wanted: &[usize]| ModelError::Shape {
                file: checkpoint.file_of(matrix.name()).to_path_buf(),
                tensor,
                found: found.to_vec(),
                wanted: wanted.to_vec(),
            };
            if found != [rows, columns] {
                return Err(wrong(tensor, &found, &[rows, columns]));
            }
            let mut weight = vec![0.0; rows * columns];
            weight
                .chunks_mut(columns)
                .enumerate()
                .for_each(|(row, out)| matrix.decode_row(row, out));
            let tensor = format!("{tensor}.bias");
            let bias = crate::weights::array(checkpoint, &tensor)?;
            if bias.len() != rows {
                return Err(wrong(tensor, &[bias.len()], &[rows]));
            }
            Ok(Projection { weight, bias })
        };
        Ok(match kind {
            MarkovKind::Vanilla => Markov::Vanilla,
            MarkovKind::Gated => Markov::Gated(projection(rank, hidden + rank)?),
            MarkovKind::Rnn => Markov::Rnn(projection(3 * rank, 2 * rank + hidden)?),
        })
    }
}

impl DraftHead {
    /// A row of the Markov head's first table: what a token is to the one after it.
    pub fn markov_vector(&self, token: u32) -> &[f32] {
        &self.markov_from[token as usize * self.rank..][..self.rank]
    }

    /// What a place's logits are corrected by ([`DraftHead::markov_bias`]), from the vector of the token before and the block's normed row.
    /// `state` is empty before the first place of a block.
    pub fn markov_step(&self, state: &mut Vec<f32>, normed: &[f32], before: &[f32]) -> Vec<f32> {
        match &self.markov {
            Markov::Vanilla => before.to_vec(),
            Markov::Gated(gate) => {
                let gates = gate.apply(&[normed, before]);
                gates.iter().zip(before).map(|(gate, x)| sigmoid(*gate) * x).collect()
            }
            Markov::Rnn(joint) => {
                state.resize(self.rank, 0.0);
                let mixed = joint.apply(&[state, before, normed]);
                let (gates, rest) = mixed.split_at(self.rank);
                let (candidates, outputs) = rest.split_at(self.rank);
                for ((s, gate), candidate) in state.iter_mut().zip(gates).zip(candidates) {
                    let gate = sigmoid(*gate);
                    *s = gate * *s + (1.0 - gate) * candidate.tanh();
                }
                outputs.iter().map(|output| output.tanh()).collect()
            }
        }
    }

    /// What the Markov head adds to a token's logit at a place with this vector.
    pub fn markov_bias(&self, vector: &[f32], token: u32) -> f32 {
        let row = &self.markov_to[token as usize * self.rank..][..self.rank];
        row.iter().zip(vector).map(|(a, b)| a * b).sum()
    }
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head of rank 1 beside rows of width 1.
    fn head(markov: Markov) -> DraftHead {
        DraftHead {
            block: 2,
            mask: 0,
            norm: (vec![1.0], 1e-6),
            rank: 1,
            markov_from: vec![0.5, -0.8],
            markov_to: vec![2.0, 3.0],
            markov,
            confidence: None,
        }
    }

    fn close(found: f32, wanted: f64) {
        assert!((f64::from(found) - wanted).abs() < 1e-6, "{found} against {wanted}");
    }

    #[test]
    fn a_gate_reads_the_row_and_then_the_vector() {
        let gate = Projection { weight: vec![0.7, -1.1], bias: vec![0.2] };
        let vector = head(Markov::Gated(gate)).markov_step(&mut Vec::new(), &[1.5], &[0.5]);
        let gate = 1.0 / (1.0 + (-(0.7 * 1.5 - 1.1 * 0.5 + 0.2_f64)).exp());
        close(vector[0], gate * 0.5);
    }

    #[test]
    fn a_cell_remembers_the_places_before() {
        // Columns are the state, the vector and the row; rows are the gate, the candidate and the output.
        let weight = vec![0.3, -0.2, 0.5, 0.9, 0.4, -0.6, 1.2, 0.1, 0.8];
        let head = head(Markov::Rnn(Projection { weight, bias: vec![0.1, -0.3, 0.05] }));
        let (mut state, mut s) = (Vec::new(), 0.0_f64);
        for (row, before) in [(1.5_f64, 0.5_f64), (-0.4, -0.8)] {
            let vector = head.markov_step(&mut state, &[row as f32], &[before as f32]);
            let gate = 1.0 / (1.0 + (-(0.3 * s - 0.2 * before + 0.5 * row + 0.1)).exp());
            let candidate = (0.9 * s + 0.4 * before - 0.6 * row - 0.3).tanh();
            close(vector[0], (1.2 * s + 0.1 * before + 0.8 * row + 0.05).tanh());
            s = gate * s + (1.0 - gate) * candidate;
            close(state[0], s);
        }
        close(head.markov_bias(&[0.5], 1), 1.5);
    }
}
