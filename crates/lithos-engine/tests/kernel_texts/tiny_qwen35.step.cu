#define RECORD(Type, at) *(DEVICE const Type*)(records + (at))

extern "C" __global__ void region_0(const uchar* weights, float* arena, uchar* states, const StepState* step,
    const uint* tokens, const uint* pages, const uint* records, uint* joins) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    Worker worker = THIS_WORKER;
    // embedding
    gather<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GatherRecord, 0));
    join(memory, worker);
    for (uint repeat = 0; repeat < 2; ++repeat) {
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 10));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 27));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 44));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 61));
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 609 + 78));
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 609 + 84));
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 609 + 96));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 104));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE, CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 609 + 121));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 144));
        join(memory, worker);
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 161));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 178));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 195));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 212));
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 609 + 229));
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 609 + 235));
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 609 + 247));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 255));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE, CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 609 + 272));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 295));
        join(memory, worker);
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 312));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 329));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 346));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 363));
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 609 + 380));
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 609 + 386));
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 609 + 398));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 406));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE, CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 609 + 423));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 446));
        join(memory, worker);
        // mixer
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 463));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 480));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 497));
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 514));
        join(memory, worker);
        attend_range<KEYS_BF16>(memory, worker, RECORD(AttendRecord, repeat * 609 + 531));
        join(memory, worker);
        merge_ranges(memory, worker, RECORD(MergeRecord, repeat * 609 + 554));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 562));
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE, CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 609 + 579));
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 609 + 602));
        join(memory, worker);
    }
    // head
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 1228));
}

extern "C" __global__ void region_1(const uchar* weights, float* arena, uchar* states, const StepState* step,
    const uint* tokens, const uint* pages, const uint* records, uint* joins) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    Worker worker = THIS_WORKER;
    // head
    linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, 0));
}
