//! The oracle: runs a graph in f32, one operation at a time, in the most obvious way.
//!
//! Nothing here is fast. Weights are decoded row by row where they are used, the gated delta rule is its recurrence, attention
//! is a plain softmax over all keys. Backends are compared with this, so it must stay easy to read beside the equations.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::graph::Graph;
use crate::op::{Op, OpKind, Reach};
use crate::rotary::Rotary;
use crate::value::{Dimension, StateKind, ValueId, WeightSource};

/// Where the interpreter gets weights from.
pub trait WeightStore {
    /// Decodes row `row` of a weight matrix (after its [`crate::RowMap`]) into `out`.
    fn matrix_row(&self, source: &WeightSource, row: usize, out: &mut [f32]);
    /// Decodes a small weight in storage order.
    fn array(&self, source: &WeightSource) -> Vec<f32>;
}

/// Why a pass could not run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InterpreterError {
    /// A token id at or past the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocabulary}")]
    TokenOutsideVocabulary {
        /// The id.
        token: u32,
        /// Rows of the embedding table.
        vocabulary: usize,
    },
}

/// What one sequence keeps between passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceState {
    /// Positions taken in so far.
    pub position: usize,
    /// Contents of each state value. Key/value: all keys, then all values, one row per position. History: the last rows
    /// that entered, oldest first. Delta rule: `[heads, key_dim, value_dim]`.
    pub states: BTreeMap<ValueId, Vec<Vec<f32>>>,
}

/// Runs graphs in f32.
pub struct Interpreter<'a> {
    graph: &'a Graph,
    weights: &'a dyn WeightStore,
    arrays: BTreeMap<ValueId, Vec<f32>>,
}

impl<'a> Interpreter<'a> {
    /// An interpreter for one model. Small weights are decoded here, matrices when they are used.
    pub fn new(graph: &'a Graph, weights: &'a dyn WeightStore) -> Self {
        let arrays = graph
            .weights()
            .filter_map(|id| {
                let source = graph.value(id).weight()?;
                matches!(source.form, crate::WeightForm::Array).then(|| (id, weights.array(source)))
            })
            .collect();
        Interpreter { graph, weights, arrays }
    }

    /// The state of an empty sequence.
    pub fn empty_state(&self) -> SequenceState {
        let states = self.graph.states().filter_map(|id| {
            let contents = match self.graph.value(id).state()? {
                StateKind::KeyValue { .. } => vec![Vec::new(), Vec::new()],
                StateKind::ConvolutionHistory { channels, width } => {
                    vec![vec![0.0; channels * (width - 1)]]
                }
                StateKind::DeltaRule { heads, key_dim, value_dim } => {
                    vec![vec![0.0; heads * key_dim * value_dim]]
                }
            };
            Some((id, contents))
        });
        SequenceState { position: 0, states: states.collect() }
    }

    /// Runs one pass over `tokens`, which follow what `state` has taken in, and returns the logits `[T, vocabulary]`.
    ///
    /// # Errors
    /// [`InterpreterError`] for a token outside the vocabulary; the state is then unchanged.
    pub fn run(
        &self,
        state: &mut SequenceState,
        tokens: &[u32],
    ) -> Result<Vec<f32>, InterpreterError> {
        let mut values = self.run_values(state, tokens)?;
        Ok(values.remove(&self.graph.logits).unwrap_or_default())
    }

    /// Like [`Interpreter::run`], and returns every produced value `[T, width]`.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    pub fn run_values(
        &self,
        state: &mut SequenceState,
        tokens: &[u32],
    ) -> Result<BTreeMap<ValueId, Vec<f32>>, InterpreterError> {
        let vocabulary = self.graph.limits.vocabulary;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(InterpreterError::TokenOutsideVocabulary { token: *token, vocabulary });
        }
        let mut pass = Pass { interpreter: self, tokens, state, values: BTreeMap::new() };
        for op in &self.graph.ops {
            pass.execute(op);
        }
        let values = pass.values;
        state.position += tokens.len();
        Ok(values)
    }

    fn row_map(&self, id: ValueId) -> &WeightSource {
        self.graph.value(id).weight().expect("validated: a weight")
    }
}

