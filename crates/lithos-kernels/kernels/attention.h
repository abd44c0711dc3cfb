// Attention over pages of keys and values. A page holds 64 tokens of a head: keys [64][width], then the layer's values likewise,
// in planes of their own.
//
// Keys are cut into ranges, FINE_KEYS long at first, so that many workers have one at a short context, then longer. Where they begin
// does not depend on the pass, and a row's sums are those of its ranges, in order. A worker takes all queries of a key/value
// head that attend to a range: matrix units multiply its keys with up to eight queries at a time, then its values with their weights.

#define PAGE_TOKENS 64
#define KEYS_F32 0
#define KEYS_BF16 1
// What a row sees of its own pass: rows up to itself, or all.
#define REACH_OWN 0
#define REACH_PASS 1
// Keys of a fine range, which is also the run of columns that products contract at once; keys of a range at most.
#define FINE_KEYS 32
#define MOST_RANGE_KEYS 256
// Tiles of eight queries that a simdgroup multiplies at once: with keys, and with values.
#define KEY_TILES 2
#define VALUE_TILES 1
// Heads that a simdgroup loads before it stages the first of them.
#define LOADED_HEADS 1
// What a partial result holds behind the weighted values: the largest score, the sum of weights, and nothing.
#define PARTIAL_HEADER 4

template <uint KEYS> TASK uint kept_bytes() { return KEYS == KEYS_F32 ? 4 : 2; }

// First key of a range, and ranges of `length` keys.
TASK uint range_start(uint fine_ranges, uint range_keys, uint range) {
    return min(range, fine_ranges) * FINE_KEYS + (max(range, fine_ranges) - fine_ranges) * range_keys;
}
TASK uint ranges_of(uint fine_ranges, uint range_keys, uint length) {
    uint fine = min(length, fine_ranges * FINE_KEYS);
    return (fine + FINE_KEYS - 1) / FINE_KEYS + (length - fine + range_keys - 1) / range_keys;
}

// First element of a position of a head.
TASK size_t kept_at(THREAD const Memory& memory, DEVICE const KeptRecord& kept, uint slot, uint head, uint position) {
    uint page = memory.pages[slot * kept.pages_per_slot + position / PAGE_TOKENS];
    return (((size_t)page * kept.heads + head) * PAGE_TOKENS + position % PAGE_TOKENS) * kept.width;
}

// A lane's eight columns of a head, and those of the norm's weight.
struct LaneHead {
    float values[8];
    float weights[8];
};

TASK void load_head(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const HeadRecord& stage, DEVICE const float* x,
                    uint width, THREAD LaneHead& head) {
    for (uint i = 0; i < 8; ++i) head.values[i] = 0.0f;
    for (uint i = 0; i < 8; ++i) head.weights[i] = 0.0f;
    if (worker.lane * 8 >= width) return;
    load_columns<8>(x, worker.lane * 8, width, true, head.values);
    if (stage.norm != NOTHING) load_columns<8>(small_array(memory, stage.norm), worker.lane * 8, width, true, head.weights);
}

// How far a lane's columns turn at a position.
struct Turn {
    uint position;
    float cosines[8];
    float sines[8];
};

// Each angle is computed by one lane and handed to those that turn by it.
TASK void turn_to(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const HeadRecord& stage, uint position, THREAD Turn& turn) {
    uint half_width = stage.rotary_width / 2;
    if (half_width == 0 || turn.position == position) return;
    turn.position = position;
    DEVICE const float* frequencies = small_array(memory, stage.frequencies);
    float magnitude = frequencies[half_width];
    for (uint first = 0; first < half_width; first += 32) {
        float angle = first + worker.lane < half_width ? (float)position * frequencies[first + worker.lane] : 0.0f;
        float own_cosine = cosine(angle) * magnitude, own_sine = sine(angle) * magnitude;
        for (uint i = 0; i < 8; ++i) {
            uint wanted = worker.lane * 8 % half_width + i;
            float other_cosine = lane_get(own_cosine, wanted % 32), other_sine = lane_get(own_sine, wanted % 32);
            turn.cosines[i] = wanted / 32 == first / 32 ? other_cosine : turn.cosines[i];
            turn.sines[i] = wanted / 32 == first / 32 ? other_sine : turn.sines[i];
        }
    }
}

