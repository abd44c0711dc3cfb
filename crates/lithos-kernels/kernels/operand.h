// What projections multiply: rows of the pass, through a norm if there is one, in the form that matrix units take.
//
// Each simdgroup stages the columns that it multiplies itself: those of every `simdgroups`-th unit. Eight rows stand beside
// each other, lane 4 n + q holding the q-th quarter of row n.

// A lane's columns from `start` on; zero beyond the width. They come in fours, unless rows are not of whole fours.
template <uint COLUMNS> TASK void load_columns(DEVICE const float* row, uint start, uint width, bool fours, THREAD float* values) {
    if (fours) {
        for (uint i = 0; i + 4 <= COLUMNS; i += 4) {
            float4 four;
            four.x = four.y = four.z = four.w = 0.0f;
            if (start + i < width) four = *(DEVICE const float4*)(row + start + i);
            values[i] = four.x;
            values[i + 1] = four.y;
            values[i + 2] = four.z;
            values[i + 3] = four.w;
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
            COLUMNS >= 4, normed, operand.epsilon, operand.norm_offset};
}

// The forms of an operand. Halves suffice for codes of at most four significant bits: what their rounding adds is far below what the
// codes' own rounding took away. Each value is the sum of two halves, upper ones first, where weights are halves themselves.
#define FORM_FLOATS 0
#define FORM_HALVES 1
#define FORM_TWO_HALVES 2
#define OPERAND_FORM(CODES, SCALES) \
    (!IN_HALVES(CODES, SCALES) ? FORM_FLOATS : (CODES) == CODES_F16 ? FORM_TWO_HALVES : FORM_HALVES)
// Words of a lane's columns of a unit.
#define FORM_WORDS(COLUMNS, FORM) ((FORM) == FORM_HALVES ? (COLUMNS) / 2 : (COLUMNS))

// Brings a lane's columns of a unit into their form.
template <uint COLUMNS, uint FORM>
TASK void put_operand(SHARED uint* run, uint lane, THREAD const float* values, float factor) {
    if (FORM == FORM_FLOATS) {
        for (uint i = 0; i < COLUMNS; i += 2) put_pair((SHARED float*)run + i * 32 + lane * 2, values[i] * factor, values[i + 1] * factor);
        return;
    }
    uint words[COLUMNS];
    for (uint i = 0; i < COLUMNS / 2; ++i) {
        float first = values[2 * i] * factor, second = values[2 * i + 1] * factor;
        uint upper = halves_of_floats(first, second);
        words[i] = upper;
        words[COLUMNS / 2 + i] = halves_of_floats(first - float_of_half(upper & 0xffffu), second - float_of_half(upper >> 16));
    }
    put_words<FORM_WORDS(COLUMNS, FORM)>(run, lane, words);
}

// Multiplies what a lane has staged with a power of two that halves can have.
template <uint COLUMNS, uint FORM> TASK void scale_operand(SHARED uint* run, uint lane, float factor) {
    uint words[FORM_WORDS(COLUMNS, FORM)], factors = halves_of_floats(factor, factor);
    get_words<FORM_WORDS(COLUMNS, FORM)>(run, lane, words);
    for (uint i = 0; i < FORM_WORDS(COLUMNS, FORM); ++i) words[i] = multiply_pairs(words[i], factors);
    put_words<FORM_WORDS(COLUMNS, FORM)>(run, lane, words);
}

// Units that a worker multiplies, of all units of a row.
struct UnitRange {
    uint first;
    uint end;
    uint all;
};

// Where a simdgroup stages its columns: units of 32 * FORM_WORDS words.
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

template <uint COLUMNS, uint FORM> TASK OperandPlace operand_place(THREAD const Worker& worker, UnitRange range) {
    // Behind the ring of requested words, if there is one.
    const uint ring = FORM == FORM_HALVES ? RING_WORDS : 0, unit_words = 32 * FORM_WORDS(COLUMNS, FORM);
    uint room = (worker.operand_words - ring) / worker.simdgroups / unit_words, units = range.end - range.first;
    return {range, worker.operand + ring + worker.simdgroup * room * unit_words, room,
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
    // Units whose loads are under way at once.
    const uint at_once = 32 / COLUMNS;
    float squares = 0.0f;
    if (place.range.first == 0 && place.range.end == place.range.all) return squares;
#pragma unroll 1
    for (uint first = worker.simdgroup; first < place.range.all; first += at_once * worker.simdgroups) {
        float values[at_once][COLUMNS];
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            uint unit = first + i * worker.simdgroups;
            bool beside = unit < place.range.first || unit >= place.range.end;
            for (uint column = 0; column < COLUMNS; ++column) values[i][column] = 0.0f;
            if (beside) load_columns<COLUMNS>(row.x, (unit * 4 + (worker.lane & 3u)) * COLUMNS, row.width, row.full, values[i]);
        }
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            for (uint column = 0; column < COLUMNS; ++column) squares += values[i][column] * values[i][column];
        }
    }
    return squares;
}

// A power of two that brings `largest` to between 2^7 and 2^8: values down to 2^-21 of it keep all bits of a half, and there is room
// for some that are larger.
TASK float half_factor(float largest) {
    uint exponent = min(max(bits_of_float(largest) >> 23, 64u), 254u);
    return float_of_bits((261u - exponent) << 23);
}

// Multiplies a lane's columns from `start` on with the weights of the norm.
template <uint COLUMNS> TASK void scale_columns(THREAD const OperandRow& row, uint start, THREAD float* values) {
    float scales[COLUMNS];
    load_columns<COLUMNS>(row.weights, start, row.width, row.full, scales);
    for (uint column = 0; column < COLUMNS; ++column) values[column] *= scales[column] + row.offset;
}

