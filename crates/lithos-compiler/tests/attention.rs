//! Attention of the kernels in the emulator: ranges of both lengths, both types of keys and values, any number of rows, which see rows up
//! to themselves or all of their pass.

mod support;

use lithos_compiler::{MAX_DECODE_ROWS, SlotRows, StepState};
use lithos_emulator::{BufferId, Launch, Library, Memory};
use lithos_kernels::records::{AttendRecord, HeadRecord, KeptRecord, MergeRecord, NOTHING};
use lithos_kernels::{PAGE_TOKENS, PARTIAL_HEADER};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const HEADS: usize = 2;
const GROUP: usize = 3;
const WIDTH: usize = 40;
const ROTARY: usize = 16;
const SLOT: usize = 1;
const PAGES: usize = 8;
/// Two ranges of 32 keys, then such as these.
const FINE_RANGES: usize = 2;
const RANGE_KEYS: usize = 96;
const RANGES: usize = 7;
const SCALE: f32 = 0.3;
/// Where the passes begin: not far from the end of a range and of a page.
const POSITION: usize = 250;
const ROWS: usize = 9;
/// Factor of what turns.
const MAGNITUDE: f32 = 1.25;

fn compiled(keys: &str, whole_pass: bool) -> Option<Library> {
    let [attend, merge] = match whole_pass {
        false => ["", ""],
        true => [", REACH_PASS", "<REACH_PASS>"],
    };
    let calls = format!(
        "    attend_range<{keys}{attend}>(memory, worker, *(DEVICE const AttendRecord*)records);\n    join(memory, worker);\n    \
         merge_ranges{merge}(memory, worker, *(DEVICE const MergeRecord*)(records + {}));\n",
        size_of::<AttendRecord>() / 4,
    );
    support::kernel("attend", &calls)
}

fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0f32..1.0)).collect()
}

fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Queries, keys and values of all positions from `POSITION` on, and keys and values of those before.
struct Case {
    half: bool,
    /// Whether rows see all of their pass.
    whole_pass: bool,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    gates: Vec<f32>,
    frequencies: Vec<f32>,
}

impl Case {
    fn new(half: bool, whole_pass: bool) -> Self {
        Case {
            half,
            whole_pass,
            queries: random(1, ROWS * HEADS * GROUP * WIDTH),
            // Of all positions; those before `POSITION` are kept as they are, the others turn.
            keys: random(2, (POSITION + ROWS) * HEADS * WIDTH),
            values: random(3, (POSITION + ROWS) * HEADS * WIDTH),
            gates: random(4, ROWS * HEADS * GROUP * WIDTH),
            frequencies: (0..ROTARY / 2).map(|i| 0.5f32.powi(i as i32)).collect(),
        }
    }

    fn stored(&self, x: f64) -> f64 {
        if self.half { f64::from(f32::from_bits(u32::from(bf16(x as f32)) << 16)) } else { x }
    }

    fn turned(&self, x: &[f32], position: usize) -> Vec<f64> {
        let mut out: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        for i in 0..ROTARY / 2 {
            let (sine, cosine) = (position as f64 * f64::from(self.frequencies[i])).sin_cos();
            let [sine, cosine] = [sine, cosine].map(|factor| factor * f64::from(MAGNITUDE));
            let (a, b) = (out[i], out[i + ROTARY / 2]);
            out[i] = a * cosine - b * sine;
            out[i + ROTARY / 2] = b * cosine + a * sine;
        }
        out
    }

    fn key(&self, position: usize, head: usize) -> Vec<f64> {
        let key = &self.keys[(position * HEADS + head) * WIDTH..][..WIDTH];
        let key = if position < POSITION {
            key.iter().map(|x| f64::from(*x)).collect()
        } else {
            self.turned(key, position)
        };
        key.into_iter().map(|x| self.stored(x)).collect()
    }

    fn wanted(&self) -> Vec<f64> {
        let mut out = Vec::new();
        for (index, query) in self.queries.chunks(WIDTH).enumerate() {
            let (row, head) = (index / (HEADS * GROUP), index % (HEADS * GROUP) / GROUP);
            let query = self.turned(query, POSITION + row);
            let seen = POSITION + if self.whole_pass { ROWS } else { row + 1 };
            let weights: Vec<f64> = (0..seen)
                .map(|position| {
                    let key = self.key(position, head);
                    let score: f64 = key.iter().zip(&query).map(|(a, b)| a * b).sum();
                    (score * f64::from(SCALE)).exp()
                })
                .collect();
            let total: f64 = weights.iter().sum();
            for column in 0..WIDTH {
                let sum: f64 = (0..seen)
                    .map(|position| {
                        let value = self.values[(position * HEADS + head) * WIDTH + column];
                        weights[position] * self.stored(f64::from(value))
                    })
                    .sum();
                let gate = f64::from(self.gates[index * WIDTH + column]);
                out.push(sum / total / (1.0 + (-gate).exp()));
            }
        }
        out
    }

    /// The states before the passes: keys, then values; what was never kept is no number.
    fn states(&self, table: &[u32]) -> Vec<u8> {
        let plane = PAGES * HEADS * PAGE_TOKENS * WIDTH;
        let mut states = vec![f32::NAN; 2 * plane];
        for (at, source) in [(0, &self.keys), (plane, &self.values)] {
            for position in 0..POSITION {
                let page = table[SLOT * PAGES + position / PAGE_TOKENS] as usize;
                for head in 0..HEADS {
                    let to = ((page * HEADS + head) * PAGE_TOKENS + position % PAGE_TOKENS) * WIDTH;
                    let from = (position * HEADS + head) * WIDTH;
                    states[at + to..][..WIDTH].copy_from_slice(&source[from..][..WIDTH]);
                }
            }
        }
        if self.half {
            states.iter().flat_map(|x| bf16(*x).to_le_bytes()).collect()
        } else {
            bytes(&states)
        }
    }

