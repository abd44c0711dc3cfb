//! Linear layers of every encoding, under every instruction set of this machine, against exact arithmetic.

use std::ops::Range;

use lithos_compiler::layout::{Packed, TILE_ROWS, WeightSource};
use lithos_cpu::linear::{
    Epilogue, InputView, Operand, OperandKind, OutputView, linear, linear_gate_up,
};
use lithos_cpu::simd::Isa;
use lithos_format::{Blocks, Codes, Encoding, ScaleType};

/// A small random generator (xorshift), so that every run tests the same values.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
    /// Uniform in -1..1.
    fn unit(&mut self) -> f32 {
        (self.next() & 0xFF_FFFF) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A random matrix with its exact values.
struct Weights {
    cols: usize,
    encoding: Encoding,
    tensor_scale: f32,
    codes: Vec<u8>,
    scales: Vec<u32>,
    biases: Vec<u32>,
}

impl Weights {
    fn random(rows: usize, cols: usize, encoding: Encoding, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut codes = Vec::new();
        for _ in 0..rows * cols {
            let x = random.unit();
            match encoding.codes {
                Codes::F32 => codes.extend(x.to_le_bytes()),
                Codes::F16 => codes.extend(half::f16::from_f32(x).to_le_bytes()),
                Codes::Bf16 => codes.extend(half::bf16::from_f32(x).to_le_bytes()),
                // The two codes that differ from "not a number" in their last bit stand in for it.
                Codes::E4m3 => codes.push(match random.next() as u8 {
                    code if code & 0x7F == 0x7F => code ^ 1,
                    code => code,
                }),
                Codes::U4 | Codes::E2m1 => codes.push(random.next() as u8 & 15),
                Codes::I8 => codes.push(random.next() as u8),
            }
        }
        let blocks = encoding.blocks.map_or(0, |blocks| rows * cols / blocks.cols);
        let mut values = |kind: Option<ScaleType>, sign: f32| -> Vec<u32> {
            let bits = |x: f32| match kind {
                None => 0,
                Some(ScaleType::F32) => x.to_bits(),
                Some(ScaleType::F16) => u32::from(half::f16::from_f32(x).to_bits()),
                Some(ScaleType::Bf16) => u32::from(half::bf16::from_f32(x).to_bits()),
                // Codes 0x20 to 0x3F are 0.125 to 1.875.
                Some(ScaleType::E4m3) => 0x20 + (x * 31.0) as u32,
            };
            (0..blocks).map(|_| bits(sign * (0.1 + random.unit().abs()) / 1.1)).collect()
        };
        let scales = values(encoding.blocks.map(|blocks| blocks.scale), 1.0);
        let biases = values(encoding.blocks.and_then(|blocks| blocks.bias), -4.0);
        let tensor_scale =
            if encoding.blocks.is_some_and(|blocks| blocks.bias.is_some()) { 1.0 } else { 0.37 };
        Self { cols, encoding, tensor_scale, codes, scales, biases }
    }

    fn exact_row(&self, row: usize) -> Vec<f64> {
        let mut codes = vec![0; self.cols * self.encoding.codes.bytes_unpacked()];
        self.unpack_codes(row, &mut codes);
        let mut values = vec![0.0; self.cols];
        self.encoding.codes.values(&codes, &mut values);
        let per_row = self.encoding.blocks.map_or(0, |blocks| self.cols / blocks.cols);
        values
            .iter()
            .enumerate()
            .map(|(col, value)| {
                let value = f64::from(*value) - f64::from(self.encoding.zero_point);
                let Some(Blocks { cols, scale, bias }) = self.encoding.blocks else {
                    return value * f64::from(self.tensor_scale);
                };
                let block = row * per_row + col / cols;
                let bias = bias.map_or(0.0, |bias| f64::from(bias.to_f32(self.biases[block])));
                value * f64::from(scale.to_f32(self.scales[block])) * f64::from(self.tensor_scale)
                    + bias
            })
            .collect()
    }
}

impl WeightSource for Weights {
    fn cols(&self) -> usize {
        self.cols
    }
    fn encoding(&self) -> Encoding {
        self.encoding
    }
    fn tensor_scale(&self) -> f32 {
        self.tensor_scale
    }
    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.codes[row * out.len()..][..out.len()]);
    }
    fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        out.copy_from_slice(&self.scales[row * out.len()..][..out.len()]);
    }
    fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        out.copy_from_slice(&self.biases[row * out.len()..][..out.len()]);
    }
}

