"""The number formats of the exported files: what a weight becomes when it is stored, and its codes.

NVFP4 as NVIDIA's Model Optimizer writes it: E2M1 codes, one E4M3 scale for 16 columns, one f32 multiplier per matrix.
FP8: E4M3 codes and one f32 multiplier per matrix. Training sees exactly the values that a reader decodes: the fake quantization
below and the export share `nvfp4_parts` and `fp8_parts`.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 16
E2M1_LARGEST = 6.0
E4M3_LARGEST = 448.0
E4M3_SMALLEST = 2.0**-9
# Midpoints between neighbouring magnitudes of E2M1 (0, .5, 1, 1.5, 2, 3, 4, 6).
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e2m1_codes(x: Tensor) -> Tensor:
    """Codes 0..15 of the nearest E2M1 values; a tie goes to the even code."""
    magnitude = x.abs()
    code = torch.zeros_like(x, dtype=torch.uint8)
    for index, midpoint in enumerate(MIDPOINTS):
        # Code index + 1 is even when index is odd: then the midpoint itself rounds up.
        above = magnitude >= midpoint if index % 2 == 1 else magnitude > midpoint
        code = code + above.to(torch.uint8)
    return code + (x < 0).to(torch.uint8) * 8


def e2m1_values(codes: Tensor) -> Tensor:
    """Values of E2M1 codes, f32."""
    table = torch.tensor(MAGNITUDES + tuple(-m for m in MAGNITUDES), device=codes.device)
    return table[codes.long()]


def _e2m1_rounded(x: Tensor) -> Tensor:
    """The nearest E2M1 values, without a table: as in `e2m1_codes`, in a form that compiles to few instructions."""
    magnitude = x.abs().clamp(max=E2M1_LARGEST)
    # The step between neighbours is 0.5 below 2, 1 below 4, then 2; torch.round goes to even, as codes do.
    step = torch.where(magnitude < 2.0, 0.5, torch.where(magnitude < 4.0, 1.0, 2.0))
    return torch.copysign(torch.round(magnitude / step) * step, x)


def _matrix_largest(w: Tensor) -> Tensor:
    """Largest magnitude of each matrix of a stack [..., rows, columns], kept as [..., 1, 1]."""
    return w.abs().amax(dim=(-1, -2), keepdim=True).clamp(min=1e-12)


def nvfp4_parts(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(w over its scales as [..., rows, groups, 16], E4M3 block scales [..., rows, groups, 1] as f32, multiplier [..., 1, 1])."""
    multiplier = _matrix_largest(w) / (E2M1_LARGEST * E4M3_LARGEST)
    groups = w.unflatten(-1, (-1, GROUP))
    largest = groups.abs().amax(dim=-1, keepdim=True)
    scale = (largest / (E2M1_LARGEST * multiplier.unsqueeze(-1))).clamp(E4M3_SMALLEST, E4M3_LARGEST)
    scale = scale.to(torch.float8_e4m3fn).float()
    return groups / (scale * multiplier.unsqueeze(-1)), scale, multiplier


def nvfp4_decoded(w: Tensor) -> Tensor:
    """The values that a reader of the NVFP4 file sees, f32, same shape as `w`."""
    scaled, scale, multiplier = nvfp4_parts(w)
    return (_e2m1_rounded(scaled) * scale * multiplier.unsqueeze(-1)).flatten(-2)


def fp8_parts(w: Tensor) -> tuple[Tensor, Tensor]:
    """(codes as float8_e4m3fn, multiplier [..., 1, 1])."""
    multiplier = _matrix_largest(w) / E4M3_LARGEST
    return (w / multiplier).clamp(-E4M3_LARGEST, E4M3_LARGEST).to(torch.float8_e4m3fn), multiplier


def fp8_decoded(w: Tensor) -> Tensor:
    """The values that a reader of the FP8 file sees, f32."""
    codes, multiplier = fp8_parts(w)
    return codes.float() * multiplier


def bf16_decoded(w: Tensor) -> Tensor:
    """The values that a reader of the BF16 file sees, f32."""
    return w.to(torch.bfloat16).float()


DECODED = {"nvfp4": nvfp4_decoded, "fp8": fp8_decoded, "bf16": bf16_decoded}


def straight_through(w: Tensor, form: str) -> Tensor:
    """`w` as the file will hold it, with the gradient of `w` itself (Bengio et al. 2013, straight-through estimator)."""
    return w + (DECODED[form](w.detach()) - w.detach())


def nvfp4_tensors(name: str, w: Tensor) -> dict[str, Tensor]:
    """The three tensors of one NVFP4 matrix [rows, columns]: even columns in low nibbles."""
    scaled, scale, multiplier = nvfp4_parts(w.float())
    codes = e2m1_codes(scaled).flatten(-2)
    return {
        f"{name}.weight": (codes[:, 0::2] | (codes[:, 1::2] << 4)).contiguous(),
        f"{name}.weight_scale": scale.squeeze(-1).to(torch.float8_e4m3fn).contiguous(),
        f"{name}.weight_scale_2": multiplier.reshape(()).clone(),
    }


def fp8_tensors(name: str, w: Tensor) -> dict[str, Tensor]:
    """The two tensors of one FP8 matrix [rows, columns]."""
    codes, multiplier = fp8_parts(w.float())
    return {f"{name}.weight": codes.contiguous(), f"{name}.weight_scale": multiplier.reshape(()).clone()}
