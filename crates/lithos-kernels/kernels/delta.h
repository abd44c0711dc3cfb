// The mixer of Gated DeltaNet: causal convolution, then the gated delta rule (Yang, Kautz and Hatamizadeh 2024).

// Rows of the convolution's history and of the log; position p is in row p % RING_ROWS.
#define RING_ROWS 32

// Four adjacent floats; zeros if they are not there.
TASK float4 four_floats(DEVICE const float* at, bool present) {
    float4 four;
    four.x = four.y = four.z = four.w = 0.0f;
    return present ? *(DEVICE const float4*)at : four;
}

// out = silu(sum over taps of weight[tap] * u[t - taps + 1 + tap]), channel by channel; the inputs go into the history.
// A task is (row, 128 channels), four of them a lane's, for a simdgroup. It reads what other tasks read, too, and writes its own row only:
// the ring of the history is longer than a pass and the taps together.
BODY void convolve(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ConvolveRecord& record) {
    uint channels = record.channels, taps = record.taps, blocks = (channels + 127) / 128, count = memory.step->rows * blocks;
    for (uint task = first_simdgroup_task(worker, count); task < count; task += simdgroup_stride(worker)) {
        uint row = task / blocks, channel = task % blocks * 128 + worker.lane * 4;
        if (channel >= channels) continue;
        DEVICE const SlotRows& slot = memory.step->slots[slot_of_row(memory, row)];
        uint t = row - slot.first_row, position = slot.position + t;
        DEVICE float* history = (DEVICE float*)(memory.states + (size_t)record.history * 16) + slot.slot * RING_ROWS * channels + channel;
        DEVICE const float* weight = small_array(memory, record.weight) + channel * taps;
        DEVICE const float* input = memory.arena + record.input + row * channels + channel;
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        float4 own = four_floats(input, true);
        for (uint first = 0; first < taps; first += 4) {
            float4 u[4];
            float weights[4][4];
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                uint back = taps - 1 - min(first + i, taps - 1);
                DEVICE const float* at = back <= t ? input - back * channels : history + (position - back) % RING_ROWS * channels;
                u[i] = four_floats(at, first + i < taps && back <= position);
                for (uint c = 0; c < 4; ++c) weights[c][i] = first + i < taps ? weight[c * taps + first + i] : 0.0f;
            }
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                sums[0] = fused(weights[0][i], u[i].x, sums[0]);
                sums[1] = fused(weights[1][i], u[i].y, sums[1]);
                sums[2] = fused(weights[2][i], u[i].z, sums[2]);
                sums[3] = fused(weights[3][i], u[i].w, sums[3]);
            }
        }
        float4 out;
        out.x = silu(sums[0]);
        out.y = silu(sums[1]);
        out.z = silu(sums[2]);
        out.w = silu(sums[3]);
        *(DEVICE float4*)(memory.arena + record.output + row * channels + channel) = out;
        *(DEVICE float4*)(history + position % RING_ROWS * channels) = own;
    }
}

// Columns of a state that a simdgroup takes, and runs of 64 rows of the longest column. Lane 16 p + s has columns 2 p and 2 p + 1 of the
// four, and of each run rows 4 s to 4 s + 3, which lie beside each other.
#define DELTA_COLUMNS 4u
#define DELTA_RUNS (MOST_QUARTER_WIDTH / 16)

// A lane's part of a vector of keys or queries, or of a column.
struct DeltaRows {
    float4 runs[DELTA_RUNS];
};

TASK DeltaRows delta_rows(DEVICE const float* column, uint lane, uint width) {
    DeltaRows rows;
    for (uint i = 0; i < DELTA_RUNS; ++i) {
        uint row = i * 64 + lane % 16 * 4;
        rows.runs[i] = four_floats(column + row, row < width);
    }
    return rows;
}

TASK DeltaRows shared_rows(SHARED const float* vector, uint lane, uint width) {
    DeltaRows rows;
    for (uint i = 0; i < DELTA_RUNS; ++i) {
        uint row = i * 64 + lane % 16 * 4;
        rows.runs[i].x = rows.runs[i].y = rows.runs[i].z = rows.runs[i].w = 0.0f;
        if (row < width) rows.runs[i] = *(SHARED const float4*)(vector + row);
    }
    return rows;
}

