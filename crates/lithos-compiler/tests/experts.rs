//! Mixtures of experts of the kernels in the emulator, against the interpreter: the choice, the chosen experts and their sum, in several
//! formats and with any number of rows.

mod support;

use std::collections::HashMap;

use lithos_compiler::device::LaneLayout;
use lithos_compiler::layout::WeightSource as Source;
use lithos_compiler::{SlotRows, StepState, route_words};
use lithos_emulator::{Launch, Library, Memory};
use lithos_format::{Checkpoint, Encoding, Matrix, OwnedTensor, encode_matrix, write_safetensors};
use lithos_graph::{
    EXPERT, Graph, GraphBuilder, Interpreter, Limits, RowMap, StoredWeight, ValueId, WeightForm,
    WeightSource, WeightStore,
};
use lithos_kernels::records::{
    CombineRecord, ExpertDownRecord, ExpertGateUpRecord, MatrixRecord, NOTHING, OperandRecord,
    RouteRecord,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tempfile::TempDir;

const HIDDEN: usize = 208;
const INNER: usize = 48;
const EXPERTS: usize = 40;
const CHOSEN: usize = 3;
const ROWS: usize = 16;
const WORKERS: u32 = 7;
const PARTS: [&str; 3] = ["gate", "up", "down"];

fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0f32..1.0)).collect()
}

/// Rows of a pass; the first column of all is 1.
fn rows() -> Vec<f32> {
    let mut rows = random(1, ROWS * HIDDEN);
    rows.iter_mut().step_by(HIDDEN).for_each(|value| *value = 1.0);
    rows
}

/// Rows of a pass, the router, the shared expert, and experts in a format.
struct Case {
    _folder: TempDir,
    checkpoint: Checkpoint,
    graph: Graph,
    /// The router's logits, the shared expert, its gate, and what is wanted.
    values: [ValueId; 4],
    matrices: [ValueId; 3],
}

impl Case {
    fn new(format: &str) -> Self {
        let mut tensors = Vec::new();
        let mut put = |name: &str, format: &str, columns: usize, values: Vec<f32>| {
            tensors.extend(encode_matrix(format, name, columns, &values).expect("encodes"));
        };
        put("rows", "f32", HIDDEN, rows());
        let mut router = random(2, EXPERTS * HIDDEN);
        // One expert is chosen by almost every row, and two are always equal.
        router[7 * HIDDEN] = 20.0;
        router[3 * HIDDEN] = 5.0;
        router.copy_within(3 * HIDDEN..4 * HIDDEN, 30 * HIDDEN);
        put("router", "f32", HIDDEN, router);
        put("shared", "f32", HIDDEN, random(3, HIDDEN * HIDDEN));
        put("shared_gate", "f32", HIDDEN, random(4, HIDDEN));
        for expert in 0..EXPERTS {
            for (part, seed) in PARTS.iter().zip(5..) {
                let columns = if *part == "down" { INNER } else { HIDDEN };
                // Factors of a matrix differ from expert to expert.
                let size = 0.1 * (1 + expert % 5) as f32;
                let values = random(seed + 10 * expert as u64, INNER * HIDDEN);
                let values = values.into_iter().map(|value| size * value).collect();
                put(&format!("experts.{expert}.{part}"), format, columns, values);
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mixture.safetensors");
        let entries: Vec<_> = tensors.iter().map(OwnedTensor::entry).collect();
        write_safetensors(&file, &entries).expect("writes");
        let checkpoint = Checkpoint::open_safetensors_file(&file).expect("opens");
        let (graph, values, matrices) = mixture(&checkpoint);
        Case { _folder: folder, checkpoint, graph, values, matrices }
    }

    /// Values of the interpreter for `rows` rows.
    fn interpreted(&self, rows: &[u32]) -> [Vec<f32>; 4] {
        let weights = Stored::new(&self.checkpoint, &self.graph);
        let interpreter = Interpreter::new(&self.graph, &weights);
        let values = interpreter.run_values(&mut interpreter.empty_state(), rows).expect("runs");
        self.values.map(|id| values[&id].clone())
    }

    fn stored(&self, id: ValueId) -> StoredWeight<'_> {
        let value = self.graph.value(id);
        StoredWeight::open(&self.checkpoint, value).expect("opens").expect("matrices")
    }
}

fn mixture(checkpoint: &Checkpoint) -> (Graph, [ValueId; 4], [ValueId; 3]) {
    let mut b = GraphBuilder::new();
    let encoding = |name: &str| checkpoint.matrix(name).expect("a matrix").encoding();
    let matrix = |b: &mut GraphBuilder, name: &str, rows| {
        b.matrix(name, RowMap::All, rows, HIDDEN, encoding(name))
    };
    let table = matrix(&mut b, "rows", ROWS);
    let x = b.embedding(table);
    let router = matrix(&mut b, "router", EXPERTS);
    let logits = b.linear("router", x, router);
    let routes = b.route("routes", logits, CHOSEN);
    let shared = matrix(&mut b, "shared", HIDDEN);
    let shared = b.linear("shared", x, shared);
    let gate = matrix(&mut b, "shared_gate", 1);
    let gate = b.linear("shared_gate", x, gate);
    let matrices = PARTS.map(|part| {
        let shape =
            if part == "down" { [EXPERTS, HIDDEN, INNER] } else { [EXPERTS, INNER, HIDDEN] };
        let encoding = encoding(&format!("experts.0.{part}"));
        b.experts_matrices(format!("experts.{EXPERT}.{part}"), RowMap::All, shape, encoding)
    });
    let experts = b.experts("experts", x, routes, matrices);
    let combined = b.combine("combined", experts, routes, shared, gate);
    let limits = Limits { vocabulary: ROWS, context: ROWS, layers: 0 };
    let graph = b.finish("mixture", combined, limits).expect("a valid graph");
    (graph, [logits, shared, gate, combined], matrices)
}

struct Stored<'a>(HashMap<String, StoredWeight<'a>>);