// Brings a loaded head into the form of attention: norm, then rotation. By one simdgroup.
TASK void stage_head(THREAD const Worker& worker, DEVICE const HeadRecord& stage, uint width, THREAD const Turn& turn, THREAD LaneHead& head) {
    if (stage.norm != NOTHING) {
        float squares = 0.0f;
        for (uint i = 0; i < 8; ++i) squares += head.values[i] * head.values[i];
        float factor = reciprocal_root(lane_sum(squares) / (float)width + stage.epsilon);
        for (uint i = 0; i < 8; ++i) head.values[i] *= factor * (head.weights[i] + stage.norm_offset);
    }
    if (stage.rotary_width == 0) return;
    uint column = worker.lane * 8, half_width = stage.rotary_width / 2;
    uint partner = column < half_width               ? worker.lane + half_width / 8
                   : column < stage.rotary_width ? worker.lane - half_width / 8
                                                 : worker.lane;
    for (uint i = 0; i < 8; ++i) {
        float other = lane_get(head.values[i], partner);
        float turned = column < half_width ? head.values[i] * turn.cosines[i] - other * turn.sines[i]
                                           : head.values[i] * turn.cosines[i] + other * turn.sines[i];
        head.values[i] = column < stage.rotary_width ? turned : head.values[i];
    }
}

// Eight adjacent elements of a plane of keys or values, from `index` on.
template <uint KEYS> TASK void keep_values(DEVICE uchar* plane, size_t index, THREAD const float* values) {
    if (KEYS == KEYS_F32) {
        for (uint i = 0; i < 8; ++i) ((DEVICE float*)plane)[index + i] = values[i];
    } else {
        uint4 word;
        word.x = brains_of_floats(values[0], values[1]);
        word.y = brains_of_floats(values[2], values[3]);
        word.z = brains_of_floats(values[4], values[5]);
        word.w = brains_of_floats(values[6], values[7]);
        *(DEVICE uint4*)(plane + index * 2) = word;
    }
}

// Eight of the columns that a product contracts, of a lane's row of the right side: as floats, or each as the sum of two BF16, upper
// ones first.
template <uint KEYS> TASK void put_right(SHARED uint* run, uint lane, THREAD const float* values) {
    if (KEYS == KEYS_F32) {
        for (uint i = 0; i < 8; i += 2) put_pair((SHARED float*)run + i * 32 + lane * 2, values[i], values[i + 1]);
    } else {
        uint words[8];
        for (uint i = 0; i < 4; ++i) {
            uint upper = brains_of_floats(values[2 * i], values[2 * i + 1]);
            words[i] = upper;
            words[4 + i] = brains_of_floats(values[2 * i] - float_of_bits(upper << 16),
                                            values[2 * i + 1] - float_of_bits(upper & 0xffff0000u));
        }
        put_words<8>(run, lane, words);
    }
}

// The left side: a lane's eight columns of rows g and g + 8, as floats' bits or as pairs of BF16.
struct KeptRows {
    uint low[8];
    uint high[8];
};

TASK void words_of(uint4 four, THREAD uint* words) {
    words[0] = four.x;
    words[1] = four.y;
    words[2] = four.z;
    words[3] = four.w;
}

// Eight adjacent elements, or zeros.
template <uint KEYS> TASK void load_kept(DEVICE const uchar* at, bool present, THREAD uint* words) {
    for (uint i = 0; i < 8; ++i) words[i] = 0;
    if (!present) return;
    words_of(*(DEVICE const uint4*)at, words);
    if (KEYS == KEYS_F32) words_of(*((DEVICE const uint4*)at + 1), words + 4);
}

