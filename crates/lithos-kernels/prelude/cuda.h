// The dialect's words in CUDA C++17.
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;

#define DEVICE
#define SHARED
#define THREAD
#define TASK static __device__ __forceinline__
// What kernels call. Where a kernel has many calls it is not copied into each of them, because that takes minutes to compile.
#ifdef MANY_CALLS
#define BODY static __device__ __noinline__
#else
#define BODY TASK
#endif
// About a microsecond each: a join gives up after some seconds.
#define MOST_TURNS 2000000u
#define INFINITY __int_as_float(0x7f800000)

#define threadgroup __shared__ __align__(16)

TASK float lane_sum(float x) {
    for (uint offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
TASK float lane_max(float x) {
    for (uint offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
TASK float lane_xor(float x, uint mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
TASK uint lane_xor(uint x, uint mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
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
TASK float magnitude(float x) { return fabsf(x); }
// a b + c, rounded once.
TASK float fused(float a, float b, float c) { return fmaf(a, b, c); }
TASK float max(float a, float b) { return fmaxf(a, b); }
TASK uint min(uint a, uint b) { return a < b ? a : b; }
TASK uint max(uint a, uint b) { return a > b ? a : b; }

// The upper word of a product.
TASK uint multiply_upper(uint a, uint b) { return __umulhi(a, b); }

// Two halves in a word, the first in the low bits.
TASK uint halves_of_floats(float first, float second) {
    uint halves;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
}
// Two BF16 in a word, the first in the low bits.
TASK uint brains_of_floats(float first, float second) {
    uint brains;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(brains) : "f"(second), "f"(first));
    return brains;
}
TASK uint multiply_pairs(uint a, uint b) {
    uint halves;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(a), "r"(b));
    return halves;
}
TASK uint first_twice(uint halves) {
    uint twice;
    asm("{ .reg .b16 first, second; mov.b32 {first, second}, %1; mov.b32 %0, {first, first}; }" : "=r"(twice) : "r"(halves));
    return twice;
}
TASK uint second_twice(uint halves) {
    uint twice;
    asm("{ .reg .b16 first, second; mov.b32 {first, second}, %1; mov.b32 %0, {second, second}; }" : "=r"(twice) : "r"(halves));
    return twice;
}
// The values of two E4M3 codes in the low 16 bits.
TASK uint halves_of_e4m3(uint codes) {
#if __CUDA_ARCH__ >= 890
    uint halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((ushort)codes));
    return halves;
#else
    // The same bits at a half's bias are 2^-8 of the values.
    uint halves = (codes & 0x80u) << 8 | (codes & 0x7fu) << 7 | (codes & 0x8000u) << 16 | (codes & 0x7f00u) << 15;
    return multiply_pairs(halves, 0x5c005c00u);
#endif
}
// Two bytes of a word, each the upper byte of a half: bytes 0 and 1, or 2 and 3.
TASK uint halves_of_bytes(uint word, uint second) { return __byte_perm(word, 0, second ? 0x3424 : 0x1404); }

// A word that is read once.
TASK uint4 load_once(const uint4* at) {
    uint4 word;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "l"(at));
    return word;
}
TASK uint load_once(const uint* at) {
    uint word;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(at));
    return word;
}
TASK uint load_once(const ushort* at) {
    ushort word;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(word) : "l"(at));
    return word;
}