// column <- column * decay
TASK void decay_rows(THREAD DeltaRows& column, float decay) {
    for (uint i = 0; i < DELTA_RUNS; ++i) {
        column.runs[i].x *= decay;
        column.runs[i].y *= decay;
        column.runs[i].z *= decay;
        column.runs[i].w *= decay;
    }
}

// column <- column + key * delta
TASK void correct_rows(THREAD DeltaRows& column, THREAD const DeltaRows& key, float delta) {
    for (uint i = 0; i < DELTA_RUNS; ++i) {
        column.runs[i].x = fused(key.runs[i].x, delta, column.runs[i].x);
        column.runs[i].y = fused(key.runs[i].y, delta, column.runs[i].y);
        column.runs[i].z = fused(key.runs[i].z, delta, column.runs[i].z);
        column.runs[i].w = fused(key.runs[i].w, delta, column.runs[i].w);
    }
}

// This lane's share of a product of column and vector.
TASK float share_of_product(THREAD const DeltaRows& column, THREAD const DeltaRows& vector) {
    float even = 0.0f, odd = 0.0f;
    for (uint i = 0; i < DELTA_RUNS; ++i) {
        even = fused(column.runs[i].x, vector.runs[i].x, even);
        odd = fused(column.runs[i].y, vector.runs[i].y, odd);
        even = fused(column.runs[i].z, vector.runs[i].z, even);
        odd = fused(column.runs[i].w, vector.runs[i].w, odd);
    }
    return even + odd;
}

// The sum over the 16 lanes that have the rows of a column.
TASK float sum_of_column(float share) {
    for (uint mask = 1; mask < 16; mask *= 2) share += lane_xor(share, mask);
    return share;
}

// What a delta-rule layer keeps of a slot: states, [head][column][row]; the log of rows that may still be rejected.
struct DeltaKept {
    DEVICE float* states;
    DEVICE float* keys;
    DEVICE float* deltas;
    DEVICE float* gates;
};

TASK DeltaKept delta_kept(THREAD const Memory& memory, THREAD const DeltaRecord& record, uint slot) {
    DEVICE float* states = (DEVICE float*)(memory.states + (size_t)record.state * 16) + (size_t)slot * record.slot_floats;
    DEVICE float* keys = states + record.value_heads * record.key_width * record.value_width;
    DEVICE float* deltas = keys + RING_ROWS * record.key_heads * record.key_width;
    return {states, keys, deltas, deltas + RING_ROWS * record.value_heads * record.value_width};
}

// Keys and queries of all rows of a slot, brought to unit length in shared memory, [row][query, key]; the query also over the root of its
// width. The keys go into the log if `logging`.
TASK void stage_units_of_length(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const DeltaRecord& record,
                                THREAD const SlotRows& slot, uint key_head, DEVICE float* log_keys, bool logging) {
    uint width = record.key_width, channels = 2 * record.key_heads * width + record.value_heads * record.value_width;
    bool present = worker.lane * 4 < width;
    for (uint item = worker.simdgroup; item < 2 * slot.rows; item += worker.simdgroups) {
        uint t = item / 2, of_key = item % 2;
        uint from = (slot.first_row + t) * channels + (of_key * record.key_heads + key_head) * width + worker.lane * 4;
        float4 x = four_floats(memory.arena + record.qkv + from, present);
        float squares = lane_sum(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w);
        float factor = (of_key ? 1.0f : reciprocal_root((float)width)) * reciprocal_root(squares + 1e-6f);
        x.x *= factor;
        x.y *= factor;
        x.z *= factor;
        x.w *= factor;
        if (!present) continue;
        *(SHARED float4*)(worker.shared + item * width + worker.lane * 4) = x;
        if (of_key && logging) {
            uint ring = (slot.position + t) % RING_ROWS;
            *(DEVICE float4*)(log_keys + (ring * record.key_heads + key_head) * width + worker.lane * 4) = x;
        }
    }
}

// What a simdgroup loads for its columns before it needs them: lane t has the gates of row t, and of the t-th row of the log that is
// folded; lanes 4 t + c have value c of row t, and of row t + 8.
struct DeltaInputs {
    DeltaRows columns[2];
    float gate;
    float beta;
    float folded_gate;
    float values[2];
};

