#define RECORD(Type, at) *(DEVICE const Type*)(records + (at))

kernel void region_0(device const uchar* weights [[buffer(0)]], device float* arena [[buffer(1)]],
    device uchar* states [[buffer(2)]], device StepState* step [[buffer(3)]],
    device uint* tokens [[buffer(4)]], device const uint* pages [[buffer(5)]],
    device const uint* records [[buffer(6)]], device atomic_uint* joins [[buffer(7)]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint index [[threadgroup_position_in_grid]],
    uint workers [[threadgroups_per_grid]]) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    if (step->rows == 0) return;
    await_previous();
    // embedding
    gather<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GatherRecord, 0));
    expect_records(worker, records + 10);
}

kernel void region_1(device const uchar* weights [[buffer(0)]], device float* arena [[buffer(1)]],
    device uchar* states [[buffer(2)]], device StepState* step [[buffer(3)]],
    device uint* tokens [[buffer(4)]], device const uint* pages [[buffer(5)]],
    device const uint* records [[buffer(6)]], device atomic_uint* joins [[buffer(7)]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint index [[threadgroup_position_in_grid]],
    uint workers [[threadgroups_per_grid]]) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    if (step->rows == 0) return;
    // mixer
    linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 0), 3);
    expect_records(worker, records + 60);
    join(memory, worker);
    attend_range<KEYS_BF16>(memory, worker, RECORD(AttendRecord, 60));
    expect_records(worker, records + 84);
    join(memory, worker);
    merge_ranges(memory, worker, RECORD(MergeRecord, 84));
    expect_records(worker, records + 93);
    join(memory, worker);
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 93));
    expect_records(worker, records + 113);
}

kernel void region_2(device const uchar* weights [[buffer(0)]], device float* arena [[buffer(1)]],
    device uchar* states [[buffer(2)]], device StepState* step [[buffer(3)]],
    device uint* tokens [[buffer(4)]], device const uint* pages [[buffer(5)]],
    device const uint* records [[buffer(6)]], device atomic_uint* joins [[buffer(7)]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint index [[threadgroup_position_in_grid]],
    uint workers [[threadgroups_per_grid]]) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    // feedforward
    gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, 0));
    expect_records(worker, records + 23);
}

kernel void region_3(device const uchar* weights [[buffer(0)]], device float* arena [[buffer(1)]],
    device uchar* states [[buffer(2)]], device StepState* step [[buffer(3)]],
    device uint* tokens [[buffer(4)]], device const uint* pages [[buffer(5)]],
    device const uint* records [[buffer(6)]], device atomic_uint* joins [[buffer(7)]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint index [[threadgroup_position_in_grid]],
    uint workers [[threadgroups_per_grid]]) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    // feedforward
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 0));
    expect_records(worker, records + 20);
}

kernel void region_4(device const uchar* weights [[buffer(0)]], device float* arena [[buffer(1)]],
    device uchar* states [[buffer(2)]], device StepState* step [[buffer(3)]],
    device uint* tokens [[buffer(4)]], device const uint* pages [[buffer(5)]],
    device const uint* records [[buffer(6)]], device atomic_uint* joins [[buffer(7)]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint index [[threadgroup_position_in_grid]],
    uint workers [[threadgroups_per_grid]]) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    // head
    head<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(ChooseRecord, 0));
    expect_records(worker, records + 21);
}