// sums += left times right, for `COUNT` left sides.
template <uint KEYS, uint COUNT>
TASK void multiply_kept(THREAD const KeptRows* rows, SHARED const uint* run, uint lane, THREAD float* sums) {
    if (KEYS == KEYS_F32) {
        for (uint i = 0; i < 8; i += 2) {
            RightFloats right = load_right_floats((SHARED const float*)run + i * 32, lane);
            for (uint side = 0; side < COUNT; ++side) {
                float low[2] = {float_of_bits(rows[side].low[i]), float_of_bits(rows[side].low[i + 1])};
                float high[2] = {float_of_bits(rows[side].high[i]), float_of_bits(rows[side].high[i + 1])};
                multiply_floats<1>(sums + 4 * side, low, high, right);
            }
        }
    } else {
        RightBrains right;
        load_right_brains(run, lane, right);
        for (uint pair = 0; pair < 8; pair += 2) {
            for (uint side = 0; side < COUNT; ++side) {
                THREAD const KeptRows& row = rows[side];
                uint i = pair % 4;
                multiply_brains(sums + 4 * side, row.low[i], row.high[i], row.low[i + 1], row.high[i + 1], right, pair);
            }
        }
    }
}

// A task: keys from `start` to `end` of a key/value head of a slot.
struct RangeTask {
    uint entry;
    uint head;
    uint range;
    uint start;
    uint end;
};

TASK uint range_tasks(THREAD const Memory& memory, DEVICE const AttendRecord& record, uint entry) {
    DEVICE const SlotRows& slot = memory.step->slots[entry];
    return record.kept.heads * ranges_of(record.fine_ranges, record.range_keys, slot.position + slot.rows);
}

TASK RangeTask range_task(THREAD const Memory& memory, DEVICE const AttendRecord& record, uint task) {
    uint entry = 0;
    for (uint tasks = range_tasks(memory, record, 0); task >= tasks; tasks = range_tasks(memory, record, entry)) {
        task -= tasks;
        ++entry;
    }
    uint range = task / record.kept.heads;
    DEVICE const SlotRows& slot = memory.step->slots[entry];
    return {entry, task % record.kept.heads, range, range_start(record.fine_ranges, record.range_keys, range),
            min(range_start(record.fine_ranges, record.range_keys, range + 1), slot.position + slot.rows)};
}

// Asks for the keys and values of a range that earlier passes kept.
template <uint KEYS>
TASK void expect_range(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const AttendRecord& record, THREAD const RangeTask& task) {
    DEVICE const KeptRecord& kept = record.kept;
    DEVICE const SlotRows& slot = memory.step->slots[task.entry];
    uint lines = max(kept.width * kept_bytes<KEYS>() / 128, 1u), end = min(task.end, slot.position);
    for (uint i = thread_of(worker); task.start + i / lines < end; i += threads_of(worker)) {
        size_t at = kept_at(memory, kept, slot.slot, task.head, task.start + i / lines) * kept_bytes<KEYS>() + i % lines * 128;
        expect(memory.states + (size_t)kept.keys * 16 + at);
        expect(memory.states + (size_t)kept.values * 16 + at);
    }
}

// What the simdgroups of a worker share for a range: runs of queries, later of their weights; and scores, [query][key].
struct RangePlace {
    SHARED uint* runs;
    uint run_words;
    SHARED float* scores;
    uint score_stride;
    // Tiles of queries that there is room for.
    uint tiles;
};

TASK RangePlace range_place(THREAD const Worker& worker, uint width, uint keys) {
    bool apart = worker.operand_words >= SHARED_FLOATS;
    SHARED uint* words = apart ? worker.operand : (SHARED uint*)worker.shared;
    uint columns = (max(width, keys) + 31) / 32 * 32, stride = (keys + 31) / 32 * 32 + 4;
    uint tiles = (apart ? worker.operand_words : SHARED_FLOATS) / (8 * (columns + stride));
    return {words, 8 * columns, (SHARED float*)words + tiles * 8 * columns, stride, tiles};
}

