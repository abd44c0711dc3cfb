// Attention over pages of keys and values. A page holds 64 tokens of a head: keys [64][width], then the layer's values likewise,
// in planes of their own.

#define PAGE_TOKENS 64
#define KEYS_F32 0
#define KEYS_BF16 1

// Element `index` of a plane of keys or values.
template <uint KEYS> TASK float kept_value(DEVICE const uchar* plane, size_t index) {
    return KEYS == KEYS_F32 ? ((DEVICE const float*)plane)[index] : bf16_value(((DEVICE const ushort*)plane)[index]);
}

template <uint KEYS> TASK void keep_value(DEVICE uchar* plane, size_t index, float value) {
    if (KEYS == KEYS_F32) {
        ((DEVICE float*)plane)[index] = value;
    } else {
        ((DEVICE ushort*)plane)[index] = (ushort)bf16_bits(value);
    }
}

// First element of a position of a head.
TASK size_t kept_at(THREAD const Memory& memory, DEVICE const KeptRecord& kept, uint slot, uint head, uint position) {
    uint page = memory.pages[slot * kept.pages_per_slot + position / PAGE_TOKENS];
    return (((size_t)page * kept.heads + head) * PAGE_TOKENS + position % PAGE_TOKENS) * kept.width;
}

// Brings a head of one row into `out`: norm, then rotation by the position. By one simdgroup.
TASK void stage_head(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const HeadRecord& stage,
                     DEVICE const float* x, uint width, uint position, SHARED float* out) {
    float factor = 1.0f;
    if (stage.norm != NOTHING) {
        float squares = 0.0f;
        for (uint i = worker.lane; i < width; i += 32) squares += x[i] * x[i];
        factor = reciprocal_root(lane_sum(squares) / (float)width + stage.epsilon);
    }
    DEVICE const float* weight = small_array(memory, stage.norm != NOTHING ? stage.norm : stage.frequencies);
    DEVICE const float* frequencies = small_array(memory, stage.frequencies);
    uint half_width = stage.rotary_width / 2;
    for (uint i = worker.lane; i < width; i += 32) {
        float value = x[i] * factor;
        if (stage.norm != NOTHING) value *= weight[i] + stage.norm_offset;
        if (i < stage.rotary_width) {
            uint partner = i < half_width ? i + half_width : i - half_width;
            float other = x[partner] * factor;
            if (stage.norm != NOTHING) other *= weight[partner] + stage.norm_offset;
            float angle = (float)position * frequencies[i % half_width];
            value = i < half_width ? value * cosine(angle) - other * sine(angle) : value * cosine(angle) + other * sine(angle);
        }
        out[i] = value;
    }
}

