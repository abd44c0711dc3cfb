//! Layouts that are recognised so that they can be refused by name.

use super::Candidate;
use crate::DType;

/// Tensors that hold codes under another name than `weight`, and whose they are.
pub(super) const CODE_TENSORS: [(&str, &str); 3] = [
    ("weight_packed", "the compressed-tensors pack-quantized layout (weight_packed)"),
    ("qweight", "the AWQ or GPTQ layout (qweight)"),
    ("blocks", "the MXFP4 block layout (blocks and scales)"),
];

/// What a weight is that no format took.
pub(super) fn describe(candidate: &Candidate<'_, '_>) -> String {
    let weight = &candidate.weight;
    let scale = candidate.companion("weight_scale");
    match (&weight.dtype, &scale) {
        (DType::F8E4m3, _) if candidate.companion("weight_scale_inv").is_some() => {
            "FP8 with block scales (weight_scale_inv)".to_owned()
        }
        (DType::F8E4m3, Some(scale)) => format!(
            "FP8 with a weight_scale of type {} and shape {:?} (only one scale for the whole tensor is read)",
            scale.dtype, scale.shape
        ),
        (DType::F8E4m3, None) => "FP8 without weight_scale".to_owned(),
        (DType::U32, _) if candidate.companion("scales").is_some() => {
            let scales = candidate.companion("scales").map(|scales| scales.dtype);
            match scales {
                Some(DType::U8) => "the MLX nvfp4 or mxfp4 layout (U8 scales)".to_owned(),
                _ => "a U32 weight with scales but no biases".to_owned(),
            }
        }
        (dtype, Some(scale)) => format!(
            "type {dtype} with a weight_scale of type {} and shape {:?}",
            scale.dtype, scale.shape
        ),
        (dtype, None) => format!("type {dtype}{}", beside(candidate)),
    }
}

fn beside(candidate: &Candidate<'_, '_>) -> String {
    let found: Vec<_> = ["scales", "biases", "weight_scale_inv", "weight_scale_2"]
        .into_iter()
        .filter(|suffix| candidate.companion(suffix).is_some())
        .collect();
    if found.is_empty() { String::new() } else { format!(" beside {}", found.join(", ")) }
}
