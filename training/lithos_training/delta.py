"""The gated delta rule over chunks of a sequence (WY form), written for training.

Within a chunk of C tokens, with keys K, values V, queries Q, gates g (log of the decay, <= 0) and
write strengths beta, and G the running sum of g:

    D_ij = exp(G_i - G_j) for i >= j, else 0
    A    = strictly lower part of diag(beta) K K^T * D
    T    = (I + A)^-1
    U    = T diag(beta) V,   W = T diag(beta exp(G)) K
    V'   = U - W S                                   S: the state before the chunk
    O    = (Q * exp(G)) S + (Q K^T * D) V'
    S   <- exp(G_C) S + (K * exp(G_C - G))^T V'

(Yang et al., "Gated Delta Networks", 2024.) The last line is linear in S, so the chunks' matrices
M = exp(G_C) I - Kd^T W and N = Kd^T U are made for all chunks at once, and only S <- M S + N is
sequential: one small product per chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64

try:
    import triton
    import triton.language as tl

    @triton.jit
    def _inverse_kernel(a_pointer, out_pointer, SIZE: tl.constexpr):
        """Inverse of I + A for one strictly lower A [SIZE, SIZE] by forward substitution, row by row."""
        matrix = tl.program_id(0).to(tl.int64) * SIZE * SIZE
        rows = tl.arange(0, SIZE)
        columns = tl.arange(0, SIZE)
        inverse = tl.where(rows[:, None] == columns[None, :], 1.0, 0.0)
        for row in range(1, SIZE):
            # Row `row` of the inverse is e_row - sum over j < row of A[row, j] * inverse[j].
            a_row = tl.load(a_pointer + matrix + row * SIZE + rows)
            update = tl.sum(a_row[:, None] * inverse, axis=0)
            inverse = tl.where(rows[:, None] == row, inverse - update[None, :], inverse)
        tl.store(out_pointer + matrix + rows[:, None] * SIZE + columns[None, :], inverse)

except ImportError:
    triton = None


@torch.library.custom_op("lithos::unit_lower_inverse", mutates_args=())
def unit_lower_inverse(a: Tensor) -> Tensor:
    """Inverse of I + A, with A [..., C, C] strictly lower triangular, in f32."""
    if a.is_cuda and triton is not None:
        a = a.contiguous()
        out = torch.empty_like(a)
        count = a.numel() // (a.shape[-1] * a.shape[-1])
        _inverse_kernel[(count,)](a, out, SIZE=a.shape[-1], num_warps=4)
        return out
    identity = torch.eye(a.shape[-1], device=a.device, dtype=a.dtype).expand_as(a)
    return torch.linalg.solve_triangular(identity + a, identity, upper=False).contiguous()


@unit_lower_inverse.register_fake
def _(a):
    return torch.empty_like(a, memory_format=torch.contiguous_format)


def _inverse_setup(ctx, inputs, output):
    ctx.save_for_backward(output)


def _inverse_backward(ctx, gradient):
    (inverse,) = ctx.saved_tensors
    transposed = inverse.transpose(-1, -2)
    return -torch.tril(transposed @ gradient @ transposed, diagonal=-1)


unit_lower_inverse.register_autograd(_inverse_backward, setup_context=_inverse_setup)


@torch.library.custom_op("lithos::chunk_scan", mutates_args=())
def chunk_scan(m: Tensor, n: Tensor) -> Tensor:
    """States before each chunk: S_0 = 0, S_(c+1) = M_c S_c + N_c. Shapes [chunks, batch, k, k] and [chunks, batch, k, v]."""
    states = torch.empty_like(n)
    states[0].zero_()
    for chunk in range(n.shape[0] - 1):
        torch.baddbmm(n[chunk], m[chunk], states[chunk], out=states[chunk + 1])
    return states


@chunk_scan.register_fake
def _(m, n):
    return torch.empty_like(n)


@torch.library.custom_op("lithos::chunk_scan_backward", mutates_args=())
def chunk_scan_backward(m: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of each chunk's next state, [chunks, batch, k, v]; the last chunk's next state is not used."""
    out = torch.empty_like(gradient)
    out[-1].zero_()
    for chunk in range(gradient.shape[0] - 1, 0, -1):
        torch.baddbmm(gradient[chunk], m[chunk].transpose(-1, -2), out[chunk], out=out[chunk - 1])
    return out


@chunk_scan_backward.register_fake
def _(m, gradient):
    return torch.empty_like(gradient)


def _scan_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)


def _scan_backward(ctx, gradient):
    m, states = ctx.saved_tensors
    next_state = torch.ops.lithos.chunk_scan_backward(m, gradient.contiguous())
    return next_state @ states.transpose(-1, -2), next_state


chunk_scan.register_autograd(_scan_backward, setup_context=_scan_setup)


def chunked_delta_rule(query: Tensor, key: Tensor, value: Tensor, gate: Tensor, beta: Tensor) -> Tensor:
    """Outputs of the gated delta rule from a zero state.

    `query`, `key` [batch, T, heads, k] (normalised, the query scaled), `value` [batch, T, heads, v], `gate` (log decay) and
    `beta` [batch, T, heads], T a multiple of the chunk. Returns [batch, T, heads, v] in f32.
    """
    batch, length, heads, key_width = query.shape
    value_width = value.shape[-1]
    chunks = length // CHUNK

    def by_chunk(x: Tensor) -> Tensor:
        # [batch, T, heads, w] -> [chunks, batch * heads, C, w]
        width = x.shape[-1]
        x = x.float().view(batch, chunks, CHUNK, heads, width).permute(1, 0, 3, 2, 4)
        return x.reshape(chunks, batch * heads, CHUNK, width)

    q, k, v = by_chunk(query), by_chunk(key), by_chunk(value)
    running = by_chunk(gate.unsqueeze(-1)).cumsum(dim=-2)
    b = by_chunk(beta.unsqueeze(-1))
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    # Mask before the exponential: above the diagonal it would overflow.
    decay = (running - running.transpose(-1, -2)).masked_fill(~lower, float("-inf")).exp()
    a = torch.tril(b * (k @ k.transpose(-1, -2)) * decay, diagonal=-1)
    t = unit_lower_inverse(a)
    u = t @ (b * v)
    w = t @ (b * running.exp() * k)
    last = running[..., -1:, :]
    k_decayed = (k * (last - running).exp()).transpose(-1, -2)
    identity = torch.eye(key_width, device=q.device)
    states = chunk_scan(last.exp() * identity - k_decayed @ w, k_decayed @ u)
    v_new = u - w @ states
    out = (q * running.exp()) @ states + ((q @ k.transpose(-1, -2)) * decay) @ v_new
    out = out.view(chunks, batch, heads, CHUNK, value_width).permute(1, 0, 3, 2, 4)
    return out.reshape(batch, length, heads, value_width)


def delta_step(state: Tensor, query: Tensor, key: Tensor, value: Tensor, gate: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One token of the recurrence. `state` [batch, heads, k, v]; the rest without T. Returns the output and the new state.

    S <- exp(g) S; delta = beta (v - S^T k); S <- S + k delta^T; o = S^T q.
    """
    state = state * gate.exp()[..., None, None]
    delta = beta[..., None] * (value - (key[..., None] * state).sum(-2))
    state = state + key[..., None] * delta[..., None, :]
    return (query[..., None] * state).sum(-2), state
