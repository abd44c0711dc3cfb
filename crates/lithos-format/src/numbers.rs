//! The small number types that weights are stored in, and their exact values.
//!
//! Decoding is exact: every value of these types is an `f32`. Encoding rounds to nearest, ties to even.

use half::{bf16, f16};

/// The values of the 16 E2M1 codes (OCP Microscaling Formats specification 1.0, section 5.3.3): one sign bit, two
/// exponent bits, one mantissa bit. Code 8 is -0.
pub const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The values of the 256 E4M3 codes, see [`e4m3_to_f32`].
pub const E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = decode_e4m3(code as u8);
        code += 1;
    }
    table
};

/// The largest finite E4M3 value.
pub const E4M3_MAX: f32 = 448.0;

/// The largest E2M1 value.
pub const E2M1_MAX: f32 = 6.0;

const fn decode_e4m3(code: u8) -> f32 {
    let magnitude = (code & 0x7f) as u32;
    let value = if magnitude == 0x7f {
        f32::NAN
    } else if magnitude < 8 {
        magnitude as f32 / 512.0
    } else {
        // Shifting puts the three mantissa bits on top of the f32 mantissa; the bias goes from 7 to 127.
        f32::from_bits((magnitude << 20) + (120 << 23))
    };
    if code & 0x80 != 0 { -value } else { value }
}

/// The value of an E4M3 code of the "FN" kind (Micikevicius et al., "FP8 Formats for Deep Learning", 2022): exponent
/// bias 7, no infinities, NaN at 0x7F and 0xFF, largest value 448, subnormals m/512.
#[inline]
pub const fn e4m3_to_f32(code: u8) -> f32 {
    E4M3[code as usize]
}

/// The nearest E4M3 code, ties to even. Magnitudes above 448 saturate, NaN becomes 0x7F with its sign.
pub fn f32_to_e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7f;
    }
    if magnitude >= E4M3_MAX {
        return sign | 0x7e;
    }
    if magnitude < 1.0 / 64.0 {
        // Subnormals are a fixed grid of 1/512; rounding up to 8 gives the smallest normal's code. The product is exact.
        return sign | (magnitude * 512.0).round_ties_even() as u8;
    }
    let bits = magnitude.to_bits();
    let tie_to_even = (bits >> 20) & 1;
    let rounded = (bits + 0x7_ffff + tie_to_even) >> 20;
    sign | (rounded - (120 << 3)) as u8
}

/// The nearest E2M1 code, ties to the even code; magnitudes above 6 saturate, NaN becomes 0.
///
/// The ties are those of NVIDIA's ModelOpt quantizer: 0.25 to 0, 0.75 to 1, 1.25 to 1, 1.75 to 2, 2.5 to 2, 3.5 to 4, 5 to 4.
pub fn f32_to_e2m1(value: f32) -> u8 {
    let magnitude = value.abs();
    let code = if magnitude <= 0.25 || magnitude.is_nan() {
        0
    } else if magnitude < 0.75 {
        1
    } else if magnitude <= 1.25 {
        2
    } else if magnitude < 1.75 {
        3
    } else if magnitude <= 2.5 {
        4
    } else if magnitude < 3.5 {
        5
    } else if magnitude <= 5.0 {
        6
    } else {
        7
    };
    if value.is_sign_negative() && !value.is_nan() { code | 8 } else { code }
}

/// The value of IEEE 754 half precision bits.
#[inline]
pub fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// The nearest half precision bits, ties to even; overflow becomes an infinity.
#[inline]
pub fn f32_to_f16(value: f32) -> u16 {
    f16::from_f32(value).to_bits()
}

/// The value of bfloat16 bits: the upper half of an `f32`.
#[inline]
pub fn bf16_to_f32(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

/// The nearest bfloat16 bits, ties to even.
#[inline]
pub fn f32_to_bf16(value: f32) -> u16 {
    bf16::from_f32(value).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of an E4M3 code from the definition, in f64, by powers of two.
    fn e4m3_by_definition(code: u8) -> f64 {
        let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
        let exponent = i32::from((code >> 3) & 15);
        let mantissa = f64::from(code & 7);
        match (exponent, code & 7) {
            (15, 7) => f64::NAN,
            (0, _) => sign * 2f64.powi(-6) * (mantissa / 8.0),
            _ => sign * 2f64.powi(exponent - 7) * (1.0 + mantissa / 8.0),
        }
    }

    #[test]
    fn every_e4m3_code_has_the_value_of_the_definition() {
        for code in 0..=255u8 {
            let (got, expected) = (f64::from(e4m3_to_f32(code)), e4m3_by_definition(code));
            if expected.is_nan() {
                assert!(got.is_nan(), "code {code:#x}");
                assert!(code & 0x7f == 0x7f);
            } else {
                assert_eq!(got, expected, "code {code:#x}");
                assert_eq!(got.is_sign_negative(), code & 0x80 != 0);
            }
        }
        assert_eq!(e4m3_to_f32(0x7e), 448.0);
    }

    #[test]
    fn encoding_e4m3_inverts_decoding_and_rounds_ties_to_even() {
        for code in 0..=255u8 {
            assert_eq!(f32_to_e4m3(e4m3_to_f32(code)) & 0x7f, code & 0x7f);
            if code & 0x7f != 0x7f {
                assert_eq!(f32_to_e4m3(e4m3_to_f32(code)), code);
            }
        }
        for code in 0..0x7eu8 {
            let (low, high) = (e4m3_to_f32(code), e4m3_to_f32(code + 1));
            let middle = (low + high) / 2.0;
            let even = if code % 2 == 0 { code } else { code + 1 };
            assert_eq!(f32_to_e4m3(middle), even, "between {low} and {high}");
            assert_eq!(f32_to_e4m3(middle.next_down()), code);
            assert_eq!(f32_to_e4m3(middle.next_up()), code + 1);
            assert_eq!(f32_to_e4m3(-middle), even | 0x80);
        }
        assert_eq!(f32_to_e4m3(1e30), 0x7e);
        assert_eq!(f32_to_e4m3(f32::NEG_INFINITY), 0xfe);
    }

    #[test]
    fn e2m1_has_the_value_of_the_definition_and_rounds_ties_to_even() {
        for code in 0..16u8 {
            let sign = if code & 8 != 0 { -1.0 } else { 1.0 };
            let (exponent, mantissa) = (i32::from((code >> 1) & 3), f32::from(code & 1));
            let expected = if exponent == 0 {
                sign * mantissa / 2.0
            } else {
                sign * 2f32.powi(exponent - 1) * (1.0 + mantissa / 2.0)
            };
            assert_eq!(E2M1[usize::from(code)].to_bits(), expected.to_bits());
            assert_eq!(f32_to_e2m1(expected), code);
        }
        let ties = [
            (0.25, 0.0),
            (0.75, 1.0),
            (1.25, 1.0),
            (1.75, 2.0),
            (2.5, 2.0),
            (3.5, 4.0),
            (5.0, 4.0),
        ];
        for (value, rounded) in ties {
            assert_eq!(E2M1[usize::from(f32_to_e2m1(value))], rounded);
            assert_eq!(E2M1[usize::from(f32_to_e2m1(-value))], -rounded);
        }
        for pair in E2M1[..8].windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            assert_eq!(E2M1[usize::from(f32_to_e2m1(middle.next_down()))], pair[0]);
            assert_eq!(E2M1[usize::from(f32_to_e2m1(middle.next_up()))], pair[1]);
        }
        assert_eq!(f32_to_e2m1(100.0), 7);
    }
}