// Stages the queries of some tiles, and keeps the pass's keys and values that fall into the range if `keeping`.
template <uint KEYS>
TASK void stage_range(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const AttendRecord& record, THREAD const RangeTask& task,
                      THREAD const RangePlace& place, uint first_query, uint tiles, bool keeping) {
    DEVICE const KeptRecord& kept = record.kept;
    DEVICE const SlotRows& slot = memory.step->slots[task.entry];
    uint width = kept.width, queries = tiles * 8, pairs = slot.rows * record.group;
    uint first_new = max(task.start, slot.position), news = keeping && first_new < task.end ? task.end - first_new : 0;
    // Adjacent heads, so that they turn alike.
    uint share = (queries + news + worker.simdgroups - 1) / worker.simdgroups;
    uint last = min((worker.simdgroup + 1) * share, queries + news);
    Turn turn;
    turn.position = NOTHING;
    for (uint first = worker.simdgroup * share; first < last; first += LOADED_HEADS) {
        LaneHead heads[LOADED_HEADS];
#pragma unroll
        for (uint i = 0; i < LOADED_HEADS; ++i) {
            uint item = min(first + i, last - 1), pair = min(first_query + item, pairs - 1);
            uint row = item < queries ? pair / record.group : first_new + (item - queries) - slot.position;
            uint in_row = item < queries ? task.head * record.group + pair % record.group : task.head;
            uint heads_of_row = kept.heads * (item < queries ? record.group : 1);
            DEVICE const float* x = memory.arena + (item < queries ? record.query_stage.input : record.key_stage.input);
            load_head(memory, worker, item < queries ? record.query_stage : record.key_stage,
                      x + ((slot.first_row + row) * heads_of_row + in_row) * width, width, heads[i]);
        }
#pragma unroll
        for (uint i = 0; i < LOADED_HEADS; ++i) {
            uint item = first + i;
            if (item >= last) continue;
            bool of_query = item < queries;
            uint row = of_query ? min(first_query + item, pairs - 1) / record.group : first_new + (item - queries) - slot.position;
            turn_to(memory, worker, of_query ? record.query_stage : record.key_stage, slot.position + row, turn);
            stage_head(worker, of_query ? record.query_stage : record.key_stage, width, turn, heads[i]);
            if (of_query) {
                // The last columns may be beyond the width: they are zero.
                SHARED uint* run = place.runs + item / 8 * place.run_words + worker.lane / 4 * 256;
                if (worker.lane / 4 * 32 < width) put_right<KEYS>(run, item % 8 * 4 + worker.lane % 4, heads[i].values);
            } else if (worker.lane * 8 < width) {
                size_t at = kept_at(memory, kept, slot.slot, task.head, slot.position + row) + worker.lane * 8;
                keep_values<KEYS>(memory.states + (size_t)kept.keys * 16, at, heads[i].values);
                uint from = ((slot.first_row + row) * kept.heads + task.head) * width + worker.lane * 8;
                load_columns<8>(memory.arena + record.value_input + from, 0, 8, true, heads[i].values);
                keep_values<KEYS>(memory.states + (size_t)kept.values * 16, at, heads[i].values);
            }
        }
    }
}

