// The mixer of Gated DeltaNet: causal convolution, then the gated delta rule (Yang, Kautz and Hatamizadeh 2024).

// Rows of the convolution's history and of the log; position p is in row p % RING_ROWS.
#define RING_ROWS 32

// out = silu(sum over taps of weight[tap] * u[t - taps + 1 + tap]), channel by channel; the inputs go into the history.
// A task is (slot, block of channels).
TASK void convolve(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const ConvolveRecord& record) {
    uint blocks = (record.channels + threads_of(worker) - 1) / threads_of(worker);
    uint count = memory.step->slots_used * blocks;
    DEVICE const float* weight = small_array(memory, record.weight);
    for (uint task = first_task(worker, count); task < count; task += worker.workers) {
        DEVICE const SlotRows& slot = memory.step->slots[task / blocks];
        uint channel = task % blocks * threads_of(worker) + thread_of(worker);
        if (channel >= record.channels) continue;
        DEVICE float* history = (DEVICE float*)(memory.states + (size_t)record.history * 16) + slot.slot * RING_ROWS * record.channels;
        for (uint t = 0; t < slot.rows; ++t) {
            float sum = 0.0f;
            for (uint tap = 0; tap < record.taps; ++tap) {
                uint back = record.taps - 1 - tap, position = slot.position + t;
                if (back > position) continue;
                float u = back <= t ? memory.arena[record.input + (slot.first_row + t - back) * record.channels + channel]
                                    : history[(position - back) % RING_ROWS * record.channels + channel];
                sum += weight[channel * record.taps + tap] * u;
            }
            memory.arena[record.output + (slot.first_row + t) * record.channels + channel] = silu(sum);
        }
        // The ring is longer than a pass and the taps together: what the next pass needs stays.
        for (uint t = 0; t < slot.rows; ++t) {
            history[(slot.position + t) % RING_ROWS * record.channels + channel] =
                memory.arena[record.input + (slot.first_row + t) * record.channels + channel];
        }
    }
}

// x / sqrt(sum of squares + 1e-6) * factor, by one simdgroup.
TASK void unit_norm(THREAD const Worker& worker, DEVICE const float* x, uint width, float factor, SHARED float* out) {
    float squares = 0.0f;
    for (uint i = worker.lane; i < width; i += 32) squares += x[i] * x[i];
    factor *= reciprocal_root(lane_sum(squares) + 1e-6f);
    for (uint i = worker.lane; i < width; i += 32) out[i] = x[i] * factor;
}

// S <- e^g S; delta = beta (v - S^T k); S <- S + k delta^T; o = S^T q, row by row, without storing S: k, delta and g go into the
// log. Rows of the last pass that were accepted are folded in first, by the same operations, and that S is stored.
//
// A task is (slot, value head, 8 columns a simdgroup). Lane 4 c + s holds a quarter s of column c: rows i with i % 4 == s.
TASK void gated_delta(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const DeltaRecord& record) {
    worker.staged.form = 0;
    uint width = record.key_width, columns = 8 * worker.simdgroups;
    uint slices = (record.value_width + columns - 1) / columns;
    uint count = memory.step->slots_used * record.value_heads * slices;
    uint channels = 2 * record.key_heads * width + record.value_heads * record.value_width;
    for (uint task = first_task(worker, count); task < count; task += worker.workers) {
        DEVICE const SlotRows& slot = memory.step->slots[task / (record.value_heads * slices)];
        uint head = task / slices % record.value_heads, slice = task % slices;
        uint repeat = record.value_heads / record.key_heads, key_head = head / repeat;
        DEVICE float* base = (DEVICE float*)(memory.states + (size_t)record.state * 16) + slot.slot * record.slot_floats;
        DEVICE float* state = base + head * width * record.value_width;
        DEVICE float* log_keys = base + record.value_heads * width * record.value_width;
        DEVICE float* log_deltas = log_keys + RING_ROWS * record.key_heads * width;
        DEVICE float* log_gates = log_deltas + RING_ROWS * record.value_heads * record.value_width;

        // Queries and keys of all rows, brought to unit length; the query also over the root of its width.
        SHARED float* queries = worker.shared;
        SHARED float* keys = worker.shared + MOST_ROWS * width;
        for (uint t = worker.simdgroup; t < slot.rows; t += worker.simdgroups) {
            DEVICE const float* row = memory.arena + record.qkv + (slot.first_row + t) * channels + key_head * width;
            unit_norm(worker, row, width, reciprocal_root((float)width), queries + t * width);
            unit_norm(worker, row + record.key_heads * width, width, 1.0f, keys + t * width);
        }
        worker_barrier();

        uint column = slice * columns + worker.simdgroup * 8 + worker.lane / 4, quarter = worker.lane & 3u;
        bool present = column < record.value_width;
        float s[MOST_QUARTER_WIDTH];
        for (uint i = 0; i < width / 4; ++i) s[i] = present ? state[(i * 4 + quarter) * record.value_width + column] : 0.0f;

        for (uint position = slot.state_position; position < slot.position; ++position) {
            uint ring = position % RING_ROWS;
            float decay = exponential(log_gates[ring * record.value_heads + head]);
            float delta = present ? log_deltas[(ring * record.value_heads + head) * record.value_width + column] : 0.0f;
            DEVICE const float* key = log_keys + (ring * record.key_heads + key_head) * width;
            for (uint i = 0; i < width / 4; ++i) s[i] = s[i] * decay + key[i * 4 + quarter] * delta;
        }
        if (slot.state_position < slot.position && present) {
            for (uint i = 0; i < width / 4; ++i) state[(i * 4 + quarter) * record.value_width + column] = s[i];
        }

        for (uint t = 0; t < slot.rows; ++t) {
            uint row = slot.first_row + t, ring = (slot.position + t) % RING_ROWS;
            float a = memory.arena[record.a + row * record.value_heads + head] + small_array(memory, record.dt_bias)[head];
            float softplus = a > 20.0f ? a : logarithm(1.0f + exponential(a));
            float gate = -exponential(small_array(memory, record.a_log)[head]) * softplus;
            float beta = sigmoid(memory.arena[record.b + row * record.value_heads + head]);
            float decay = exponential(gate), recalled = 0.0f;
            for (uint i = 0; i < width / 4; ++i) {
                s[i] *= decay;
                recalled += s[i] * keys[t * width + i * 4 + quarter];
            }
            recalled += lane_xor(recalled, 1);
            recalled += lane_xor(recalled, 2);
            float value = present ? memory.arena[record.qkv + row * channels + 2 * record.key_heads * width +
                                                 head * record.value_width + column]
                                  : 0.0f;
            float delta = beta * (value - recalled), read = 0.0f;
            for (uint i = 0; i < width / 4; ++i) {
                s[i] += keys[t * width + i * 4 + quarter] * delta;
                read += s[i] * queries[t * width + i * 4 + quarter];
            }
            read += lane_xor(read, 1);
            read += lane_xor(read, 2);
            if (present && quarter == 0) {
                memory.arena[record.output + (row * record.value_heads + head) * record.value_width + column] = read;
                log_deltas[(ring * record.value_heads + head) * record.value_width + column] = delta;
            }
            if (slice == 0 && thread_of(worker) == 0) log_gates[ring * record.value_heads + head] = gate;
            if (slice == 0 && head % repeat == 0 && worker.simdgroup == 0) {
                for (uint i = worker.lane; i < width; i += 32) {
                    log_keys[(ring * record.key_heads + key_head) * width + i] = keys[t * width + i];
                }
            }
        }
        worker_barrier();
    }
}
