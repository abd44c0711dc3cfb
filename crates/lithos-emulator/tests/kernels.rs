//! Kernels whose results are known, run in both builds.

mod support;

use lithos_emulator::{Launch, Memory};
use support::{HEAD, distance, emulator, floats, integers, values};

const ADD: &str = "
kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                device float* sum [[buffer(2)]], constant uint& count [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
    if (i >= count) return;
    sum[i] = a[i] + b[i];
}
";

#[test]
fn adds_vectors() {
    let Some(emulator) = emulator() else { return };
    let library = emulator.compile(&format!("{HEAD}{ADD}")).unwrap();
    assert_eq!(library.kernels()[0].name, "add");
    let (a, b) = (values(1000, 1), values(1000, 2));
    for checked in [false, true] {
        let mut memory = Memory::new();
        let (x, y) = (floats(&mut memory, "a", &a), floats(&mut memory, "b", &b));
        let sum = memory.add_unwritten("sum", 4000).unwrap();
        let count = integers(&mut memory, "count", &[1000]);
        let mut launch =
            Launch::new("add", 8, 128).bind(0, x).bind(1, y).bind(2, sum).bind(3, count);
        launch.checked = checked;
        library.run(&launch, &mut memory).unwrap();
        let wanted: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(memory.floats(sum).unwrap(), wanted);
        if checked {
            assert_eq!(memory.first_unwritten(sum), None);
        }
    }
}

const TOTAL: &str = "
kernel void total(device const float* x [[buffer(0)]], device float* result [[buffer(1)]],
                  uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                  uint group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]]) {
    threadgroup float partial[8];
    float sum = simd_sum(x[group * 256 + thread_index]);
    if (lane == 0) partial[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        sum = simd_sum(lane < 8 ? partial[lane] : 0.0f);
        if (lane == 0) result[group] = sum;
    }
}
";

#[test]
fn reduces_over_a_threadgroup() {
    let Some(emulator) = emulator() else { return };
    let library = emulator.compile(&format!("{HEAD}{TOTAL}")).unwrap();
    let x = values(1024, 3);
    let wanted: Vec<f64> =
        x.chunks(256).map(|chunk| chunk.iter().map(|x| f64::from(*x)).sum()).collect();
    for checked in [false, true] {
        let mut memory = Memory::new();
        let input = floats(&mut memory, "x", &x);
        let result = memory.add_unwritten("result", 16).unwrap();
        let mut launch = Launch::new("total", 4, 256).bind(0, input).bind(1, result);
        launch.checked = checked;
        library.run(&launch, &mut memory).unwrap();
        assert!(distance(memory.floats(result).unwrap(), &wanted) < 1e-6);
    }
}

const NORM_AND_PRODUCT: &str = "
struct Shape { uint columns; uint rows; float epsilon; };

// The reciprocal root mean square of `x`, the same in all lanes.
static float inverse_rms(device const float* x, device const Shape& shape, threadgroup float* partial, uint lane,
                         uint simdgroup, uint thread_index) {
    float square = 0.0f;
    for (uint i = thread_index; i < shape.columns; i += 128) square = fma(x[i], x[i], square);
    square = simd_sum(square);
    if (lane == 0) partial[simdgroup] = square;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    square = partial[0] + partial[1] + partial[2] + partial[3];
    return rsqrt(square / float(shape.columns) + shape.epsilon);
}

kernel void norm_and_product(device const bfloat* weights [[buffer(0)]], device const float* x [[buffer(1)]],
                             device const half* scale [[buffer(2)]], device float* y [[buffer(3)]],
                             device const Shape& shape [[buffer(4)]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint threadgroup_index [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]]) {
    threadgroup float partial[4];
    threadgroup float4 normed[64];
    float inverse = inverse_rms(x, shape, partial, lane, simdgroup, thread_index);
    for (uint i = thread_index; i < shape.columns / 4; i += 128) {
        float4 v = *(device const float4*)(x + 4 * i);
        normed[i] = v * inverse * float4(*(device const half4*)(scale + 4 * i));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint row = threadgroup_index * 16 + simdgroup; row < threadgroup_index * 16 + 16; row += 4) {
        device const bfloat4* w = (device const bfloat4*)(weights + row * shape.columns);
        float sum = 0.0f;
        for (uint i = lane; i < shape.columns / 4; i += 32) sum += dot(float4(w[i]), normed[i]);
        sum = simd_sum(sum);
        if (lane == 0) y[row] = sum;
    }
}
";

