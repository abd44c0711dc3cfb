//! Every instruction set of this machine against [`Portable`], bit by bit.

use super::{E4M3_SCALE, Isa, Kernel, LANES, Simd, exp, sigmoid, silu};

/// Floats that include signed zeros, denormals and large values, from a small generator.
fn floats(seed: u64) -> [f32; LANES] {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::array::from_fn(|lane| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        match (lane as u64 + seed) % 11 {
            0 => 0.0,
            1 => -0.0,
            2 => unit * 1e-41,
            3 => unit * 1e30,
            _ => unit * 90.0,
        }
    })
}

fn integers(seed: u64) -> [i32; LANES] {
    floats(seed ^ 0x55).map(|x| (x.to_bits() as i32).wrapping_mul(0x9E37_79B1_u32 as i32))
}

/// All operations on one set of inputs; the results as bits.
struct Everything {
    a: [f32; LANES],
    b: [f32; LANES],
    i: [i32; LANES],
    j: [i32; LANES],
}

impl Kernel for Everything {
    type Output = Vec<[u32; LANES]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        // SAFETY: all pointers are to arrays of the sizes that the operations name.
        let (a, b, i, j) = unsafe {
            (
                s.load(self.a.as_ptr()),
                s.load(self.b.as_ptr()),
                s.load_i32(self.i.as_ptr().cast()),
                s.load_i32(self.j.as_ptr().cast()),
            )
        };
        let small = s.mul(a, s.splat(0.01));
        let nibbles = s.and(i, s.splat_i32(0x0F0F_0F0F));
        let table: [u8; 16] = std::array::from_fn(|k| (k * 37 + 11) as u8);
        let bytes = self.i.as_ptr().cast::<u8>();
        let floats = [
            s.add(a, b),
            s.sub(a, b),
            s.mul(a, b),
            s.div(a, s.add(s.abs(b), s.splat(1.0))),
            s.sqrt(s.abs(a)),
            s.fma(a, b, small),
            s.max(a, b),
            s.min(a, b),
            s.abs(a),
            s.select_less(a, b, small, b),
            s.splat(s.sum(a)),
            s.splat(s.maximum(a)),
            s.to_f32(i),
            s.bf16_low(nibbles),
            s.bf16_high(nibbles),
            exp(s, a),
            sigmoid(s, a),
            silu(s, a),
            // SAFETY: the array holds 64 bytes; nibbles of zero exponent bits keep BF16 finite above.
            unsafe { s.load_e4m3(bytes) },
            // SAFETY: the array holds 16 floats.
            unsafe { s.load_first(self.a.as_ptr(), 5) },
        ];
        let ints = [
            s.to_i32(s.min(s.max(a, s.splat(-1e9)), s.splat(1e9))),
            s.add_i32(i, j),
            s.sub_i32(i, j),
            s.mul_i32(i, j),
            s.and(i, j),
            s.or(i, j),
            s.shl::<7>(i),
            s.shr::<9>(i),
            s.sar::<9>(i),
            s.shr_halves::<5>(i),
            s.sub_halves(i, j),
            s.madd(i, j, i),
            s.lookup(&table, nibbles),
            s.splat_i32(s.sum_i32(i)),
            // SAFETY: the array holds 64 bytes.
            unsafe { s.load_e4m3_pairs(bytes) },
        ];
        let mut out = Vec::new();
        for f in floats {
            let mut lanes = [0u32; LANES];
            // SAFETY: the array holds 64 bytes.
            unsafe { s.store_i32(lanes.as_mut_ptr().cast(), s.to_bits(f)) };
            out.push(lanes);
        }
        for v in ints {
            let mut lanes = [0u32; LANES];
            // SAFETY: the array holds 64 bytes.
            unsafe { s.store_i32(lanes.as_mut_ptr().cast(), v) };
            out.push(lanes);
        }
        let mut halves = [0u32; LANES];
        // SAFETY: the array holds 64 bytes, two times 32.
        unsafe {
            s.store_low_halves(halves.as_mut_ptr().cast(), i);
            s.store_bf16(halves.as_mut_ptr().cast::<u16>().add(16), a);
        }
        out.push(halves);
        out
    }
}

/// Widens 16 binary16 and 16 BF16 values.
struct Widen([u16; LANES]);

impl Kernel for Widen {
    type Output = [[f32; LANES]; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [[0.0; LANES]; 2];
        // SAFETY: all arrays hold 16 values.
        unsafe {
            s.store(out[0].as_mut_ptr(), s.load_f16(self.0.as_ptr()));
            s.store(out[1].as_mut_ptr(), s.load_bf16(self.0.as_ptr()));
        }
        out
    }
}

