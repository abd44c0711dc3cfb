// The dialect's words in the Metal Shading Language (3.2 and later).
#include <metal_stdlib>
using namespace metal;

#define DEVICE device
#define SHARED threadgroup
#define THREAD thread
#define TASK static inline
// What kernels call.
#define BODY static inline

TASK float lane_sum(float x) { return simd_sum(x); }
TASK float lane_max(float x) { return simd_max(x); }
TASK float lane_xor(float x, uint mask) { return simd_shuffle_xor(x, ushort(mask)); }
TASK uint lane_xor(uint x, uint mask) { return simd_shuffle_xor(x, ushort(mask)); }
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
TASK float magnitude(float x) { return fabs(x); }
// a b + c, rounded once.
TASK float fused(float a, float b, float c) { return fma(a, b, c); }

// The upper word of a product.
TASK uint multiply_upper(uint a, uint b) { return mulhi(a, b); }

// Two halves in a word, the first in the low bits.
TASK uint halves_of_floats(float first, float second) { return as_type<uint>(half2(half(first), half(second))); }
// Two BF16 in a word, the first in the low bits.
TASK uint brains_of_floats(float first, float second) { return as_type<uint>(bfloat2(bfloat(first), bfloat(second))); }
TASK uint multiply_pairs(uint a, uint b) { return as_type<uint>(half2(as_type<half2>(a) * as_type<half2>(b))); }
TASK uint first_twice(uint halves) { return (halves & 0xffffu) * 0x10001u; }
TASK uint second_twice(uint halves) { return (halves >> 16) * 0x10001u; }
// The values of two E4M3 codes in the low 16 bits: the same bits at a half's bias are 2^-8 of them.
TASK uint halves_of_e4m3(uint codes) {
    uint halves = (codes & 0x80u) << 8 | (codes & 0x7fu) << 7 | (codes & 0x8000u) << 16 | (codes & 0x7f00u) << 15;
    return multiply_pairs(halves, 0x5c005c00u);
}
// Two bytes of a word, each the upper byte of a half: bytes 0 and 1, or 2 and 3.
TASK uint halves_of_bytes(uint word, uint second) {
    uint bytes = second ? word >> 16 : word;
    return (bytes & 0xffu) << 8 | (bytes & 0xff00u) << 16;
}

// A word that is read once.
TASK uint4 load_once(device const uint4* at) { return *at; }
TASK uint load_once(device const uint* at) { return *at; }
TASK uint load_once(device const ushort* at) { return *at; }

// What launches before this one wrote can be read from here on. Until then only what no launch writes may be.
TASK void await_previous() {}
// The next launch may begin to wait for this one.
TASK void admit_next() {}

// The 128 bytes from here on will be read soon.
TASK void expect(device const uchar*) {}

// Row and column pair of a lane in an 8 x 8 matrix, as 4 row + pair.
TASK uint matrix_lane(uint lane) { return ((lane >> 2 & 4u) + (lane >> 1 & 3u)) * 4 + (lane >> 2 & 2u) + (lane & 1u); }

// `COUNT` words of each lane in shared memory, as the lanes of a product load them.
template <uint COUNT> TASK void put_words(threadgroup uint* run, uint lane, thread const uint* words) {
    for (uint i = 0; i < COUNT; ++i) run[i * 32 + lane] = words[i];
}
template <uint COUNT> TASK void get_words(threadgroup const uint* run, uint lane, thread uint* words) {
    for (uint i = 0; i < COUNT; ++i) words[i] = run[i * 32 + lane];
}
// The right side of products: `PAIRS` pairs of halves of a lane's eight rows, from words that lanes have put.
template <uint PAIRS> struct RightHalves {
    simdgroup_half8x8 pairs[PAIRS];
};
template <uint PAIRS> TASK void load_right(threadgroup const uint* run, uint lane, thread RightHalves<PAIRS>& right) {
    for (uint i = 0; i < PAIRS; ++i) simdgroup_load(right.pairs[i], (threadgroup const half*)run + i * 64, 8, ulong2(0, 0), true);
}

TASK void multiply_rows(thread float* sums, uint pair, thread const simdgroup_half8x8& right) {
    simdgroup_half8x8 left;
    simdgroup_float8x8 result;
    left.thread_elements() = as_type<half2>(pair);
    result.thread_elements() = float2(sums[0], sums[1]);
    simdgroup_multiply_accumulate(result, left, right, result);
    sums[0] = result.thread_elements().x;
    sums[1] = result.thread_elements().y;
}
// sums += A X^T for a 16 x 16 part of A: pairs of the lane's row and of the row 8 further down, twice. `pair` is the first of
// the two of X.
template <uint PAIRS>
TASK void multiply_halves(thread float* sums, uint low, uint high, uint next_low, uint next_high,
                          thread const RightHalves<PAIRS>& right, uint pair) {
    multiply_rows(sums, low, right.pairs[pair]);
    multiply_rows(sums + 2, high, right.pairs[pair]);
    multiply_rows(sums, next_low, right.pairs[pair + 1]);
    multiply_rows(sums + 2, next_high, right.pairs[pair + 1]);
}

