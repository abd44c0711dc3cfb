// Row by row: norms, rotations and elementwise operations. A task is a row of the pass.

// Each head (or the whole row, as one head): x / rms(x) * (w + offset), times silu(gate) if there is one.
TASK void head_norm(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const HeadNormRecord& record) {
    uint rows = memory.step->rows;
    DEVICE const float* weight = small_array(memory, record.norm);
    for (uint row = first_task(worker, rows); row < rows; row += worker.workers) {
        for (uint head = worker.simdgroup; head < record.heads; head += worker.simdgroups) {
            uint start = (row * record.heads + head) * record.head_width;
            DEVICE const float* x = memory.arena + record.input + start;
            DEVICE float* out = memory.arena + record.output + start;
            float squares = 0.0f;
            for (uint i = worker.lane; i < record.head_width; i += 32) squares += x[i] * x[i];
            float factor = reciprocal_root(lane_sum(squares) / (float)record.head_width + record.epsilon);
            for (uint i = worker.lane; i < record.head_width; i += 32) {
                float value = x[i] * factor * (weight[i] + record.norm_offset);
                out[i] = record.gate == NOTHING ? value : value * silu(memory.arena[record.gate + start + i]);
            }
        }
    }
}

#define ELEMENTWISE_ADD 0
#define ELEMENTWISE_SILU_MULTIPLY 1
#define ELEMENTWISE_SIGMOID_MULTIPLY 2

template <uint OPERATION>
TASK void elementwise(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ElementwiseRecord& record) {
    uint rows = memory.step->rows;
    for (uint row = first_task(worker, rows); row < rows; row += worker.workers) {
        for (uint i = thread_of(worker); i < record.width; i += threads_of(worker)) {
            uint at = row * record.width + i;
            float a = memory.arena[record.a + at], b = memory.arena[record.b + at];
            memory.arena[record.output + at] = OPERATION == ELEMENTWISE_ADD             ? a + b
                                               : OPERATION == ELEMENTWISE_SILU_MULTIPLY ? silu(a) * b
                                                                                        : a * sigmoid(b);
        }
    }
}
