//! The gated delta rule: recurrence, log and fold, and chunks, against the equations in f64.

mod mixers_support;

use lithos_cpu::mixers::gdn::{GdnLog, GdnPart, GdnRows, GdnShape, gdn_decode, gdn_prefill};
use lithos_cpu::mixers::{Rows, RowsMut, Scratch};
use lithos_cpu::simd::Isa;
use mixers_support::*;

const SMALL: GdnShape = GdnShape { key_heads: 2, value_heads: 6, key_dim: 32, value_dim: 32 };
const SHAPES: [GdnShape; 4] = [
    SMALL,
    GdnShape { key_heads: 1, value_heads: 2, key_dim: 128, value_dim: 128 },
    GdnShape { key_heads: 2, value_heads: 2, key_dim: 64, value_dim: 96 },
    GdnShape { key_heads: 1, value_heads: 4, key_dim: 48, value_dim: 16 },
];

/// A sequence of inputs to one layer.
struct Inputs {
    shape: GdnShape,
    tokens: usize,
    convolved: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
}

impl Inputs {
    /// `strength` moves the decay: about 0 forgets little, 4 forgets all within a row or two.
    fn new(random: &mut Random, shape: GdnShape, tokens: usize, strength: f32) -> Self {
        let heads = shape.value_heads;
        Self {
            shape,
            tokens,
            convolved: random.values(tokens * shape.channels(), -1.0, 2.0),
            a: random.values(tokens * heads, -3.0, 3.0),
            b: random.values(tokens * heads, -3.0, 4.0),
            a_log: random.values(heads, strength - 4.0, strength),
            dt_bias: random.values(heads, -2.0, 1.0),
        }
    }

    fn part(&self, value_head: usize, columns: std::ops::Range<usize>) -> GdnPart<'_> {
        GdnPart {
            shape: self.shape,
            value_head,
            columns,
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
        }
    }

    fn rows(&self, first: usize, count: usize) -> GdnRows<'_> {
        let heads = self.shape.value_heads;
        GdnRows {
            convolved: Rows::contiguous(&self.convolved, self.shape.channels()).part(first, count),
            a: Rows::contiguous(&self.a, heads).part(first, count),
            b: Rows::contiguous(&self.b, heads).part(first, count),
            first_position: first,
        }
    }

    fn out_width(&self) -> usize {
        self.shape.value_heads * self.shape.value_dim
    }

    /// Outputs and final states in f64, row by row.
    fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let GdnShape { key_heads, value_heads, key_dim, value_dim } = self.shape;
        let mut states = vec![0.0; value_heads * key_dim * value_dim];
        let mut outputs = vec![0.0; self.tokens * value_heads * value_dim];
        let unit = |x: &[f32]| {
            let root = (x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|&v| f64::from(v) / root).collect::<Vec<f64>>()
        };
        for t in 0..self.tokens {
            let row = &self.convolved[t * self.shape.channels()..][..self.shape.channels()];
            for h in 0..value_heads {
                let key_head = h / (value_heads / key_heads);
                let q = unit(&row[key_head * key_dim..][..key_dim]);
                let k = unit(&row[(key_heads + key_head) * key_dim..][..key_dim]);
                let v = &row[2 * key_heads * key_dim + h * value_dim..][..value_dim];
                let beta = sigmoid(f64::from(self.b[t * value_heads + h]));
                let input = f64::from(self.a[t * value_heads + h]) + f64::from(self.dt_bias[h]);
                let factor = (-f64::from(self.a_log[h]).exp() * softplus(input)).exp();
                let state = &mut states[h * key_dim * value_dim..][..key_dim * value_dim];
                for c in 0..value_dim {
                    let mut known = 0.0;
                    for d in 0..key_dim {
                        state[d * value_dim + c] *= factor;
                        known += k[d] * state[d * value_dim + c];
                    }
                    let delta = beta * (f64::from(v[c]) - known);
                    let mut o = 0.0;
                    for d in 0..key_dim {
                        state[d * value_dim + c] += k[d] * delta;
                        o += state[d * value_dim + c] * q[d] / (key_dim as f64).sqrt();
                    }
                    outputs[(t * value_heads + h) * value_dim + c] = o;
                }
            }
        }
        (outputs, states)
    }
}

/// One layer's state and log, and where the state stands.
struct Layer {
    shape: GdnShape,
    state: Vec<f32>,
    log: Vec<f32>,
    state_position: usize,
    scratch: Scratch,
}

impl Layer {
    fn new(shape: GdnShape) -> Self {
        let state = vec![0.0; shape.value_heads * shape.key_dim * shape.value_dim];
        Self {
            shape,
            state,
            log: poisoned(GdnLog::floats(shape)),
            state_position: 0,
            scratch: Scratch::new(),
        }
    }

