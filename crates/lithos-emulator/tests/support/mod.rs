//! What the tests of this crate share.
#![allow(dead_code, reason = "each test uses a part")]

use lithos_emulator::{BufferId, Emulator, EmulatorError, Memory};

/// What every text begins with.
pub const HEAD: &str =
    "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n";

/// The emulator, or none where there is no clang: the test then says that it is skipped.
pub fn emulator() -> Option<Emulator> {
    match Emulator::with_cache(concat!(env!("CARGO_TARGET_TMPDIR"), "/emulator")) {
        Ok(emulator) => Some(emulator),
        Err(error @ EmulatorError::NoCompiler { .. }) => {
            assert!(std::env::var_os("LITHOS_REQUIRE_CLANG").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Numbers from -1 to 1 that look random (the low bits of a linear congruential generator's high half).
pub fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2) + 1;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Adds a buffer of floats.
pub fn floats(memory: &mut Memory, name: &str, values: &[f32]) -> BufferId {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    memory.add_bytes(name, &bytes).unwrap()
}

/// Adds a buffer of unsigned integers.
pub fn integers(memory: &mut Memory, name: &str, values: &[u32]) -> BufferId {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    memory.add_bytes(name, &bytes).unwrap()
}

/// The relative distance of two vectors, by their Euclidean norms.
pub fn distance(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let difference: f64 = got.iter().zip(wanted).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum();
    let norm: f64 = wanted.iter().map(|w| w * w).sum();
    (difference / norm).sqrt()
}
