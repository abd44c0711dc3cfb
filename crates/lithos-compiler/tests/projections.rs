//! Projections of the kernels in the emulator: every format, any number of rows, with and without norm, residual and slices.

mod support;

use std::collections::HashMap;

use lithos_compiler::device::LaneLayout;
use lithos_compiler::layout::WeightSource;
use lithos_compiler::{SlotRows, StepState};
use lithos_emulator::{Launch, Library, Memory};
use lithos_format::{Checkpoint, Encoding, Matrix, encode_matrix, format_names, write_safetensors};
use lithos_kernels::MOST_TEAMS;
use lithos_kernels::records::{LinearRecord, MatrixRecord, NOTHING, OperandRecord};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Columns of the operand and of the output: neither a whole number of units nor of tiles.
const COLUMNS: usize = 704;
const OUTPUTS: usize = 72;
const ROWS: usize = 16;
const WORKERS: u32 = 5;

/// A matrix in a format, packed, with its values.
struct Case {
    layout: LaneLayout,
    packed: Vec<u8>,
    tensor_scale: f32,
    values: Vec<f32>,
}

struct Source<'a>(&'a Matrix<'a>);

impl WeightSource for Source<'_> {
    fn cols(&self) -> usize {
        self.0.cols()
    }
    fn encoding(&self) -> Encoding {
        self.0.encoding()
    }
    fn tensor_scale(&self) -> f32 {
        self.0.tensor_scale()
    }
    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        self.0.unpack_codes(row, out);
    }
    fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        self.0.unpack_scales(row, out);
    }
    fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        self.0.unpack_biases(row, out);
    }
}

fn case(format: &str) -> Case {
    let mut random = StdRng::seed_from_u64(1);
    let values: Vec<f32> =
        (0..OUTPUTS * COLUMNS).map(|_| random.random_range(-1.0f32..1.0).powi(3)).collect();
    let stored = encode_matrix(format, "matrix", COLUMNS, &values).expect("encodes");
    let entries: Vec<_> = stored.iter().map(lithos_format::OwnedTensor::entry).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("matrix.safetensors");
    write_safetensors(&file, &entries).expect("writes");
    let checkpoint = Checkpoint::open_safetensors_file(&file).expect("opens");
    let matrix = checkpoint.matrix("matrix").expect("a matrix");
    let layout = LaneLayout::new(OUTPUTS, COLUMNS, matrix.encoding()).expect("a layout");
    let mut packed = vec![0; layout.bytes()];
    layout.pack(&Source(&matrix), &mut packed);
    Case { layout, packed, tensor_scale: matrix.tensor_scale(), values: matrix.decode() }
}

/// How a projection is launched.
#[derive(Clone, Copy, Debug)]
struct Variant {
    rows: usize,
    norm: bool,
    add: bool,
    slices: usize,
}

fn compiled(format: &str) -> Option<Library> {
    let call =
        format!("    linear<{format}>(memory, worker, *(DEVICE const LinearRecord*)records);\n");
    support::kernel("project", &call)
}

/// Rows of very different size: half precision could hold neither the largest nor the smallest as they are.
fn operand() -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(2);
    (0..ROWS)
        .flat_map(|row| {
            let size = [1.0, 3e5, 1e-7, 0.0, 40.0][row % 5];
            (0..COLUMNS).map(|_| size * random.random_range(-1.0f32..1.0)).collect::<Vec<_>>()
        })
        .collect()
}

const EPSILON: f32 = 1e-6;

fn wanted(case: &Case, x: &[f32], norm: &[f32], variant: Variant) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks(COLUMNS).take(variant.rows) {
        let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
        let factor = (squares / COLUMNS as f64 + f64::from(EPSILON)).sqrt().recip();
        for weights in case.values.chunks(COLUMNS) {
            let terms = row.iter().zip(weights).zip(norm).map(|((x, w), norm)| {
                let x = f64::from(*x);
                let x = if variant.norm { x * factor * (1.0 + f64::from(*norm)) } else { x };
                x * f64::from(*w)
            });
            out.push(terms.sum::<f64>() + if variant.add { 0.5 } else { 0.0 });
        }
    }
    out
}

fn bytes<T: Copy>(values: &[T], to: impl Fn(T) -> [u8; 4]) -> Vec<u8> {
    values.iter().flat_map(|value| to(*value)).collect()
}

