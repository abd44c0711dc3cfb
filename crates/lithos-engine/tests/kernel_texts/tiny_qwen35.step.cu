#define RECORD(Type, at) *(DEVICE const Type*)(records + (at))

extern "C" __global__ void __launch_bounds__(512, 1) region_0(const uchar* weights, float* arena, uchar* states, const StepState* step,
    const uint* tokens, const uint* pages, const uint* records, uint* joins) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    Worker worker = THIS_WORKER;
    // embedding
    gather<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GatherRecord, 0));
    join(memory, worker);
    for (uint repeat = 0; repeat < 2; ++repeat) {
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 10));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 30));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 50));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 70));
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 681 + 90));
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 681 + 96));
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 681 + 108));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 116));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 681 + 136));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 159));
        join(memory, worker);
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 179));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 199));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 219));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 239));
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 681 + 259));
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 681 + 265));
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 681 + 277));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 285));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 681 + 305));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 328));
        join(memory, worker);
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 348));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 368));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 388));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 408));
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 681 + 428));
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 681 + 434));
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 681 + 446));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 454));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 681 + 474));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 497));
        join(memory, worker);
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 517));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 537));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 557));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 577));
        join(memory, worker);
        attend_range<KEYS_BF16>(memory, worker, RECORD(AttendRecord, repeat * 681 + 597));
        join(memory, worker);
        merge_ranges(memory, worker, RECORD(MergeRecord, repeat * 681 + 620));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 628));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 681 + 648));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 681 + 671));
        join(memory, worker);
    }
    // head
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 1372));
}

extern "C" __global__ void __launch_bounds__(512, 1) region_1(const uchar* weights, float* arena, uchar* states, const StepState* step,
    const uint* tokens, const uint* pages, const uint* records, uint* joins) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    Worker worker = THIS_WORKER;
    // head
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 0));
}
