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

const LANES: &str = "
constant uint TABLE[4] = {10, 20, 30, 40};

kernel void lanes(device uint* out [[buffer(0)]], ushort lane [[thread_index_in_simdgroup]]) {
    out[0 * 32 + lane] = simd_shuffle_xor(uint(lane), 5);
    out[1 * 32 + lane] = simd_shuffle_down(uint(lane), 3);
    out[2 * 32 + lane] = simd_shuffle_up(uint(lane), 3);
    out[3 * 32 + lane] = simd_broadcast(uint(lane), 17);
    out[4 * 32 + lane] = simd_prefix_exclusive_sum(uint(lane));
    out[5 * 32 + lane] = simd_prefix_inclusive_sum(uint(lane));
    out[6 * 32 + lane] = uint(simd_any(lane == 9)) + 2 * uint(simd_all(lane == 9)) + 4 * uint(simd_all(lane < 32));
    out[7 * 32 + lane] = uint(ulong(simd_ballot(lane % 3 == 0)));
    out[8 * 32 + lane] = simd_min(uint(lane) ^ 6) + 100 * simd_max(uint(lane) ^ 6);
    out[9 * 32 + lane] = simd_shuffle(uint2(lane, 2 * lane), 31 - lane).y;
    out[10 * 32 + lane] = popcount(uint(lane)) + 100 * ctz(uint(lane)) + 10000 * clz(uint(lane));
    out[11 * 32 + lane] = TABLE[lane % 4] + extract_bits(uint(lane), 1, 2);
}
";

#[test]
fn lanes_exchange_values() {
    let Some(emulator) = emulator() else { return };
    let library = emulator.compile(&format!("{HEAD}{LANES}")).unwrap();
    let wanted = |row: u32, lane: u32| match row {
        0 => lane ^ 5,
        1 => {
            if lane + 3 < 32 {
                lane + 3
            } else {
                lane
            }
        }
        2 => lane.checked_sub(3).unwrap_or(lane),
        3 => 17,
        4 => (0..lane).sum(),
        5 => (0..=lane).sum(),
        6 => 5,
        7 => (0..32).filter(|lane| lane % 3 == 0).map(|lane| 1 << lane).sum(),
        8 => 3100,
        9 => 2 * (31 - lane),
        10 => lane.count_ones() + 100 * lane.trailing_zeros() + 10000 * lane.leading_zeros(),
        _ => [10, 20, 30, 40][lane as usize % 4] + (lane >> 1 & 3),
    };
    for checked in [false, true] {
        let mut memory = Memory::new();
        let out = memory.add_unwritten("out", 12 * 128).unwrap();
        let mut launch = Launch::new("lanes", 1, 32).bind(0, out);
        launch.checked = checked;
        library.run(&launch, &mut memory).unwrap();
        for (i, word) in memory.bytes(out).chunks(4).enumerate() {
            let (row, lane) = (i as u32 / 32, i as u32 % 32);
            let got = u32::from_le_bytes(word.try_into().unwrap());
            assert_eq!(got, wanted(row, lane), "row {row}, lane {lane}");
        }
    }
}

const ROUNDING: &str = "
kernel void rounding(device const float* x [[buffer(0)]], device half* h [[buffer(1)]],
                     device bfloat* b [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    half a = half(x[i]), c = half(x[i + 1]);
    h[4 * i] = a;
    h[4 * i + 1] = a + c;
    h[4 * i + 2] = a * c + a;
    h[4 * i + 3] = fma(a, c, a);
    bfloat d = bfloat(x[i]), e = bfloat(x[i + 1]);
    b[4 * i] = d;
    b[4 * i + 1] = d + e;
    b[4 * i + 2] = d * e + d;
    b[4 * i + 3] = bfloat4(half4(a))[3];
}
";

#[test]
fn half_and_bfloat_round_after_each_operation() {
    use half::{bf16, f16};
    let Some(emulator) = emulator() else { return };
    let library = emulator.compile(&format!("{HEAD}{ROUNDING}")).unwrap();
    // Around the largest and the smallest half, and ties.
    let mut x = vec![65519.0, 65520.0, 1e-7, -3e-8, 0.0, 1.0 + 1.0 / 256.0, 3.0, f32::INFINITY];
    x.extend(values(1048, 11));
    let same = |got: f32, wanted: f32| got == wanted || got.is_nan() && wanted.is_nan();
    for checked in [false, true] {
        let mut memory = Memory::new();
        let input = floats(&mut memory, "x", &x);
        let halves = memory.add_unwritten("h", 1024 * 8).unwrap();
        let bfloats = memory.add_unwritten("b", 1024 * 8).unwrap();
        let mut launch =
            Launch::new("rounding", 8, 128).bind(0, input).bind(1, halves).bind(2, bfloats);
        launch.checked = checked;
        library.run(&launch, &mut memory).unwrap();
        let word = |id, i: usize| {
            let bytes = &memory.bytes(id)[2 * i..2 * i + 2];
            u16::from_le_bytes([bytes[0], bytes[1]])
        };
        for i in 0..1024 {
            let round = |x: f32| f16::from_f32(x).to_f32();
            let (a, c) = (round(x[i]), round(x[i + 1]));
            let fused = f64::from(a) * f64::from(c) + f64::from(a);
            let wanted = [a, round(a + c), round(round(a * c) + a), f16::from_f64(fused).to_f32()];
            for (k, wanted) in wanted.into_iter().enumerate() {
                let got = f16::from_bits(word(halves, 4 * i + k)).to_f32();
                assert!(same(got, wanted), "half {i} {k}: {got} {wanted}");
            }
            let round = |x: f32| bf16::from_f32(x).to_f32();
            let (d, e) = (round(x[i]), round(x[i + 1]));
            let wanted = [d, round(d + e), round(round(d * e) + d), round(a)];
            for (k, wanted) in wanted.into_iter().enumerate() {
                let got = bf16::from_bits(word(bfloats, 4 * i + k)).to_f32();
                assert!(same(got, wanted), "bfloat {i} {k}: {got} {wanted}");
            }
        }
    }
}