/// All encodings with the columns of their block (1 without blocks).
fn encodings() -> Vec<(Encoding, usize)> {
    let plain = |codes| (Encoding { codes, zero_point: 0, blocks: None }, 1);
    let blocks = |codes, zero_point, cols, scale, bias| {
        (Encoding { codes, zero_point, blocks: Some(Blocks { cols, scale, bias }) }, cols)
    };
    vec![
        plain(Codes::F32),
        plain(Codes::F16),
        plain(Codes::Bf16),
        plain(Codes::E4m3),
        plain(Codes::I8),
        blocks(Codes::U4, 8, 32, ScaleType::F16, None),
        blocks(Codes::U4, 0, 32, ScaleType::F16, Some(ScaleType::F16)),
        blocks(Codes::U4, 0, 64, ScaleType::Bf16, Some(ScaleType::Bf16)),
        blocks(Codes::U4, 0, 128, ScaleType::F32, Some(ScaleType::F32)),
        blocks(Codes::U4, 8, 16, ScaleType::F16, None),
        blocks(Codes::I8, 0, 32, ScaleType::F16, None),
        blocks(Codes::E2m1, 0, 16, ScaleType::E4m3, None),
        blocks(Codes::E2m1, 0, 32, ScaleType::F32, None),
    ]
}

fn shapes(block: usize) -> Vec<(usize, usize)> {
    let mut shapes =
        vec![(1, block), (37, 3 * block), (53, 576usize.next_multiple_of(block)), (18, 1152)];
    if block == 1 {
        shapes.extend([(16, 2), (17, 50), (33, 335)]);
    }
    shapes
}

fn activations(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..rows * cols)
        .map(|_| match random.next() % 40 {
            0 => 0.0,
            1 => random.unit() * 6.0,
            2 => random.unit() * 1e-3,
            _ => random.unit(),
        })
        .collect()
}

struct Case {
    weights: Weights,
    packed: Packed,
    rows: usize,
}

impl Case {
    fn new(rows: usize, cols: usize, encoding: Encoding, seed: u64) -> Self {
        let weights = Weights::random(rows, cols, encoding, seed);
        let packed = Packed::pack(rows, &weights, |row| row).unwrap();
        Self { weights, packed, rows }
    }

    fn operand(&self, isa: Isa, x: &[f32]) -> Operand {
        let cols = self.weights.cols;
        let rows = x.len() / cols;
        let operand = Operand::new(rows, cols);
        let kind = OperandKind::of(self.packed.layout());
        // SAFETY: this thread alone uses the operand.
        unsafe { operand.prepare_rows(isa, kind, InputView::new(x, rows, cols, cols), 0..rows) };
        operand
    }

    /// The outputs `[activation row][matrix row]` of activation rows `from..to`, in an output poisoned with NaN.
    fn run(&self, isa: Isa, operand: &Operand, from: usize, to: usize) -> Vec<f32> {
        self.run_in_pass(isa, operand, from..to, to)
    }

    /// The same of some rows of a pass of `pass_rows` rows.
    fn run_in_pass(
        &self,
        isa: Isa,
        operand: &Operand,
        rows: Range<usize>,
        pass_rows: usize,
    ) -> Vec<f32> {
        let mut out = vec![f32::NAN; pass_rows * self.rows];
        let tiles = self.packed.layout().tiles();
        let view = OutputView::new(&mut out, pass_rows, self.rows, self.rows);
        let store = Epilogue::Store;
        // SAFETY: this thread alone uses the output.
        unsafe { linear(isa, &self.packed, operand, rows.clone(), 0..tiles, view, store) };
        out.truncate(rows.end * self.rows);
        out.drain(..rows.start * self.rows);
        out
    }

