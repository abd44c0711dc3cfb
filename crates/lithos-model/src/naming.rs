//! How checkpoints name their tensors: Hugging Face module paths, or GGUF's short names.

/// A naming scheme. Names are base names: the stored tensor adds `.weight`.
pub(crate) enum Naming {
    /// `model.layers.0.self_attn.q_proj`; the prefix differs between text-only and multimodal files.
    HuggingFace { prefix: &'static str },
    /// `blk.0.attn_q`.
    Gguf,
}

impl Naming {
    /// A weight of layer `layer`, given by its Hugging Face name within the layer.
    pub(crate) fn layer(&self, layer: usize, name: &str) -> String {
        match self {
            Naming::HuggingFace { prefix } => format!("{prefix}layers.{layer}.{name}"),
            Naming::Gguf => format!("blk.{layer}.{}", gguf_name(name)),
        }
    }

    /// A weight outside the layers, given by its Hugging Face name without prefix.
    pub(crate) fn global(&self, name: &str) -> String {
        match self {
            Naming::HuggingFace { .. } if name == "lm_head" => name.into(),
            Naming::HuggingFace { prefix } => format!("{prefix}{name}"),
            Naming::Gguf => gguf_name(name).into(),
        }
    }
}

fn gguf_name(name: &str) -> &str {
    match name {
        "embed_tokens" => "token_embd",
        "norm" => "output_norm",
        "lm_head" => "output",
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => other,
    }
}
