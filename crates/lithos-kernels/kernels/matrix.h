// A packed matrix: tiles of 16 output rows; in a tile, units of 32 words of 16 bytes, one word a lane. Lane 4 g + q holds
// eight bytes of row g, then eight of row g + 8, of the unit's q-th quarter of columns. Scales lie apart, [tile][block][row g, row
// g + 8 for g in 0..8].

#define TILE_ROWS 16

// The values of one lane's word, with block scales and biases: `low` of row g, `high` of row g + 8.
template <uint CODES, uint SCALES, uint BIASES>
TASK void decode_word(THREAD const Memory& memory, DEVICE const MatrixRecord& matrix, uint tile, uint unit, uint lane,
                      THREAD float* low, THREAD float* high) {
    const uint columns = LANE_COLUMNS(CODES);
    DEVICE const uint4* words = (DEVICE const uint4*)(memory.weights + (size_t)matrix.codes * 16);
    uint4 word = words[(size_t)(tile * matrix.units + unit) * 32 + lane];
    decode<CODES>(word.x, word.y, matrix.zero_point, low);
    decode<CODES>(word.z, word.w, matrix.zero_point, high);
    if (SCALES != SCALES_NONE) {
        uint block = (unit * 4 + (lane & 3u)) * columns / matrix.block_columns;
        uint index = (tile * matrix.blocks + block) * TILE_ROWS + (lane / 4) * 2;
        DEVICE const uchar* scales = memory.weights + (size_t)matrix.scales * 16;
        float scale_low = scale_value<SCALES>(scales, index), scale_high = scale_value<SCALES>(scales, index + 1);
        float bias_low = 0.0f, bias_high = 0.0f;
        if (BIASES != SCALES_NONE) {
            DEVICE const uchar* biases = memory.weights + (size_t)matrix.biases * 16;
            bias_low = scale_value<BIASES>(biases, index);
            bias_high = scale_value<BIASES>(biases, index + 1);
        }
        for (uint i = 0; i < columns; ++i) {
            low[i] = low[i] * scale_low + bias_low;
            high[i] = high[i] * scale_high + bias_high;
        }
    }
}

// Products of one tile with all rows, this simdgroup's share of the columns: sums[r] of row g, sums[MOST_ROWS + r] of row g + 8,
// for row r of the pass. Every row's sum has the same order whatever the number of rows.
template <uint CODES, uint SCALES, uint BIASES>
TASK void tile_products(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const MatrixRecord& matrix,
                        DEVICE const OperandRecord& operand, uint first_row, uint rows, uint tile, THREAD float* sums) {
    const uint columns = LANE_COLUMNS(CODES);
    float low[LANE_COLUMNS(CODES)], high[LANE_COLUMNS(CODES)];
    DEVICE const float* x = memory.arena + operand.input + first_row * operand.width;
    for (uint i = 0; i < 2 * MOST_ROWS; ++i) sums[i] = 0.0f;
    for (uint unit = worker.simdgroup; unit < matrix.units; unit += worker.simdgroups) {
        decode_word<CODES, SCALES, BIASES>(memory, matrix, tile, unit, worker.lane, low, high);
        uint start = (unit * 4 + (worker.lane & 3u)) * columns;
        uint present = start >= operand.width ? 0 : min(columns, operand.width - start);
        if (operand.norm != NOTHING) {
            DEVICE const float* factors = small_array(memory, operand.norm) + start;
            for (uint i = 0; i < present; ++i) {
                low[i] *= factors[i] + operand.norm_offset;
                high[i] *= factors[i] + operand.norm_offset;
            }
        }
        for (uint row = 0; row < rows; ++row) {
            float sum_low = 0.0f, sum_high = 0.0f;
            for (uint i = 0; i < present; ++i) {
                float value = x[row * operand.width + start + i];
                sum_low += low[i] * value;
                sum_high += high[i] * value;
            }
            sums[row] += sum_low;
            sums[MOST_ROWS + row] += sum_high;
        }
    }
}

// 1 / root mean square of each row of the operand, in shared[row]; 1 where there is no norm.
TASK void row_factors(THREAD const Memory& memory, THREAD const Worker& worker, DEVICE const OperandRecord& operand,
                      uint first_row, uint rows, SHARED float* factors) {
    for (uint row = worker.simdgroup; row < rows; row += worker.simdgroups) {
        float factor = 1.0f;
        if (operand.norm != NOTHING) {
            DEVICE const float* x = memory.arena + operand.input + (first_row + row) * operand.width;
            float squares = 0.0f;
            for (uint i = worker.lane; i < operand.width; i += 32) squares += x[i] * x[i];
            factor = reciprocal_root(lane_sum(squares) / (float)operand.width + operand.epsilon);
        }
        if (worker.lane == 0) factors[row] = factor;
    }
    worker_barrier();
}

// Adds up the shares of all simdgroups in order: result [row][16] in `out`, from `sums` of each lane. `out` has room for
// simdgroups times as much; it is free again after the next worker_barrier.
TASK void sum_shares(THREAD const Worker& worker, uint rows, THREAD float* sums, SHARED float* out) {
    for (uint row = 0; row < rows; ++row) {
        for (uint half_tile = 0; half_tile < 2; ++half_tile) {
            float sum = sums[half_tile * MOST_ROWS + row];
            sum += lane_xor(sum, 1);
            sum += lane_xor(sum, 2);
            if ((worker.lane & 3u) == 0) {
                out[(worker.simdgroup * rows + row) * TILE_ROWS + half_tile * 8 + worker.lane / 4] = sum;
            }
        }
    }
    worker_barrier();
    for (uint i = thread_of(worker); i < rows * TILE_ROWS; i += threads_of(worker)) {
        float sum = 0.0f;
        for (uint share = 0; share < worker.simdgroups; ++share) sum += out[share * rows * TILE_ROWS + i];
        out[i] = sum;
    }
}