    fn exact(&self, x: &[f32]) -> Vec<f64> {
        let weights: Vec<_> = (0..self.rows).map(|row| self.weights.exact_row(row)).collect();
        x.chunks(self.weights.cols)
            .flat_map(|x| {
                weights.iter().map(move |w| w.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum())
            })
            .collect()
    }
}

fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    let difference: f64 = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum();
    (difference / want.iter().map(|w| w * w).sum::<f64>().max(f64::MIN_POSITIVE)).sqrt()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Asserts equal bits, naming the first difference.
fn assert_same_bits(got: &[f32], want: &[f32], matrix_rows: usize, context: &str) {
    assert_eq!(got.len(), want.len(), "{context}");
    let differs = |index: &usize| got[*index].to_bits() != want[*index].to_bits();
    let count = (0..got.len()).filter(differs).count();
    if let Some(index) = (0..got.len()).find(differs) {
        let (row, output) = (index / matrix_rows, index % matrix_rows);
        let (got, want, all) = (got[index], want[index], want.len());
        panic!(
            "{context}: {count} of {all} differ, first in row {row} output {output}: {got:e} is not {want:e}"
        );
    }
}

/// Whether these codes have bits of their own under this instruction set.
fn in_bf16_pairs(isa: Isa, encoding: Encoding) -> bool {
    isa.has_bf16_pairs() && matches!(encoding.codes, Codes::Bf16 | Codes::E4m3)
}