    /// Runs rows of `inputs` from `first` on, each head in slices of `slice` columns.
    fn pass(
        &mut self,
        isa: Isa,
        inputs: &Inputs,
        first: usize,
        count: usize,
        slice: usize,
        prefill: bool,
    ) -> Vec<f32> {
        let GdnShape { value_heads, key_dim, value_dim, .. } = self.shape;
        let width = inputs.out_width();
        let mut out = poisoned(count * width);
        for head in 0..value_heads {
            for start in (0..value_dim).step_by(slice) {
                let columns = start..(start + slice).min(value_dim);
                let part = inputs.part(head, columns.clone());
                let mut state = RowsMut::contiguous(
                    &mut self.state[head * key_dim * value_dim..][..key_dim * value_dim],
                    value_dim,
                );
                let mut state = state.columns_mut(start, columns.len());
                let mut view = RowsMut::contiguous(&mut out, width);
                let mut view = view.columns_mut(head * value_dim + start, columns.len());
                let mut log = GdnLog::new(&mut self.log, self.shape);
                let (rows, from) = (inputs.rows(first, count), self.state_position);
                if prefill {
                    gdn_prefill(
                        isa,
                        part,
                        rows,
                        from,
                        &mut state,
                        &log,
                        &mut self.scratch,
                        &mut view,
                    );
                } else {
                    gdn_decode(
                        isa,
                        part,
                        rows,
                        from,
                        &mut state,
                        &mut log,
                        &mut self.scratch,
                        &mut view,
                    );
                }
            }
        }
        self.state_position = if prefill { first + count } else { first };
        out
    }

    /// Folds what is still pending before `position`, by a prefill of no rows.
    fn settle(&mut self, isa: Isa, inputs: &Inputs, position: usize) {
        self.pass(isa, inputs, position, 0, self.shape.value_dim, true);
    }
}

/// Decodes the whole sequence in passes of the given sizes, all rows accepted.
fn decode(
    isa: Isa,
    inputs: &Inputs,
    passes: impl IntoIterator<Item = usize>,
    slice: usize,
) -> (Vec<f32>, Vec<f32>) {
    let mut layer = Layer::new(inputs.shape);
    let (mut out, mut position) = (Vec::new(), 0);
    for rows in passes {
        let rows = rows.min(inputs.tokens - position);
        out.extend(layer.pass(isa, inputs, position, rows, slice, false));
        position += rows;
    }
    assert_eq!(position, inputs.tokens);
    layer.settle(isa, inputs, position);
    (out, layer.state)
}

#[test]
fn recurrence_equals_the_equations() {
    let mut random = Random::new(1);
    for shape in SHAPES {
        let inputs = Inputs::new(&mut random, shape, 40, 1.0);
        let (want, want_state) = inputs.reference();
        let bits = on_every_isa("recurrence", |isa| {
            let (mut out, state) = decode(isa, &inputs, vec![1; 40], shape.value_dim);
            out.extend(state);
            out
        });
        let (out, state) = bits.split_at(want.len());
        assert_close(out, &want, 1e-5, &format!("outputs of {shape:?}"));
        assert_close(state, &want_state, 1e-5, &format!("states of {shape:?}"));
    }
}

#[test]
fn passes_and_column_slices_do_not_change_a_bit() {
    let mut random = Random::new(2);
    for shape in SHAPES {
        let inputs = Inputs::new(&mut random, shape, 50, 0.0);
        for isa in Isa::available() {
            let (plain, state) = decode(isa, &inputs, vec![1; 50], shape.value_dim);
            for passes in [vec![8; 7], vec![16; 4], vec![1, 2, 5, 16, 3, 13, 16]] {
                let (out, other) = decode(isa, &inputs, passes, 16);
                assert_same_bits(&plain, &out, "outputs");
                assert_same_bits(&state, &other, "states");
            }
        }
    }
}

#[test]
fn any_number_of_accepted_rows_continues_like_plain_decode() {
    let mut random = Random::new(3);
    let inputs = Inputs::new(&mut random, SMALL, 48, 0.5);
    let wrong = Inputs {
        a_log: inputs.a_log.clone(),
        dt_bias: inputs.dt_bias.clone(),
        ..Inputs::new(&mut random, SMALL, 48, 0.5)
    };
    let width = inputs.out_width();
    for isa in Isa::available() {
        let (plain, state) = decode(isa, &inputs, vec![1; 48], 32);
        for accepted in 0..=8 {
            let mut layer = Layer::new(SMALL);
            layer.pass(isa, &inputs, 0, 5, 32, false);
            // Eight rows, of which the first `accepted` are the sequence's own.
            let mut mixed = Inputs { ..clone(&wrong) };
            let channels = SMALL.channels();
            mixed.convolved[5 * channels..][..accepted * channels]
                .copy_from_slice(&inputs.convolved[5 * channels..][..accepted * channels]);
            mixed.a[5 * 6..][..accepted * 6].copy_from_slice(&inputs.a[5 * 6..][..accepted * 6]);
            mixed.b[5 * 6..][..accepted * 6].copy_from_slice(&inputs.b[5 * 6..][..accepted * 6]);
            let verified = layer.pass(isa, &mixed, 5, 8, 16, false);
            assert_same_bits(
                &verified[..accepted * width],
                &plain[5 * width..][..accepted * width],
                "accepted rows",
            );
            let mut position = 5 + accepted;
            for rows in [8, 1, 3, 16, 1, 16] {
                let rows = rows.min(48 - position);
                let out = layer.pass(isa, &inputs, position, rows, 32, false);
                assert_same_bits(
                    &out,
                    &plain[position * width..][..rows * width],
                    "continued rows",
                );
                position += rows;
            }
            assert_eq!(position, 48);
            layer.settle(isa, &inputs, 48);
            assert_same_bits(&layer.state, &state, "final state");
        }
    }
}