// Scores of staged queries: 16 keys and up to KEY_TILES tiles of queries for a simdgroup at once.
template <uint KEYS>
TASK void score_range(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const AttendRecord& record, THREAD const RangeTask& task,
                      THREAD const RangePlace& place, uint tiles) {
    // Runs of keys whose loads are under way at once.
    const uint at_once = KEYS == KEYS_F32 ? 2 : 4;
    DEVICE const KeptRecord& kept = record.kept;
    uint blocks = (task.end - task.start + 15) / 16, width = kept.width;
    uint share = min(max((tiles * blocks + worker.simdgroups - 1) / worker.simdgroups, 1u), (uint)KEY_TILES);
    uint lane = matrix_lane(worker.lane), groups = (tiles + share - 1) / share;
    for (uint unit = worker.simdgroup; unit < blocks * groups; unit += worker.simdgroups) {
        uint key = unit % blocks * 16 + lane / 4, first_tile = unit / blocks * share, present = min(share, tiles - first_tile);
        size_t at = kept_at(memory, kept, memory.step->slots[task.entry].slot, task.head, task.start + key);
        DEVICE const uchar* keys = memory.states + (size_t)kept.keys * 16 + at * kept_bytes<KEYS>();
        bool low_present = task.start + key < task.end, high_present = task.start + key + 8 < task.end;
        float sums[KEY_TILES * 4];
        for (uint i = 0; i < KEY_TILES * 4; ++i) sums[i] = 0.0f;
        for (uint first = 0; first * 32 < width; first += at_once) {
            KeptRows rows[at_once];
#pragma unroll
            for (uint i = 0; i < at_once; ++i) {
                uint column = (first + i) * 32 + lane % 4 * 8;
                DEVICE const uchar* low = keys + column * kept_bytes<KEYS>();
                load_kept<KEYS>(low, low_present && column < width, rows[i].low);
                load_kept<KEYS>(low + 8 * width * kept_bytes<KEYS>(), high_present && column < width, rows[i].high);
            }
#pragma unroll
            for (uint i = 0; i < at_once; ++i) {
                if ((first + i) * 32 >= width) continue;
                SHARED const uint* run = place.runs + first_tile * place.run_words + (first + i) * 256;
#pragma unroll
                for (uint tile = 0; tile < KEY_TILES; ++tile) {
                    if (tile < present) multiply_kept<KEYS, 1>(rows + i, run + tile * place.run_words, worker.lane, sums + 4 * tile);
                }
            }
        }
#pragma unroll
        for (uint tile = 0; tile < KEY_TILES; ++tile) {
            if (tile >= present) continue;
            SHARED float* scores = place.scores + ((first_tile + tile) * 8 + lane % 4 * 2) * place.score_stride + key;
            scores[0] = sums[4 * tile] * record.scale;
            scores[place.score_stride] = sums[4 * tile + 1] * record.scale;
            scores[8] = sums[4 * tile + 2] * record.scale;
            scores[place.score_stride + 8] = sums[4 * tile + 3] * record.scale;
        }
    }
}

// Where a partial result lies.
TASK DEVICE float* partial_of(THREAD const Memory& memory, uint partials, uint ranges, uint group, uint width, uint range, uint row, uint head) {
    return memory.arena + partials +
           (((head / group * ranges + range) * MOST_ROWS + row) * group + head % group) * (width + PARTIAL_HEADER);
}

