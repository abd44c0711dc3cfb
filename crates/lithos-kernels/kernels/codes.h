// Codes of weights to values, exactly.

#define CODES_F32 0
#define CODES_F16 1
#define CODES_BF16 2
#define CODES_E4M3 3
#define CODES_U4 4
#define CODES_I8 5
#define CODES_E2M1 6

#define SCALES_NONE 0
#define SCALES_F32 1
#define SCALES_F16 2
#define SCALES_BF16 3
#define SCALES_E4M3 4

// Bytes of a scale.
#define SCALE_BYTES(scales) ((scales) == SCALES_F32 ? 4u : (scales) == SCALES_E4M3 ? 1u : (scales) == SCALES_NONE ? 0u : 2u)

// Columns that the eight bytes of a lane hold in one row.
#define LANE_COLUMNS(codes) ((codes) == CODES_F32 ? 2u : (codes) <= CODES_BF16 ? 4u : (codes) == CODES_U4 || (codes) == CODES_E2M1 ? 16u : 8u)

// Four bits of exponent with bias 7, three of mantissa; no infinity.
TASK float e4m3_value(uint code) {
    uint exponent = (code >> 3) & 15u, mantissa = code & 7u;
    float magnitude = exponent == 0 ? (float)mantissa * 0.001953125f : float_of_bits(((exponent + 120u) << 23) | (mantissa << 20));
    return (code & 128u) ? -magnitude : magnitude;
}

// 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
TASK float e2m1_value(uint code) {
    uint exponent = (code >> 1) & 3u, mantissa = code & 1u;
    float magnitude = exponent == 0 ? (float)mantissa * 0.5f : (float)((2u + mantissa) << exponent) * 0.25f;
    return (code & 8u) ? -magnitude : magnitude;
}

TASK float bf16_value(uint bits) { return float_of_bits(bits << 16); }

// The nearest BF16, ties to even.
TASK uint bf16_bits(float x) {
    uint bits = bits_of_float(x);
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// Code `column` of a word with eight E2M1 codes. Byte i holds column i with its sign in bit 7 and the rest in bits 3 to 1, where they
// are a half's upper byte; and column i + 4 in what is left, the rest in bits 6 to 4 and the sign in bit 0.
TASK uint e2m1_code(uint word, uint column) {
    uint byte = word >> (8 * (column & 3u));
    return column < 4 ? (byte >> 4 & 8u) | (byte >> 1 & 7u) : (byte << 3 & 8u) | (byte >> 4 & 7u);
}

// The values of a lane's eight bytes in one row.
template <uint CODES> TASK void decode(uint low, uint high, uint zero_point, THREAD float* values) {
    if (CODES == CODES_F32) {
        values[0] = float_of_bits(low);
        values[1] = float_of_bits(high);
    } else if (CODES == CODES_F16 || CODES == CODES_BF16) {
        for (uint i = 0; i < 4; ++i) {
            uint bits = ((i < 2 ? low : high) >> (16 * (i & 1u))) & 0xffffu;
            values[i] = CODES == CODES_F16 ? float_of_half(bits) : bf16_value(bits);
        }
    } else if (CODES == CODES_E4M3 || CODES == CODES_I8) {
        for (uint i = 0; i < 8; ++i) {
            uint code = ((i < 4 ? low : high) >> (8 * (i & 3u))) & 255u;
            values[i] = CODES == CODES_E4M3 ? e4m3_value(code) : (float)((int)(code << 24) >> 24);
        }
    } else {
        for (uint i = 0; i < 16; ++i) {
            uint word = i < 8 ? low : high;
            values[i] = CODES == CODES_E2M1 ? e2m1_value(e2m1_code(word, i & 7u))
                                            : (float)((int)(word >> (4 * (i & 7u)) & 15u) - (int)zero_point);
        }
    }
}
