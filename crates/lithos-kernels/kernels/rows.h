// Row by row: norms, rotations, elementwise operations, and rows beside each other.

// Each head (or the whole row, as one head): x / rms(x) * (w + offset), times silu(gate) if there is one.
// A task is a head of a row, for a simdgroup; a lane has four columns of every 128.
BODY void head_norm(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const HeadNormRecord& record) {
    uint width = record.head_width, count = memory.step->rows * record.heads, lane_column = worker.lane * 4;
    bool full = width % 4 == 0;
    DEVICE const float* weight = small_array(memory, record.norm);
    for (uint task = first_simdgroup_task(worker, count); task < count; task += simdgroup_stride(worker)) {
        DEVICE const float* x = memory.arena + record.input + task * width;
        DEVICE const float* gate = memory.arena + (record.gate == NOTHING ? record.input : record.gate) + task * width;
        // The first columns' operands come together.
        float values[4], weights[4], gates[4], squares = 0.0f;
        for (uint column = lane_column; column < width; column += 128) {
            float others[4];
            load_columns<4>(x, column, width, full, others);
            for (uint i = 0; i < 4; ++i) squares += others[i] * others[i];
            if (column != lane_column) continue;
            for (uint i = 0; i < 4; ++i) values[i] = others[i];
            load_columns<4>(weight, column, width, full, weights);
            load_columns<4>(gate, column, width, full, gates);
        }
        float factor = reciprocal_root(lane_sum(squares) / (float)width + record.epsilon);
        for (uint column = lane_column; column < width; column += 128) {
            if (column != lane_column) {
                load_columns<4>(x, column, width, full, values);
                load_columns<4>(weight, column, width, full, weights);
                load_columns<4>(gate, column, width, full, gates);
            }
            for (uint i = 0; i < 4; ++i) {
                float value = values[i] * factor * (weights[i] + record.norm_offset);
                values[i] = record.gate == NOTHING ? value : value * silu(gates[i]);
            }
            store_columns(memory.arena + record.output + task * width, column, width, full, values);
        }
    }
}

#define ELEMENTWISE_ADD 0
#define ELEMENTWISE_SILU_MULTIPLY 1
#define ELEMENTWISE_SIGMOID_MULTIPLY 2

// A task is 128 columns of a row, for a simdgroup.
template <uint OPERATION>
BODY void elementwise(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ElementwiseRecord& record) {
    uint width = record.width, blocks = (width + 127) / 128, count = memory.step->rows * blocks;
    bool full = width % 4 == 0;
    for (uint task = first_simdgroup_task(worker, count); task < count; task += simdgroup_stride(worker)) {
        uint row = task / blocks * width, column = task % blocks * 128 + worker.lane * 4;
        if (column >= width) continue;
        float a[4], b[4];
        load_columns<4>(memory.arena + record.a + row, column, width, full, a);
        load_columns<4>(memory.arena + record.b + row, column, width, full, b);
        for (uint i = 0; i < 4; ++i) {
            a[i] = OPERATION == ELEMENTWISE_ADD             ? a[i] + b[i]
                   : OPERATION == ELEMENTWISE_SILU_MULTIPLY ? silu(a[i]) * b[i]
                                                            : a[i] * sigmoid(b[i]);
        }
        store_columns(memory.arena + record.output + row, column, width, full, a);
    }
}

// A task is 128 columns of a row, for a simdgroup.
BODY void concatenate(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ConcatenateRecord& record) {
    uint first_width = record.first_width, width = first_width + record.second_width;
    uint blocks = (width + 127) / 128, count = memory.step->rows * blocks;
    for (uint task = first_simdgroup_task(worker, count); task < count; task += simdgroup_stride(worker)) {
        uint row = task / blocks, column = task % blocks * 128 + worker.lane * 4;
        for (uint i = column; i < min(column + 4, width); ++i) {
            memory.arena[record.output + row * width + i] = i < first_width
                                                                ? memory.arena[record.first + row * first_width + i]
                                                                : memory.arena[record.second + row * record.second_width + i - first_width];
        }
    }
}