struct ReadE4m3([u8; LANES]);

impl Kernel for ReadE4m3 {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [0.0; LANES];
        // SAFETY: the arrays hold 16 values.
        unsafe { s.store(out.as_mut_ptr(), s.load_e4m3(self.0.as_ptr())) };
        out
    }
}

struct ReadE4m3Pairs([u8; 2 * LANES]);

impl Kernel for ReadE4m3Pairs {
    type Output = [[f32; LANES]; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [[0.0; LANES]; 2];
        // SAFETY: the arrays hold 32 codes and two times 16 values.
        unsafe {
            let pairs = s.load_e4m3_pairs(self.0.as_ptr());
            s.store(out[0].as_mut_ptr(), s.bf16_low(pairs));
            s.store(out[1].as_mut_ptr(), s.bf16_high(pairs));
        }
        out
    }
}

struct Exponential([f32; LANES]);

impl Kernel for Exponential {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = [0.0; LANES];
        // SAFETY: the arrays hold 16 floats.
        unsafe { s.store(out.as_mut_ptr(), exp(s, s.load(self.0.as_ptr()))) };
        out
    }
}

#[test]
fn every_operation_gives_the_bits_of_the_portable_one() {
    for isa in Isa::available() {
        for seed in 0..200 {
            let inputs = || Everything {
                a: floats(seed),
                b: floats(seed + 1000),
                i: integers(seed),
                j: integers(seed + 77),
            };
            let want = Isa::portable().run(inputs());
            let got = isa.run(inputs());
            for (op, (want, got)) in want.iter().zip(&got).enumerate() {
                assert_eq!(want, got, "{} operation {op} seed {seed}", isa.name());
            }
        }
    }
}

#[test]
fn all_half_precision_values_widen_exactly() {
    for isa in Isa::available() {
        for base in (0..=u16::MAX).step_by(LANES) {
            let codes: [u16; LANES] = std::array::from_fn(|k| base + k as u16);
            let [f16s, bf16s] = isa.run(Widen(codes));
            for lane in 0..LANES {
                let want = half::f16::from_bits(codes[lane]).to_f32();
                assert!(
                    want.to_bits() == f16s[lane].to_bits() || want.is_nan(),
                    "{} {:x}",
                    isa.name(),
                    codes[lane]
                );
                assert_eq!(u32::from(codes[lane]) << 16, bf16s[lane].to_bits());
            }
        }
    }
}

#[test]
fn all_e4m3_codes_are_read_exactly() {
    for isa in Isa::available() {
        for base in (0..=255u8).step_by(LANES) {
            let codes: [u8; LANES] = std::array::from_fn(|k| base + k as u8);
            let got = isa.run(ReadE4m3(codes));
            for (code, got) in codes.into_iter().zip(got) {
                let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
                let magnitude = if exponent == 0 {
                    mantissa * 2f32.powi(-9)
                } else {
                    (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7)
                };
                let want = if code >> 7 == 1 { -magnitude } else { magnitude };
                assert_eq!(
                    (got * E4M3_SCALE).to_bits(),
                    want.to_bits(),
                    "{} code {code:02x}",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn pairs_of_e4m3_codes_are_read_as_single_ones() {
    for isa in Isa::available() {
        for base in (0..=255u8).step_by(2 * LANES) {
            let codes: [u8; 2 * LANES] = std::array::from_fn(|k| base + k as u8);
            let got = isa.run(ReadE4m3Pairs(codes));
            for (half, got) in got.into_iter().enumerate() {
                let half = std::array::from_fn(|lane| codes[half * LANES + lane]);
                let want = Isa::portable().run(ReadE4m3(half));
                assert_eq!(
                    got.map(f32::to_bits),
                    want.map(f32::to_bits),
                    "{} codes {half:02x?}",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn exponential_is_close_to_the_true_one() {
    for isa in Isa::available() {
        for step in 0..2000 {
            let xs: [f32; LANES] =
                std::array::from_fn(|k| -87.0 + (step * LANES + k) as f32 * (174.0 / 32000.0));
            for (x, got) in xs.into_iter().zip(isa.run(Exponential(xs))) {
                let want = f64::from(x).exp();
                assert!(
                    (f64::from(got) - want).abs() <= 3e-7 * want,
                    "{} exp({x}) = {got}",
                    isa.name()
                );
            }
        }
        let edges =
            isa.run(Exponential(std::array::from_fn(|k| if k % 2 == 0 { -1000.0 } else { 0.0 })));
        assert_eq!(edges[..2], [0.0, 1.0]);
    }
}