impl<'a> Stored<'a> {
    fn new(checkpoint: &'a Checkpoint, graph: &Graph) -> Self {
        let open = |id| {
            let value = graph.value(id);
            let stored = StoredWeight::open(checkpoint, value).expect("opens").expect("a matrix");
            (value.name.clone(), stored)
        };
        Stored(graph.weights().map(open).collect())
    }
}

impl WeightStore for Stored<'_> {
    fn matrix_row(&self, source: &WeightSource, row: usize, out: &mut [f32]) {
        let (matrix, row) = self.0[&source.tensor].row(row);
        matrix.decode_row(row, out);
    }

    fn array(&self, source: &WeightSource) -> Vec<f32> {
        assert!(!matches!(source.form, WeightForm::Array), "there are no arrays");
        Vec::new()
    }
}

/// Rows of all experts, one under the other.
struct Stacked<'a>(&'a StoredWeight<'a>);

impl Stacked<'_> {
    fn at(&self, row: usize) -> (&Matrix<'_>, usize) {
        self.0.row(row)
    }
}

impl Source for Stacked<'_> {
    fn cols(&self) -> usize {
        self.0.columns()
    }
    fn encoding(&self) -> Encoding {
        self.0.matrices()[0].encoding()
    }
    fn tensor_scale(&self) -> f32 {
        1.0
    }
    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        self.at(row).0.unpack_codes(self.at(row).1, out);
    }
    fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        self.at(row).0.unpack_scales(self.at(row).1, out);
    }
    fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        self.at(row).0.unpack_biases(self.at(row).1, out);
    }
}

/// The buffer of weights: packed matrices, each followed by its experts' factors.
struct Weights {
    bytes: Vec<u8>,
    records: [MatrixRecord; 3],
    factors: [u32; 3],
    format: String,
}

