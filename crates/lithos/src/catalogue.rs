//! Models that can be downloaded and run. To add one, add a line to [`MODELS`] and, for a new size, a shape.
//!
//! Sizes are not typed in: they follow from shape and format, see [`shape`].

mod shape;

pub use shape::{Delta, Footprint, Format, Shape};

/// A repository on huggingface.co.
pub struct Entry {
    /// Owner and name.
    pub repository: &'static str,
    /// How its weights are stored.
    pub format: Format,
    /// Its architecture and sizes.
    pub shape: Shape,
}

/// Smallest first within a family.
pub const MODELS: &[Entry] = &[
    entry("HuggingFaceTB/SmolLM2-135M-Instruct", Format::Bf16, SMOLLM2_135M),
    entry("HuggingFaceTB/SmolLM2-360M-Instruct", Format::Bf16, SMOLLM2_360M),
    entry("HuggingFaceTB/SmolLM2-1.7B-Instruct", Format::Bf16, SMOLLM2_1_7B),
    entry("Qwen/Qwen3-0.6B", Format::Bf16, QWEN3_0_6B),
    entry("Qwen/Qwen3-0.6B-GGUF", Format::Q8_0, QWEN3_0_6B),
    entry("mlx-community/Qwen3-0.6B-4bit", Format::AffineInt4, QWEN3_0_6B),
    entry("Qwen/Qwen3-1.7B", Format::Bf16, QWEN3_1_7B),
    entry("mlx-community/Qwen3-1.7B-4bit", Format::AffineInt4, QWEN3_1_7B),
    entry("Qwen/Qwen3-4B", Format::Bf16, QWEN3_4B),
    entry("mlx-community/Qwen3-4B-4bit", Format::AffineInt4, QWEN3_4B),
    entry("Qwen/Qwen3-8B", Format::Bf16, QWEN3_8B),
    entry("mlx-community/Qwen3-8B-4bit", Format::AffineInt4, QWEN3_8B),
    entry("Qwen/Qwen3-14B", Format::Bf16, QWEN3_14B),
    entry("mlx-community/Qwen3-14B-4bit", Format::AffineInt4, QWEN3_14B),
    entry("Qwen/Qwen3-32B", Format::Bf16, QWEN3_32B),
    entry("mlx-community/Qwen3-32B-4bit", Format::AffineInt4, QWEN3_32B),
    entry("Qwen/Qwen3.5-0.8B", Format::Bf16, QWEN3_5_0_8B),
    entry("Qwen/Qwen3.5-2B", Format::Bf16, QWEN3_5_2B),
    entry("Qwen/Qwen3.5-4B", Format::Bf16, QWEN3_5_4B),
    entry("Qwen/Qwen3.5-9B", Format::Bf16, QWEN3_5_9B),
    entry("Qwen/Qwen3.5-27B", Format::Bf16, QWEN3_5_27B),
    entry("nvidia/Qwen3.6-27B-NVFP4", Format::Nvfp4Fp8, QWEN3_5_27B),
    entry("meta-llama/Llama-3.2-1B-Instruct", Format::Bf16, LLAMA_3_2_1B),
    entry("mlx-community/Llama-3.2-1B-Instruct-4bit", Format::AffineInt4, LLAMA_3_2_1B),
    entry("meta-llama/Llama-3.2-3B-Instruct", Format::Bf16, LLAMA_3_2_3B),
    entry("mlx-community/Llama-3.2-3B-Instruct-4bit", Format::AffineInt4, LLAMA_3_2_3B),
    entry("meta-llama/Llama-3.1-8B-Instruct", Format::Bf16, LLAMA_3_1_8B),
    entry("nvidia/Llama-3.1-8B-Instruct-FP8", Format::Fp8, LLAMA_3_1_8B),
];

const fn entry(repository: &'static str, format: Format, shape: Shape) -> Entry {
    Entry { repository, format, shape }
}

const SMOLLM2_135M: Shape = Shape {
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
};

const SMOLLM2_360M: Shape = Shape {
    hidden: 960,
    layers: 32,
    heads: 15,
    key_value_heads: 5,
    intermediate: 2560,
    ..SMOLLM2_135M
};

const SMOLLM2_1_7B: Shape = Shape {
    hidden: 2048,
    layers: 24,
    heads: 32,
    key_value_heads: 32,
    intermediate: 8192,
    ..SMOLLM2_135M
};