fn projected(
    library: &Library,
    case: &Case,
    variant: Variant,
    seed: u64,
    checked: bool,
) -> Vec<f32> {
    let (x, norm) = (operand(), vec![0.25f32; COLUMNS]);
    let mut weights = case.packed.clone();
    weights.extend(bytes(&norm, f32::to_le_bytes));
    let output = ROWS * COLUMNS;
    let partials = (output + ROWS * OUTPUTS).next_multiple_of(4);
    let arena = partials + variant.slices * case.layout.tiles() * 16 * ROWS;
    let scales = case.layout.code_bytes();
    let encoding = case.layout.encoding();
    let record = LinearRecord {
        matrix: MatrixRecord {
            codes: 0,
            scales: (scales / 16) as u32,
            biases: ((scales + case.layout.scale_bytes()) / 16) as u32,
            tensor_scale: case.tensor_scale,
            zero_point: u32::from(encoding.zero_point),
            units: case.layout.units() as u32,
            block_columns: encoding.blocks.map_or(1, |blocks| blocks.cols as u32),
            blocks: case.layout.blocks() as u32,
        },
        operand: OperandRecord {
            input: 0,
            width: COLUMNS as u32,
            norm: if variant.norm { (case.packed.len() / 16) as u32 } else { NOTHING },
            epsilon: EPSILON,
            norm_offset: 1.0,
        },
        output: output as u32,
        outputs: OUTPUTS as u32,
        add: u32::from(variant.add),
        row_set: 0,
        slices: variant.slices as u32,
        partials: partials as u32,
        arrivals: 0,
    };
    let step = StepState::single(SlotRows { rows: variant.rows as u32, ..SlotRows::default() }, 0);
    let mut memory = Memory::new();
    let words = |words: &[u32]| bytes(words, u32::to_le_bytes);
    let arena_buffer = memory.add_unwritten("arena", arena * 4).expect("fits");
    let buffers = [
        memory.add_bytes("weights", &weights),
        Ok(arena_buffer),
        memory.add_zeroed("states", MOST_TEAMS * 4),
        memory.add_bytes("step", &words(&step.words())),
        memory.add_zeroed("tokens", 4),
        memory.add_zeroed("pages", 4),
        memory.add_bytes("records", &words(bytemuck::cast_slice(&[record]))),
        memory.add_zeroed("joins", 8),
    ]
    .map(|buffer| buffer.expect("fits"));
    assert!(memory.write(arena_buffer, 0, &bytes(&x, f32::to_le_bytes)));
    if variant.add {
        let residual = vec![0.5f32; ROWS * OUTPUTS];
        assert!(memory.write(arena_buffer, output * 4, &bytes(&residual, f32::to_le_bytes)));
    }
    let mut launch = Launch::new("project", WORKERS, 96);
    for (index, buffer) in (0..).zip(buffers) {
        launch = launch.bind(index, buffer);
    }
    (launch.seed, launch.checked) = (seed, checked);
    // Twice: the counters of slices need no clearing.
    for _ in 0..if variant.slices > 1 && !variant.add { 2 } else { 1 } {
        library.run(&launch, &mut memory).expect("runs");
    }
    memory.bytes(arena_buffer)[output * 4..][..variant.rows * OUTPUTS * 4]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

/// Largest relative error of a row, as a part of the row's length.
fn relative_error(found: &[f32], wanted: &[f64]) -> f64 {
    let rows = found.chunks(OUTPUTS).zip(wanted.chunks(OUTPUTS));
    rows.map(|(found, wanted)| {
        let error: f64 = found.iter().zip(wanted).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
        let size: f64 = wanted.iter().map(|b| b * b).sum();
        if size == 0.0 { error } else { (error / size).sqrt() }
    })
    .fold(0.0, |a, b| if b <= a { a } else { b })
}

/// What sums of single precision may be off by; operands of narrow floats keep 11 bits, others 22 or more.
fn tolerance(format: &str) -> f64 {
    if ["fp8", "nvfp4"].contains(&format) { 4e-4 } else { 2e-6 }
}

#[test]
fn every_format_with_any_number_of_rows() {
    let mut compiled_formats: HashMap<String, Library> = HashMap::new();
    for format in format_names().filter(|name| !["q4_0", "q4_1", "q8_0"].contains(name)) {
        let case = case(format);
        let key = case.layout.format();
        if !compiled_formats.contains_key(&key) {
            let Some(library) = compiled(&key) else { return };
            compiled_formats.insert(key.clone(), library);
        }
        let library = &compiled_formats[&key];
        let mut of_one_row = Vec::new();
        for (seed, (rows, norm, add, slices)) in [
            (1, true, false, 1),
            (16, true, false, 1),
            (5, false, true, 1),
            (9, false, false, 3),
            (3, true, true, 2),
        ]
        .into_iter()
        .enumerate()
        {
            let variant = Variant { rows, norm, add, slices };
            let found = projected(library, &case, variant, seed as u64, false);
            let error =
                relative_error(&found, &wanted(&case, &operand(), &[0.25; COLUMNS], variant));
            assert!(error < tolerance(format), "{format}, {variant:?}: relative error {error}");
            if rows == 1 {
                of_one_row = found;
            } else if rows == 16 {
                assert!(found[..OUTPUTS] == of_one_row, "{format}: bits depend on the rows");
            }
        }
    }
}

#[test]
fn accesses_of_slices_are_ordered() {
    let case = case("nvfp4");
    let Some(library) = compiled(&case.layout.format()) else { return };
    for seed in 0..4 {
        let variant = Variant { rows: 9, norm: true, add: true, slices: 2 };
        let found = projected(&library, &case, variant, seed, true);
        let error = relative_error(&found, &wanted(&case, &operand(), &[0.25; COLUMNS], variant));
        assert!(error < tolerance("nvfp4"), "{variant:?}: relative error {error}");
    }
}
