//! Linear layers at the shapes of a small model: how fast packed weights stream against a plain read of the same bytes,
//! and how many products a second a long prompt gets.
//!
//! One thread. Every group first reads the same planes without computing (`read`), which is the bound of its decode
//! benchmarks; compare their throughputs.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lithos_compiler::layout::{Layout, Packed, WeightSource};
use lithos_cpu::linear::{
    Epilogue, InputView, Operand, OperandKind, OutputView, large_page_region, linear,
};
use lithos_cpu::simd::{Isa, Kernel, Simd};
use lithos_format::{Blocks, Codes, Encoding, ScaleType};

/// More than the caches of common processors hold.
const FOOTPRINT: usize = 96 << 20;

/// Weights of arbitrary bits; the scales' bits are a small normal number in each of the narrow types.
struct Pattern {
    cols: usize,
    encoding: Encoding,
}

impl WeightSource for Pattern {
    fn cols(&self) -> usize {
        self.cols
    }
    fn encoding(&self) -> Encoding {
        self.encoding
    }
    fn tensor_scale(&self) -> f32 {
        1.0
    }
    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        let mask = match self.encoding.codes {
            Codes::U4 | Codes::E2m1 => 0x0F,
            // Keeps exponents small.
            Codes::F32 | Codes::F16 | Codes::Bf16 | Codes::E4m3 => 0x37,
            Codes::I8 => 0xFF,
        };
        for (index, code) in out.iter_mut().enumerate() {
            *code =
                (row.wrapping_mul(2_654_435_761).wrapping_add(index * 40_503) >> 5) as u8 & mask;
        }
    }
    fn unpack_scales(&self, _row: usize, out: &mut [u32]) {
        out.fill(0x2020);
    }
    fn unpack_biases(&self, _row: usize, out: &mut [u32]) {
        out.fill(0x2020);
    }
}

fn encodings() -> Vec<(&'static str, Encoding)> {
    let plain = |codes| Encoding { codes, zero_point: 0, blocks: None };
    let blocks = |codes, zero_point, cols, scale, bias| Encoding {
        codes,
        zero_point,
        blocks: Some(Blocks { cols, scale, bias }),
    };
    let half = ScaleType::F16;
    vec![
        ("q4_0", blocks(Codes::U4, 8, 32, half, None)),
        ("q4_1", blocks(Codes::U4, 0, 32, half, Some(half))),
        ("int4_g64", blocks(Codes::U4, 0, 64, ScaleType::Bf16, Some(ScaleType::Bf16))),
        ("nvfp4", blocks(Codes::E2m1, 0, 16, ScaleType::E4m3, None)),
        ("q8_0", blocks(Codes::I8, 0, 32, half, None)),
        ("fp8", plain(Codes::E4m3)),
        ("bf16", plain(Codes::Bf16)),
        ("f16", plain(Codes::F16)),
        ("f32", plain(Codes::F32)),
    ]
}

/// Matrices of one shape, together larger than the caches.
fn matrices(rows: usize, cols: usize, encoding: Encoding, footprint: usize) -> Vec<Packed> {
    let layout = Layout::for_encoding(rows, cols, &encoding).expect("a layout that kernels read");
    let source = Pattern { cols, encoding };
    let count = footprint.div_ceil(layout.bytes());
    let fill = |_| {
        let mut packed = layout.allocate_in(&mut large_page_region(layout.region_bytes()), 1.0);
        for mut part in packed.parts(layout.tiles()) {
            part.fill(&source, &|row| row);
        }
        packed
    };
    (0..count).map(fill).collect()
}

/// Reads a plane and does next to nothing with it.
struct Read<'a>(&'a [u8]);

impl Kernel for Read<'_> {
    type Output = i32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> i32 {
        let mut sums = [s.splat_i32(0); 4];
        for line in self.0.as_chunks::<256>().0 {
            for (quarter, sum) in sums.iter_mut().enumerate() {
                s.prefetch(line.as_ptr().wrapping_add(64 * quarter + 4096));
                // SAFETY: the line has four times 64 bytes.
                *sum = s.or(*sum, unsafe { s.load_i32(line.as_ptr().add(64 * quarter)) });
            }
        }
        s.sum_i32(s.or(s.or(sums[0], sums[1]), s.or(sums[2], sums[3])))
    }
}

struct Activations {
    operand: Operand,
    rows: usize,
}

fn activations(isa: Isa, packed: &Packed, rows: usize) -> Activations {
    let cols = packed.layout().cols();
    let x: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let operand = Operand::new(rows, cols);
    let kind = OperandKind::of(packed.layout());
    // SAFETY: this thread alone uses the operand.
    unsafe { operand.prepare_rows(isa, kind, InputView::new(&x, rows, cols, cols), 0..rows) };
    Activations { operand, rows }
}

fn multiply(isa: Isa, matrices: &[Packed], x: &Activations, out: &mut [f32]) {
    for packed in matrices {
        let rows = packed.layout().rows();
        let view = OutputView::new(out, x.rows, rows, rows);
        let tiles = 0..packed.layout().tiles();
        // SAFETY: this thread alone uses the output.
        unsafe { linear(isa, packed, &x.operand, 0..x.rows, tiles, view, Epilogue::Store) };
    }
}

fn decode(criterion: &mut Criterion) {
    let isa = Isa::detect();
    for (rows, cols) in [(1536, 576), (576, 1536), (49_152, 576)] {
        for (name, encoding) in encodings() {
            let matrices = matrices(rows, cols, encoding, FOOTPRINT);
            let bytes: usize = matrices.iter().map(|packed| packed.layout().bytes()).sum();
            let mut group = criterion.benchmark_group(format!("decode/{name}/{rows}x{cols}"));
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function("read", |bencher| {
                bencher.iter(|| {
                    for packed in &matrices {
                        for plane in [packed.codes(), packed.scales(), packed.biases()] {
                            black_box(isa.run(Read(plane)));
                        }
                    }
                });
            });
            for count in [1, 2, 4, 8, 16] {
                let x = activations(isa, &matrices[0], count);
                let mut out = vec![0.0; count * rows];
                group.bench_function(BenchmarkId::new("rows", count), |bencher| {
                    bencher.iter(|| multiply(isa, &matrices, &x, &mut out));
                });
            }
            group.finish();
        }
    }
}

fn prefill(criterion: &mut Criterion) {
    const ROWS: usize = 512;
    let isa = Isa::detect();
    for (rows, cols) in [(1536, 576), (576, 1536)] {
        for (name, encoding) in encodings() {
            let matrices = matrices(rows, cols, encoding, 1);
            let x = activations(isa, &matrices[0], ROWS);
            let mut out = vec![0.0; ROWS * rows];
            let mut group = criterion.benchmark_group(format!("prefill/{name}/{rows}x{cols}"));
            // Products, printed as elements.
            group.throughput(Throughput::Elements((rows * cols * ROWS) as u64));
            group.bench_function("512", |bencher| {
                bencher.iter(|| multiply(isa, &matrices, &x, &mut out));
            });
            group.finish();
        }
    }
}

fn short() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! {
    name = linear_layers;
    config = short();
    targets = decode, prefill
}
criterion_main!(linear_layers);
