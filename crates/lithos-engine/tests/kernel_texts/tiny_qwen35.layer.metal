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
    linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 0), 4);
    expect_records(worker, records + 80);
    join(memory, worker);
    convolve(memory, worker, RECORD(ConvolveRecord, 80));
    expect_records(worker, records + 86);
    join(memory, worker);
    gated_delta(memory, worker, RECORD(DeltaRecord, 86));
    expect_records(worker, records + 98);
    join(memory, worker);
    head_norm(memory, worker, RECORD(HeadNormRecord, 98));
    expect_records(worker, records + 106);
    join(memory, worker);
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 106));
    expect_records(worker, records + 126);
    join(memory, worker);
    // feedforward
    gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, 126));
    expect_records(worker, records + 149);
    join(memory, worker);
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 149));
    expect_records(worker, records + 169);
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
    if (step->rows == 0) return;
    // mixer
    linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 0), 4);
    expect_records(worker, records + 80);
    join(memory, worker);
    attend_range<KEYS_BF16>(memory, worker, RECORD(AttendRecord, 80));
    expect_records(worker, records + 104);
    join(memory, worker);
    merge_ranges(memory, worker, RECORD(MergeRecord, 104));
    expect_records(worker, records + 113);
    join(memory, worker);
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 113));
    expect_records(worker, records + 133);
    join(memory, worker);
    // feedforward
    gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, 133));
    expect_records(worker, records + 156);
    join(memory, worker);
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 156));
    expect_records(worker, records + 176);
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
    // head
    head<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(ChooseRecord, 0));
    expect_records(worker, records + 21);
}
