// Row by row: norms, rotations and elementwise operations. A task is a row of the pass.

// Each head: x / rms(x) * (w + offset) * silu(gate).
TASK void gated_norm(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const GatedNormRecord& record) {
    uint rows = memory.step->rows;
    DEVICE const float* weight = small_array(memory, record.norm);
    for (uint row = first_task(worker, rows); row < rows; row += worker.workers) {
        uint base = row * record.heads * record.head_width;
        for (uint head = worker.simdgroup; head < record.heads; head += worker.simdgroups) {
            DEVICE const float* x = memory.arena + record.input + base + head * record.head_width;
            DEVICE const float* gate = memory.arena + record.gate + base + head * record.head_width;
            DEVICE float* out = memory.arena + record.output + base + head * record.head_width;
            float squares = 0.0f;
            for (uint i = worker.lane; i < record.head_width; i += 32) squares += x[i] * x[i];
            float factor = reciprocal_root(lane_sum(squares) / (float)record.head_width + record.epsilon);
            for (uint i = worker.lane; i < record.head_width; i += 32) {
                out[i] = x[i] * factor * (weight[i] + record.norm_offset) * silu(gate[i]);
            }
        }
    }
}

// x / rms(x) * (w + offset), over whole rows or head by head.
TASK void row_norm(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const RowNormRecord& record) {
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
            for (uint i = worker.lane; i < record.head_width; i += 32) out[i] = x[i] * factor * (weight[i] + record.norm_offset);
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