// Asks for the weights of the norm over this simdgroup's columns. No launch writes them, and the stream of a matrix has pushed them out of
// the caches.
template <uint COLUMNS>
TASK void expect_norm(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const OperandRecord& operand,
                      THREAD const OperandPlace& place) {
    if (operand.norm == NOTHING) return;
    for (uint at = worker.lane * 32; at < place.units * 4 * COLUMNS; at += 32 * 32) {
        uint unit = place.range.first + at / (4 * COLUMNS) * worker.simdgroups + worker.simdgroup;
        uint column = min(unit * 4 * COLUMNS + at % (4 * COLUMNS), operand.width - 1);
        expect((DEVICE const uchar*)(small_array(memory, operand.norm) + column));
    }
}

// What a simdgroup knows of each row over its columns: the sum of squares, and what undoes the factor of their form.
TASK SHARED float* operand_statistics(THREAD const Worker& worker, uint simdgroup, uint row) {
    return worker.shared + SUMS_FLOATS(worker.simdgroups) + (simdgroup * BLOCK_ROWS + row) * 2;
}

// Reads this simdgroup's columns of each row, without a barrier: puts statistics of each row into shared memory, and returns what brings
// this lane's row into its form. Columns that have room are brought into it. The factor of a norm over all columns is left to those who
// add up the sums of all simdgroups.
template <uint COLUMNS, uint FORM>
TASK float stage_operand(THREAD const Worker& worker, THREAD const OperandRow& row, THREAD const OperandPlace& place) {
    // Units whose loads are under way at once.
    const uint at_once = OPERAND_COLUMNS / COLUMNS;
    float squares = 0.0f, largest = 0.0f, factor = 1.0f;
#pragma unroll 1
    for (uint first = 0; first < place.units; first += at_once) {
        float values[at_once][COLUMNS];
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            uint start = operand_start<COLUMNS>(worker, place, first + i);
            if (first + i < place.units) load_columns<COLUMNS>(row.x, start, row.width, row.full, values[i]);
        }
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            if (first + i >= place.units) continue;
            for (uint column = 0; column < COLUMNS; ++column) squares += values[i][column] * values[i][column];
            if (row.normed) scale_columns<COLUMNS>(row, operand_start<COLUMNS>(worker, place, first + i), values[i]);
            for (uint column = 0; column < COLUMNS; ++column) largest = max(largest, magnitude(values[i][column]));
        }
        if (FORM != FORM_FLOATS) {
            largest = max(largest, lane_xor(largest, 1));
            largest = max(largest, lane_xor(largest, 2));
            float before = factor;
            if (first == 0 || largest * factor > 32768.0f) factor = half_factor(largest);
            for (uint i = 0; first != 0 && factor != before && place.whole && i < first; ++i) {
                scale_operand<COLUMNS, FORM>(place.runs + i * 32 * FORM_WORDS(COLUMNS, FORM), worker.lane, factor / before);
            }
        }
#pragma unroll
        for (uint i = 0; i < at_once; ++i) {
            if (!place.whole || first + i >= place.units) continue;
            put_operand<COLUMNS, FORM>(place.runs + (first + i) * 32 * FORM_WORDS(COLUMNS, FORM), worker.lane, values[i], factor);
        }
    }
    if (row.normed) {
        squares += squares_beside<COLUMNS>(worker, place, row);
        squares += lane_xor(squares, 1);
        squares += lane_xor(squares, 2);
    }
    if (worker.lane % 4 == 0) put_pair(operand_statistics(worker, worker.simdgroup, worker.lane / 4), squares, 1.0f / factor);
    simd_fence();
    return factor;
}

// Brings `count` units from `first` on into their form, or those that are left.
template <uint COLUMNS, uint FORM>
TASK void stage_units(THREAD const Worker& worker, THREAD const OperandRow& row, THREAD const OperandPlace& place, uint first, uint count,
                      float factor) {
    float values[COLUMNS];
    simd_fence();
    for (uint i = first; i < min(first + count, place.units); ++i) {
        uint start = operand_start<COLUMNS>(worker, place, i);
        load_columns<COLUMNS>(row.x, start, row.width, row.full, values);
        if (row.normed) scale_columns<COLUMNS>(row, start, values);
        put_operand<COLUMNS, FORM>(place.runs + (i - first) * 32 * FORM_WORDS(COLUMNS, FORM), worker.lane, values, factor);
    }
    simd_fence();
}

// What the norm multiplies a row with, from the statistics of all simdgroups.
TASK float norm_factor(THREAD const Worker& worker, THREAD const OperandRow& row, uint of_row) {
    if (!row.normed) return 1.0f;
    float squares = 0.0f;
    for (uint share = 0; share < worker.simdgroups; ++share) squares += *operand_statistics(worker, share, of_row);
    return reciprocal_root(squares / (float)row.width + row.epsilon);
}

// Whether this worker staged the same before in this phase; from now on it has, if all of it has room.
template <uint COLUMNS, uint FORM>
TASK bool is_staged(THREAD Worker& worker, DEVICE const OperandRecord& operand, THREAD const OperandPlace& place,
                    DEVICE const float* gathered, uint first_row, uint rows) {
    THREAD Staged& staged = worker.staged;
    uint form = place.whole ? COLUMNS * 4 + FORM + (gathered ? 128 : 0) : 0, block = (place.range.first * MOST_ROWS + first_row) * 2 * MOST_ROWS + rows;
    bool same = form != 0 && staged.form == form && staged.input == operand.input && staged.norm == operand.norm && staged.block == block;
    staged.form = form;
    staged.input = operand.input;
    staged.norm = operand.norm;
    staged.block = block;
    return same;
}
