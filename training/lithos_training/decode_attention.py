"""Attention of one new token per slot over that slot's cache, for sampling with many slots at different positions."""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    @triton.jit
    def _decode_kernel(
        query_pointer, key_pointer, value_pointer, keys_pointer, values_pointer, positions_pointer, out_pointer,
        scale, capacity, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """One (slot, KV head): stores the new key and value, then an online softmax over positions 0..=position."""
        program = tl.program_id(0).to(tl.int64)
        slot = program // KV_HEADS
        position = tl.load(positions_pointer + slot)
        columns = tl.arange(0, WIDTH)
        # The tensor core wants 16 rows; the query heads of the group fill the first of them.
        rows = tl.arange(0, 16)
        query = tl.load(
            query_pointer + (program * GROUP + rows[:, None]) * WIDTH + columns[None, :], mask=rows[:, None] < GROUP, other=0.0
        )
        new_key = tl.load(key_pointer + program * WIDTH + columns)
        new_value = tl.load(value_pointer + program * WIDTH + columns)
        cache = program * capacity * WIDTH
        tl.store(keys_pointer + cache + position * WIDTH + columns, new_key)
        tl.store(values_pointer + cache + position * WIDTH + columns, new_value)
        # The new key is handled from registers, so nobody has to wait for the store.
        largest = tl.sum(query.to(tl.float32) * new_key[None, :].to(tl.float32), axis=1) * scale
        total = tl.full((16,), 1.0, tl.float32)
        out = tl.zeros((16, WIDTH), tl.float32) + new_value[None, :].to(tl.float32)
        for start in range(0, position, BLOCK):
            keys = start + tl.arange(0, BLOCK)
            valid = keys < position
            block = cache + keys[:, None] * WIDTH + columns[None, :]
            k = tl.load(keys_pointer + block, mask=valid[:, None], other=0.0)
            v = tl.load(values_pointer + block, mask=valid[:, None], other=0.0)
            scores = tl.dot(query, tl.trans(k)) * scale
            scores = tl.where(valid[None, :], scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, axis=1))
            shrink = tl.exp(largest - new_largest)
            probabilities = tl.exp(scores - new_largest[:, None])
            total = total * shrink + tl.sum(probabilities, axis=1)
            out = out * shrink[:, None] + tl.dot(probabilities.to(v.dtype), v)
            largest = new_largest
        out = out / total[:, None]
        tl.store(
            out_pointer + (program * GROUP + rows[:, None]) * WIDTH + columns[None, :],
            out.to(new_value.dtype), mask=rows[:, None] < GROUP,
        )  # fmt: skip

except ImportError:
    triton = None


def decode_attention(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> Tensor:
    """Stores `key`, `value` [slots, kv, width] at `positions` [slots] of `keys`, `values` [slots, kv, capacity, width] and
    attends with `query` [slots, kv * group, width]; query heads of a KV head are adjacent. Returns the shape of `query`."""
    slots, kv_heads, capacity, width = keys.shape
    group = query.shape[1] // kv_heads
    scale = width**-0.5
    if query.is_cuda and triton is not None:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        out = torch.empty_like(query)
        _decode_kernel[(slots * kv_heads,)](
            query, key, value, keys, values, positions, out, scale, capacity,
            GROUP=group, KV_HEADS=kv_heads, WIDTH=width, BLOCK=64, num_warps=2,
        )  # fmt: skip
        return out
    slot = torch.arange(slots, device=query.device)
    keys[slot, :, positions] = key
    values[slot, :, positions] = value
    q = query.view(slots, kv_heads, group, width).float()
    scores = q @ keys.float().transpose(-1, -2) * scale
    seen = torch.arange(capacity, device=query.device)[None] <= positions[:, None]
    scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
    return (scores.softmax(-1) @ values.float()).view_as(query).to(query.dtype)
