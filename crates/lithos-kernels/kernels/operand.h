// What projections multiply: rows of the pass, through a norm if there is one, in the form that matrix units take.
//
// Each simdgroup stages the columns that it multiplies itself: those of every `simdgroups`-th unit. Eight rows stand beside
// each other, lane 4 n + q holding the q-th quarter of row n.

// A lane's columns from `start` on; zero beyond the width. If every unit is full, they come in fours.
template <uint COLUMNS> TASK void load_columns(DEVICE const float* row, uint start, uint width, bool full, THREAD float* values) {
    if (full) {
        DEVICE const float4* fours = (DEVICE const float4*)(row + start);
        for (uint i = 0; i < COLUMNS / 4; ++i) {
            float4 four = fours[i];
            values[4 * i] = four.x;
            values[4 * i + 1] = four.y;
            values[4 * i + 2] = four.z;
            values[4 * i + 3] = four.w;
        }
    } else {
        for (uint i = 0; i < COLUMNS; ++i) values[i] = start + i < width ? row[start + i] : 0.0f;
    }
}

// Four columns from `start` on, those within the width.
TASK void store_columns(DEVICE float* row, uint start, uint width, bool full, THREAD const float* values) {
    if (full) {
        float4 four;
        four.x = values[0];
        four.y = values[1];
        four.z = values[2];
        four.w = values[3];
        *(DEVICE float4*)(row + start) = four;
    } else {
        for (uint i = 0; i < 4; ++i) {
            if (start + i < width) row[start + i] = values[i];
        }
    }
}

// What a lane reads: its row, and the weights of the norm.
struct OperandRow {
    DEVICE const float* x;
    DEVICE const float* weights;
    uint width;
    bool full;
    bool normed;
    float epsilon;
    float offset;
};

// The row of a lane, from `first_row` on in the pass or among those that were gathered; those beyond the last repeat it, and their sums
// are not read.
template <uint COLUMNS>
TASK OperandRow operand_row(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const OperandRecord& operand,
                            DEVICE const float* gathered, uint first_row, uint rows) {
    bool normed = operand.norm != NOTHING;
    uint width = operand.width, row = first_row + min(worker.lane / 4, rows - 1);
    if (gathered) row = (uint)gathered[row];
    return {memory.arena + operand.input + (size_t)row * width, small_array(memory, normed ? operand.norm : 0), width,
            COLUMNS >= 4 && width % (4 * COLUMNS) == 0, normed, operand.epsilon, operand.norm_offset};
}

// A lane's columns of a unit, where it brings them into their form.
template <uint COLUMNS, uint HALVES> TASK void put_values(SHARED uint* run, uint lane, THREAD const float* values) {
    if (HALVES) {
        uint words[COLUMNS];
        for (uint i = 0; i < COLUMNS; ++i) words[i] = bits_of_float(values[i]);
        put_words<COLUMNS>(run, lane, words);
    } else {
        for (uint i = 0; i < COLUMNS; i += 2) put_pair((SHARED float*)run + i * 32 + lane * 2, values[i], values[i + 1]);
    }
}
template <uint COLUMNS, uint HALVES> TASK void get_values(SHARED const uint* run, uint lane, THREAD float* values) {
    if (HALVES) {
        uint words[COLUMNS];
        get_words<COLUMNS>(run, lane, words);
        for (uint i = 0; i < COLUMNS; ++i) values[i] = float_of_bits(words[i]);
    } else {
        for (uint i = 0; i < COLUMNS; ++i) values[i] = float_of_bits(run[i / 2 * 64 + lane * 2 + i % 2]);
    }
}

// The form that products load: floats, or halves, each value the sum of two, upper halves first.
template <uint COLUMNS, uint HALVES>
TASK void put_operand(SHARED uint* run, uint lane, THREAD float* values, float factor) {
    for (uint i = 0; i < COLUMNS; ++i) values[i] *= factor;
    if (HALVES) {
        uint words[COLUMNS];
        for (uint i = 0; i < COLUMNS / 2; ++i) {
            uint upper = halves_of_floats(values[2 * i], values[2 * i + 1]);
            words[i] = upper;
            words[COLUMNS / 2 + i] = halves_of_floats(values[2 * i] - float_of_half(upper & 0xffffu),
                                                      values[2 * i + 1] - float_of_half(upper >> 16));
        }
        put_words<COLUMNS>(run, lane, words);
    } else {
        put_values<COLUMNS, 0>(run, lane, values);
    }
}

// Units that a worker multiplies, of all units of a row.
struct UnitRange {
    uint first;
    uint end;
    uint all;
};

// Where a simdgroup stages its columns: units of 32 * COLUMNS words.
struct OperandPlace {
    UnitRange range;
    SHARED uint* runs;
    // Units that there is room for.
    uint room;
    // Units of the matrix that are this simdgroup's.
    uint units;
    // Whether there is room for all that any simdgroup has.
    bool whole;
};

template <uint COLUMNS> TASK OperandPlace operand_place(THREAD const Worker& worker, UnitRange range) {
    uint room = worker.operand_words / worker.simdgroups / (32 * COLUMNS), units = range.end - range.first;
    return {range, worker.operand + worker.simdgroup * room * 32 * COLUMNS, room,
            (units + worker.simdgroups - 1 - worker.simdgroup) / worker.simdgroups,
            (units + worker.simdgroups - 1) / worker.simdgroups <= room};
}

// A lane's first column in the `i`-th unit of its simdgroup.
template <uint COLUMNS> TASK uint operand_start(THREAD const Worker& worker, THREAD const OperandPlace& place, uint i) {
    return ((place.range.first + i * worker.simdgroups + worker.simdgroup) * 4 + (worker.lane & 3u)) * COLUMNS;
}