// Weights of staged queries from their scores, a query at a time for a simdgroup and eight keys for a lane. They take the place of the
// queries.
template <uint KEYS, uint REACH>
TASK void weigh_range(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const AttendRecord& record, THREAD const RangeTask& task,
                      THREAD const RangePlace& place, uint first_query, uint tiles) {
    DEVICE const SlotRows& slot = memory.step->slots[task.entry];
    uint pairs = slot.rows * record.group, keys = task.end - task.start, key = worker.lane * 8;
    for (uint query = worker.simdgroup; query < tiles * 8; query += worker.simdgroups) {
        uint pair = first_query + query, row = pair / record.group;
        // Keys that the row sees; none of a range that begins behind it, whose result is not read.
        uint seen = slot.position + (REACH == REACH_PASS ? slot.rows : row + 1);
        uint visible = pair < pairs ? min(max(seen, task.start), task.end) - task.start : 0;
        SHARED const float* scores = place.scores + query * place.score_stride;
        float weights[8], largest = -INFINITY, total = 0.0f;
        for (uint i = 0; i < 8; ++i) weights[i] = -INFINITY;
        if (key < visible) {
            float4 first = *(SHARED const float4*)(scores + key), second = *(SHARED const float4*)(scores + key + 4);
            float loaded[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
            for (uint i = 0; i < 8; ++i) weights[i] = key + i < visible ? loaded[i] : -INFINITY;
        }
        for (uint i = 0; i < 8; ++i) largest = max(largest, weights[i]);
        largest = lane_max(largest);
        for (uint i = 0; i < 8; ++i) {
            weights[i] = key + i < visible ? exponential(weights[i] - largest) : 0.0f;
            total += weights[i];
        }
        total = lane_sum(total);
        if (key / 32 * 32 < keys) {
            put_right<KEYS>(place.runs + query / 8 * place.run_words + worker.lane / 4 * 256, query % 8 * 4 + worker.lane % 4, weights);
        }
        if (worker.lane == 0 && visible != 0) {
            DEVICE float* partial = partial_of(memory, record.partials, record.ranges, record.group, record.kept.width, task.range,
                                               slot.first_row + row, task.head * record.group + pair % record.group);
            partial[record.kept.width] = largest;
            partial[record.kept.width + 1] = total;
        }
    }
}

// A lane's four columns of eight keys as they are loaded, and the left sides of two products that they make: columns 2 i and 2 i + 1 in
// rows g and g + 8, keys contracted.
template <uint KEYS> struct KeptColumns {
    uint words[8][KEYS == KEYS_F32 ? 4 : 2];
};

template <uint KEYS> TASK void load_values(DEVICE const uchar* at, uint stride, uint present, THREAD KeptColumns<KEYS>& columns) {
    for (uint key = 0; key < 8; ++key) {
        for (uint i = 0; i < kept_bytes<KEYS>(); ++i) columns.words[key][i] = 0;
        if (key >= present) continue;
        if (KEYS == KEYS_F32) {
            words_of(*(DEVICE const uint4*)(at + key * stride), columns.words[key]);
        } else {
            uint2 two = *(DEVICE const uint2*)(at + key * stride);
            columns.words[key][0] = two.x;
            columns.words[key][1] = two.y;
        }
    }
}

template <uint KEYS> TASK void turn_values(THREAD const KeptColumns<KEYS>& columns, uint side, THREAD KeptRows& rows) {
    for (uint i = 0; i < 8; ++i) {
        if (KEYS == KEYS_F32) {
            rows.low[i] = columns.words[i][2 * side];
            rows.high[i] = columns.words[i][2 * side + 1];
        } else if (i < 4) {
            uint first = columns.words[2 * i][side], second = columns.words[2 * i + 1][side];
            rows.low[i] = (first & 0xffffu) | second << 16;
            rows.high[i] = first >> 16 | (second & 0xffff0000u);
        }
    }
}

// Weighted values of staged queries: 32 columns and up to VALUE_TILES tiles of queries for a simdgroup at once.
template <uint KEYS, uint REACH>
TASK void add_values(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const AttendRecord& record, THREAD const RangeTask& task,
                     THREAD const RangePlace& place, uint first_query, uint tiles) {
    // Runs of keys whose loads are under way at once.
    const uint at_once = KEYS == KEYS_F32 ? 1 : 2;
    DEVICE const KeptRecord& kept = record.kept;
    DEVICE const SlotRows& slot = memory.step->slots[task.entry];
    uint width = kept.width, blocks = (width + 31) / 32, lane = matrix_lane(worker.lane), keys = task.end - task.start;
    uint share = min(max((tiles * blocks + worker.simdgroups - 1) / worker.simdgroups, 1u), (uint)VALUE_TILES);
    uint groups = (tiles + share - 1) / share, pairs = slot.rows * record.group;
    for (uint unit = worker.simdgroup; unit < blocks * groups; unit += worker.simdgroups) {
        uint column = unit % blocks * 32 + lane / 4 * 4, first_tile = unit / blocks * share, present = min(share, tiles - first_tile);
        float sums[VALUE_TILES * 8];
        for (uint i = 0; i < VALUE_TILES * 8; ++i) sums[i] = 0.0f;
        for (uint first = 0; first < keys; first += 32 * at_once) {
            KeptColumns<KEYS> columns[at_once];
#pragma unroll
            for (uint i = 0; i < at_once; ++i) {
                // A run of keys lies in one page.
                uint key = first + i * 32 + lane % 4 * 8, seen = key < keys && column < width ? min(keys - key, 8u) : 0;
                size_t at = seen == 0 ? 0 : kept_at(memory, kept, slot.slot, task.head, task.start + key) + column;
                load_values<KEYS>(memory.states + (size_t)kept.values * 16 + at * kept_bytes<KEYS>(), width * kept_bytes<KEYS>(), seen,
                                  columns[i]);
            }
#pragma unroll
            for (uint i = 0; i < at_once; ++i) {
                if (first + i * 32 >= keys) continue;
                KeptRows rows[2];
                turn_values<KEYS>(columns[i], 0, rows[0]);
                turn_values<KEYS>(columns[i], 1, rows[1]);
                SHARED const uint* run = place.runs + first_tile * place.run_words + (first / 32 + i) * 256;
#pragma unroll
                for (uint tile = 0; tile < VALUE_TILES; ++tile) {
                    if (tile < present) multiply_kept<KEYS, 2>(rows, run + tile * place.run_words, worker.lane, sums + 8 * tile);
                }
            }
        }
#pragma unroll
        for (uint tile = 0; tile < VALUE_TILES; ++tile) {
            for (uint i = 0; i < 2; ++i) {
                uint pair = first_query + (first_tile + tile) * 8 + lane % 4 * 2 + i, row = pair / record.group;
                if (tile >= present || pair >= pairs || column >= width) continue;
                if (REACH == REACH_OWN && task.start > slot.position + row) continue;
                float4 four;
                four.x = sums[8 * tile + i];
                four.y = sums[8 * tile + 2 + i];
                four.z = sums[8 * tile + 4 + i];
                four.w = sums[8 * tile + 6 + i];
                *(DEVICE float4*)(partial_of(memory, record.partials, record.ranges, record.group, width, task.range,
                                             slot.first_row + row, task.head * record.group + pair % record.group) +
                                  column) = four;
            }
        }
    }
}

// A task is (slot, key/value head, range of keys), or a part of the queries of one: keeps those of the pass's keys that fall in the range, then attends to the range with
// every row and query head of the group. A partial result is the weighted values, the largest score and the sum of weights.
template <uint KEYS, uint REACH = REACH_OWN>
BODY void attend_range(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const AttendRecord& record) {
    worker.staged.form = 0;
    uint count = 0;
    for (uint entry = 0; entry < memory.step->slots_used; ++entry) count += range_tasks(memory, record, entry);
    // Where there are fewer ranges than workers, several share the queries of one. Each keeps the range's new keys, which are the same.
    uint parts = min(max(worker.workers / max(count, 1u), 1u), MOST_QUERY_PARTS);
    count *= parts;
    for (uint task = first_task(worker, count); task < count; task += worker.workers) {
        RangeTask range = range_task(memory, record, task / parts);
        uint tiles = (memory.step->slots[range.entry].rows * record.group + 7) / 8, share = (tiles + parts - 1) / parts;
        uint begin = task % parts * share, end = min(tiles, begin + share);
        if (begin >= end) continue;
        // What the next task reads comes while this one computes.
        if (task < worker.workers) expect_range<KEYS>(memory, worker, record, range);
        if (task + worker.workers < count) {
            expect_range<KEYS>(memory, worker, record, range_task(memory, record, (task + worker.workers) / parts));
        }
        RangePlace place = range_place(worker, record.kept.width, range.end - range.start);
        uint turns = (end - begin + place.tiles - 1) / place.tiles, most = (end - begin + turns - 1) / turns;
        for (uint first = begin; first < end; first += most) {
            uint now = min(most, end - first);
            stage_range<KEYS>(memory, worker, record, range, place, first * 8, now, first == begin);
            worker_barrier();
            score_range<KEYS>(memory, worker, record, range, place, now);
            worker_barrier();
            weigh_range<KEYS, REACH>(memory, worker, record, range, place, first * 8, now);
            worker_barrier();
            add_values<KEYS, REACH>(memory, worker, record, range, place, first * 8, now);
            worker_barrier();
        }
    }
}

// Shares of a row's ranges that are merged apart: range r is of share r % MERGE_SHARES.
#define MERGE_SHARES 8u

// A task is a query head of a row: merges its ranges, each share in ascending order, then the shares; then multiplies by sigmoid(gate).
template <uint REACH = REACH_OWN>
BODY void merge_ranges(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const MergeRecord& record) {
    worker.staged.form = 0;
    uint width = record.width, heads = record.kept_heads * record.group, count = memory.step->rows * heads;
    uint blocks = (width + 127) / 128, stride = MOST_ROWS * record.group * (width + PARTIAL_HEADER);
    SHARED float* shares = worker.shared;
    SHARED float* totals = worker.shared + MERGE_SHARES * MOST_LANE_WIDTH * 32;
    for (uint task = first_task(worker, count); task < count; task += worker.workers) {
        uint row = task / heads, head = task % heads;
        // Only the ranges that this row sees: its sums do not depend on the rows beside it.
        DEVICE const SlotRows& slot = memory.step->slots[slot_of_row(memory, row)];
        uint seen = slot.position + (REACH == REACH_PASS ? slot.rows : row - slot.first_row + 1);
        uint ranges = ranges_of(record.fine_ranges, record.range_keys, seen);
        DEVICE const float* first = partial_of(memory, record.partials, record.ranges, record.group, width, 0, row, head);
        float largest = -INFINITY;
        for (uint range = worker.lane; range < ranges; range += 32) largest = max(largest, first[range * stride + width]);
        largest = lane_max(largest);
        for (uint item = worker.simdgroup; item < MERGE_SHARES * blocks; item += worker.simdgroups) {
            uint share = item % MERGE_SHARES, column = item / MERGE_SHARES * 128 + worker.lane * 4;
            float total = 0.0f, sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
            for (uint range = share; range < ranges; range += MERGE_SHARES) {
                DEVICE const float* partial = first + range * stride;
                float weight = exponential(partial[width] - largest);
                total += partial[width + 1] * weight;
                if (column >= width) continue;
                float4 four = *(DEVICE const float4*)(partial + column);
                sums[0] += four.x * weight;
                sums[1] += four.y * weight;
                sums[2] += four.z * weight;
                sums[3] += four.w * weight;
            }
            for (uint i = 0; i < 4; ++i) {
                if (column < width) shares[share * width + column + i] = sums[i];
            }
            if (column == 0) totals[share] = total;
        }
        worker_barrier();
        uint at = (row * heads + head) * width;
        for (uint i = thread_of(worker); i < width; i += threads_of(worker)) {
            float sum = 0.0f, total = 0.0f;
            for (uint share = 0; share < MERGE_SHARES; ++share) {
                sum += shares[share * width + i];
                total += totals[share];
            }
            float value = sum / total;
            if (record.gate != NOTHING) value *= sigmoid(memory.arena[record.gate + at + i]);
            memory.arena[record.output + at + i] = value;
        }
        worker_barrier();
    }
}

// Keeps keys, normed and turned, and values of the pass's rows, where no attention of the pass reads them. A task is a head of a row, for a
// simdgroup.
template <uint KEYS>
BODY void append(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const AppendRecord& record) {
    DEVICE const KeptRecord& kept = record.kept;
    uint width = kept.width, count = memory.step->rows * kept.heads;
    Turn turn;
    turn.position = NOTHING;
    for (uint task = first_simdgroup_task(worker, count); task < count; task += simdgroup_stride(worker)) {
        uint row = task / kept.heads, position = position_of_row(memory, row);
        LaneHead head;
        load_head(memory, worker, record.key_stage, memory.arena + record.key_stage.input + task * width, width, head);
        turn_to(memory, worker, record.key_stage, position, turn);
        stage_head(worker, record.key_stage, width, turn, head);
        if (worker.lane * 8 < width) {
            uint slot = memory.step->slots[slot_of_row(memory, row)].slot;
            size_t at = kept_at(memory, kept, slot, task % kept.heads, position) + worker.lane * 8;
            keep_values<KEYS>(memory.states + (size_t)kept.keys * 16, at, head.values);
            load_columns<8>(memory.arena + record.value_input + task * width + worker.lane * 8, 0, 8, true, head.values);
            keep_values<KEYS>(memory.states + (size_t)kept.values * 16, at, head.values);
        }
    }
}