TASK DeltaInputs delta_inputs(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const DeltaRecord& record,
                              THREAD const SlotRows& slot, THREAD const DeltaKept& kept, uint head, uint first_column) {
    uint width = record.key_width, channels = 2 * record.key_heads * width + record.value_heads * record.value_width;
    DeltaInputs inputs;
    for (uint c = 0; c < 2; ++c) {
        uint column = first_column + worker.lane / 16 * 2 + c;
        inputs.columns[c] = delta_rows(kept.states + (head * record.value_width + column) * width, worker.lane, width);
    }
    uint folded = slot.state_position + worker.lane;
    inputs.folded_gate = folded < slot.position ? kept.gates[folded % RING_ROWS * record.value_heads + head] : 0.0f;
    for (uint i = 0; i < 2; ++i) {
        uint t = i * 8 + worker.lane / 4;
        uint from = (slot.first_row + t) * channels + 2 * record.key_heads * width + head * record.value_width + first_column + worker.lane % 4;
        inputs.values[i] = t < slot.rows ? memory.arena[record.qkv + from] : 0.0f;
    }
    uint gate = (slot.first_row + min(worker.lane, slot.rows - 1)) * record.value_heads + head;
    float a = memory.arena[record.a + gate] + small_array(memory, record.dt_bias)[head];
    float softplus = a > 20.0f ? a : logarithm(1.0f + exponential(a));
    inputs.gate = -exponential(small_array(memory, record.a_log)[head]) * softplus;
    inputs.beta = sigmoid(memory.arena[record.b + gate]);
    return inputs;
}

// Asks for the rows of the log that are folded, which a pass's weights have pushed out of the caches: a head's keys, and corrections of some
// adjacent columns.
TASK void expect_log(THREAD const Worker& worker, THREAD const DeltaRecord& record, THREAD const SlotRows& slot, THREAD const DeltaKept& kept,
                     uint key_head, uint first_column, uint columns) {
    uint width = record.key_width, key_lines = (width + 31) / 32, lines = key_lines + columns / 32 + 1, row_floats = record.value_heads * record.value_width;
    for (uint i = thread_of(worker); i < (slot.position - slot.state_position) * lines; i += threads_of(worker)) {
        uint ring = (slot.state_position + i / lines) % RING_ROWS, line = i % lines;
        DEVICE const float* keys = kept.keys + (ring * record.key_heads + key_head) * width + min(line * 32, width - 1);
        DEVICE const float* deltas = kept.deltas + ring * row_floats + min(first_column + (line - min(line, key_lines)) * 32, row_floats - 1);
        expect((DEVICE const uchar*)(line < key_lines ? keys : deltas));
    }
}

// Folds the accepted rows of the last pass into the columns, and stores them.
TASK void fold_rows(THREAD const Worker& worker, THREAD const DeltaRecord& record, THREAD const SlotRows& slot, THREAD const DeltaKept& kept,
                    uint key_head, uint head, uint first_column, THREAD DeltaInputs& inputs) {
    // Rows whose loads are under way at once.
    const uint at_once = 4;
    uint width = record.key_width, count = slot.position - slot.state_position, own = first_column + worker.lane / 16 * 2;
    if (count == 0) return;
    float decays = exponential(inputs.folded_gate);
    for (uint first = 0; first < count; first += at_once) {
        DeltaRows keys[at_once];
        float2 deltas[at_once];
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            uint ring = (slot.state_position + min(first + i, count - 1)) % RING_ROWS;
            keys[i] = delta_rows(kept.keys + (ring * record.key_heads + key_head) * width, worker.lane, width);
            deltas[i] = *(DEVICE const float2*)(kept.deltas + (ring * record.value_heads + head) * record.value_width + own);
        }
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            if (first + i >= count) continue;
            float decay = lane_get(decays, first + i);
            decay_rows(inputs.columns[0], decay);
            decay_rows(inputs.columns[1], decay);
            correct_rows(inputs.columns[0], keys[i], deltas[i].x);
            correct_rows(inputs.columns[1], keys[i], deltas[i].y);
        }
    }
    for (uint c = 0; c < 2; ++c) {
        DEVICE float* column = kept.states + (head * record.value_width + own + c) * width;
        for (uint i = 0; i < DELTA_RUNS; ++i) {
            uint row = i * 64 + worker.lane % 16 * 4;
            if (row < width) *(DEVICE float4*)(column + row) = inputs.columns[c].runs[i];
        }
    }
}

