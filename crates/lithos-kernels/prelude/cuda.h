// The dialect's words in CUDA C++17.
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;

#define DEVICE
#define SHARED
#define THREAD
#define TASK static __device__ __forceinline__
// About a microsecond each: a join gives up after some seconds.
#define MOST_TURNS 2000000u
#define INFINITY __int_as_float(0x7f800000)

#define threadgroup __shared__

TASK float lane_sum(float x) {
    for (uint offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
TASK float lane_max(float x) {
    for (uint offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
TASK float lane_xor(float x, uint mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
TASK float lane_get(float x, uint lane) { return __shfl_sync(0xffffffffu, x, lane); }

// All threads of a worker have arrived and see each other's writes, in shared and in device memory.
TASK void worker_barrier() { __syncthreads(); }

// The lanes of a simdgroup see each other's writes to shared memory.
TASK void simd_fence() { __syncwarp(); }

TASK float float_of_bits(uint bits) { return __uint_as_float(bits); }
TASK uint bits_of_float(float x) { return __float_as_uint(x); }
TASK float float_of_half(uint bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((ushort)bits));
    return x;
}
TASK float sine(float x) { return sinf(x); }
TASK float cosine(float x) { return cosf(x); }
TASK float exponential(float x) { return expf(x); }
TASK float logarithm(float x) { return logf(x); }
TASK float reciprocal_root(float x) { return rsqrtf(x); }
TASK float max(float a, float b) { return fmaxf(a, b); }
TASK uint min(uint a, uint b) { return a < b ? a : b; }
TASK uint max(uint a, uint b) { return a > b ? a : b; }

// What this worker wrote before is visible to a worker that sees the counter's new value.
TASK uint arrive(uint* counter) {
    __threadfence();
    return atomicAdd(counter, 1u);
}
TASK uint observe(uint* counter) { return *(volatile uint*)counter; }
TASK void acquire() { __threadfence(); }
TASK void publish(uint* flag, uint value) { *(volatile uint*)flag = value; }
typedef uint* Counter;

#define THIS_WORKER {threadIdx.x % 32, threadIdx.x / 32, blockDim.x / 32, blockIdx.x, gridDim.x, 0, shared}