// This simdgroup's share of the squares of a row beside the slice.
template <uint COLUMNS>
TASK float squares_beside(THREAD const Worker& worker, THREAD const OperandPlace& place, THREAD const OperandRow& row) {
    float squares = 0.0f, values[COLUMNS];
    for (uint unit = worker.simdgroup; unit < place.range.all; unit += worker.simdgroups) {
        if (unit >= place.range.first && unit < place.range.end) continue;
        load_columns<COLUMNS>(row.x, (unit * 4 + (worker.lane & 3u)) * COLUMNS, row.width, row.full, values);
        for (uint column = 0; column < COLUMNS; ++column) squares += values[column] * values[column];
    }
    return squares;
}

// A power of two that brings `largest` near to the greatest half, so that the lower half of a value is precise, too.
TASK float half_factor(float largest) {
    uint exponent = min(max(bits_of_float(largest) >> 23, 64u), 254u);
    return float_of_bits((267u - exponent) << 23);
}

// Statistics of each row over the columns of a slice, for a norm over all: factor[row] in shared memory undoes what brings a row into its
// form; returns what brings this lane's row into it. Columns that have room are staged, but not yet brought into their form.
template <uint COLUMNS, uint HALVES>
TASK float measure_operand(THREAD const Worker& worker, THREAD const OperandRow& row, THREAD const OperandPlace& place) {
    // Units whose loads are under way at once.
    const uint at_once = 16 / COLUMNS;
    float squares = 0.0f, largest = 0.0f;
#pragma unroll 1
    for (uint first = 0; first < place.units; first += at_once) {
        float values[at_once][COLUMNS], scales[at_once][COLUMNS];
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            uint start = operand_start<COLUMNS>(worker, place, first + i);
            if (first + i < place.units) load_columns<COLUMNS>(row.x, start, row.width, row.full, values[i]);
            if (first + i < place.units && row.normed) load_columns<COLUMNS>(row.weights, start, row.width, row.full, scales[i]);
        }
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            if (first + i >= place.units) continue;
            for (uint column = 0; column < COLUMNS; ++column) {
                squares += values[i][column] * values[i][column];
                if (row.normed) values[i][column] *= scales[i][column] + row.offset;
                largest = max(largest, magnitude(values[i][column]));
            }
            if (place.whole) put_values<COLUMNS, HALVES>(place.runs + (first + i) * 32 * COLUMNS, worker.lane, values[i]);
        }
    }
    if (row.normed) squares += squares_beside<COLUMNS>(worker, place, row);
    squares += lane_xor(squares, 1);
    squares += lane_xor(squares, 2);
    largest = max(largest, lane_xor(largest, 1));
    largest = max(largest, lane_xor(largest, 2));

    SHARED float* statistics = worker.shared + SUMS_FLOATS(worker.simdgroups);
    SHARED float* factors = statistics + worker.simdgroups * BLOCK_ROWS * 2;
    worker_barrier();
    if (worker.lane % 4 == 0) put_pair(statistics + worker.simdgroup * BLOCK_ROWS * 2 + worker.lane / 2, squares, largest);
    worker_barrier();
    squares = 0.0f;
    for (uint share = 0; share < worker.simdgroups; ++share) {
        squares += statistics[share * BLOCK_ROWS * 2 + worker.lane / 4 * 2];
        largest = max(largest, statistics[share * BLOCK_ROWS * 2 + worker.lane / 4 * 2 + 1]);
    }
    float norm = row.normed ? reciprocal_root(squares / (float)row.width + row.epsilon) : 1.0f;
    float factor = HALVES ? half_factor(largest * norm) : 1.0f;
    if (worker.simdgroup == 0 && worker.lane % 4 == 0) factors[worker.lane / 4] = 1.0f / factor;
    worker_barrier();
    return norm * factor;
}

// Brings units from `first` on into their form, as many as there is room for.
template <uint COLUMNS, uint HALVES>
TASK void stage_units(THREAD const Worker& worker, THREAD const OperandRow& row, THREAD const OperandPlace& place, uint first, float factor) {
    float values[COLUMNS], scales[COLUMNS];
    simd_fence();
    for (uint i = first; i < min(first + place.room, place.units); ++i) {
        SHARED uint* run = place.runs + (i - first) * 32 * COLUMNS;
        if (place.whole) {
            get_values<COLUMNS, HALVES>(run, worker.lane, values);
        } else {
            uint start = operand_start<COLUMNS>(worker, place, i);
            load_columns<COLUMNS>(row.x, start, row.width, row.full, values);
            if (row.normed) load_columns<COLUMNS>(row.weights, start, row.width, row.full, scales);
            for (uint column = 0; row.normed && column < COLUMNS; ++column) values[column] *= scales[column] + row.offset;
        }
        put_operand<COLUMNS, HALVES>(run, worker.lane, values, factor);
    }
    simd_fence();
}

// Whether this worker staged the same before in this phase; from now on it has, if all of it has room.
template <uint COLUMNS, uint HALVES>
TASK bool is_staged(THREAD Worker& worker, DEVICE const OperandRecord& operand, THREAD const OperandPlace& place,
                    DEVICE const float* gathered, uint first_row, uint rows) {
    THREAD Staged& staged = worker.staged;
    uint form = place.whole ? COLUMNS * 2 + HALVES + (gathered ? 64 : 0) : 0, block = first_row * MOST_ROWS + rows;
    bool same = form != 0 && staged.form == form && staged.input == operand.input && staged.norm == operand.norm && staged.block == block;
    staged.form = form;
    staged.input = operand.input;
    staged.norm = operand.norm;
    staged.block = block;
    return same;
}
