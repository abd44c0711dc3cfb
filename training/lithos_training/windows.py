"""Windows of tokens on the GPU, drawn in shuffled order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class Windows:
    """Training windows of several sources, each repeated as often as told, and a held-out share of each. With `share` (index, count)
    they are one process's part of each batch that `count` processes draw together."""

    def __init__(self, sources: dict[Path, int], device: torch.device, heldout: float = 0.005, seed: int = 0, share: tuple[int, int] = (0, 1)):
        self.share = share
        parts, self.heldout = [], {}
        for path, repeats in sources.items():
            with np.load(path) as stored:
                windows, used = stored["windows"].astype(np.int32), stored["used"]
            # The places behind the last token are no text: -1 there.
            windows[np.arange(windows.shape[1])[None] >= used[:, None]] = -1
            order = np.random.default_rng(1).permutation(len(windows))
            kept = min(max(int(len(windows) * heldout), 16), 64)
            self.heldout[path.stem] = torch.from_numpy(windows[order[:kept]]).to(device)
            parts += [windows[order[kept:]]] * repeats
        self.windows = torch.from_numpy(np.concatenate(parts)).to(device)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.order, self.place, self.epochs = None, 0, 0

    def batch(self, count: int) -> Tensor:
        """The next `count` windows, [count, window + 1], -1 where there is no text."""
        index, processes = self.share
        if self.order is None or self.place + count * processes > len(self.order):
            self.order = torch.randperm(len(self.windows), generator=self.generator, device=self.windows.device)
            self.place, self.epochs = 0, self.epochs + 1
        first = self.place + index * count
        rows = self.windows[self.order[first : first + count]]
        self.place += count * processes
        return rows


def inputs_and_labels(windows: Tensor, filler: int) -> tuple[Tensor, Tensor]:
    """Tokens to read and the next token of each, -1 where none counts."""
    return windows[:, :-1].clamp(min=0).long() + (windows[:, :-1] < 0).long() * filler, windows[:, 1:].long()