// A task is (slot, key/value head, range of keys): appends those of the pass's keys that fall in the range, then attends to the range with
// every row and query head of the group. A partial result is a maximum, a sum, and the weighted values.
template <uint KEYS>
TASK void attend_range(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const AttendRecord& record) {
    worker.staged.form = 0;
    DEVICE const StepState& step = *memory.step;
    DEVICE const KeptRecord& kept = record.kept;
    uint count = 0;
    for (uint entry = 0; entry < step.slots_used; ++entry) {
        uint length = step.slots[entry].position + step.slots[entry].rows;
        count += kept.heads * ((length + record.range_keys - 1) / record.range_keys);
    }
    DEVICE uchar* keys = memory.states + (size_t)kept.keys * 16;
    DEVICE uchar* values = memory.states + (size_t)kept.values * 16;
    // Each simdgroup has room for one staged query.
    SHARED float* query = worker.shared + worker.simdgroup * kept.width;
    for (uint task = first_task(worker, count); task < count; task += worker.workers) {
        uint within = task, entry = 0;
        for (;; ++entry) {
            uint length = step.slots[entry].position + step.slots[entry].rows;
            uint tasks = kept.heads * ((length + record.range_keys - 1) / record.range_keys);
            if (within < tasks) break;
            within -= tasks;
        }
        DEVICE const SlotRows& slot = step.slots[entry];
        uint head = within % kept.heads, range = within / kept.heads;
        uint start = range * record.range_keys, length = slot.position + slot.rows;
        uint end = min(start + record.range_keys, length);
        for (uint position = max(start, slot.position) + worker.simdgroup; position < end; position += worker.simdgroups) {
            uint row = slot.first_row + position - slot.position;
            uint from = row * kept.heads * kept.width + head * kept.width;
            stage_head(memory, worker, record.key_stage, memory.arena + record.key_stage.input + from, kept.width, position, query);
            size_t at = kept_at(memory, kept, slot.slot, head, position);
            simd_fence();
            for (uint i = worker.lane; i < kept.width; i += 32) {
                keep_value<KEYS>(keys, at + i, query[i]);
                keep_value<KEYS>(values, at + i, memory.arena[record.value_input + from + i]);
            }
            simd_fence();
        }
        worker_barrier();
        for (uint pair = worker.simdgroup; pair < slot.rows * record.group; pair += worker.simdgroups) {
            uint row = pair / record.group, query_head = head * record.group + pair % record.group;
            uint visible = slot.position + row + 1;
            uint last = min(end, visible);
            DEVICE float* partial =
                memory.arena + record.partials +
                (((head * record.ranges + range) * MOST_ROWS + slot.first_row + row) * record.group + pair % record.group) *
                    (kept.width + 2);
            // The rows of the slots before this one leave ranges empty that the merge does not read.
            if (start >= last) continue;
            uint from = ((slot.first_row + row) * kept.heads * record.group + query_head) * kept.width;
            stage_head(memory, worker, record.query_stage, memory.arena + record.query_stage.input + from, kept.width, visible - 1, query);
            simd_fence();
            float largest = -INFINITY, total = 0.0f;
            float out[MOST_LANE_WIDTH];
            for (uint i = 0; i < MOST_LANE_WIDTH; ++i) out[i] = 0.0f;
            for (uint block = start; block < last; block += 32) {
                uint position = block + worker.lane;
                float score = -INFINITY;
                if (position < last) {
                    size_t at = kept_at(memory, kept, slot.slot, head, position);
                    float product = 0.0f;
                    for (uint i = 0; i < kept.width; ++i) product += query[i] * kept_value<KEYS>(keys, at + i);
                    score = product * record.scale;
                }
                float new_largest = max(largest, lane_max(score));
                float shrink = exponential(largest - new_largest), weight = exponential(score - new_largest);
                total = total * shrink + lane_sum(weight);
                for (uint i = 0; i < MOST_LANE_WIDTH; ++i) out[i] *= shrink;
                uint present = min(32u, last - block);
                for (uint key = 0; key < present; ++key) {
                    float share = lane_get(weight, key);
                    size_t at = kept_at(memory, kept, slot.slot, head, block + key);
                    for (uint i = 0; i < MOST_LANE_WIDTH; ++i) {
                        uint column = i * 32 + worker.lane;
                        if (column < kept.width) out[i] += share * kept_value<KEYS>(values, at + column);
                    }
                }
                largest = new_largest;
            }
            if (worker.lane == 0) {
                partial[0] = largest;
                partial[1] = total;
            }
            for (uint i = 0; i < MOST_LANE_WIDTH; ++i) {
                uint column = i * 32 + worker.lane;
                if (column < kept.width) partial[2 + column] = out[i];
            }
            simd_fence();
        }
        worker_barrier();
    }
}

// A task is a row: merges each head's ranges in ascending order, then multiplies by sigmoid(gate).
TASK void merge_ranges(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const MergeRecord& record) {
    uint rows = memory.step->rows, width = record.width;
    for (uint row = first_task(worker, rows); row < rows; row += worker.workers) {
        // Only the ranges that this row sees: its sums do not depend on the rows beside it.
        uint ranges = (position_of_row(memory, row) + record.range_keys) / record.range_keys;
        for (uint head = worker.simdgroup; head < record.kept_heads * record.group; head += worker.simdgroups) {
            DEVICE const float* first =
                memory.arena + record.partials +
                ((head / record.group * record.ranges * MOST_ROWS + row) * record.group + head % record.group) * (width + 2);
            uint stride = MOST_ROWS * record.group * (width + 2);
            float largest = -INFINITY, total = 0.0f;
            for (uint range = 0; range < ranges; ++range) largest = max(largest, first[range * stride]);
            for (uint range = 0; range < ranges; ++range) {
                total += first[range * stride + 1] * exponential(first[range * stride] - largest);
            }
            uint at = (row * record.kept_heads * record.group + head) * width;
            for (uint i = worker.lane; i < width; i += 32) {
                float sum = 0.0f;
                for (uint range = 0; range < ranges; ++range) {
                    sum += first[range * stride + 2 + i] * exponential(first[range * stride] - largest);
                }
                float value = sum / total;
                if (record.gate != NOTHING) value *= sigmoid(memory.arena[record.gate + at + i]);
                memory.arena[record.output + at + i] = value;
            }
        }
    }
}