#[test]
fn every_encoding_agrees_with_exact_arithmetic() {
    for (encoding, block) in encodings() {
        for (seed, (rows, cols)) in shapes(block).into_iter().enumerate() {
            let case = Case::new(rows, cols, encoding, seed as u64);
            let x = activations(19, cols, 7 + seed as u64);
            let want = case.exact(&x);
            for isa in Isa::available() {
                let got = case.run(isa, &case.operand(isa, &x), 0, 19);
                let error = relative_error(&got, &want);
                assert!(error < 5e-5, "{} {encoding:?} [{rows}, {cols}]: {error:e}", isa.name());
                let alone = case.run(isa, &case.operand(isa, &x[..cols]), 0, 1);
                let error = relative_error(&alone, &want[..rows]);
                assert!(
                    error < 5e-5,
                    "{} {encoding:?} [{rows}, {cols}] one row: {error:e}",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_company_and_on_any_instruction_set() {
    const ROWS: usize = 150;
    for (encoding, block) in encodings() {
        for (seed, (rows, cols)) in shapes(block).into_iter().enumerate() {
            let case = Case::new(rows, cols, encoding, 100 + seed as u64);
            let x = activations(ROWS, cols, seed as u64);
            let portable = Isa::portable();
            let want = case.run(portable, &case.operand(portable, &x), 0, ROWS);
            assert!(want.iter().all(|value| value.is_finite()), "an output was not written");
            for isa in Isa::available() {
                if in_bf16_pairs(isa, encoding) {
                    continue; // These have a test of their own.
                }
                let operand = case.operand(isa, &x);
                let context = format!("{} {encoding:?} [{rows}, {cols}]", isa.name());
                let got = case.run(isa, &operand, 0, ROWS);
                assert_same_bits(&got, &want, rows, &context);
                for count in 1..=16 {
                    let from = count * 8 % 100;
                    let got = case.run(isa, &operand, from, from + count);
                    let context = format!("{context} {count} rows");
                    assert_same_bits(&got, &want[from * rows..][..count * rows], rows, &context);
                }
            }
        }
    }
}

/// BF16 and E4M3, under the instruction sets that multiply pairs of BF16 values.
fn bf16_cases() -> impl Iterator<Item = (Isa, Encoding, usize, (usize, usize))> {
    let isas = Isa::available().into_iter();
    isas.flat_map(|isa| {
        encodings().into_iter().map(move |(encoding, block)| (isa, encoding, block))
    })
    .filter(|(isa, encoding, _)| in_bf16_pairs(*isa, *encoding))
    .flat_map(|(isa, encoding, block)| {
        // The last shape has more columns than two panels of decoded weights, and part of a third.
        let shapes = shapes(block).into_iter().chain([(70, 1120)]).enumerate();
        shapes.map(move |(seed, shape)| (isa, encoding, seed, shape))
    })
}

#[test]
fn bf16_pairs_agree_with_exact_arithmetic_for_every_number_of_rows() {
    const ROWS: usize = 150;
    for (isa, encoding, seed, (rows, cols)) in bf16_cases() {
        let case = Case::new(rows, cols, encoding, 300 + seed as u64);
        let x = activations(ROWS, cols, seed as u64);
        let want = case.exact(&x);
        let operand = case.operand(isa, &x);
        for count in (1..=18).chain([31, 32, 33, 64, 65, 100, 127, 128, 129, 144, 150]) {
            let got = case.run(isa, &operand, 0, count);
            for (row, (got, want)) in got.chunks(rows).zip(want.chunks(rows)).enumerate() {
                let error = relative_error(got, want);
                let what = format!("{} {encoding:?} [{rows}, {cols}]", isa.name());
                assert!(error < 5e-5, "{what} row {row} of {count}: relative error {error:e}");
            }
        }
    }
}

#[test]
fn bf16_pairs_give_a_row_the_same_bits_in_any_company() {
    const ROWS: usize = 150;
    for (isa, encoding, seed, (rows, cols)) in bf16_cases() {
        let case = Case::new(rows, cols, encoding, 200 + seed as u64);
        let x = activations(ROWS, cols, seed as u64);
        let operand = case.operand(isa, &x);
        let context = format!("{} {encoding:?} [{rows}, {cols}]", isa.name());
        // A decode step: against the first 16 rows one by one.
        let alone: Vec<f32> =
            (0..16).flat_map(|row| case.run(isa, &operand, row, row + 1)).collect();
        for count in 2..=16 {
            let from = 16 - count;
            let got = case.run(isa, &operand, from, 16);
            let context = format!("{context} decode, rows {from}..16");
            assert_same_bits(&got, &alone[from * rows..], rows, &context);
        }
        // Many rows: against all of them at once.
        let all = case.run(isa, &operand, 0, ROWS);
        for range in [0..17, 0..33, 5..6, 7..40, 3..131, 129..150, 148..150, 0..128] {
            let got = case.run_in_pass(isa, &operand, range.clone(), ROWS);
            let context = format!("{context} many rows, {range:?} of {ROWS}");
            let want = &all[range.start * rows..range.end * rows];
            assert_same_bits(&got, want, rows, &context);
        }
        for count in [17, 18, 31, 32, 33, 48, 64, 65, 80, 96, 112, 127, 128, 129, 130, 144, 145] {
            let got = case.run(isa, &operand, 0, count);
            let context = format!("{context} many rows, 0..{count} of {count}");
            assert_same_bits(&got, &all[..count * rows], rows, &context);
        }
        if !isa.has_tiles() {
            let context = format!("{context} many rows against decode");
            assert_same_bits(&all[..16 * rows], &alone, rows, &context);
        }
    }
}

#[test]
fn every_e4m3_code_meets_the_column_it_belongs_to() {
    const COLS: usize = 64;
    let (encoding, _) = encodings()[3];
    assert_eq!(encoding.codes, Codes::E4m3);
    // Row r, column c: code 64 r' + c, so that four rows hold all codes, in other lanes each time.
    let mut weights = Weights::random(64, COLS, encoding, 1);
    for (index, code) in weights.codes.iter_mut().enumerate() {
        let (row, col) = (index / COLS, index % COLS);
        *code = (64 * ((row + row / 4) % 4) + col) as u8;
        *code ^= u8::from(*code & 0x7F == 0x7F);
    }
    weights.tensor_scale = 1.0;
    let packed = Packed::pack(64, &weights, |row| row).unwrap();
    let case = Case { weights, packed, rows: 64 };
    // One activation is 1 and all others are 0: each output is a weight.
    let mut x = vec![0.0; COLS * COLS];
    for col in 0..COLS {
        x[col * COLS + col] = 1.0;
    }
    let want = case.exact(&x);
    for isa in Isa::available() {
        for (pass, rows) in [("decode", 1), ("few rows", 8), ("many rows", COLS)] {
            for from in (0..COLS).step_by(rows) {
                let operand = case.operand(isa, &x[from * COLS..][..rows * COLS]);
                let got = case.run(isa, &operand, 0, rows);
                for (index, got) in got.iter().enumerate() {
                    let (col, row) = (from + index / 64, index % 64);
                    let want = want[col * 64 + row];
                    let code = case.weights.codes[row * COLS + col];
                    assert!(
                        f64::from(*got) == want,
                        "{} {pass} row {row} column {col} code {code:02x}: {got:e}, not {want:e}",
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn only_the_tiles_and_rows_asked_for_are_written() {
    for (encoding, block) in encodings() {
        let (rows, cols) = (5 * TILE_ROWS + 3, 2 * block.max(16));
        let case = Case::new(rows, cols, encoding, 3);
        let x = activations(9, cols, 4);
        for isa in Isa::available() {
            let operand = case.operand(isa, &x);
            let want = case.run(isa, &operand, 0, 9);
            for (row_range, tiles) in
                [(2..3, 1..4), (2..9, 1..4), (0..1, 5..6), (3..8, 5..6), (0..9, 2..2)]
            {
                let stride = rows + 5;
                let mut out = vec![f32::NAN; 9 * stride];
                let view = OutputView::new(&mut out, 9, rows, stride);
                let store = Epilogue::Store;
                // SAFETY: this thread alone uses the output.
                unsafe {
                    linear(
                        isa,
                        &case.packed,
                        &operand,
                        row_range.clone(),
                        tiles.clone(),
                        view,
                        store,
                    )
                };
                for (row, out) in out.chunks(stride).enumerate() {
                    for (col, value) in out.iter().enumerate() {
                        if col < rows
                            && row_range.contains(&row)
                            && tiles.contains(&(col / TILE_ROWS))
                        {
                            assert_eq!(value.to_bits(), want[row * rows + col].to_bits());
                        } else {
                            assert_eq!(
                                value.to_bits(),
                                f32::NAN.to_bits(),
                                "row {row} column {col} was written"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn adding_adds_to_what_is_there() {
    for (encoding, block) in encodings() {
        let (rows, cols) = (43, 2 * block.max(16));
        let case = Case::new(rows, cols, encoding, 5);
        let x = activations(3, cols, 6);
        for isa in Isa::available() {
            let operand = case.operand(isa, &x);
            let product = case.run(isa, &operand, 0, 3);
            for count in [1, 3] {
                let residual = activations(count, rows, 9);
                let mut out = residual.clone();
                let view = OutputView::new(&mut out, count, rows, rows);
                // SAFETY: this thread alone uses the output.
                unsafe { linear(isa, &case.packed, &operand, 0..count, 0..3, view, Epilogue::Add) };
                let want: Vec<f32> = residual.iter().zip(&product).map(|(r, p)| r + p).collect();
                assert_eq!(bits(&out), bits(&want));
            }
        }
    }
}

#[test]
fn gate_and_up_give_silu_of_gate_times_up() {
    for (encoding, block) in encodings() {
        let (rows, cols) = (2 * TILE_ROWS + 7, 2 * block.max(16));
        let (gate, up) = (Case::new(rows, cols, encoding, 1), Case::new(rows, cols, encoding, 2));
        let x: Vec<f32> = activations(21, cols, 3).into_iter().map(|x| x * 0.1).collect();
        let want: Vec<f64> = gate
            .exact(&x)
            .iter()
            .zip(up.exact(&x))
            .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            .collect();
        let mut first: Option<Vec<f32>> = None;
        for isa in Isa::available() {
            let operand = gate.operand(isa, &x);
            let compute = |from: usize, to: usize, pass_rows: usize| {
                let mut out = vec![f32::NAN; pass_rows * rows];
                let view = OutputView::new(&mut out, pass_rows, rows, rows);
                // SAFETY: this thread alone uses the output.
                unsafe {
                    linear_gate_up(isa, &gate.packed, &up.packed, &operand, from..to, 0..3, view)
                };
                out[from * rows..to * rows].to_vec()
            };
            let context = format!("{} {encoding:?}", isa.name());
            let all = compute(0, 21, 21);
            let few = compute(0, 9, 9);
            for found in [&all, &few] {
                let error = relative_error(found, &want[..found.len()]);
                assert!(error < 1e-4, "{context}, {} values: {error:e}", found.len());
            }
            let row = 4 * rows..5 * rows;
            assert_same_bits(&compute(4, 5, 21), &all[row.clone()], rows, &context);
            assert_same_bits(&compute(4, 5, 5), &few[row], rows, &context);
            if !in_bf16_pairs(isa, encoding) {
                assert_same_bits(&few, &all[..9 * rows], rows, &context);
                let first = first.get_or_insert_with(|| all.clone());
                assert_same_bits(&all, first, rows, &context);
            }
        }
    }
}

#[test]
fn rows_and_columns_of_the_source_may_be_picked() {
    let (encoding, _) = encodings()[5];
    let weights = Weights::random(40, 64, encoding, 8);
    let even = Packed::pack(20, &weights, |row| 2 * row).unwrap();
    let all = Packed::pack(40, &weights, |row| row).unwrap();
    for row in 0..20 {
        assert_eq!(even.unpack_row(row), all.unpack_row(2 * row));
    }
}

#[test]
fn extreme_activations_stay_in_their_rows() {
    for (encoding, block) in encodings() {
        let (rows, cols) = (19, 2 * block.max(32));
        let case = Case::new(rows, cols, encoding, 11);
        let normal = activations(1, cols, 12);
        let mut x = vec![0.0; cols];
        x.extend(normal.iter().map(|x| x * 1e-40));
        x.extend(normal.iter().map(|x| x * 1e28));
        x.extend(normal.iter().map(|x| x * 1e-20));
        x.extend(&normal);
        x[4 * cols + 5] = f32::NAN;
        x.extend(&normal);
        x[5 * cols + cols - 1] = f32::INFINITY;
        x.extend(&normal);
        let want = case.exact(&x);
        for isa in Isa::available() {
            let operand = case.operand(isa, &x);
            for range in [0..7, 0..1, 1..2, 2..3, 3..4, 4..5, 5..6, 6..7] {
                let out = case.run(isa, &operand, range.start, range.end);
                for (out, row) in out.chunks(rows).zip(range) {
                    let want = &want[row * rows..][..rows];
                    let context = format!("{} {encoding:?} row {row}", isa.name());
                    match row {
                        0 => assert!(out.iter().all(|x| *x == 0.0), "{context}"),
                        1 => assert!(out.iter().all(|x| x.abs() < 1e-30), "{context}"),
                        4 => assert!(out.iter().all(|x| x.is_nan()), "{context}"),
                        5 => assert!(out.iter().all(|x| !x.is_finite()), "{context}"),
                        _ => {
                            let error = relative_error(out, want);
                            assert!(error < 1e-4, "{context}: {error:e}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn preparing_rows_apart_equals_preparing_them_together() {
    for (encoding, block) in encodings() {
        let cols = 3 * block.max(16);
        let case = Case::new(16, cols, encoding, 21);
        let x = activations(5, cols, 22);
        for isa in Isa::available() {
            let together = case.run(isa, &case.operand(isa, &x), 0, 5);
            let kind = OperandKind::of(case.packed.layout());
            let operand = Operand::new(5, cols);
            for row in [3, 0, 4, 1, 2] {
                // SAFETY: this thread alone uses the operand.
                unsafe {
                    operand.prepare_rows(isa, kind, InputView::new(&x, 5, cols, cols), row..row + 1)
                };
            }
            assert_eq!(bits(&case.run(isa, &operand, 0, 5)), bits(&together));
        }
    }
}
