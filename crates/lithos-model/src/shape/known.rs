//! Shapes of published models. To add one, add a constant.

use super::drafter::{DrafterShape, Yarn};
use super::{Delta, Experts, Shape};

/// SmolLM2-135M.
pub const SMOLLM2_135M: Shape = Shape {
    architecture: "llama",
    hidden: 576,
    layers: 30,
    heads: 9,
    key_value_heads: 3,
    head_dim: 64,
    intermediate: 1536,
    vocabulary: 49_152,
    tied: true,
    context: 8192,
    delta: None,
    experts: None,
    theta: 100_000.0,
    rotary_factor: None,
};

/// SmolLM2-360M.
pub const SMOLLM2_360M: Shape = Shape {
    hidden: 960,
    layers: 32,
    heads: 15,
    key_value_heads: 5,
    intermediate: 2560,
    ..SMOLLM2_135M
};

/// SmolLM2-1.7B.
pub const SMOLLM2_1_7B: Shape = Shape {
    hidden: 2048,
    layers: 24,
    heads: 32,
    key_value_heads: 32,
    intermediate: 8192,
    theta: 130_000.0,
    ..SMOLLM2_135M
};

/// Qwen3-0.6B.
pub const QWEN3_0_6B: Shape = Shape {
    architecture: "qwen3",
    hidden: 1024,
    layers: 28,
    heads: 16,
    key_value_heads: 8,
    head_dim: 128,
    intermediate: 3072,
    vocabulary: 151_936,
    tied: true,
    context: 40_960,
    delta: None,
    experts: None,
    theta: 1_000_000.0,
    rotary_factor: None,
};

/// Qwen3-1.7B.
pub const QWEN3_1_7B: Shape = Shape { hidden: 2048, intermediate: 6144, ..QWEN3_0_6B };

/// Qwen3-4B.
pub const QWEN3_4B: Shape =
    Shape { hidden: 2560, layers: 36, heads: 32, intermediate: 9728, ..QWEN3_0_6B };

/// Qwen3-8B.
pub const QWEN3_8B: Shape = Shape { hidden: 4096, intermediate: 12_288, tied: false, ..QWEN3_4B };

/// Qwen3-14B.
pub const QWEN3_14B: Shape =
    Shape { hidden: 5120, layers: 40, heads: 40, intermediate: 17_408, ..QWEN3_8B };

/// Qwen3-32B.
pub const QWEN3_32B: Shape =
    Shape { hidden: 5120, layers: 64, heads: 64, intermediate: 25_600, ..QWEN3_8B };

/// Qwen3.5-0.8B.
pub const QWEN3_5_0_8B: Shape = Shape {
    architecture: "qwen3_5",
    hidden: 1024,
    layers: 24,
    heads: 8,
    key_value_heads: 2,
    head_dim: 256,
    intermediate: 3584,
    vocabulary: 248_320,
    tied: true,
    context: 262_144,
    delta: Some(DELTA_16),
    experts: None,
    theta: 10_000_000.0,
    rotary_factor: None,
};

const DELTA_16: Delta =
    Delta { attention_every: 4, key_heads: 16, value_heads: 16, key_dim: 128, value_dim: 128 };

const DELTA_32: Delta = Delta { value_heads: 32, ..DELTA_16 };

/// Qwen3.5-2B.
pub const QWEN3_5_2B: Shape = Shape { hidden: 2048, intermediate: 6144, ..QWEN3_5_0_8B };

/// Qwen3.5-4B.
pub const QWEN3_5_4B: Shape = Shape {
    hidden: 2560,
    layers: 32,
    heads: 16,
    key_value_heads: 4,
    intermediate: 9216,
    delta: Some(DELTA_32),
    ..QWEN3_5_0_8B
};

/// Qwen3.5-9B.
pub const QWEN3_5_9B: Shape =
    Shape { hidden: 4096, intermediate: 12_288, tied: false, ..QWEN3_5_4B };

/// Qwen3.5-27B. Qwen3.6 and Qwen3.8 of this size have the same shape.
pub const QWEN3_5_27B: Shape = Shape {
    hidden: 5120,
    layers: 64,
    heads: 24,
    intermediate: 17_408,
    delta: Some(Delta { value_heads: 48, ..DELTA_16 }),
    ..QWEN3_5_9B
};

/// Llama-3.1-8B.
pub const LLAMA_3_1_8B: Shape = Shape {
    architecture: "llama",
    hidden: 4096,
    layers: 32,
    heads: 32,
    key_value_heads: 8,
    head_dim: 128,
    intermediate: 14_336,
    vocabulary: 128_256,
    tied: false,
    context: 131_072,
    delta: None,
    experts: None,
    theta: 500_000.0,
    rotary_factor: Some(8.0),
};

/// Llama-3.2-1B.
pub const LLAMA_3_2_1B: Shape = Shape {
    hidden: 2048,
    layers: 16,
    head_dim: 64,
    intermediate: 8192,
    tied: true,
    rotary_factor: Some(32.0),
    ..LLAMA_3_1_8B
};

/// Llama-3.2-3B.
pub const LLAMA_3_2_3B: Shape =
    Shape { hidden: 3072, layers: 28, heads: 24, head_dim: 128, ..LLAMA_3_2_1B };

/// Llama-3.1-70B.
pub const LLAMA_3_1_70B: Shape =
    Shape { hidden: 8192, layers: 80, heads: 64, intermediate: 28_672, ..LLAMA_3_1_8B };

/// Qwen3.5-35B-A3B. Qwen3.6 of this size has the same shape.
pub const QWEN3_5_35B_A3B: Shape = Shape {
    architecture: "qwen3_5_moe",
    hidden: 2048,
    layers: 40,
    heads: 16,
    key_value_heads: 2,
    intermediate: 512,
    tied: false,
    delta: Some(DELTA_32),
    experts: Some(Experts { count: 256, chosen: 8 }),
    ..QWEN3_5_0_8B
};

/// RadixArk's DSpark drafter for Qwen3.8-27B, second version.
pub const QWEN3_8_27B_DSPARK: DrafterShape = DrafterShape {
    hidden: 5120,
    layers: 5,
    heads: 32,
    key_value_heads: 8,
    head_dim: 128,
    intermediate: 17_408,
    vocabulary: 248_320,
    context: 262_144,
    taps: &[5, 19, 33, 47, 61],
    target_hidden: 5120,
    target_layers: 64,
    markov_rank: 256,
    block: 7,
    mask_token: 248_070,
    theta: 10_000_000.0,
    yarn: Some(Yarn { factor: 32.0, original_context: 8192 }),
};
