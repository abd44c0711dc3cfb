"""The trained target as one-token steps over many slots: it writes the text that the drafter learns from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .decode_attention import decode_attention
from .shape import Shape
from .target import (
    Target,
    TargetState,
    attention_step_inputs,
    attention_step_output,
    delta_layer_step,
    rms_norm,
)


class Student:
    """`step(tokens, positions)`; a slot at position 0 starts from a zero state."""

    def __init__(self, target: Target, working: dict[str, Tensor], slots: int, capacity: int):
        self.shape: Shape = target.shape
        device, dtype = working["embed_tokens"].device, working["embed_tokens"].dtype
        self.state = TargetState(self.shape, slots, capacity, device, dtype)
        self.embedding, self.norm, self.head = working["embed_tokens"], working["norm"], working["lm_head"]
        self.layers = [{name: w.contiguous() for name, w in layer.items()} for layer in target.layer_weights(working)]

        def compiled(function):
            return torch.compile(function, dynamic=False) if device.type == "cuda" else function

        self.delta, self.before, self.after = map(compiled, (delta_layer_step, attention_step_inputs, attention_step_output))

    def step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [slots, vocabulary] after `tokens` at `positions`."""
        h = F.embedding(tokens, self.embedding)
        fresh = positions == 0
        deltas = attentions = 0
        for kind, w in zip(self.shape.layer_types, self.layers):
            if kind == "linear_attention":
                h = self.delta(self.shape, h, w, self.state.delta[deltas], self.state.history[deltas], fresh)
                deltas += 1
            else:
                query, gate, key, value = self.before(self.shape, h, w, positions)
                out = decode_attention(query, key, value, self.state.keys[attentions], self.state.values[attentions], positions)
                h = self.after(self.shape, h, out, gate, w)
                attentions += 1
        return rms_norm(h, 1 + self.norm.float(), self.shape.epsilon) @ self.head.T
