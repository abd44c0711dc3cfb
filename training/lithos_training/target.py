"""The target: a `qwen3_5_text` hybrid (3 GDN layers to 1 gated attention layer), written for training throughput.

Weights of equal shape lie in one stacked parameter, [layers of that kind, rows, columns], so that quantization and the
optimizer handle all layers at once. Names after the last dot are Hugging Face's; `hugging_face_tensors` unstacks them.
All layer norms multiply by 1 + w; the norm of the GDN output multiplies by w.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .delta import chunked_delta_rule, delta_step
from .formats import straight_through
from .shape import Shape

# Format of each matrix in the exported file; what is absent is BF16.
FORMATS = {
    "mlp.gate_proj": "nvfp4",
    "mlp.up_proj": "nvfp4",
    "mlp.down_proj": "nvfp4",
    "lm_head": "nvfp4",
    "linear_attn.in_proj_qkv": "fp8",
    "linear_attn.in_proj_z": "fp8",
    "linear_attn.out_proj": "fp8",
    "self_attn.q_proj": "fp8",
    "self_attn.k_proj": "fp8",
    "self_attn.v_proj": "fp8",
    "self_attn.o_proj": "fp8",
}

# Matrices that the orthogonalised optimizer trains.
HIDDEN_MATRICES = [name for name in FORMATS if name != "lm_head"] + ["linear_attn.in_proj_b", "linear_attn.in_proj_a"]


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root mean square norm in f32; `weight` is the whole factor."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + epsilon) * weight.float()).to(x.dtype)


def rotary_tables(shape: Shape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [positions, rotary_width / 2] in f32."""
    half = shape.rotary_width // 2
    frequencies = shape.rope_theta ** (-torch.arange(half, device=positions.device).float() / half)
    angles = positions.float()[..., None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first 2 * cos.shape[-1] dimensions of x [..., heads, width] by halves; cos and sin broadcast over heads."""
    half = cos.shape[-1]
    first, second, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([rotated.to(x.dtype), rest], dim=-1)


def unit_norm(x: Tensor) -> Tensor:
    """Each head's vector over the square root of its sum of squares (plus 1e-6), f32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def feed_forward(h: Tensor, w: dict[str, Tensor], epsilon: float) -> Tensor:
    """h + down(silu(gate x) * up x) with x the normed h."""
    x = rms_norm(h, 1 + w["post_attention_layernorm"].float(), epsilon)
    return h + (F.silu(x @ w["mlp.gate_proj"].T) * (x @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T


def delta_inputs(shape: Shape, x: Tensor, w: dict[str, Tensor], convolved: Tensor) -> tuple[Tensor, ...]:
    """Query, key, value, gate, beta, each [..., value heads, ...] from the normed input and the convolved projections."""
    keys, width = shape.key_heads, shape.state_width
    query, key, value = convolved.split([shape.key_width, shape.key_width, shape.value_width], dim=-1)
    repeat = shape.value_heads // keys
    query = unit_norm(query.unflatten(-1, (keys, width))) / math.sqrt(width)
    key = unit_norm(key.unflatten(-1, (keys, width)))
    query, key = (t.repeat_interleave(repeat, dim=-2) for t in (query, key))
    value = value.unflatten(-1, (shape.value_heads, width))
    beta = (x @ w["linear_attn.in_proj_b"].T).float().sigmoid()
    a = (x @ w["linear_attn.in_proj_a"].T).float()
    gate = -w["linear_attn.A_log"].float().exp() * F.softplus(a + w["linear_attn.dt_bias"].float())
    return query, key, value, gate, beta


def delta_output(shape: Shape, out: Tensor, x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """Gated norm and output projection of the rule's output [..., value heads, width]."""
    z = (x @ w["linear_attn.in_proj_z"].T).unflatten(-1, (shape.value_heads, shape.state_width))
    out = rms_norm(out, w["linear_attn.norm"], shape.epsilon) * F.silu(z.float())
    return out.flatten(-2).to(x.dtype) @ w["linear_attn.out_proj"].T


def delta_layer(shape: Shape, h: Tensor, w: dict[str, Tensor]) -> Tensor:
    """A GDN layer over whole sequences: h [batch, T, hidden], from a zero state."""
    x = rms_norm(h, 1 + w["input_layernorm"].float(), shape.epsilon)
    u = x @ w["linear_attn.in_proj_qkv"].T
    padded = F.pad(u, (0, 0, shape.convolution - 1, 0))
    taps = w["linear_attn.conv1d"]
    length = h.shape[1]
    convolved = F.silu(sum(padded[:, j : j + length].float() * taps[:, j].float() for j in range(shape.convolution)))
    query, key, value, gate, beta = delta_inputs(shape, x, w, convolved)
    out = chunked_delta_rule(query, key, value, gate, beta)
    h = h + delta_output(shape, out, x, w)
    return feed_forward(h, w, shape.epsilon)


def attention_inputs(shape: Shape, x: Tensor, w: dict[str, Tensor], cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    """Query [..., heads, width], output gate [..., heads * width], key and value [..., kv heads, width]."""
    width = shape.head_width
    query, gate = (x @ w["self_attn.q_proj"].T).unflatten(-1, (shape.query_heads, 2, width)).unbind(-2)
    key = (x @ w["self_attn.k_proj"].T).unflatten(-1, (shape.kv_heads, width))
    value = (x @ w["self_attn.v_proj"].T).unflatten(-1, (shape.kv_heads, width))
    query = rotate(rms_norm(query, 1 + w["self_attn.q_norm"].float(), shape.epsilon), cos, sin)
    key = rotate(rms_norm(key, 1 + w["self_attn.k_norm"].float(), shape.epsilon), cos, sin)
    return query, gate.flatten(-2), key, value


def attention_layer(shape: Shape, h: Tensor, w: dict[str, Tensor], cos: Tensor, sin: Tensor) -> Tensor:
    """A gated attention layer over whole sequences; cos and sin [T, 1, rotary_width / 2]."""
    x = rms_norm(h, 1 + w["input_layernorm"].float(), shape.epsilon)
    query, gate, key, value = attention_inputs(shape, x, w, cos, sin)
    group = shape.query_heads // shape.kv_heads
    key, value = (t.repeat_interleave(group, dim=-2).transpose(1, 2) for t in (key, value))
    out = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, is_causal=True)
    out = out.transpose(1, 2).flatten(-2) * gate.sigmoid()
    h = h + out @ w["self_attn.o_proj"].T
    return feed_forward(h, w, shape.epsilon)


def next_token_loss(h: Tensor, norm: Tensor, head: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Cross-entropy in nats per token; labels below 0 do not count."""
    logits = rms_norm(h, 1 + norm.float(), epsilon) @ head.T
    return F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), ignore_index=-1)


class Target(nn.Module):
    """The trainable weights and the forward pass over whole sequences."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        layers, deltas, attentions = shape.layers, len(shape.delta_layers), len(shape.attention_layers)
        hidden, out = shape.hidden, shape.value_width
        sizes = {
            "embed_tokens": (shape.vocabulary, hidden),
            "lm_head": (shape.vocabulary, hidden),
            "input_layernorm": (layers, hidden),
            "post_attention_layernorm": (layers, hidden),
            "norm": (hidden,),
            "mlp.gate_proj": (layers, shape.feed_forward, hidden),
            "mlp.up_proj": (layers, shape.feed_forward, hidden),
            "mlp.down_proj": (layers, hidden, shape.feed_forward),
            "linear_attn.in_proj_qkv": (deltas, shape.convolved, hidden),
            "linear_attn.in_proj_z": (deltas, out, hidden),
            "linear_attn.in_proj_b": (deltas, shape.value_heads, hidden),
            "linear_attn.in_proj_a": (deltas, shape.value_heads, hidden),
            "linear_attn.conv1d": (deltas, shape.convolved, shape.convolution),
            "linear_attn.A_log": (deltas, shape.value_heads),
            "linear_attn.dt_bias": (deltas, shape.value_heads),
            "linear_attn.norm": (deltas, shape.state_width),
            "linear_attn.out_proj": (deltas, hidden, out),
            "self_attn.q_proj": (attentions, 2 * shape.query_heads * shape.head_width, hidden),
            "self_attn.k_proj": (attentions, shape.kv_heads * shape.head_width, hidden),
            "self_attn.v_proj": (attentions, shape.kv_heads * shape.head_width, hidden),
            "self_attn.o_proj": (attentions, hidden, shape.query_heads * shape.head_width),
            "self_attn.q_norm": (attentions, shape.head_width),
            "self_attn.k_norm": (attentions, shape.head_width),
        }
        self.sizes = sizes
        for name, size in sizes.items():
            self.register_parameter(name.replace(".", "__"), nn.Parameter(self._initial(name, size)))

    def _initial(self, name: str, size: tuple[int, ...]) -> Tensor:
        if name == "linear_attn.A_log":
            return torch.empty(size).uniform_(1.0, 16.0).log()
        if name == "linear_attn.dt_bias":
            # Softplus of the bias between 0.001 and 0.1, as Mamba sets it: decays from slow to fast.
            step = torch.exp(torch.empty(size).uniform_(math.log(0.001), math.log(0.1)))
            return step + torch.log(-torch.expm1(-step))
        if name == "linear_attn.norm":
            return torch.ones(size)
        if name.endswith("norm"):
            return torch.zeros(size)
        if name == "linear_attn.conv1d":
            return torch.empty(size).uniform_(-0.5, 0.5)
        weights = torch.randn(size) * (0.02 if name in ("embed_tokens", "lm_head") else size[-1] ** -0.5)
        if name in ("mlp.down_proj", "linear_attn.out_proj", "self_attn.o_proj"):
            weights *= (2 * self.shape.layers) ** -0.5
        return weights

    def named(self) -> dict[str, nn.Parameter]:
        """Parameters by their names with dots."""
        return {name: getattr(self, name.replace(".", "__")) for name in self.sizes}

    def layer_weights(self, working: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Each layer's slices of the working copies."""
        layers, seen = [], {"full_attention": 0, "linear_attention": 0}
        for index, kind in enumerate(self.shape.layer_types):
            prefix = "self_attn." if kind == "full_attention" else "linear_attn."
            own = {name: w[seen[kind]] for name, w in working.items() if name.startswith(prefix)}
            shared = {name: w[index] for name, w in working.items() if name.startswith("mlp.") or name.endswith("_layernorm")}
            layers.append(own | shared)
            seen[kind] += 1
        return layers

    def forward(self, tokens: Tensor, working: dict[str, Tensor], taps: tuple[int, ...] = ()) -> tuple[Tensor, list[Tensor]]:
        """Residual stream after the last layer (before the final norm) and after each layer in `taps`."""
        h = F.embedding(tokens, working["embed_tokens"])
        cos, sin = rotary_tables(self.shape, torch.arange(tokens.shape[1], device=tokens.device))
        cos, sin = cos[:, None], sin[:, None]
        tapped = []
        for index, (kind, w) in enumerate(zip(self.shape.layer_types, self.layer_weights(working))):
            if kind == "full_attention":
                h = self.attention_layer(self.shape, h, w, cos, sin)
            else:
                h = self.delta_layer(self.shape, h, w)
            if index in taps:
                tapped.append(h)
        return h, tapped

    # Replaced by compiled versions on a GPU.
    attention_layer = staticmethod(attention_layer)
    delta_layer = staticmethod(delta_layer)
    loss = staticmethod(next_token_loss)

    def compile(self) -> None:
        """Compiles one layer of each kind and the loss; all layers of a kind share the code."""
        self.attention_layer = torch.compile(attention_layer, dynamic=False)
        self.delta_layer = torch.compile(delta_layer, dynamic=False)
        self.loss = torch.compile(next_token_loss, dynamic=False)


def working_copies(parameters: dict[str, Tensor], quantized: bool, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """What the forward pass multiplies by: the parameters in `dtype`, quantized as the file will be if asked."""
    out = {}
    for name, parameter in parameters.items():
        if quantized:
            parameter = straight_through(parameter, FORMATS.get(name, "bf16"))
        out[name] = parameter.to(dtype)
    return out


def hugging_face_tensors(shape: Shape, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Unstacked f32 tensors under their names in a Hugging Face checkpoint."""
    out: dict[str, Tensor] = {}
    kinds = {"self_attn.": shape.attention_layers, "linear_attn.": shape.delta_layers}
    bare = {"linear_attn.A_log", "linear_attn.dt_bias"}
    for name, stack in parameters.items():
        stack = stack.detach().float()
        if name == "lm_head":
            out["lm_head.weight"] = stack
        elif name in ("embed_tokens", "norm"):
            out[f"model.{name}.weight"] = stack
        else:
            prefix = name.split(".")[0] + "." if "." in name else ""
            for index, layer in enumerate(kinds.get(prefix, range(shape.layers))):
                tensor = stack[index].clone()
                if name == "linear_attn.conv1d":
                    tensor = tensor[:, None, :]
                out[f"model.layers.{layer}.{name}" + ("" if name in bare else ".weight")] = tensor
    return out


class TargetState:
    """Everything that one-token steps keep: GDN states, the convolution's history and the keys and values."""

    def __init__(self, shape: Shape, slots: int, capacity: int, device: torch.device, dtype: torch.dtype = torch.bfloat16):
        deltas, attentions = len(shape.delta_layers), len(shape.attention_layers)
        self.delta = torch.zeros(deltas, slots, shape.value_heads, shape.state_width, shape.state_width, device=device)
        self.history = torch.zeros(deltas, slots, shape.convolution - 1, shape.convolved, device=device, dtype=dtype)
        self.keys = torch.zeros(attentions, slots, shape.kv_heads, capacity, shape.head_width, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)


def delta_layer_step(shape: Shape, h: Tensor, w: dict[str, Tensor], state: Tensor, history: Tensor, fresh: Tensor) -> Tensor:
    """A GDN layer for one token of each slot, h [slots, hidden]; updates `state` and `history`; `fresh` slots start at zero."""
    x = rms_norm(h, 1 + w["input_layernorm"].float(), shape.epsilon)
    u = x @ w["linear_attn.in_proj_qkv"].T
    past = torch.where(fresh[:, None, None], torch.zeros_like(history), history)
    window = torch.cat([past, u[:, None]], dim=1)
    convolved = F.silu((window.float() * w["linear_attn.conv1d"].float().T).sum(1))
    history.copy_(window[:, 1:])
    query, key, value, gate, beta = delta_inputs(shape, x, w, convolved)
    before = torch.where(fresh[:, None, None, None], torch.zeros_like(state), state)
    out, after = delta_step(before, query, key, value.float(), gate, beta)
    state.copy_(after)
    h = h + delta_output(shape, out, x, w)
    return feed_forward(h, w, shape.epsilon)


def attention_step_inputs(shape: Shape, h: Tensor, w: dict[str, Tensor], positions: Tensor) -> tuple[Tensor, ...]:
    """Query, gate, key, value of one token a slot."""
    cos, sin = rotary_tables(shape, positions)
    x = rms_norm(h, 1 + w["input_layernorm"].float(), shape.epsilon)
    return attention_inputs(shape, x, w, cos[:, None], sin[:, None])


def attention_step_output(shape: Shape, h: Tensor, out: Tensor, gate: Tensor, w: dict[str, Tensor]) -> Tensor:
    """Residual, output projection and feed-forward after one token's attention [slots, heads, width]."""
    h = h + (out.flatten(-2) * gate.sigmoid()) @ w["self_attn.o_proj"].T
    return feed_forward(h, w, shape.epsilon)