// What launches before this one wrote can be read from here on. Until then only what no launch writes may be.
TASK void await_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next launch may begin to wait for this one.
TASK void admit_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The 128 bytes from here on will be read soon.
TASK void expect(const uchar* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// Row and column pair of a lane in a 16 x 8 product, as 4 row + pair: also in rows 8 further down.
TASK uint matrix_lane(uint lane) { return lane; }

// `COUNT` words of each lane in shared memory, as the lanes of a product load them.
template <uint COUNT> TASK void put_words(uint* run, uint lane, const uint* words) {
#pragma unroll
    for (uint i = 0; i < COUNT; i += 4) {
        ((uint4*)run)[i * 8 + lane] = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
}
template <uint COUNT> TASK void get_words(const uint* run, uint lane, uint* words) {
#pragma unroll
    for (uint i = 0; i < COUNT; i += 4) {
        uint4 four = ((const uint4*)run)[i * 8 + lane];
        words[i] = four.x;
        words[i + 1] = four.y;
        words[i + 2] = four.z;
        words[i + 3] = four.w;
    }
}
// The right side of products: `PAIRS` pairs of halves of a lane's eight rows, from words that lanes have put.
template <uint PAIRS> struct RightHalves {
    uint pairs[PAIRS];
};
template <uint PAIRS> TASK void load_right(const uint* run, uint lane, RightHalves<PAIRS>& right) {
    get_words<PAIRS>(run, lane, right.pairs);
}

// sums += A X^T for a 16 x 16 part of A: pairs of the lane's row and of the row 8 further down, twice. `pair` is the first of
// the two of X.
template <uint PAIRS>
TASK void multiply_halves(float* sums, uint low, uint high, uint next_low, uint next_high, const RightHalves<PAIRS>& right, uint pair) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(low), "r"(high), "r"(next_low), "r"(next_high), "r"(right.pairs[pair]), "r"(right.pairs[pair + 1]));
}

// The same with BF16: four pairs of a lane's eight rows, then four of what they leave.
typedef RightHalves<8> RightBrains;
TASK void load_right_brains(const uint* run, uint lane, RightBrains& right) { get_words<8>(run, lane, right.pairs); }
TASK void multiply_brains(float* sums, uint low, uint high, uint next_low, uint next_high, const RightBrains& right, uint pair) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(low), "r"(high), "r"(next_low), "r"(next_high), "r"(right.pairs[pair]), "r"(right.pairs[pair + 1]));
}

// The right side of a product of floats: two columns of a lane's eight rows.
struct RightFloats {
    float first, second;
};
TASK RightFloats load_right_floats(const float* pairs, uint lane) {
    float2 pair = ((const float2*)pairs)[lane];
    return {pair.x, pair.y};
}

TASK void multiply_tf32(float* sums, float a0, float a1, float a2, float a3, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)), "r"(__float_as_uint(a3)),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
// The 11 bits that the matrix units multiply; what is left is multiplied apart.
TASK float upper_bits(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }

// sums += A X^T for a 16 x 8 part of A: two columns of the lane's row, `low`, and of the row 8 further down, `high`. Values of A
// that are not `WIDE` have at most 11 significant bits.
template <uint WIDE> TASK void multiply_floats(float* sums, const float* low, const float* high, RightFloats right) {
    float b0 = upper_bits(right.first), b1 = upper_bits(right.second);
    float a0 = low[0], a1 = high[0], a2 = low[1], a3 = high[1];
    if (WIDE) {
        a0 = upper_bits(a0), a1 = upper_bits(a1), a2 = upper_bits(a2), a3 = upper_bits(a3);
        multiply_tf32(sums, low[0] - a0, high[0] - a1, low[1] - a2, high[1] - a3, b0, b1);
    }
    multiply_tf32(sums, a0, a1, a2, a3, right.first - b0, right.second - b1);
    multiply_tf32(sums, a0, a1, a2, a3, b0, b1);
}

// Whether matrices of BF16 take the operand that a matrix beside them has staged in halves.
#define TAKES_STAGED 1
// The same with the `part`-th 16 columns of a unit that was staged in halves, `COLUMNS` columns for a lane, and A of BF16.
template <uint COLUMNS> TASK void multiply_beside(const uint* run, uint lane, uint part, const float* low, const float* high, float* sums) {
    uint column = part * 16 + lane % 4 * 4, word = column % COLUMNS / 2;
    uint2 pairs = *(const uint2*)(run + (word / 4 * 32 + lane / 4 * 4 + column / COLUMNS) * 4 + word % 4);
    multiply_tf32(sums, low[0], high[0], low[1], high[1], float_of_half(pairs.x & 0xffffu), float_of_half(pairs.x >> 16));
    multiply_tf32(sums, low[2], high[2], low[3], high[3], float_of_half(pairs.y & 0xffffu), float_of_half(pairs.y >> 16));
}