const QWEN3_0_6B: Shape = Shape {
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
};

const QWEN3_1_7B: Shape = Shape { hidden: 2048, intermediate: 6144, ..QWEN3_0_6B };

const QWEN3_4B: Shape =
    Shape { hidden: 2560, layers: 36, heads: 32, intermediate: 9728, ..QWEN3_0_6B };

const QWEN3_8B: Shape = Shape { hidden: 4096, intermediate: 12_288, tied: false, ..QWEN3_4B };

const QWEN3_14B: Shape =
    Shape { hidden: 5120, layers: 40, heads: 40, intermediate: 17_408, ..QWEN3_8B };

const QWEN3_32B: Shape =
    Shape { hidden: 5120, layers: 64, heads: 64, intermediate: 25_600, ..QWEN3_8B };

const QWEN3_5_0_8B: Shape = Shape {
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
};

const DELTA_16: Delta =
    Delta { attention_every: 4, key_heads: 16, value_heads: 16, key_dim: 128, value_dim: 128 };

const DELTA_32: Delta = Delta { value_heads: 32, ..DELTA_16 };

const QWEN3_5_2B: Shape = Shape { hidden: 2048, intermediate: 6144, ..QWEN3_5_0_8B };

const QWEN3_5_4B: Shape = Shape {
    hidden: 2560,
    layers: 32,
    heads: 16,
    key_value_heads: 4,
    intermediate: 9216,
    delta: Some(DELTA_32),
    ..QWEN3_5_0_8B
};

const QWEN3_5_9B: Shape = Shape { hidden: 4096, intermediate: 12_288, tied: false, ..QWEN3_5_4B };

/// Qwen3.6 and Qwen3.8 of this size have the same shape.
const QWEN3_5_27B: Shape = Shape {
    hidden: 5120,
    layers: 64,
    heads: 24,
    intermediate: 17_408,
    delta: Some(Delta { value_heads: 48, ..DELTA_16 }),
    ..QWEN3_5_9B
};

const LLAMA_3_1_8B: Shape = Shape {
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
};

const LLAMA_3_2_1B: Shape = Shape {
    hidden: 2048,
    layers: 16,
    head_dim: 64,
    intermediate: 8192,
    tied: true,
    ..LLAMA_3_1_8B
};

const LLAMA_3_2_3B: Shape =
    Shape { hidden: 3072, layers: 28, heads: 24, intermediate: 8192, tied: true, ..LLAMA_3_1_8B };

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(repository: &str) -> &'static Shape {
        &MODELS.iter().find(|entry| entry.repository == repository).expect(repository).shape
    }

    #[test]
    fn parameters_are_those_that_were_published() {
        for (repository, parameters) in [
            ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
            ("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384),
            ("Qwen/Qwen3-0.6B", 596_049_920),
            ("Qwen/Qwen3-8B", 8_190_735_360),
            ("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400),
            ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ] {
            assert_eq!(shape(repository).parameters(), parameters, "{repository}");
        }
        // Published totals count the vision part and the multi-token prediction layer too.
        for (repository, total) in [("Qwen/Qwen3.5-9B", 9.65e9), ("Qwen/Qwen3.5-27B", 27.78e9)] {
            let part = shape(repository).parameters() as f64 / total;
            assert!((0.90..1.0).contains(&part), "{repository}: {part}");
        }
    }

    #[test]
    fn files_are_as_large_as_those_on_the_hub() {
        let bytes = |repository: &str| {
            let entry = MODELS.iter().find(|entry| entry.repository == repository).unwrap();
            entry.shape.footprint(entry.format).weights as f64
        };
        // Two shards of 5.00 and 4.08 GB.
        assert!((bytes("nvidia/Llama-3.1-8B-Instruct-FP8") / 9.08e9 - 1.0).abs() < 0.01);
        assert!((bytes("Qwen/Qwen3-0.6B") / 1.192e9 - 1.0).abs() < 0.01);
        // 256 KiB of keys and values a token would be 16 layers; only the attention layers count.
        let per_token = shape("Qwen/Qwen3.5-27B").footprint(Format::Bf16).per_token;
        assert_eq!(per_token, 65_536);
    }

    #[test]
    fn repositories_are_listed_once() {
        let mut names: Vec<_> = MODELS.iter().map(|entry| entry.repository).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| name.split('/').count() == 2));
    }
}