fn clone(inputs: &Inputs) -> Inputs {
    Inputs {
        shape: inputs.shape,
        tokens: inputs.tokens,
        convolved: inputs.convolved.clone(),
        a: inputs.a.clone(),
        b: inputs.b.clone(),
        a_log: inputs.a_log.clone(),
        dt_bias: inputs.dt_bias.clone(),
    }
}

#[test]
fn a_decode_pass_leaves_the_state_at_its_start() {
    let mut random = Random::new(4);
    let inputs = Inputs::new(&mut random, SMALL, 12, 0.0);
    let isa = Isa::available()[0];
    let mut layer = Layer::new(SMALL);
    layer.pass(isa, &inputs, 0, 4, 32, false);
    assert!(layer.state.iter().all(|&x| x == 0.0), "rows of the pass are only logged");
    layer.pass(isa, &inputs, 4, 4, 32, false);
    let (_, want) = Inputs { tokens: 4, ..clone(&inputs) }.reference();
    assert_close(&layer.state, &want, 1e-5, "the state before the pass");
}

#[test]
fn chunks_equal_the_recurrence() {
    let mut random = Random::new(5);
    for shape in SHAPES {
        for strength in [-1.0, 2.0, 5.0] {
            let inputs = Inputs::new(&mut random, shape, 333, strength);
            let (want, want_state) = inputs.reference();
            let bits = on_every_isa("chunks", |isa| {
                let mut layer = Layer::new(shape);
                let mut out = layer.pass(isa, &inputs, 0, 333, shape.value_dim, true);
                out.extend(layer.state);
                out
            });
            let (out, state) = bits.split_at(want.len());
            assert_close(out, &want, 1e-5, &format!("outputs of {shape:?}, strength {strength}"));
            assert_close(
                state,
                &want_state,
                1e-5,
                &format!("states of {shape:?}, strength {strength}"),
            );
        }
    }
}

#[test]
fn chunks_from_any_position_and_after_pending_rows() {
    let mut random = Random::new(6);
    for (decoded, cuts) in [(3, vec![70, 1, 126, 50]), (11, vec![53, 64, 122]), (1, vec![249])] {
        let inputs = Inputs::new(&mut random, SMALL, 250, 1.0);
        let (want, want_state) = inputs.reference();
        let isa = *Isa::available().last().unwrap();
        let mut layer = Layer::new(SMALL);
        let mut out = layer.pass(isa, &inputs, 0, decoded, 16, false);
        let mut position = decoded;
        for rows in cuts {
            out.extend(layer.pass(isa, &inputs, position, rows, 16, true));
            position += rows;
        }
        assert_eq!(position, 250);
        assert_close(&out, &want, 1e-5, "outputs");
        assert_close(&layer.state, &want_state, 1e-5, "states");
    }
}

#[test]
fn chunks_cut_at_their_positions_have_the_same_bits() {
    let mut random = Random::new(7);
    let inputs = Inputs::new(&mut random, SMALL, 300, 0.0);
    let isa = *Isa::available().last().unwrap();
    let mut whole = Layer::new(SMALL);
    let plain = whole.pass(isa, &inputs, 0, 300, 32, true);
    let mut cut = Layer::new(SMALL);
    let mut out = Vec::new();
    for (first, rows) in [(0, 64), (64, 128), (192, 108)] {
        out.extend(cut.pass(isa, &inputs, first, rows, 16, true));
    }
    assert_same_bits(&plain, &out, "outputs");
    assert_same_bits(&whole.state, &cut.state, "states");
}

#[test]
fn decode_goes_on_after_prefill() {
    let mut random = Random::new(8);
    let inputs = Inputs::new(&mut random, SHAPES[1], 110, 1.0);
    let (want, want_state) = inputs.reference();
    let isa = *Isa::available().last().unwrap();
    let mut layer = Layer::new(inputs.shape);
    let mut out = layer.pass(isa, &inputs, 0, 90, 128, true);
    for first in [90, 98, 106] {
        out.extend(layer.pass(isa, &inputs, first, 8.min(110 - first), 64, false));
    }
    layer.settle(isa, &inputs, 110);
    assert_close(&out, &want, 1e-5, "outputs");
    assert_close(&layer.state, &want_state, 1e-5, "states");
}