fn weights(case: &Case) -> Weights {
    let mut bytes: Vec<u8> = Vec::new();
    let mut format = String::new();
    let mut factors = [0; 3];
    let mut part = 0;
    let records = case.matrices.map(|id| {
        let stored = case.stored(id);
        let source = Stacked(&stored);
        let rows = stored.experts() * stored.rows();
        let layout = LaneLayout::new(rows, stored.columns(), source.encoding()).expect("a layout");
        let codes = bytes.len();
        bytes.resize(codes + layout.bytes(), 0);
        layout.pack(&source, &mut bytes[codes..]);
        factors[part] = (bytes.len() / 16) as u32;
        part += 1;
        for expert in 0..EXPERTS {
            bytes.extend(stored.tensor_scale(expert).to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        format = layout.format();
        MatrixRecord {
            codes: (codes / 16) as u32,
            scales: ((codes + layout.code_bytes()) / 16) as u32,
            biases: ((codes + layout.code_bytes() + layout.scale_bytes()) / 16) as u32,
            tensor_scale: 1.0,
            zero_point: u32::from(layout.encoding().zero_point),
            units: layout.units() as u32,
            block_columns: layout.encoding().blocks.map_or(1, |blocks| blocks.cols as u32),
            blocks: layout.blocks() as u32,
        }
    });
    Weights { bytes, records, factors, format }
}

/// Places in the arena, in floats.
struct Places {
    x: usize,
    logits: usize,
    routes: usize,
    activated: usize,
    experts: usize,
    shared: usize,
    gate: usize,
    output: usize,
    end: usize,
}

fn places() -> Places {
    let mut end = 0;
    let mut take = |width: usize| {
        let at = end;
        end = (end + ROWS * width).next_multiple_of(16);
        at
    };
    Places {
        x: take(HIDDEN),
        logits: take(EXPERTS),
        routes: take(route_words(CHOSEN)),
        activated: take(CHOSEN * INNER),
        experts: take(CHOSEN * HIDDEN),
        shared: take(HIDDEN),
        gate: take(1),
        output: take(HIDDEN),
        end,
    }
}

fn records(weights: &Weights, places: &Places) -> Vec<Vec<u32>> {
    fn words<R: bytemuck::Pod>(record: R) -> Vec<u32> {
        bytemuck::cast_slice(&[record]).to_vec()
    }
    let at = |place: usize| place as u32;
    let [gates, ups, downs] = weights.records;
    let [gate_factors, up_factors, factors] = weights.factors;
    let (routes, chosen) = (at(places.routes), CHOSEN as u32);
    let operand = |input: usize, width: usize| OperandRecord {
        input: at(input),
        width: width as u32,
        norm: NOTHING,
        epsilon: 0.0,
        norm_offset: 0.0,
    };
    vec![
        words(RouteRecord { logits: at(places.logits), experts: EXPERTS as u32, chosen, routes }),
        words(ExpertGateUpRecord {
            gates,
            ups,
            operand: operand(places.x, HIDDEN),
            gate_factors,
            up_factors,
            routes,
            chosen,
            output: at(places.activated),
            outputs: INNER as u32,
        }),
        words(ExpertDownRecord {
            downs,
            operand: operand(places.activated, INNER),
            factors,
            routes,
            chosen,
            output: at(places.experts),
            outputs: HIDDEN as u32,
        }),
        words(CombineRecord {
            experts: at(places.experts),
            routes,
            chosen,
            shared: at(places.shared),
            gate: at(places.gate),
            output: at(places.output),
            width: HIDDEN as u32,
            add: 1,
        }),
    ]
}

/// Compiles the four bodies with joins between; their records lie one behind the other.
fn compiled(format: &str, records: &[Vec<u32>]) -> Option<Library> {
    let bodies = [
        ("route", "RouteRecord"),
        ("expert_gate_up", "ExpertGateUpRecord"),
        ("expert_down", "ExpertDownRecord"),
        ("combine", "CombineRecord"),
    ];
    let (mut calls, mut at) = (String::new(), 0);
    for ((function, record), words) in bodies.iter().zip(records) {
        let arguments =
            if function.starts_with("expert") { format!("<{format}>") } else { String::new() };
        calls += &format!(
            "    {function}{arguments}(memory, worker, *(DEVICE const {record}*)(records + {at}));\n    join(memory, worker);\n"
        );
        at += words.len();
    }
    support::kernel("mixture", &calls)
}

const RESIDUAL: f32 = 0.25;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// What the kernels make of `rows`, given the interpreter's logits and shared expert.
fn run(
    library: &Library,
    weights: &Weights,
    x: &[f32],
    given: &[Vec<f32>; 4],
    seed: u64,
) -> Vec<f32> {
    let [logits, shared, gate, _] = given;
    let (places, rows) = (places(), gate.len());
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let step = StepState::single(SlotRows { rows: rows as u32, ..SlotRows::default() }, 0);
    let records: Vec<u32> = records(weights, &places).concat();
    let mut memory = Memory::new();
    let arena = memory.add_unwritten("arena", places.end * 4).expect("fits");
    let buffers = [
        memory.add_bytes("weights", &weights.bytes),
        Ok(arena),
        memory.add_zeroed("states", 16),
        memory.add_bytes("step", &words(&step.words())),
        memory.add_zeroed("tokens", 4),
        memory.add_zeroed("pages", 4),
        memory.add_bytes("records", &words(&records)),
        memory.add_zeroed("joins", 8),
    ]
    .map(|buffer| buffer.expect("fits"));
    let residual = vec![RESIDUAL; rows * HIDDEN];
    for (place, values) in [
        (places.x, x),
        (places.logits, logits.as_slice()),
        (places.shared, shared),
        (places.gate, gate),
        (places.output, &residual),
    ] {
        assert!(memory.write(arena, place * 4, &bytes(values)));
    }
    let mut launch = Launch::new("mixture", WORKERS, 64);
    for (index, buffer) in (0..).zip(buffers) {
        launch = launch.bind(index, buffer);
    }
    (launch.seed, launch.checked) = (seed, seed % 2 == 1);
    library.run(&launch, &mut memory).expect("runs");
    let output = &memory.bytes(arena)[places.output * 4..][..rows * HIDDEN * 4];
    output.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn relative_error(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 =
        found.iter().zip(wanted).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = wanted.iter().map(|b| square(f64::from(*b))).sum();
    (error / size).sqrt()
}

#[test]
fn a_mixture_equals_the_interpreter_in_several_formats_and_with_any_rows() {
    for format in ["bf16", "fp8", "nvfp4"] {
        let case = Case::new(format);
        let weights = weights(&case);
        let Some(library) = compiled(&weights.format, &records(&weights, &places())) else {
            return;
        };
        let x = rows();
        let mut alone: Vec<Vec<f32>> = Vec::new();
        for (seed, count) in (0..).zip([1, 3, 8, ROWS]) {
            let rows: Vec<u32> = (0..count as u32).collect();
            let given = case.interpreted(&rows);
            let found = run(&library, &weights, &x[..count * HIDDEN], &given, seed);
            let wanted: Vec<f32> = given[3].iter().map(|value| value + RESIDUAL).collect();
            let error = relative_error(&found, &wanted);
            // Operands of narrow floats keep 11 bits, others 22 or more.
            let narrow = ["fp8", "nvfp4"].contains(&format);
            let tolerance = if narrow { 4e-4 } else { 2e-6 };
            assert!(error < tolerance, "{format}, {count} rows: relative error {error}");
            if count < ROWS {
                continue;
            }
            for row in 0..ROWS {
                let given = case.interpreted(&[row as u32]);
                alone.push(run(&library, &weights, &x[row * HIDDEN..][..HIDDEN], &given, 0));
            }
            assert!(found == alone.concat(), "{format}: bits depend on the rows");
        }
    }
}

/// What the comparison rests on: rows that choose the first of two equal experts, experts with more rows than a product takes at once
/// and with one, and more groups than workers.
#[test]
fn the_rows_choose_as_the_comparison_wants() {
    let case = Case::new("bf16");
    let given = case.interpreted(&(0..ROWS as u32).collect::<Vec<_>>());
    let mut counts = [0; EXPERTS];
    for row in given[0].chunks(EXPERTS) {
        assert_eq!(row[3], row[30], "equal experts");
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order[..CHOSEN].iter().for_each(|expert| counts[*expert] += 1);
    }
    assert!(counts[3] >= 1, "{counts:?}");
    assert!(counts.iter().any(|count| *count > 8), "{counts:?}");
    assert!(counts.contains(&1), "{counts:?}");
    assert!(counts.iter().filter(|count| **count > 0).count() > 2 * WORKERS as usize);
}
