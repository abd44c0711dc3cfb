// A packed matrix: tiles of 16 output rows; in a tile, units of 32 words of 16 bytes, one word a lane. Lane 4 g + q holds
// eight bytes of row g, then eight of row g + 8, of the unit's q-th quarter of columns. Scales lie apart, [tile][block][row g, row
// g + 8 for g in 0..8].
//
// These are the rows and columns of a lane in the products of matrix units, so codes are decoded where they arrive. A product's
// columns are in another order than the matrix's, and so are those of the operand.

#define TILE_ROWS 16

// What decides how a matrix is multiplied. Codes and scales whose products are exact in half precision are multiplied in it, others in
// single precision.
#define IN_HALVES(CODES, SCALES)                                                                  \
    ((((CODES) == CODES_F16 || (CODES) == CODES_E4M3) && (SCALES) == SCALES_NONE) || \
     ((CODES) == CODES_E2M1 && (SCALES) == SCALES_E4M3))

// What values in half precision are multiplied with to become those of the codes.
#define HALVES_FACTOR(CODES) ((CODES) == CODES_E2M1 ? 16384.0f : 1.0f)

// Whether values have more than 11 significant bits.
#define IS_WIDE(CODES, SCALES) ((CODES) == CODES_F32 || (SCALES) != SCALES_NONE)

// A lane's word of a unit, with the bits of its block scales and biases: of row g, then of row g + 8.
struct UnitWord {
    uint4 codes;
    uint scales[2];
    uint biases[2];
};

// The scales of rows g and g + 8 in a block, as they are stored: two adjacent elements.
template <uint SCALES> TASK void load_scales(DEVICE const uchar* scales, uint pair, THREAD uint* bits) {
    if (SCALES == SCALES_F32) {
        bits[0] = load_once((DEVICE const uint*)scales + 2 * pair);
        bits[1] = load_once((DEVICE const uint*)scales + 2 * pair + 1);
    } else if (SCALES == SCALES_E4M3) {
        bits[0] = load_once((DEVICE const ushort*)scales + pair);
    } else if (SCALES != SCALES_NONE) {
        bits[0] = load_once((DEVICE const uint*)scales + pair);
    }
}

// One of two scales that were loaded together.
template <uint SCALES> TASK float scale_of_bits(THREAD const uint* bits, uint second) {
    if (SCALES == SCALES_F32) return float_of_bits(bits[second]);
    if (SCALES == SCALES_F16) return float_of_half(bits[0] >> (16 * second) & 0xffffu);
    if (SCALES == SCALES_BF16) return bf16_value(bits[0] >> (16 * second) & 0xffffu);
    return e4m3_value(bits[0] >> (8 * second) & 255u);
}

// Where a tile lies.
struct Tile {
    DEVICE const uint4* codes;
    DEVICE const uchar* scales;
    DEVICE const uchar* biases;
};

template <uint SCALES, uint BIASES>
TASK Tile tile_of(THREAD const Memory& memory, DEVICE const MatrixRecord& matrix, uint tile) {
    size_t first_scale = (size_t)tile * matrix.blocks * TILE_ROWS;
    return {(DEVICE const uint4*)(memory.weights + (size_t)matrix.codes * 16) + (size_t)tile * matrix.units * 32,
            memory.weights + (size_t)matrix.scales * 16 + first_scale * SCALE_BYTES(SCALES),
            memory.weights + (size_t)matrix.biases * 16 + first_scale * SCALE_BYTES(BIASES)};
}

// Loads the word of `lane` = 4 g + q.
template <uint CODES, uint SCALES, uint BIASES>
TASK void load_unit(THREAD const Tile& tile, uint block_columns, uint unit, uint lane, THREAD UnitWord& word) {
    word.codes = load_once(tile.codes + unit * 32 + lane);
    if (SCALES != SCALES_NONE) {
        // A lane's 16 columns in NVFP4 are a block.
        uint quarter = unit * 4 + (lane & 3u);
        uint block = IN_HALVES(CODES, SCALES) ? quarter : quarter * LANE_COLUMNS(CODES) / block_columns;
        load_scales<SCALES>(tile.scales, block * 8 + lane / 4, word.scales);
        load_scales<BIASES>(tile.biases, block * 8 + lane / 4, word.biases);
    }
}

