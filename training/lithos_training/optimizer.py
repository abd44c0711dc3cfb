"""Muon for the hidden matrices, Adam for the rest.

Muon replaces a matrix's momentum by the nearest semi-orthogonal matrix (Jordan et al. 2024), found by Newton-Schulz steps,
scaled so that an update has the size that Adam's would have (Liu et al., "Muon is Scalable for LLM Training", 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor

# Odd polynomial a x + b x^3 + c x^5 with a steep start: five steps bring singular values near 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalised(update: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices to a stack [..., rows, columns], approximately, in BF16."""
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        square = x @ x.transpose(-1, -2)
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(-1, -2) if tall else x


class Muon(torch.optim.Optimizer):
    """Stochastic descent along the orthogonalised Nesterov momentum, with decoupled weight decay."""

    def __init__(self, parameters, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["momentum"], group["momentum"])
                scale = 0.2 * max(parameter.shape[-2:]) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(orthogonalised(update).to(parameter.dtype), alpha=-group["lr"] * scale)


class Schedule:
    """Learning rates by the share of the time budget that has passed: warm-up, constant, then linear to a twentieth."""

    def __init__(self, optimizers: list[torch.optim.Optimizer], warm_up: float = 0.02, decay_from: float = 0.5):
        self.optimizers, self.warm_up, self.decay_from = optimizers, warm_up, decay_from
        self.peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]

    def factor(self, progress: float) -> float:
        """Share of the peak rate at `progress` in 0..1."""
        if progress < self.warm_up:
            return max(progress / self.warm_up, 0.01)
        if progress < self.decay_from:
            return 1.0
        return max(1.0 - 0.95 * (progress - self.decay_from) / (1.0 - self.decay_from), 0.05)

    def set(self, progress: float) -> None:
        """Sets every group's rate."""
        for optimizer, peaks in zip(self.optimizers, self.peaks):
            for group, peak in zip(optimizer.param_groups, peaks):
                group["lr"] = peak * self.factor(progress)