// The same with BF16: four pairs of a lane's eight rows, then four of what they leave.
struct RightBrains {
    simdgroup_bfloat8x8 pairs[8];
};
TASK void load_right_brains(threadgroup const uint* run, uint lane, thread RightBrains& right) {
    for (uint i = 0; i < 8; ++i) simdgroup_load(right.pairs[i], (threadgroup const bfloat*)run + i * 64, 8, ulong2(0, 0), true);
}
TASK void multiply_brain_rows(thread float* sums, uint pair, thread const simdgroup_bfloat8x8& right) {
    simdgroup_bfloat8x8 left;
    simdgroup_float8x8 result;
    left.thread_elements() = as_type<bfloat2>(pair);
    result.thread_elements() = float2(sums[0], sums[1]);
    simdgroup_multiply_accumulate(result, left, right, result);
    sums[0] = result.thread_elements().x;
    sums[1] = result.thread_elements().y;
}
TASK void multiply_brains(thread float* sums, uint low, uint high, uint next_low, uint next_high, thread const RightBrains& right,
                          uint pair) {
    multiply_brain_rows(sums, low, right.pairs[pair]);
    multiply_brain_rows(sums + 2, high, right.pairs[pair]);
    multiply_brain_rows(sums, next_low, right.pairs[pair + 1]);
    multiply_brain_rows(sums + 2, next_high, right.pairs[pair + 1]);
}

// The right side of a product of floats: two columns of a lane's eight rows.
typedef simdgroup_float8x8 RightFloats;
TASK RightFloats load_right_floats(threadgroup const float* pairs, uint lane) {
    RightFloats right;
    simdgroup_load(right, pairs, 8, ulong2(0, 0), true);
    return right;
}
// sums += A X^T for a 16 x 8 part of A: two columns of the lane's row, `low`, and of the row 8 further down, `high`. Values of A
// that are not `WIDE` have at most 11 significant bits.
template <uint WIDE>
TASK void multiply_floats(thread float* sums, thread const float* low, thread const float* high, RightFloats right) {
    simdgroup_float8x8 left, result;
    left.thread_elements() = float2(low[0], low[1]);
    result.thread_elements() = float2(sums[0], sums[1]);
    simdgroup_multiply_accumulate(result, left, right, result);
    sums[0] = result.thread_elements().x;
    sums[1] = result.thread_elements().y;
    left.thread_elements() = float2(high[0], high[1]);
    result.thread_elements() = float2(sums[2], sums[3]);
    simdgroup_multiply_accumulate(result, left, right, result);
    sums[2] = result.thread_elements().x;
    sums[3] = result.thread_elements().y;
}

// Whether matrices of BF16 take the operand that a matrix beside them has staged in halves.
#define TAKES_STAGED 0
template <uint COLUMNS>
TASK void multiply_beside(threadgroup const uint*, uint, uint, thread const float*, thread const float*, thread float*) {}

TASK void put_pair(threadgroup float* at, float first, float second) {
    at[0] = first;
    at[1] = second;
}

// What this worker wrote before is visible to a worker that sees the counter's new value.
TASK uint arrive(device atomic_uint* counter) {
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    return atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
}
TASK uint observe(device atomic_uint* counter) { return atomic_load_explicit(counter, memory_order_relaxed); }
TASK void acquire() { atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); }
TASK void publish(device atomic_uint* flag, uint value) { atomic_store_explicit(flag, value, memory_order_relaxed); }
typedef device atomic_uint* Counter;

// Words that were requested into shared memory before: here they are read from where they are.
#define RING_UNITS 1
#define RING_SLOT_WORDS 0u
#define RING_WORDS 0
TASK void request_four(threadgroup uint*, device const uchar*) {}
TASK void close_request() {}
TASK void await_request() {}
TASK void release_request() {}
TASK uint4 requested(threadgroup const uint4*, device const uint4* at) { return *at; }
TASK uint requested(threadgroup const ushort*, device const ushort* at) { return *at; }

// Sets of sums in turn, with one barrier for each: a simdgroup that writes one knows that all have passed the barrier after the set before
// the last, and so have read the one before that.
#define SUM_SETS 3
TASK void begin_sets(uint, uint) {}
TASK void await_empty_set(uint) {}
TASK void announce_full_set(uint, uint) {}
TASK void await_full_set(uint) { worker_barrier(); }
TASK void announce_empty_set(uint, uint) {}

// Workers at most that share the queries of a range of keys.
#define MOST_QUERY_PARTS 1u

// Columns of a row that a lane loads at once to stage them.
#define OPERAND_COLUMNS 16

// Floats of memory that the threads of a worker share; and units of a tile that a lane has requested before it uses them.
#define SHARED_FLOATS 6144
#define REQUESTED_UNITS 1

// Simdgroups of a worker.
#define SIMDGROUPS(given) (given)
// The operand of projections lies behind what they share otherwise.
#define THIS_WORKER                                                                                               \
    {lane, simdgroup, simdgroups, index, workers, 0, shared, (threadgroup uint*)shared + OPERAND_AT(simdgroups),    \
     SHARED_FLOATS - OPERAND_AT(simdgroups), NOTHING}
