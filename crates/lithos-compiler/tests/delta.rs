//! The gated delta rule of the kernels in the emulator: passes of any length, rows that were accepted or not.

mod support;

use lithos_compiler::{MAX_DECODE_ROWS, SlotRows, StepState};
use lithos_emulator::{BufferId, Launch, Library, Memory};
use lithos_kernels::RING_ROWS;
use lithos_kernels::records::DeltaRecord;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 4;
const KEY_WIDTH: usize = 100;
const VALUE_WIDTH: usize = 12;
const CHANNELS: usize = 2 * KEY_HEADS * KEY_WIDTH + VALUE_HEADS * VALUE_WIDTH;
const OUTPUTS: usize = VALUE_HEADS * VALUE_WIDTH;
const POSITIONS: usize = 20;
const SLOT: usize = 1;
const SLOT_FLOATS: usize = VALUE_HEADS * KEY_WIDTH * VALUE_WIDTH
    + RING_ROWS * (KEY_HEADS * KEY_WIDTH + VALUE_HEADS * (VALUE_WIDTH + 1));

fn compiled() -> Option<Library> {
    let call = "    gated_delta(memory, worker, *(DEVICE const DeltaRecord*)records);\n";
    support::kernel("delta", call)
}

fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0f32..1.0)).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// What enters at each position, and the weights of the gates.
struct Case {
    qkv: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
}

impl Case {
    fn new() -> Self {
        Case {
            qkv: random(1, POSITIONS * CHANNELS),
            a: random(2, POSITIONS * VALUE_HEADS),
            b: random(3, POSITIONS * VALUE_HEADS),
            a_log: random(4, VALUE_HEADS),
            dt_bias: random(5, VALUE_HEADS),
        }
    }

    fn unit(&self, position: usize, at: usize) -> Vec<f64> {
        let x: Vec<f64> = self.qkv[position * CHANNELS + at..][..KEY_WIDTH]
            .iter()
            .map(|x| f64::from(*x))
            .collect();
        let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
        x.iter().map(|x| x / length).collect()
    }

    /// Outputs of all positions, one after the other.
    fn wanted(&self) -> Vec<f64> {
        let mut out = vec![0.0; POSITIONS * OUTPUTS];
        for head in 0..VALUE_HEADS {
            let key_head = head * KEY_HEADS / VALUE_HEADS;
            let mut state = vec![[0.0; VALUE_WIDTH]; KEY_WIDTH];
            for position in 0..POSITIONS {
                let at = position * VALUE_HEADS + head;
                let softplus = (1.0 + f64::from(self.a[at] + self.dt_bias[head]).exp()).ln();
                let decay = (-f64::from(self.a_log[head]).exp() * softplus).exp();
                let beta = 1.0 / (1.0 + (-f64::from(self.b[at])).exp());
                let query = self.unit(position, key_head * KEY_WIDTH);
                let key = self.unit(position, (KEY_HEADS + key_head) * KEY_WIDTH);
                for column in 0..VALUE_WIDTH {
                    let value = self.qkv[position * CHANNELS
                        + 2 * KEY_HEADS * KEY_WIDTH
                        + head * VALUE_WIDTH
                        + column];
                    state.iter_mut().for_each(|row| row[column] *= decay);
                    let recalled: f64 = state.iter().zip(&key).map(|(s, k)| s[column] * k).sum();
                    let delta = beta * (f64::from(value) - recalled);
                    state.iter_mut().zip(&key).for_each(|(s, k)| s[column] += k * delta);
                    let read: f64 = state.iter().zip(&query).map(|(s, q)| s[column] * q).sum();
                    out[position * OUTPUTS + head * VALUE_WIDTH + column] =
                        read / (KEY_WIDTH as f64).sqrt();
                }
            }
        }
        out
    }

    /// Outputs of all positions from passes of `(rows, accepted)`.
    fn found(&self, library: &Library, passes: &[(usize, usize)], workers: u32) -> Vec<f32> {
        let a_at = MAX_DECODE_ROWS * CHANNELS;
        let b_at = a_at + MAX_DECODE_ROWS * VALUE_HEADS;
        let output_at = b_at + MAX_DECODE_ROWS * VALUE_HEADS;
        let record = DeltaRecord {
            qkv: 0,
            a: a_at as u32,
            b: b_at as u32,
            a_log: 0,
            dt_bias: (VALUE_HEADS / 4) as u32,
            state: 0,
            slot_floats: SLOT_FLOATS as u32,
            key_heads: KEY_HEADS as u32,
            value_heads: VALUE_HEADS as u32,
            key_width: KEY_WIDTH as u32,
            value_width: VALUE_WIDTH as u32,
            output: output_at as u32,
        };
        let mut memory = Memory::new();
        let mut add = |name, bytes: &[u8]| memory.add_bytes(name, bytes).expect("fits");
        let weights = add("weights", &[bytes(&self.a_log), bytes(&self.dt_bias)].concat());
        let states = add("states", &vec![0; (SLOT + 1) * SLOT_FLOATS * 4]);
        let step = add("step", &vec![0; size_of::<StepState>()]);
        let unused = add("unused", &[0; 16]);
        let records = add("records", &words(bytemuck::cast_slice(&[record])));
        let mut out = Vec::new();
        let (mut position, mut state_position) = (0, 0);
        for (seed, &(rows, accepted)) in passes.iter().enumerate() {
            let floats = output_at + MAX_DECODE_ROWS * OUTPUTS;
            let arena = memory.add_unwritten("arena", floats * 4).expect("fits");
            let mut put = |buffer: BufferId, at: usize, values: &[u8]| {
                assert!(memory.write(buffer, at * 4, values));
            };
            put(arena, 0, &bytes(&self.qkv[position * CHANNELS..][..rows * CHANNELS]));
            put(arena, a_at, &bytes(&self.a[position * VALUE_HEADS..][..rows * VALUE_HEADS]));
            put(arena, b_at, &bytes(&self.b[position * VALUE_HEADS..][..rows * VALUE_HEADS]));
            let slot = SlotRows {
                slot: SLOT as u32,
                first_row: 0,
                rows: rows as u32,
                position: position as u32,
                state_position: state_position as u32,
            };
            put(step, 0, &words(&StepState::single(slot, 0).words()));
            let mut launch = Launch::new("delta", workers, 96);
            for (index, buffer) in
                (0..).zip([weights, arena, states, step, unused, unused, records, unused])
            {
                launch = launch.bind(index, buffer);
            }
            (launch.seed, launch.checked) = (seed as u64, true);
            library.run(&launch, &mut memory).expect("runs");
            let output = &memory.bytes(arena)[output_at * 4..][..accepted * OUTPUTS * 4];
            out.extend(output.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            (position, state_position) = (position + accepted, position);
        }
        out
    }
}

#[test]
fn rows_are_those_of_a_pass_each_whatever_was_rejected() {
    let Some(library) = compiled() else { return };
    let (case, wanted) = (Case::new(), Case::new().wanted());
    let alone = case.found(&library, &[(1, 1); 10], 3);
    let (mut error, mut size) = (0.0, 0.0);
    for (found, wanted) in alone.iter().zip(&wanted) {
        error += (f64::from(*found) - wanted).powi(2);
        size += wanted.powi(2);
    }
    // Written so that a NaN fails.
    assert!((error / size).sqrt() < 2e-6, "relative error {}", (error / size).sqrt());
    let passes = [(5, 3), (1, 1), (8, 0), (12, 6)];
    for workers in [1, 4] {
        assert!(case.found(&library, &passes, workers) == alone, "bits depend on the passes");
    }
}
