"""The DSpark drafter (arXiv 2607.05147): a block of drafts in one pass over the target's tapped features, a Markov head that
adds a low-rank bias from the token before, and a confidence for each draft. And the target's multi-token prediction layer.

All norms of the drafter multiply by w, those of the multi-token layer by 1 + w. Row k of a block sits at position n + k, where n is
the position of the anchor; it sees the features of positions below n and the other rows of its block, and predicts the token of
position n + k + 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .formats import straight_through
from .shape import DrafterShape, Shape
from .target import attention_layer, rms_norm, rotary_tables, rotate

LOSS_DECAY = 4.0


def drafter_sizes(shape: DrafterShape, target: Shape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the drafter by its name in the checkpoint (without `.weight`)."""
    hidden, rank = target.hidden, shape.markov_rank
    sizes: dict[str, tuple[int, ...]] = {"fc": (hidden, len(shape.taps) * hidden), "hidden_norm": (hidden,), "norm": (hidden,)}
    for index in range(shape.layers):
        layer = f"layers.{index}."
        sizes |= {
            layer + "input_layernorm": (hidden,),
            layer + "post_attention_layernorm": (hidden,),
            layer + "self_attn.q_proj": (shape.query_heads * shape.head_width, hidden),
            layer + "self_attn.k_proj": (shape.kv_heads * shape.head_width, hidden),
            layer + "self_attn.v_proj": (shape.kv_heads * shape.head_width, hidden),
            layer + "self_attn.o_proj": (hidden, shape.query_heads * shape.head_width),
            layer + "self_attn.q_norm": (shape.head_width,),
            layer + "self_attn.k_norm": (shape.head_width,),
            layer + "mlp.gate_proj": (shape.feed_forward, hidden),
            layer + "mlp.up_proj": (shape.feed_forward, hidden),
            layer + "mlp.down_proj": (hidden, shape.feed_forward),
        }
    sizes |= {
        "markov_head.markov_w1": (target.vocabulary, rank),
        "markov_head.markov_w2": (target.vocabulary, rank),
        "confidence_head.proj": (1, hidden + rank),
        "confidence_head.proj.bias": (1,),
    }
    return sizes


def drafter_format(name: str) -> str:
    """NVFP4 for the projections, the taps' mixer and the Markov head's output side; BF16 for the rest."""
    return "nvfp4" if name.endswith("_proj") or name in ("fc", "markov_head.markov_w2") else "bf16"


class Weights(nn.Module):
    """Named parameters whose names have dots."""

    def __init__(self, sizes: dict[str, tuple[int, ...]], ones: bool):
        super().__init__()
        self.names = list(sizes)
        for name, size in sizes.items():
            if name.endswith("norm") or name.startswith("mtp.pre_fc_norm"):
                value = torch.ones(size) if ones else torch.zeros(size)
            elif len(size) == 1 or name.startswith("confidence_head") or name.endswith("markov_w2"):
                value = torch.zeros(size)
            elif name.endswith("markov_w1"):
                value = torch.randn(size) * 0.1
            else:
                value = torch.randn(size) * size[-1] ** -0.5
                if name.endswith(("o_proj", "down_proj")):
                    value *= 0.5
            self.register_parameter(name.replace(".", "__"), nn.Parameter(value))

    def named(self) -> dict[str, nn.Parameter]:
        """Parameters by their names with dots."""
        return {name: getattr(self, name.replace(".", "__")) for name in self.names}