TASK void put_pair(float* at, float first, float second) { *(float2*)at = make_float2(first, second); }

// What this worker wrote before is visible to a worker that sees the counter's new value.
TASK uint arrive(uint* counter) {
    __threadfence();
    return atomicAdd(counter, 1u);
}
TASK uint observe(uint* counter) { return *(volatile uint*)counter; }
TASK void acquire() { __threadfence(); }
TASK void publish(uint* flag, uint value) { *(volatile uint*)flag = value; }
typedef uint* Counter;

#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
// Words that a simdgroup requests into shared memory, in the order in which it uses them: RING_UNITS requests are under way.
#define RING_UNITS 5
#define RING_SLOT_WORDS 288u
#define RING_WORDS (16 * RING_UNITS * RING_SLOT_WORDS)
TASK void request_four(uint* to, const uchar* at) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"((uint)__cvta_generic_to_shared(to)), "l"(at) : "memory");
}
TASK void close_request() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// The oldest request has come.
TASK void await_request() {
    asm volatile("cp.async.wait_group %0;" ::"n"(RING_UNITS - 1) : "memory");
    __syncwarp();
}
// All lanes have read what came; others may take its place.
TASK void release_request() { __syncwarp(); }
TASK uint4 requested(const uint4* slot, const uint4*) { return *slot; }
TASK uint requested(const ushort* slot, const ushort*) { return *slot; }
#else
// Cards with less shared memory read words where they are.
#define RING_UNITS 1
#define RING_SLOT_WORDS 0u
#define RING_WORDS 0
TASK void request_four(uint*, const uchar*) {}
TASK void close_request() {}
TASK void await_request() {}
TASK void release_request() {}
TASK uint4 requested(const uint4*, const uint4* at) { return load_once(at); }
TASK uint requested(const ushort*, const ushort* at) { return load_once(at); }
#endif

// Sets of sums in turn: each is full when all simdgroups have written it, and empty when all have read it. Nobody waits for more.
#define SUM_SETS 2
TASK uint set_barrier(uint i) {
    __shared__ unsigned long long barriers[2 * SUM_SETS];
    return (uint)__cvta_generic_to_shared(barriers + i);
}
TASK void begin_sets(uint thread, uint simdgroups) {
    if (thread < 2 * SUM_SETS) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(set_barrier(thread)), "r"(simdgroups) : "memory");
    __syncthreads();
}
TASK void announce_set(uint barrier, uint lane) {
    __syncwarp();
    if (lane == 0) asm volatile("{ .reg .b64 state; mbarrier.arrive.release.cta.shared::cta.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}
TASK void await_set(uint barrier, uint parity) {
    uint done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}
TASK void await_empty_set(uint step) {
    if (step >= SUM_SETS) await_set(set_barrier(SUM_SETS + step % SUM_SETS), (step / SUM_SETS - 1) % 2);
}
TASK void announce_full_set(uint step, uint lane) { announce_set(set_barrier(step % SUM_SETS), lane); }
TASK void await_full_set(uint step) { await_set(set_barrier(step % SUM_SETS), step / SUM_SETS % 2); }
TASK void announce_empty_set(uint step, uint lane) { announce_set(set_barrier(SUM_SETS + step % SUM_SETS), lane); }

// Workers at most that share the queries of a range of keys.
#define MOST_QUERY_PARTS 16u

// Columns of a row that a lane loads at once to stage them.
#define OPERAND_COLUMNS 16

// Floats of memory that the threads of a worker share, beside the operand of projections; and units of a tile that a lane has
// requested before it uses them.
#define SHARED_FLOATS 8480
#define REQUESTED_UNITS 3

// The operand of projections lies in memory whose size the launch chooses.
extern __shared__ uint4 launch_memory[];
TASK uint launch_memory_words() {
    uint bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes / 4;
}

// All lanes of a simdgroup know that they have the same number.
// Simdgroups of a worker: every launch has as many.
#define SIMDGROUPS(given) 16u
#define THIS_WORKER                                                                                                        \
    {threadIdx.x % 32, __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), 16, blockIdx.x, gridDim.x, 0, shared, (uint*)launch_memory, launch_memory_words(), NOTHING}