struct Pass<'p> {
    interpreter: &'p Interpreter<'p>,
    tokens: &'p [u32],
    state: &'p mut SequenceState,
    values: BTreeMap<ValueId, Vec<f32>>,
}

impl Pass<'_> {
    fn execute(&mut self, op: &Op) {
        let input = |position: usize| -> &[f32] { self.read(op.inputs[position]) };
        let result = match &op.kind {
            OpKind::Embedding => Some(self.embedding(op.inputs[0])),
            OpKind::RmsNorm { epsilon, weight_offset } => {
                Some(rms_norm(input(0), input(1), *epsilon, *weight_offset))
            }
            OpKind::Linear => Some(self.linear(op)),
            OpKind::Add => Some(zip(input(0), input(1), |a, b| a + b)),
            OpKind::SiluMultiply => Some(zip(input(0), input(1), |gate, up| silu(gate) * up)),
            OpKind::SigmoidMultiply => Some(zip(input(0), input(1), |x, gate| x * sigmoid(gate))),
            OpKind::Rotary { head_dim, rotary } => Some(self.rotary(input(0), *head_dim, rotary)),
            OpKind::AppendKeyValue => {
                let (k, v) = (input(0).to_vec(), input(1).to_vec());
                let state = self.state_of(op.updates[0]);
                state[0].extend(k);
                state[1].extend(v);
                None
            }
            OpKind::Attention { heads, key_value_heads, head_dim, scale, reach } => {
                let shape = AttentionShape {
                    heads: *heads,
                    key_value_heads: *key_value_heads,
                    head_dim: *head_dim,
                    scale: *scale,
                    reach: *reach,
                };
                let state = &self.state.states[&op.inputs[1]];
                Some(attention(input(0), &state[0], &state[1], self.state.position, shape))
            }
            OpKind::Concatenate => {
                let parts: Vec<(&[f32], usize)> = op
                    .inputs
                    .iter()
                    .map(|id| (self.read(*id), self.interpreter.graph.value(*id).width()))
                    .collect();
                let row = |row: usize| {
                    parts.iter().flat_map(move |(x, width)| &x[row * width..(row + 1) * width])
                };
                Some((0..self.tokens.len()).flat_map(row).copied().collect())
            }
            OpKind::Convolution { width } => Some(self.convolution(op, *width)),
            OpKind::GatedDelta { .. } => Some(self.gated_delta(op)),
            OpKind::GatedNorm { epsilon } => {
                let normed = rms_norm(input(0), input(2), *epsilon, 0.0);
                Some(zip(&normed, input(1), |x, z| x * silu(z)))
            }
            OpKind::Route { chosen } => {
                let experts = self.interpreter.graph.value(op.inputs[0]).width();
                Some(input(0).chunks(experts).flat_map(|row| route(row, *chosen)).collect())
            }
            OpKind::Experts { chosen } => Some(self.experts(op, *chosen)),
            OpKind::Combine { chosen } => {
                Some(combine(input(0), input(1), input(2), input(3), *chosen))
            }
        };
        if let Some(result) = result {
            self.values.insert(op.outputs[0], result);
        }
    }

    fn read(&self, id: ValueId) -> &[f32] {
        self.values
            .get(&id)
            .or_else(|| self.interpreter.arrays.get(&id))
            .expect("validated: written before it is read")
    }

    fn state_of(&mut self, id: ValueId) -> &mut Vec<Vec<f32>> {
        self.state.states.get_mut(&id).expect("validated: a state of this graph")
    }

    fn embedding(&self, table: ValueId) -> Vec<f32> {
        let source = self.interpreter.row_map(table);
        let rows = self.interpreter.graph.limits.vocabulary;
        let width = self.interpreter.graph.value(table).width() / rows;
        let mut out = vec![0.0; self.tokens.len() * width];
        for (row, token) in out.chunks_mut(width).zip(self.tokens) {
            self.interpreter.weights.matrix_row(source, *token as usize, row);
        }
        out
    }

    fn linear(&self, op: &Op) -> Vec<f32> {
        let x = self.read(op.inputs[0]);
        let source = self.interpreter.row_map(op.inputs[1]);
        let (rows, outputs) =
            (self.tokens.len(), self.interpreter.graph.value(op.outputs[0]).width());
        let columns = x.len() / rows;
        let mut out = vec![0.0; rows * outputs];
        let mut weight = vec![0.0; columns];
        for n in 0..outputs {
            self.interpreter.weights.matrix_row(source, n, &mut weight);
            for t in 0..rows {
                out[t * outputs + n] = dot(&x[t * columns..][..columns], &weight);
            }
        }
        out
    }

    fn experts(&self, op: &Op, chosen: usize) -> Vec<f32> {
        let (x, routes) = (self.read(op.inputs[0]), self.read(op.inputs[1]));
        let width = x.len() / self.tokens.len();
        let mut out = Vec::new();
        for (x, routes) in x.chunks(width).zip(routes.chunks(2 * chosen)) {
            for expert in &routes[..chosen] {
                let expert = *expert as usize;
                let gate = self.expert(op.inputs[2], expert, x);
                let up = self.expert(op.inputs[3], expert, x);
                let activated = zip(&gate, &up, |gate, up| silu(gate) * up);
                out.extend(self.expert(op.inputs[4], expert, &activated));
            }
        }
        out
    }

    /// One expert's matrix times a row.
    fn expert(&self, matrices: ValueId, expert: usize, x: &[f32]) -> Vec<f32> {
        let value = self.interpreter.graph.value(matrices);
        let source = self.interpreter.row_map(matrices);
        let Some(Dimension::Fixed(rows)) = value.shape.get(1) else {
            unreachable!("validated: matrices of experts")
        };
        let mut weight = vec![0.0; x.len()];
        (expert * rows..(expert + 1) * rows)
            .map(|row| {
                self.interpreter.weights.matrix_row(source, row, &mut weight);
                dot(x, &weight)
            })
            .collect()
    }

    fn rotary(&self, x: &[f32], head_dim: usize, rotary: &Rotary) -> Vec<f32> {
        let (frequencies, magnitude) = (rotary.frequencies(), f64::from(rotary.magnitude()));
        let mut out = x.to_vec();
        let (width, half) = (x.len() / self.tokens.len(), frequencies.len());
        for (t, row) in out.chunks_mut(width).enumerate() {
            let position = (self.state.position + t) as f64;
            for head in row.chunks_mut(head_dim) {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let (sin, cos) = (position * frequency).sin_cos();
                    let (sin, cos) = (magnitude * sin, magnitude * cos);
                    let (a, b) = (f64::from(head[i]), f64::from(head[i + half]));
                    head[i] = (a * cos - b * sin) as f32;
                    head[i + half] = (b * cos + a * sin) as f32;
                }
            }
        }
        out
    }

    fn convolution(&mut self, op: &Op, width: usize) -> Vec<f32> {
        let u = self.read(op.inputs[0]);
        let weight = self.read(op.inputs[1]);
        let channels = u.len() / self.tokens.len();
        let mut window = self.state.states[&op.inputs[2]][0].clone();
        window.extend_from_slice(u);
        let mut out = vec![0.0; u.len()];
        for (t, row) in out.chunks_mut(channels).enumerate() {
            for (channel, y) in row.iter_mut().enumerate() {
                let sum: f32 = (0..width)
                    .map(|tap| {
                        weight[channel * width + tap] * window[(t + tap) * channels + channel]
                    })
                    .sum();
                *y = silu(sum);
            }
        }
        let kept = window.split_off(window.len() - (width - 1) * channels);
        self.state_of(op.updates[0])[0] = kept;
        out
    }

    fn gated_delta(&mut self, op: &Op) -> Vec<f32> {
        let OpKind::GatedDelta { key_heads, value_heads, key_dim, value_dim } = op.kind else {
            unreachable!("called for gated delta operations only")
        };
        let [qkv, a, b, a_log, dt_bias] =
            [0, 1, 2, 3, 4].map(|position| self.read(op.inputs[position]).to_vec());
        let rows = self.tokens.len();
        let (keys, width) =
            (key_heads * key_dim, 2 * key_heads * key_dim + value_heads * value_dim);
        let state = &mut self.state_of(op.updates[0])[0];
        let mut out = vec![0.0; rows * value_heads * value_dim];
        for t in 0..rows {
            let row = &qkv[t * width..][..width];
            for h in 0..value_heads {
                let key_head = h / (value_heads / key_heads);
                let scale = 1.0 / (key_dim as f32).sqrt();
                let q = unit(&row[key_head * key_dim..][..key_dim], scale);
                let k = unit(&row[keys + key_head * key_dim..][..key_dim], 1.0);
                let v = &row[2 * keys + h * value_dim..][..value_dim];
                let beta = sigmoid(b[t * value_heads + h]);
                let g = -a_log[h].exp() * softplus(a[t * value_heads + h] + dt_bias[h]);
                let s = &mut state[h * key_dim * value_dim..][..key_dim * value_dim];
                let o = &mut out[(t * value_heads + h) * value_dim..][..value_dim];
                delta_step(s, &q, &k, v, beta, g.exp(), o);
            }
        }
        out
    }
}

