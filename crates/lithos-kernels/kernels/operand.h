// What projections multiply: rows of the pass, through a norm if there is one, in the form that matrix units take.
//
// Each simdgroup stages the columns that it multiplies itself: those of every `simdgroups`-th unit. Eight rows stand beside
// each other, lane 4 n + q holding the q-th quarter of row n.

// Columns of a lane, before they have their form.
template <uint COLUMNS>
TASK void operand_values(THREAD const Memory& memory, DEVICE const OperandRecord& operand, uint row, uint start, THREAD float* values,
                         THREAD float& squares) {
    DEVICE const float* x = memory.arena + operand.input + (size_t)row * operand.width + start;
    uint present = start >= operand.width ? 0 : min(COLUMNS, operand.width - start);
    if (COLUMNS >= 4 && present == COLUMNS && operand.width % 4 == 0) {
        for (uint i = 0; i < COLUMNS; i += 4) {
            float4 four = ((DEVICE const float4*)x)[i / 4];
            values[i] = four.x;
            values[i + 1] = four.y;
            values[i + 2] = four.z;
            values[i + 3] = four.w;
        }
    } else {
        for (uint i = 0; i < COLUMNS; ++i) values[i] = i < present ? x[i] : 0.0f;
    }
    for (uint i = 0; i < COLUMNS; ++i) squares += values[i] * values[i];
    if (operand.norm == NOTHING) return;
    DEVICE const float* weights = small_array(memory, operand.norm) + start;
    if (COLUMNS >= 4 && present == COLUMNS) {
        for (uint i = 0; i < COLUMNS; i += 4) {
            float4 four = ((DEVICE const float4*)weights)[i / 4];
            values[i] *= four.x + operand.norm_offset;
            values[i + 1] *= four.y + operand.norm_offset;
            values[i + 2] *= four.z + operand.norm_offset;
            values[i + 3] *= four.w + operand.norm_offset;
        }
    } else {
        for (uint i = 0; i < COLUMNS; ++i) values[i] *= i < present ? weights[i] + operand.norm_offset : 0.0f;
    }
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

// A power of two that brings `largest` near to the greatest half, so that the lower half of a value is precise, too.
TASK float half_factor(float largest) {
    uint exponent = min(max(bits_of_float(largest) >> 23, 64u), 254u);
    return float_of_bits((267u - exponent) << 23);
}

// Statistics of each row over the columns of a slice, for a norm over all: factor[row] in shared memory undoes what brings a row into its form; returns what brings
// this lane's row into it. Columns that have room are staged, but not yet brought into their form.
template <uint COLUMNS, uint HALVES>
TASK float measure_operand(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const OperandRecord& operand,
                           THREAD const OperandPlace& place, uint first_row, uint rows) {
    uint row = worker.lane / 4, quarter = worker.lane & 3u;
    SHARED float* statistics = worker.shared + SUMS_FLOATS(worker.simdgroups);
    SHARED float* factors = statistics + worker.simdgroups * BLOCK_ROWS * 2;
    float squares = 0.0f, largest = 0.0f, values[COLUMNS];
    for (uint i = 0; i < place.units; ++i) {
        for (uint column = 0; column < COLUMNS; ++column) values[column] = 0.0f;
        if (row < rows) {
            operand_values<COLUMNS>(memory, operand, first_row + row, operand_start<COLUMNS>(worker, place, i), values, squares);
        }
        for (uint column = 0; column < COLUMNS; ++column) largest = max(largest, magnitude(values[column]));
        if (place.whole) put_values<COLUMNS, HALVES>(place.runs + i * 32 * COLUMNS, worker.lane, values);
    }
    if (operand.norm != NOTHING && row < rows) {
        for (uint unit = worker.simdgroup; unit < place.range.all; unit += worker.simdgroups) {
            if (unit >= place.range.first && unit < place.range.end) continue;
            operand_values<COLUMNS>(memory, operand, first_row + row, (unit * 4 + quarter) * COLUMNS, values, squares);
        }
    }
    squares += lane_xor(squares, 1);
    squares += lane_xor(squares, 2);
    largest = max(largest, lane_xor(largest, 1));
    largest = max(largest, lane_xor(largest, 2));
    worker_barrier();
    if (quarter == 0) put_pair(statistics + (worker.simdgroup * BLOCK_ROWS + row) * 2, squares, largest);
    worker_barrier();
    squares = 0.0f;
    for (uint share = 0; share < worker.simdgroups; ++share) {
        squares += statistics[(share * BLOCK_ROWS + row) * 2];
        largest = max(largest, statistics[(share * BLOCK_ROWS + row) * 2 + 1]);
    }
    float norm = operand.norm == NOTHING ? 1.0f : reciprocal_root(squares / (float)operand.width + operand.epsilon);
    float factor = HALVES ? half_factor(largest * norm) : 1.0f;
    if (worker.simdgroup == 0 && quarter == 0) factors[row] = 1.0f / factor;
    worker_barrier();
    return norm * factor;
}

// Brings units from `first` on into their form, as many as there is room for.
template <uint COLUMNS, uint HALVES>
TASK void stage_units(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const OperandRecord& operand,
                      THREAD const OperandPlace& place, uint first_row, uint rows, uint first, float factor) {
    uint row = worker.lane / 4;
    float values[COLUMNS];
    simd_fence();
    for (uint i = first; i < min(first + place.room, place.units); ++i) {
        SHARED uint* run = place.runs + (i - first) * 32 * COLUMNS;
        if (place.whole) {
            get_values<COLUMNS, HALVES>(run, worker.lane, values);
        } else {
            float squares = 0.0f;
            for (uint column = 0; column < COLUMNS; ++column) values[column] = 0.0f;
            if (row < rows) {
                operand_values<COLUMNS>(memory, operand, first_row + row, operand_start<COLUMNS>(worker, place, i), values, squares);
            }
        }
        put_operand<COLUMNS, HALVES>(run, worker.lane, values, factor);
    }
    simd_fence();
}

// Stages an operand, if there is room for it and this worker did not stage it before in this phase. Returns what brings this lane's row
// into its form.
template <uint COLUMNS, uint HALVES>
TASK float stage_operand(THREAD const Memory& memory, THREAD Worker& worker, DEVICE const OperandRecord& operand,
                         THREAD const OperandPlace& place, uint first_row, uint rows) {
    THREAD Staged& staged = worker.staged;
    uint form = COLUMNS * 2 + HALVES, block = first_row * MOST_ROWS + rows;
    if (staged.form == form && staged.input == operand.input && staged.norm == operand.norm && staged.block == block) return 1.0f;
    float factor = measure_operand<COLUMNS, HALVES>(memory, worker, operand, place, first_row, rows);
    if (place.whole) stage_units<COLUMNS, HALVES>(memory, worker, operand, place, first_row, rows, 0, factor);
    staged.form = place.whole ? form : 0;
    staged.input = operand.input;
    staged.norm = operand.norm;
    staged.block = block;
    return factor;
}
