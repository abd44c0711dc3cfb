"""SmolLM2-135M-Instruct from its GGUF file, as one-token steps over many slots on a GPU."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from .decode_attention import decode_attention

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDTH = 30, 576, 9, 3, 64
ROPE_THETA, EPSILON = 1e5, 1e-5


def _field(reader: GGUFReader, name: str):
    return reader.fields[name].contents()


def teacher_tokenizer(path: Path) -> tuple[Tokenizer, list[str]]:
    """SmolLM2's tokenizer from the file's metadata, and its merges in order."""
    reader = GGUFReader(path)
    tokens, merges = _field(reader, "tokenizer.ggml.tokens"), _field(reader, "tokenizer.ggml.merges")
    kinds = _field(reader, "tokenizer.ggml.token_type")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # The GGUF token type of control tokens.
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k == control])
    return tokenizer, merges


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + EPSILON) * weight).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def _before_attention(h: Tensor, norm: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mixed = (_norm(h, norm) @ qkv.T).unflatten(-1, (HEADS + 2 * KV_HEADS, WIDTH))
    query, key, value = mixed.split([HEADS, KV_HEADS, KV_HEADS], dim=-2)
    return _rotate(query, cos, sin), _rotate(key, cos, sin), value.contiguous()


def _after_attention(h: Tensor, out: Tensor, wo: Tensor, norm: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    h = h + out.flatten(-2) @ wo.T
    x = _norm(h, norm)
    return h + (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def _unpermuted(w: Tensor, heads: int) -> Tensor:
    """Undoes the row order that GGUF conversion gives to q and k, so that rotary embedding works on halves."""
    return w.view(heads, WIDTH // 2, 2, w.shape[-1]).transpose(1, 2).reshape(w.shape)


class Teacher:
    """`step(tokens, positions)` appends one token to each slot's cache and returns the logits of the next."""

    def __init__(self, path: Path, slots: int, capacity: int, device: torch.device, dtype: torch.dtype = torch.bfloat16):
        tensors = {t.name: t for t in GGUFReader(path).tensors}

        def weight(name: str) -> Tensor:
            tensor = tensors[name]
            values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
            return values.view(*reversed(tensor.shape.tolist()))

        def matrix(name: str) -> Tensor:
            return weight(name).to(device, dtype)

        self.embedding = matrix("token_embd.weight")
        self.norm = weight("output_norm.weight").to(device)
        self.layers = []
        for index in range(LAYERS):
            block = f"blk.{index}."
            query = _unpermuted(weight(block + "attn_q.weight"), HEADS)
            key = _unpermuted(weight(block + "attn_k.weight"), KV_HEADS)
            qkv = torch.cat([query, key, weight(block + "attn_v.weight")]).to(device, dtype)
            before = (weight(block + "attn_norm.weight").to(device), qkv)
            after = (
                matrix(block + "attn_output.weight"),
                weight(block + "ffn_norm.weight").to(device),
                *(matrix(block + f"ffn_{part}.weight") for part in ("gate", "up", "down")),
            )
            self.layers.append((before, after))
        self.keys = torch.zeros(LAYERS, slots, KV_HEADS, capacity, WIDTH, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        on_gpu = device.type == "cuda"
        self.before = torch.compile(_before_attention, dynamic=False) if on_gpu else _before_attention
        self.after = torch.compile(_after_attention, dynamic=False) if on_gpu else _after_attention
        self.frequencies = ROPE_THETA ** (-torch.arange(WIDTH // 2, device=device).float() * 2 / WIDTH)

    def step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [slots, vocabulary] after `tokens` [slots] at `positions` [slots]."""
        h = F.embedding(tokens, self.embedding)
        angles = positions.float()[:, None, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        for index, (before, after) in enumerate(self.layers):
            query, key, value = self.before(h, *before, cos, sin)
            out = decode_attention(query, key, value, self.keys[index], self.values[index], positions)
            h = self.after(h, out, *after)
        return _norm(h, self.norm) @ self.embedding.T
