#define RECORD(Type, at) *(DEVICE const Type*)(records + (at))

extern "C" __global__ void __launch_bounds__(512, 1) region_0(const uchar* weights, float* arena, uchar* states, StepState* step,
    uint* tokens, const uint* pages, const uint* records, uint* joins) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    if (step->rows == 0) return;
    await_previous();
    // embedding
    gather<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GatherRecord, 0));
    expect_records(worker, records + 10);
    join(memory, worker);
    for (uint repeat = 0; repeat < 2; ++repeat) {
        // mixer
        linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 10), 4);
        expect_records(worker, records + repeat * 683 + 90);
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 683 + 90));
        expect_records(worker, records + repeat * 683 + 96);
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 683 + 96));
        expect_records(worker, records + repeat * 683 + 108);
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 683 + 108));
        expect_records(worker, records + repeat * 683 + 116);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 116));
        expect_records(worker, records + repeat * 683 + 136);
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 683 + 136));
        expect_records(worker, records + repeat * 683 + 159);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 159));
        expect_records(worker, records + repeat * 683 + 179);
        join(memory, worker);
        // mixer
        linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 179), 4);
        expect_records(worker, records + repeat * 683 + 259);
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 683 + 259));
        expect_records(worker, records + repeat * 683 + 265);
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 683 + 265));
        expect_records(worker, records + repeat * 683 + 277);
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 683 + 277));
        expect_records(worker, records + repeat * 683 + 285);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 285));
        expect_records(worker, records + repeat * 683 + 305);
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 683 + 305));
        expect_records(worker, records + repeat * 683 + 328);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 328));
        expect_records(worker, records + repeat * 683 + 348);
        join(memory, worker);
        // mixer
        linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 348), 4);
        expect_records(worker, records + repeat * 683 + 428);
        join(memory, worker);
        convolve(memory, worker, RECORD(ConvolveRecord, repeat * 683 + 428));
        expect_records(worker, records + repeat * 683 + 434);
        join(memory, worker);
        gated_delta(memory, worker, RECORD(DeltaRecord, repeat * 683 + 434));
        expect_records(worker, records + repeat * 683 + 446);
        join(memory, worker);
        head_norm(memory, worker, RECORD(HeadNormRecord, repeat * 683 + 446));
        expect_records(worker, records + repeat * 683 + 454);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 454));
        expect_records(worker, records + repeat * 683 + 474);
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 683 + 474));
        expect_records(worker, records + repeat * 683 + 497);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 497));
        expect_records(worker, records + repeat * 683 + 517);
        join(memory, worker);
        // mixer
        linear_run<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 517), 4);
        expect_records(worker, records + repeat * 683 + 597);
        join(memory, worker);
        attend_range<KEYS_BF16>(memory, worker, RECORD(AttendRecord, repeat * 683 + 597));
        expect_records(worker, records + repeat * 683 + 621);
        join(memory, worker);
        merge_ranges(memory, worker, RECORD(MergeRecord, repeat * 683 + 621));
        expect_records(worker, records + repeat * 683 + 630);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 630));
        expect_records(worker, records + repeat * 683 + 650);
        join(memory, worker);
        // feedforward
        gate_up<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(GateUpRecord, repeat * 683 + 650));
        expect_records(worker, records + repeat * 683 + 673);
        join(memory, worker);
        linear<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(LinearRecord, repeat * 683 + 673));
        expect_records(worker, records + repeat * 683 + 693);
        join(memory, worker);
    }
    // head
    head<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(ChooseRecord, 1376));
    expect_records(worker, records + 1397);
}

extern "C" __global__ void __launch_bounds__(512, 1) region_1(const uchar* weights, float* arena, uchar* states, StepState* step,
    uint* tokens, const uint* pages, const uint* records, uint* joins) {
    threadgroup float shared[SHARED_FLOATS];
    Memory memory = {weights, arena, states, step, tokens, pages, joins};
    admit_next();
    Worker worker = THIS_WORKER;
    // head
    head<CODES_F32, SCALES_NONE, SCALES_NONE>(memory, worker, RECORD(ChooseRecord, 0));
    expect_records(worker, records + 21);
}