def drafter_working(weights: Weights, quantized: bool, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """What the drafter's forward pass multiplies by."""
    return {
        name: (straight_through(p, drafter_format(name)) if quantized else p).to(dtype) for name, p in weights.named().items()
    }


def context_features(shape: DrafterShape, w: dict[str, Tensor], tapped: Tensor) -> Tensor:
    """Features [batch, T, hidden] of committed positions from the concatenated taps."""
    return rms_norm(tapped @ w["fc"].T, w["hidden_norm"], shape.epsilon)


def block_hidden(shape: DrafterShape, w: dict[str, Tensor], features: Tensor, blocks: Tensor, anchors: Tensor) -> Tensor:
    """The drafter's output [batch, anchors, block, hidden], normed, for blocks of embeddings of that shape whose anchors stand at
    positions `anchors` [batch, anchors]; `features` [batch, T, hidden] are the context."""
    batch, count, block, hidden = blocks.shape
    length, width = features.shape[1], shape.head_width
    rotary = Shape(rotary_width=width, rope_theta=shape.rope_theta, head_width=width)
    block_positions = (anchors[..., None] + torch.arange(block, device=anchors.device)).flatten(1)
    cos, sin = (t[:, :, None] for t in rotary_tables(rotary, block_positions))
    context_cos, context_sin = (t[:, None] for t in rotary_tables(rotary, torch.arange(length, device=anchors.device)))
    owner = torch.arange(count, device=anchors.device).repeat_interleave(block)
    sees_context = torch.arange(length, device=anchors.device) < anchors[:, owner][..., None]
    sees_block = (owner[:, None] == owner[None]).expand(batch, -1, -1)
    mask = torch.cat([sees_context, sees_block], dim=-1)[:, None]
    h = blocks.flatten(1, 2)
    for index in range(shape.layers):
        layer = f"layers.{index}."

        def heads(x: Tensor, name: str, own: int) -> Tensor:
            return (x @ w[layer + f"self_attn.{name}"].T).unflatten(-1, (own, width))

        def keys(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
            return rotate(rms_norm(heads(x, "k_proj", shape.kv_heads), w[layer + "self_attn.k_norm"], shape.epsilon), c, s)

        x = rms_norm(h, w[layer + "input_layernorm"], shape.epsilon)
        query = rotate(rms_norm(heads(x, "q_proj", shape.query_heads), w[layer + "self_attn.q_norm"], shape.epsilon), cos, sin)
        key = torch.cat([keys(features, context_cos, context_sin), keys(x, cos, sin)], dim=1)
        value = torch.cat([heads(features, "v_proj", shape.kv_heads), heads(x, "v_proj", shape.kv_heads)], dim=1)
        group = shape.query_heads // shape.kv_heads
        key, value = (t.repeat_interleave(group, dim=-2).transpose(1, 2) for t in (key, value))
        out = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, attn_mask=mask)
        h = h + out.transpose(1, 2).flatten(-2) @ w[layer + "self_attn.o_proj"].T
        x = rms_norm(h, w[layer + "post_attention_layernorm"], shape.epsilon)
        gate, up = x @ w[layer + "mlp.gate_proj"].T, x @ w[layer + "mlp.up_proj"].T
        h = h + (F.silu(gate) * up) @ w[layer + "mlp.down_proj"].T
    return rms_norm(h, w["norm"], shape.epsilon).view(batch, count, block, hidden)


def markov_bias(w: dict[str, Tensor], previous: Tensor) -> tuple[Tensor, Tensor]:
    """(bias on the logits, the embedding it came from) for the tokens before."""
    embedded = F.embedding(previous, w["markov_head.markov_w1"])
    return embedded @ w["markov_head.markov_w2"].T, embedded


def confidence_logits(w: dict[str, Tensor], hidden: Tensor, embedded: Tensor) -> Tensor:
    """Logit of the probability that a draft is accepted, given that those before it were."""
    joined = torch.cat([hidden, embedded], dim=-1).float()
    return joined @ w["confidence_head.proj"].float()[0] + w["confidence_head.proj.bias"].float()


def drafter_losses(
    shape: DrafterShape, w: dict[str, Tensor], tapped: Tensor, blocks: Tensor, anchors: Tensor, previous: Tensor,
    following: Tensor, target_logits: Tensor, head: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(the loss, mean overlap of draft and target distributions by position). `previous` and `following` [batch, anchors, block] are the
    tokens before and after each row, -1 in `following` where there is no text; `target_logits` what the target says there."""
    hidden = block_hidden(shape, w, context_features(shape, w, tapped), blocks, anchors)
    bias, embedded = markov_bias(w, previous)
    logits = (hidden @ head.T + bias).float()
    valid = (following >= 0).float()
    decay = torch.exp(-torch.arange(shape.block, device=logits.device) / LOSS_DECAY)
    weight = valid * decay
    weight = weight / weight.sum()
    draft = logits.log_softmax(-1)
    cross_entropy = -draft.gather(-1, following.clamp(min=0)[..., None])[..., 0]
    distance = (draft.exp() - target_logits.float().softmax(-1)).abs().sum(-1)
    overlap = 1 - 0.5 * distance
    confidence = F.binary_cross_entropy_with_logits(confidence_logits(w, hidden, embedded), overlap.detach(), reduction="none")
    loss = ((0.1 * cross_entropy + 0.9 * distance + confidence) * weight).sum()
    return loss, ((overlap * valid).sum((0, 1)) / valid.sum((0, 1)).clamp(min=1)).detach()


def greedy_drafts(shape: DrafterShape, w: dict[str, Tensor], hidden: Tensor, anchor: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """(drafts, confidence logits), each [..., block], for block outputs [..., block, hidden] and anchor tokens [...]."""
    previous, drafts, confidences = anchor, [], []
    base = hidden @ head.T
    for k in range(shape.block):
        bias, embedded = markov_bias(w, previous)
        confidences.append(confidence_logits(w, hidden[..., k, :], embedded))
        previous = (base[..., k, :].float() + bias.float()).argmax(-1)
        drafts.append(previous)
    return torch.stack(drafts, -1), torch.stack(confidences, -1)


def multi_token_sizes(target: Shape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the multi-token prediction layer by its name in the checkpoint (without `.weight`)."""
    hidden, width = target.hidden, target.head_width
    layer = "mtp.layers.0."
    return {
        "mtp.fc": (hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding": (hidden,),
        "mtp.pre_fc_norm_hidden": (hidden,),
        "mtp.norm": (hidden,),
        layer + "input_layernorm": (hidden,),
        layer + "post_attention_layernorm": (hidden,),
        layer + "self_attn.q_proj": (2 * target.query_heads * width, hidden),
        layer + "self_attn.k_proj": (target.kv_heads * width, hidden),
        layer + "self_attn.v_proj": (target.kv_heads * width, hidden),
        layer + "self_attn.o_proj": (hidden, target.query_heads * width),
        layer + "self_attn.q_norm": (width,),
        layer + "self_attn.k_norm": (width,),
        layer + "mlp.gate_proj": (target.feed_forward, hidden),
        layer + "mlp.up_proj": (target.feed_forward, hidden),
        layer + "mlp.down_proj": (hidden, target.feed_forward),
    }


def multi_token_hidden(target: Shape, w: dict[str, Tensor], next_embedding: Tensor, hidden: Tensor) -> Tensor:
    """Output [batch, T, hidden] of the multi-token layer: row t, from the embedding of token t + 1 and the target's hidden of
    position t after its final norm, predicts token t + 2."""
    joined = torch.cat(
        [
            rms_norm(next_embedding, 1 + w["mtp.pre_fc_norm_embedding"].float(), target.epsilon),
            rms_norm(hidden, 1 + w["mtp.pre_fc_norm_hidden"].float(), target.epsilon),
        ],
        dim=-1,
    )
    cos, sin = rotary_tables(target, torch.arange(hidden.shape[1], device=hidden.device))
    prefix = "mtp.layers.0."
    layer = {name.removeprefix(prefix): tensor for name, tensor in w.items() if name.startswith(prefix)}
    y = attention_layer(target, joined @ w["mtp.fc"].T, layer, cos[:, None], sin[:, None])
    return rms_norm(y, 1 + w["mtp.norm"].float(), target.epsilon)


def multi_token_loss(target: Shape, w: dict[str, Tensor], next_embedding: Tensor, hidden: Tensor, target_logits: Tensor,
                     head: Tensor, valid: Tensor) -> Tensor:  # fmt: skip
    """Cross-entropy of row t with what the target says at position t + 1, over rows where `valid` [batch, T]."""
    logits = (multi_token_hidden(target, w, next_embedding, hidden) @ head.T).float()
    soft = target_logits.float().softmax(-1)
    losses = -(soft * logits.log_softmax(-1)).sum(-1)
    return (losses * valid).sum() / valid.sum().clamp(min=1)
