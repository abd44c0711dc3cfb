//! Prints how fast lanes switch, meet and compute on this machine, in processor time: others may be at work on it.

use lithos_emulator::{Emulator, EmulatorError, Launch, Memory};

const TEXT: &str = "
#include <metal_stdlib>
using namespace metal;
kernel void barriers(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    for (int k = 0; k < 200; k++) threadgroup_barrier(mem_flags::mem_device);
    y[i] = 1;
}
kernel void sums(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float sum = i;
    for (int k = 0; k < 200; k++) sum = simd_sum(sum) * 0.03125f;
    y[i] = sum;
}
kernel void joins(device atomic_uint* counter [[buffer(0)]], device float* y [[buffer(1)]],
                  uint i [[thread_position_in_grid]], uint own [[thread_index_in_threadgroup]]) {
    for (uint k = 1; k <= 200; k++) {
        threadgroup_barrier(mem_flags::mem_device);
        if (own == 0) {
            atomic_thread_fence(mem_flags::mem_device, memory_order_release, thread_scope_device);
            atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
            while (atomic_load_explicit(counter, memory_order_relaxed) < 8 * k) {}
            atomic_thread_fence(mem_flags::mem_device, memory_order_acquire, thread_scope_device);
        }
        threadgroup_barrier(mem_flags::mem_device);
    }
    y[i] = 1;
}
kernel void product(device const float* w [[buffer(0)]], device float* y [[buffer(1)]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
    for (uint row = group * 64 + simdgroup; row < group * 64 + 64; row += 8) {
        device const bfloat4* weights = (device const bfloat4*)w + row * 512;
        float sum = 0;
        for (uint i = lane; i < 512; i += 32) sum += dot(float4(weights[i]), float4(i));
        sum = simd_sum(sum);
        if (lane == 0) y[row] = sum;
    }
}
kernel void matrices(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(0.1f), sum = a;
    for (int k = 0; k < 200; k++) simdgroup_multiply_accumulate(sum, a, a, sum);
    y[i] = sum.thread_elements()[0];
}
";

/// Processor time of this thread.
fn seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() -> Result<(), EmulatorError> {
    let library = Emulator::new()?.compile(TEXT)?;
    let lanes = 8.0 * 256.0 * 200.0;
    let joins = 8.0 * 200.0;
    for (kernel, count, unit) in [
        ("barriers", lanes, "ns a lane and barrier"),
        ("sums", lanes, "ns a lane and simd_sum"),
        ("joins", joins / 8.0, "ns a join of 8 threadgroups of 256"),
        ("product", 512.0 * 2048.0, "ns a bfloat weight"),
        ("matrices", lanes / 32.0 * 512.0, "ns a multiply-accumulate of 8x8 matrices"),
    ] {
        for checked in [false, true] {
            let mut memory = Memory::new();
            let input = memory.add_zeroed("input", 512 * 2048 * 2)?;
            let output = memory.add_unwritten("output", 8 * 256 * 4)?;
            let mut best = f64::INFINITY;
            for _ in 0..5 {
                let _ = memory.write(input, 0, &[0; 4]);
                let mut launch = Launch::new(kernel, 8, 256).bind(0, input).bind(1, output);
                launch.checked = checked;
                let start = seconds();
                library.run(&launch, &mut memory)?;
                best = best.min(seconds() - start);
            }
            let how = if checked { "checked" } else { "fast" };
            println!("{kernel} {how}: {:.2} {unit}", best * 1e9 / count);
        }
    }
    let mut memory = Memory::new();
    let output = memory.add_unwritten("output", 8 * 256 * 4)?;
    let launch = Launch::new("empty", 8, 256).bind(1, output).fast();
    let empty = Emulator::new()?.compile(
        "#include <metal_stdlib>\nusing namespace metal;\nkernel void empty(device float* y [[buffer(1)]]) {}",
    )?;
    let start = seconds();
    for _ in 0..100 {
        empty.run(&launch, &mut memory)?;
    }
    println!("an empty launch of 8 x 256 lanes: {:.0} us", (seconds() - start) * 1e4);
    Ok(())
}