// The rows of the pass, one after the other.
TASK void apply_rows(THREAD const Memory& memory, THREAD const Worker& worker, THREAD const DeltaRecord& record, THREAD const SlotRows& slot,
                     THREAD const DeltaKept& kept, uint head, uint first_column, THREAD DeltaInputs& inputs) {
    uint width = record.key_width, own = first_column + worker.lane / 16 * 2;
    float decays = exponential(inputs.gate);
    if (first_column == 0 && worker.lane < slot.rows) {
        kept.gates[(slot.position + worker.lane) % RING_ROWS * record.value_heads + head] = inputs.gate;
    }
#pragma unroll 2
    for (uint t = 0; t < slot.rows; ++t) {
        DeltaRows query = shared_rows(worker.shared + 2 * t * width, worker.lane, width);
        DeltaRows key = shared_rows(worker.shared + (2 * t + 1) * width, worker.lane, width);
        float decay = lane_get(decays, t), beta = lane_get(inputs.beta, t);
        float values = t < 8 ? inputs.values[0] : inputs.values[1], deltas[2], reads[2];
        for (uint c = 0; c < 2; ++c) {
            decay_rows(inputs.columns[c], decay);
            float recalled = sum_of_column(share_of_product(inputs.columns[c], key));
            deltas[c] = beta * (lane_get(values, t % 8 * 4 + worker.lane / 16 * 2 + c) - recalled);
            correct_rows(inputs.columns[c], key, deltas[c]);
            reads[c] = sum_of_column(share_of_product(inputs.columns[c], query));
        }
        if (worker.lane % 16 != 0) continue;
        float2 pair;
        pair.x = reads[0];
        pair.y = reads[1];
        uint row = slot.first_row + t, ring = (slot.position + t) % RING_ROWS;
        *(DEVICE float2*)(memory.arena + record.output + (row * record.value_heads + head) * record.value_width + own) = pair;
        pair.x = deltas[0];
        pair.y = deltas[1];
        *(DEVICE float2*)(kept.deltas + (ring * record.value_heads + head) * record.value_width + own) = pair;
    }
}

// S <- e^g S; delta = beta (v - S^T k); S <- S + k delta^T; o = S^T q, row by row, without storing S: k, delta and g go into the
// log. Rows of the last pass that were accepted are folded in first, by the same operations, and that S is stored.
//
// A task is (slot, key head, some of the columns of its value heads), DELTA_COLUMNS of them for each simdgroup.
BODY void gated_delta(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const DeltaRecord& given) {
    worker.staged.form = 0;
    // A copy, that writes cannot change.
    DeltaRecord record = given;
    uint blocks = record.value_width / DELTA_COLUMNS, repeat = record.value_heads / record.key_heads, units = repeat * blocks;
    uint all = memory.step->slots_used * record.key_heads * units;
    // As many simdgroups of each worker as it takes to use all workers.
    uint members = min((all + worker.workers - 1) / worker.workers, worker.simdgroups);
    uint parts = (units + members - 1) / members, count = memory.step->slots_used * record.key_heads * parts;
    for (uint task = first_task(worker, count); task < count; task += worker.workers) {
        SlotRows slot = memory.step->slots[task / (record.key_heads * parts)];
        uint key_head = task / parts % record.key_heads, part = task % parts, unit = part * members + worker.simdgroup;
        bool present = worker.simdgroup < members && unit < units;
        uint head = key_head * repeat + min(unit, units - 1) / blocks, first_column = min(unit, units - 1) % blocks * DELTA_COLUMNS;
        DeltaKept kept = delta_kept(memory, record, slot.slot);
        expect_log(worker, record, slot, kept, key_head, (key_head * units + part * members) * DELTA_COLUMNS, members * DELTA_COLUMNS);
        DeltaInputs inputs;
        if (present) inputs = delta_inputs(memory, worker, record, slot, kept, head, first_column);
        stage_units_of_length(memory, worker, record, slot, key_head, kept.keys, part == 0);
        worker_barrier();
        if (present) {
            fold_rows(worker, record, slot, kept, key_head, head, first_column, inputs);
            apply_rows(memory, worker, record, slot, kept, head, first_column, inputs);
        }
        worker_barrier();
    }
}
