"""Temperatures that make confidences mean what they say: sequential temperature scaling of the survival probability."""

from __future__ import annotations

import numpy as np

GRID = np.exp(np.linspace(np.log(0.25), np.log(4.0), 61))


def calibration_error(probability: np.ndarray, happened: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: mean gap between forecast and frequency over equal-width bins, weighted by their counts."""
    index = np.minimum((probability * bins).astype(int), bins - 1)
    gap = 0.0
    for b in range(bins):
        inside = index == b
        if inside.any():
            gap += inside.mean() * abs(probability[inside].mean() - happened[inside].mean())
    return float(gap)


def calibrated_temperatures(matches: np.ndarray, logits: np.ndarray) -> tuple[list[float], list[float]]:
    """(temperature, calibration error of the survival probability) by position, chosen from left to right.

    `matches` [blocks, block]: whether draft k equals the target's token; `logits` the confidences before the sigmoid.
    """
    survived = np.cumprod(matches, axis=1).astype(float)
    survival = np.ones(len(matches))
    temperatures, errors = [], []
    for k in range(matches.shape[1]):
        candidates = [survival / (1 + np.exp(-logits[:, k] / t)) for t in GRID]
        scores = [calibration_error(c, survived[:, k]) for c in candidates]
        best = int(np.argmin(scores))
        temperatures.append(float(GRID[best]))
        errors.append(scores[best])
        survival = candidates[best]
    return temperatures, errors