#[derive(Clone, Copy)]
struct AttentionShape {
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
    scale: f32,
    reach: Reach,
}

fn attention(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    first: usize,
    shape: AttentionShape,
) -> Vec<f32> {
    let AttentionShape { heads, key_value_heads, head_dim, scale, reach } = shape;
    let (row_width, key_width) = (heads * head_dim, key_value_heads * head_dim);
    let mut out = vec![0.0; q.len()];
    for t in 0..q.len() / row_width {
        let visible = match reach {
            Reach::Own => first + t + 1,
            Reach::Pass => first + q.len() / row_width,
        };
        for head in 0..heads {
            let shared = head / (heads / key_value_heads) * head_dim;
            let query = &q[t * row_width + head * head_dim..][..head_dim];
            let mut scores: Vec<f32> = (0..visible)
                .map(|p| dot(query, &keys[p * key_width + shared..][..head_dim]) * scale)
                .collect();
            softmax(&mut scores);
            let o = &mut out[t * row_width + head * head_dim..][..head_dim];
            for (p, score) in scores.iter().enumerate() {
                for (sum, v) in o.iter_mut().zip(&values[p * key_width + shared..][..head_dim]) {
                    *sum += score * v;
                }
            }
        }
    }
    out
}

/// The experts of a row, then their weights.
fn route(logits: &[f32], chosen: usize) -> Vec<f32> {
    let key = |expert: usize| match logits[expert].is_nan() {
        true => f32::NEG_INFINITY,
        false => logits[expert],
    };
    let mut experts: Vec<usize> = (0..logits.len()).collect();
    // Stable: of equal logits the lower index stays first.
    experts.sort_by(|a, b| key(*b).partial_cmp(&key(*a)).unwrap_or(std::cmp::Ordering::Equal));
    experts.truncate(chosen);
    let mut weights: Vec<f32> = experts.iter().map(|expert| key(*expert)).collect();
    softmax(&mut weights);
    experts.into_iter().map(|expert| expert as f32).chain(weights).collect()
}

