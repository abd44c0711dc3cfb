//! `config.json` of a shape, with the keys of the published files.

use lithos_model::shape::{DrafterShape, Format, Shape, TAPS};
use serde_json::{Value, json};

use crate::text;

/// The configuration of a language model.
pub(crate) fn of_model(shape: &Shape, format: Format) -> Value {
    let mut config = match shape.architecture {
        "llama" => llama(shape),
        "qwen3" => qwen3(shape),
        _ => hybrid(shape),
    };
    if format == Format::AffineInt4 {
        config["quantization"] = json!({"bits": 4, "group_size": 64, "mode": "affine"});
    }
    config
}

/// The configuration of a DSpark drafter.
pub(crate) fn of_drafter(shape: &DrafterShape) -> Value {
    let mut rotary = json!({"rope_type": "default", "rope_theta": shape.theta});
    if let Some(yarn) = shape.yarn {
        rotary = json!({
            "rope_type": "yarn",
            "rope_theta": shape.theta,
            "factor": yarn.factor,
            "original_max_position_embeddings": yarn.original_context,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        });
    }
    let layer_types: Vec<_> = (0..shape.layers).map(|_| "full_attention").collect();
    json!({
        "architectures": ["DSparkDraftModel"],
        "model_type": "qwen3",
        "attention_bias": false,
        "block_size": shape.block,
        "dspark_config": {
            "confidence_head_with_markov": true,
            "enable_confidence_head": true,
            "markov_head_type": "vanilla",
            "markov_rank": shape.markov_rank,
            "mask_token_id": shape.mask_token,
            "target_layer_ids": shape.taps,
        },
        "dtype": "bfloat16",
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "layer_types": layer_types,
        "max_position_embeddings": shape.context,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.key_value_heads,
        "num_target_layers": shape.target_layers,
        "rms_norm_eps": 1e-6,
        "rope_parameters": rotary,
        "target_hidden_size": shape.target_hidden,
        "tie_word_embeddings": false,
        "vocab_size": shape.vocabulary,
    })
}

/// What all text models say.
fn sizes(shape: &Shape, epsilon: f64) -> Value {
    json!({
        "attention_bias": false,
        "dtype": "bfloat16",
        "eos_token_id": text::END_OF_TEXT,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.context,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.key_value_heads,
        "rms_norm_eps": epsilon,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocabulary,
    })
}

fn llama(shape: &Shape) -> Value {
    let mut config = sizes(shape, 1e-5);
    config["architectures"] = json!(["LlamaForCausalLM"]);
    config["model_type"] = json!("llama");
    config["mlp_bias"] = json!(false);
    config["rope_theta"] = json!(shape.theta);
    if let Some(factor) = shape.rotary_factor {
        config["rope_scaling"] = json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        });
    }
    config
}

fn qwen3(shape: &Shape) -> Value {
    let mut config = sizes(shape, 1e-6);
    config["architectures"] = json!(["Qwen3ForCausalLM"]);
    config["model_type"] = json!("qwen3");
    config["rope_theta"] = json!(shape.theta);
    config["use_sliding_window"] = json!(false);
    config
}

/// Qwen3.5's: the text model's part is nested, as the whole has a vision part too.
fn hybrid(shape: &Shape) -> Value {
    let mut text = sizes(shape, 1e-6);
    let architecture = shape.architecture;
    text["model_type"] = json!(format!("{architecture}_text"));
    text["attn_output_gate"] = json!(true);
    text["rope_parameters"] = json!({
        "rope_type": "default",
        "rope_theta": shape.theta,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": true,
        "mrope_section": [11, 11, 10],
    });
    text["mtp_num_hidden_layers"] = json!(1);
    if let Some(delta) = shape.delta {
        let kind = |layer| {
            if shape.is_attention(layer) { "full_attention" } else { "linear_attention" }
        };
        text["layer_types"] = json!((0..shape.layers).map(kind).collect::<Vec<_>>());
        text["full_attention_interval"] = json!(delta.attention_every);
        text["linear_conv_kernel_dim"] = json!(TAPS);
        text["linear_key_head_dim"] = json!(delta.key_dim);
        text["linear_num_key_heads"] = json!(delta.key_heads);
        text["linear_num_value_heads"] = json!(delta.value_heads);
        text["linear_value_head_dim"] = json!(delta.value_dim);
        text["mamba_ssm_dtype"] = json!("float32");
    }
    let mut name = "Qwen3_5ForConditionalGeneration";
    if let Some(experts) = shape.experts {
        name = "Qwen3_5MoeForConditionalGeneration";
        text["num_experts"] = json!(experts.count);
        text["num_experts_per_tok"] = json!(experts.chosen);
        text["moe_intermediate_size"] = json!(shape.intermediate);
        text["shared_expert_intermediate_size"] = json!(shape.intermediate);
    }
    json!({
        "architectures": [name],
        "model_type": architecture,
        "tie_word_embeddings": shape.tied,
        "text_config": text,
    })
}