#[test]
fn normalises_and_multiplies() {
    let Some(emulator) = emulator() else { return };
    let library = emulator.compile(&format!("{HEAD}{NORM_AND_PRODUCT}")).unwrap();
    let (columns, rows) = (256, 64);
    let x = values(columns, 4);
    let scale: Vec<half::f16> = values(columns, 5).into_iter().map(half::f16::from_f32).collect();
    let weights: Vec<half::bf16> =
        values(columns * rows, 6).into_iter().map(half::bf16::from_f32).collect();
    let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    let inverse = (square / columns as f64 + 1e-6).sqrt().recip();
    let wanted: Vec<f64> = weights
        .chunks(columns)
        .map(|row| {
            let terms = row.iter().zip(&x).zip(&scale);
            terms.map(|((w, x), s)| w.to_f64() * f64::from(*x) * inverse * s.to_f64()).sum()
        })
        .collect();
    for checked in [false, true] {
        let mut memory = Memory::new();
        let bytes = |of: &[half::bf16]| of.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let weights = memory.add_bytes("weights", &bytes(&weights)).unwrap();
        let input = floats(&mut memory, "x", &x);
        let scale: Vec<u8> = scale.iter().flat_map(|v| v.to_le_bytes()).collect();
        let scale = memory.add_bytes("scale", &scale).unwrap();
        let y = memory.add_unwritten("y", rows * 4).unwrap();
        let shape =
            integers(&mut memory, "shape", &[columns as u32, rows as u32, 1e-6_f32.to_bits()]);
        let mut launch = Launch::new("norm_and_product", 4, 128)
            .bind(0, weights)
            .bind(1, input)
            .bind(2, scale)
            .bind(3, y)
            .bind(4, shape);
        launch.checked = checked;
        let report = library.run(&launch, &mut memory).unwrap();
        assert_eq!(report.threadgroup_memory, 1040);
        assert!(distance(memory.floats(y).unwrap(), &wanted) < 1e-6);
    }
}

const MATRICES: &str = "
// c = a b for 32x32 matrices, a simdgroup to each 8x8 tile of c.
kernel void matrices(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
                     device float* c [[buffer(2)]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint2 group [[threadgroup_position_in_grid]]) {
    threadgroup float tile[4][8][8];
    uint row = group.y * 8, column = simdgroup * 8;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0; k < 32; k += 8) {
        simdgroup_half8x8 left, right;
        simdgroup_load(left, a + row * 32 + k, 32);
        simdgroup_load(right, b, 32, ulong2(column, k));
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, &tile[simdgroup][0][0], 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 transposed;
    simdgroup_load(transposed, &tile[simdgroup][0][0], 8, ulong2(0, 0), true);
    simdgroup_store(transposed, c + column * 32 + row, 32);
}
";

#[test]
fn multiplies_matrices() {
    let Some(emulator) = emulator() else { return };
    let library = emulator.compile(&format!("{HEAD}{MATRICES}")).unwrap();
    let of = |seed| -> Vec<half::f16> {
        values(1024, seed).into_iter().map(half::f16::from_f32).collect()
    };
    let (a, b) = (of(7), of(8));
    // The kernel writes the product transposed.
    let wanted: Vec<f64> = (0..1024)
        .map(|i| {
            let (column, row) = (i / 32, i % 32);
            (0..32).map(|k| a[row * 32 + k].to_f64() * b[k * 32 + column].to_f64()).sum()
        })
        .collect();
    for checked in [false, true] {
        let mut memory = Memory::new();
        let bytes = |of: &[half::f16]| of.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let left = memory.add_bytes("a", &bytes(&a)).unwrap();
        let right = memory.add_bytes("b", &bytes(&b)).unwrap();
        let c = memory.add_unwritten("c", 4096).unwrap();
        let mut launch = Launch::new("matrices", 1, 128).bind(0, left).bind(1, right).bind(2, c);
        launch.threadgroups = [1, 4, 1];
        launch.checked = checked;
        library.run(&launch, &mut memory).unwrap();
        assert!(distance(memory.floats(c).unwrap(), &wanted) < 1e-6);
    }
}