// The values of a word: `low` of row g, `high` of row g + 8.
template <uint CODES, uint SCALES, uint BIASES>
TASK void decode_word(THREAD const UnitWord& word, uint zero_point, THREAD float* low, THREAD float* high) {
    decode<CODES>(word.codes.x, word.codes.y, zero_point, low);
    decode<CODES>(word.codes.z, word.codes.w, zero_point, high);
    if (SCALES != SCALES_NONE) {
        float scale_low = scale_of_bits<SCALES>(word.scales, 0), scale_high = scale_of_bits<SCALES>(word.scales, 1);
        float bias_low = BIASES == SCALES_NONE ? 0.0f : scale_of_bits<BIASES>(word.biases, 0);
        float bias_high = BIASES == SCALES_NONE ? 0.0f : scale_of_bits<BIASES>(word.biases, 1);
        for (uint i = 0; i < LANE_COLUMNS(CODES); ++i) {
            low[i] = low[i] * scale_low + bias_low;
            high[i] = high[i] * scale_high + bias_high;
        }
    }
}

// The codes of a lane's eight bytes in one row as pairs of halves, without scale and factor.
template <uint CODES> TASK void decode_pairs(uint low, uint high, THREAD uint* pairs) {
    if (CODES == CODES_F16) {
        pairs[0] = low;
        pairs[1] = high;
    } else if (CODES == CODES_E4M3) {
        pairs[0] = halves_of_e4m3(low);
        pairs[1] = halves_of_e4m3(low >> 16);
        pairs[2] = halves_of_e4m3(high);
        pairs[3] = halves_of_e4m3(high >> 16);
    } else {
        for (uint i = 0; i < 2; ++i) {
            uint word = i == 0 ? low : high;
            uint first = word & 0x8e8e8e8eu, last = (word >> 3 & 0x0e0e0e0eu) | (word << 7 & 0x80808080u);
            pairs[4 * i] = halves_of_bytes(first, 0);
            pairs[4 * i + 1] = halves_of_bytes(first, 1);
            pairs[4 * i + 2] = halves_of_bytes(last, 0);
            pairs[4 * i + 3] = halves_of_bytes(last, 1);
        }
    }
}

// sums += word times operand, in half precision. The operand's values are halves, or each the sum of two.
template <uint CODES, uint SCALES, uint WORDS>
TASK void multiply_in_halves(THREAD const UnitWord& word, THREAD const RightHalves<WORDS>& right, THREAD float* sums) {
    const uint pairs = LANE_COLUMNS(CODES) / 2;
    uint low[LANE_COLUMNS(CODES) / 2], high[LANE_COLUMNS(CODES) / 2];
    decode_pairs<CODES>(word.codes.x, word.codes.y, low);
    decode_pairs<CODES>(word.codes.z, word.codes.w, high);
    if (SCALES == SCALES_E4M3) {
        uint scales = halves_of_e4m3(word.scales[0]);
        uint scale_low = first_twice(scales), scale_high = second_twice(scales);
        for (uint i = 0; i < pairs; ++i) {
            low[i] = multiply_pairs(low[i], scale_low);
            high[i] = multiply_pairs(high[i], scale_high);
        }
    }
    for (uint i = 0; i < pairs; i += 2) {
        multiply_halves(sums, low[i], high[i], low[i + 1], high[i + 1], right, i);
        if (WORDS > pairs) multiply_halves(sums, low[i], high[i], low[i + 1], high[i + 1], right, pairs + i);
    }
}

// sums += word times operand, in single precision.
template <uint CODES, uint SCALES, uint BIASES>
TASK void multiply_in_floats(THREAD const UnitWord& word, uint zero_point, SHARED const uint* run, uint lane, THREAD float* sums) {
    float low[LANE_COLUMNS(CODES)], high[LANE_COLUMNS(CODES)];
    decode_word<CODES, SCALES, BIASES>(word, zero_point, low, high);
    for (uint i = 0; i < LANE_COLUMNS(CODES); i += 2) {
        RightFloats right = load_right_floats((SHARED const float*)run + i * 32, lane);
        multiply_floats<IS_WIDE(CODES, SCALES)>(sums, low + i, high + i, right);
    }
}
