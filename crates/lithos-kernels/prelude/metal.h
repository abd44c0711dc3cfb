// The dialect's words in the Metal Shading Language (3.2 and later).
#include <metal_stdlib>
using namespace metal;

#define DEVICE device
#define SHARED threadgroup
#define THREAD thread
#define TASK static inline

TASK float lane_sum(float x) { return simd_sum(x); }
TASK float lane_max(float x) { return simd_max(x); }
TASK float lane_xor(float x, uint mask) { return simd_shuffle_xor(x, ushort(mask)); }
TASK float lane_get(float x, uint lane) { return simd_shuffle(x, ushort(lane)); }

// All threads of a worker have arrived and see each other's writes, in shared and in device memory.
TASK void worker_barrier() { threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); }

// The lanes of a simdgroup see each other's writes to shared memory.
TASK void simd_fence() { simdgroup_barrier(mem_flags::mem_threadgroup); }

TASK float float_of_bits(uint bits) { return as_type<float>(bits); }
TASK uint bits_of_float(float x) { return as_type<uint>(x); }
TASK float float_of_half(uint bits) { return float(as_type<half>(ushort(bits))); }
TASK float sine(float x) { return precise::sin(x); }
TASK float cosine(float x) { return precise::cos(x); }
TASK float exponential(float x) { return precise::exp(x); }
TASK float logarithm(float x) { return precise::log(x); }
TASK float reciprocal_root(float x) { return precise::rsqrt(x); }

// What this worker wrote before is visible to a worker that sees the counter's new value.
TASK uint arrive(device atomic_uint* counter) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    return atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
}
TASK uint observe(device atomic_uint* counter) { return atomic_load_explicit(counter, memory_order_relaxed); }
TASK void acquire() { atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); }
TASK void publish(device atomic_uint* flag, uint value) { atomic_store_explicit(flag, value, memory_order_relaxed); }
typedef device atomic_uint* Counter;

#define THIS_WORKER {lane, simdgroup, simdgroups, index, workers, 0, shared}
