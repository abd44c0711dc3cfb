//! Models that can be downloaded and run. To add one, add a line to [`MODELS`] and, for a new size, a shape to
//! `lithos_model::shape::known`.
//!
//! Sizes are not typed in: they follow from shape and format.

use lithos_model::shape::known::{
    LLAMA_3_1_8B, LLAMA_3_2_1B, LLAMA_3_2_3B, QWEN3_0_6B, QWEN3_1_7B, QWEN3_4B, QWEN3_5_0_8B,
    QWEN3_5_2B, QWEN3_5_4B, QWEN3_5_9B, QWEN3_5_27B, QWEN3_5_35B_A3B, QWEN3_8B, QWEN3_14B,
    QWEN3_32B, SMOLLM2_1_7B, SMOLLM2_135M, SMOLLM2_360M,
};
use lithos_model::shape::{Format, Shape};

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
    entry("Qwen/Qwen3.5-35B-A3B", Format::Bf16, QWEN3_5_35B_A3B),
    entry("nvidia/Qwen3.6-35B-A3B-NVFP4", Format::Nvfp4Fp8, QWEN3_5_35B_A3B),
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