fn combine(
    experts: &[f32],
    routes: &[f32],
    shared: &[f32],
    gate: &[f32],
    chosen: usize,
) -> Vec<f32> {
    let width = shared.len() / gate.len();
    let mut out = Vec::with_capacity(shared.len());
    for (t, shared) in shared.chunks(width).enumerate() {
        let weights = &routes[t * 2 * chosen + chosen..][..chosen];
        let experts = &experts[t * chosen * width..][..chosen * width];
        out.extend((0..width).map(|column| {
            let sum: f32 = (0..chosen).map(|j| weights[j] * experts[j * width + column]).sum();
            sum + sigmoid(gate[t]) * shared[column]
        }));
    }
    out
}

/// One row of the gated delta rule for one head: decay, correct, read.
fn delta_step(
    s: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    beta: f32,
    decay: f32,
    o: &mut [f32],
) {
    let columns = v.len();
    s.iter_mut().for_each(|x| *x *= decay);
    let mut delta = v.to_vec();
    for (row, key) in s.chunks(columns).zip(k) {
        for (d, x) in delta.iter_mut().zip(row) {
            *d -= key * x;
        }
    }
    delta.iter_mut().for_each(|d| *d *= beta);
    for ((row, key), query) in s.chunks_mut(columns).zip(k).zip(q) {
        for ((x, d), y) in row.iter_mut().zip(&delta).zip(o.iter_mut()) {
            *x += key * d;
            *y += query * *x;
        }
    }
}

fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, weight_offset: f32) -> Vec<f32> {
    let mut out = x.to_vec();
    for group in out.chunks_mut(weight.len()) {
        let scale = 1.0 / (dot(group, group) / group.len() as f32 + epsilon).sqrt();
        for (y, w) in group.iter_mut().zip(weight) {
            *y *= scale * (weight_offset + w);
        }
    }
    out
}

/// `x` divided by its length (with 1e-6 inside the root), times `scale`.
fn unit(x: &[f32], scale: f32) -> Vec<f32> {
    let factor = scale / (dot(x, x) + 1e-6).sqrt();
    x.iter().map(|x| x * factor).collect()
}

fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// Sixteen partial sums: as obvious as one, and its rounding error does not grow with the length.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

fn zip(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_rule_recalls_what_it_stored() {
        // One key stored with beta 1 and no decay is read back exactly by the same query.
        let mut s = vec![0.0; 4];
        let mut o = vec![0.0; 2];
        delta_step(&mut s, &[1.0, 0.0], &[1.0, 0.0], &[3.0, -2.0], 1.0, 1.0, &mut o);
        assert_eq!(o, [3.0, -2.0]);
        let mut again = vec![0.0; 2];
        delta_step(&mut s, &[1.0, 0.0], &[0.0, 1.0], &[5.0, 5.0], 1.0, 1.0, &mut again);
        assert_eq!(again, [3.0, -2.0]);
    }

    #[test]
    fn of_equal_experts_the_first_are_chosen() {
        let routes = route(&[1.0, 3.0, f32::NAN, 3.0, 2.0, 3.0], 2);
        assert_eq!(routes, [1.0, 3.0, 0.5, 0.5]);
        // Zeros of either sign are equal.
        assert_eq!(route(&[-0.0, 0.0, -1.0], 1), [0.0, 1.0]);
        let routes = route(&[0.0, 2.0f32.ln(), -5.0, 0.0], 3);
        assert_eq!(routes[..3], [1.0, 0.0, 3.0]);
        for (weight, wanted) in routes[3..].iter().zip([0.5, 0.25, 0.25]) {
            assert!((weight - wanted).abs() < 1e-6, "{routes:?}");
        }
        assert_eq!(route(&[f32::NAN, f32::NAN], 1)[0], 0.0);
    }

    #[test]
    fn experts_are_weighed_and_the_shared_one_gated() {
        let out = combine(&[1.0, 2.0, 10.0, 20.0], &[4.0, 0.0, 0.75, 0.25], &[8.0, 4.0], &[0.0], 2);
        assert_eq!(out, [0.75 + 2.5 + 4.0, 1.5 + 5.0 + 2.0]);
    }

    #[test]
    fn softmax_of_equal_scores_is_uniform() {
        let mut scores = vec![800.0; 4];
        softmax(&mut scores);
        assert_eq!(scores, [0.25; 4]);
    }
}