    /// What passes of `rows` rows give, one after the other.
    fn attended(&self, library: &Library, rows: usize, workers: u32, checked: bool) -> Vec<f32> {
        let (width, queries) = (HEADS * WIDTH, HEADS * GROUP * WIDTH);
        let (query_at, key_at) = (0, rows * queries);
        let value_at = key_at + rows * width;
        let gate_at = value_at + rows * width;
        let output_at = gate_at + rows * queries;
        let partials_at = output_at + rows * queries;
        let partial = WIDTH + PARTIAL_HEADER;
        let arena_floats = partials_at + HEADS * RANGES * MAX_DECODE_ROWS * GROUP * partial;
        let stage = |input: usize| HeadRecord {
            input: input as u32,
            norm: NOTHING,
            epsilon: 0.0,
            norm_offset: 0.0,
            frequencies: 0,
            rotary_width: ROTARY as u32,
        };
        let plane = PAGES * HEADS * PAGE_TOKENS * WIDTH * if self.half { 2 } else { 4 };
        let attend = AttendRecord {
            kept: KeptRecord {
                keys: 0,
                values: (plane / 16) as u32,
                heads: HEADS as u32,
                width: WIDTH as u32,
                pages_per_slot: PAGES as u32,
            },
            query_stage: stage(query_at),
            key_stage: stage(key_at),
            value_input: value_at as u32,
            group: GROUP as u32,
            scale: SCALE,
            partials: partials_at as u32,
            fine_ranges: FINE_RANGES as u32,
            range_keys: RANGE_KEYS as u32,
            ranges: RANGES as u32,
        };
        let merge = MergeRecord {
            partials: partials_at as u32,
            gate: gate_at as u32,
            output: output_at as u32,
            kept_heads: HEADS as u32,
            group: GROUP as u32,
            width: WIDTH as u32,
            fine_ranges: FINE_RANGES as u32,
            range_keys: RANGE_KEYS as u32,
            ranges: RANGES as u32,
        };
        let table: Vec<u32> = (0..2 * PAGES as u32).map(|i| (i * 5 + 3) % PAGES as u32).collect();
        let records: Vec<u32> =
            [bytemuck::cast_slice(&[attend]), bytemuck::cast_slice(&[merge])].concat();
        let mut memory = Memory::new();
        let mut add = |name, bytes: &[u8]| memory.add_bytes(name, bytes).expect("fits");
        let rotation = [&self.frequencies[..], &[MAGNITUDE]].concat();
        let weights = add("weights", &bytes(&rotation));
        let states = add("states", &self.states(&table));
        let step_size = size_of::<StepState>();
        let step = add("step", &vec![0; step_size]);
        let tokens = add("tokens", &[0; 4]);
        let pages = add("pages", &words(&table));
        let records = add("records", &words(&records));
        let joins = add("joins", &[0; 8]);
        let mut found = Vec::new();
        for first in (0..ROWS).step_by(rows) {
            let rows = rows.min(ROWS - first);
            let arena = memory.add_unwritten("arena", arena_floats * 4).expect("fits");
            let mut put = |buffer: BufferId, at: usize, values: &[u8]| {
                assert!(memory.write(buffer, at, values));
            };
            let from = POSITION + first;
            put(arena, query_at * 4, &bytes(&self.queries[first * queries..][..rows * queries]));
            put(arena, key_at * 4, &bytes(&self.keys[from * width..][..rows * width]));
            put(arena, value_at * 4, &bytes(&self.values[from * width..][..rows * width]));
            put(arena, gate_at * 4, &bytes(&self.gates[first * queries..][..rows * queries]));
            let slot = SlotRows {
                slot: SLOT as u32,
                first_row: 0,
                rows: rows as u32,
                position: from as u32,
                state_position: from as u32,
            };
            put(step, 0, &words(&StepState::single(slot, 0).words()));
            let mut launch = Launch::new("attend", workers, 96);
            for (index, buffer) in
                (0..).zip([weights, arena, states, step, tokens, pages, records, joins])
            {
                launch = launch.bind(index, buffer);
            }
            (launch.seed, launch.checked) = (first as u64, checked);
            library.run(&launch, &mut memory).expect("runs");
            let output = &memory.bytes(arena)[output_at * 4..][..rows * queries * 4];
            found.extend(output.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        }
        found
    }
}

#[test]
fn rows_attend_to_all_ranges_whatever_the_pass() {
    let types = [("KEYS_F32", false, 2e-6), ("KEYS_BF16", true, 3e-5)];
    for ((keys, half, most), whole_pass) in types.into_iter().flat_map(|t| [(t, false), (t, true)])
    {
        let Some(library) = compiled(keys, whole_pass) else { return };
        let case = Case::new(half, whole_pass);
        let wanted = case.wanted();
        let found = case.attended(&library, ROWS, 5, true);
        let (mut error, mut size) = (0.0, 0.0);
        for (found, wanted) in found.iter().zip(&wanted) {
            error += (f64::from(*found) - wanted).powi(2);
            size += wanted.powi(2);
        }
        let error = (error / size).sqrt();
        // Written so that a NaN fails.
        assert!(error < most, "{keys}, {whole_pass}: relative error {error}");
        // What rows that see all of their pass see depends on it.
        let passes = if whole_pass { [(ROWS, 1), (ROWS, 2)] } else { [(1, 5), (4, 2)] };
        for (rows, workers) in passes {
            let other = case.attended(&library, rows, workers, false);
            assert!(
                other == found,
                "{keys}: bits depend on passes of {rows} rows, {workers} workers"
            );
        }
    }
}
