"""The shape of lithos-mini: what `config.json` says, as one dataclass."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes of a `qwen3_5_text` model. Widths are in elements, counts in heads or layers."""

    vocabulary: int = 8192
    hidden: int = 384
    feed_forward: int = 1024
    layers: int = 12
    full_attention_interval: int = 4
    query_heads: int = 6
    kv_heads: int = 2
    head_width: int = 64
    key_heads: int = 4
    value_heads: int = 8
    state_width: int = 64
    convolution: int = 4
    rotary_width: int = 32
    rope_theta: float = 10_000.0
    epsilon: float = 1e-6
    context: int = 4096

    @property
    def key_width(self) -> int:
        """Width of all keys (or queries) of a GDN layer."""
        return self.key_heads * self.state_width

    @property
    def value_width(self) -> int:
        """Width of all values of a GDN layer."""
        return self.value_heads * self.state_width

    @property
    def convolved(self) -> int:
        """Channels that the causal convolution of a GDN layer passes over: q, k and v."""
        return 2 * self.key_width + self.value_width

    @property
    def layer_types(self) -> list[str]:
        """Kind of each layer, as Hugging Face names them."""
        return [
            "full_attention" if (layer + 1) % self.full_attention_interval == 0 else "linear_attention"
            for layer in range(self.layers)
        ]

    @property
    def attention_layers(self) -> list[int]:
        """Indices of the full attention layers."""
        return [i for i, kind in enumerate(self.layer_types) if kind == "full_attention"]

    @property
    def delta_layers(self) -> list[int]:
        """Indices of the GDN layers."""
        return [i for i, kind in enumerate(self.layer_types) if kind == "linear_attention"]

    def rotary_parameters(self) -> dict:
        """`rope_parameters` of the configuration. Text has one position, so the three sections only have to add up."""
        frequencies = self.rotary_width // 2
        height = width = frequencies // 3
        return {
            "rope_type": "default",
            "rope_theta": self.rope_theta,
            "partial_rotary_factor": self.rotary_width / self.head_width,
            "mrope_section": [frequencies - height - width, height, width],
            "mrope_interleaved": True,
        }

    def configuration(self, end_of_text: int) -> dict:
        """The model's `config.json`, without quantization."""
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "layer_types": self.layer_types,
            "full_attention_interval": self.full_attention_interval,
            "num_attention_heads": self.query_heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_width,
            "attn_output_gate": True,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.state_width,
            "linear_value_head_dim": self.state_width,
            "linear_conv_kernel_dim": self.convolution,
            "mamba_ssm_dtype": "float32",
            "hidden_act": "silu",
            "rms_norm_eps": self.epsilon,
            "rope_parameters": self.rotary_parameters(),
            "max_position_embeddings": self.context,
            "tie_word_embeddings": False,
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "eos_token_id": end_of_text,
            "pad_token_id": end_of_text,
            "dtype": "bfloat16",
        }


@dataclass(frozen=True)
class DrafterShape:
    """Sizes of the DSpark drafter. The taps are layer indices of the target, from 0."""

    layers: int = 2
    feed_forward: int = 1024
    query_heads: int = 6
    kv_heads: int = 2
    head_width: int = 64
    taps: tuple[int, ...] = (1, 5, 9)
    block: int = 7
    markov_rank: int = 64
    rope_theta: float = 10_000.0
    epsilon: float = 1e-6

    def as_dictionary(self) -> dict:
        """Plain values, for a checkpoint."""
        return asdict(self)
