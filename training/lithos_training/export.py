"""Stage d: the trained models as Hugging Face directories in their final formats."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .checkpoint import write_drafter, write_target
from .drafter import Weights, drafter_sizes, multi_token_sizes
from .shape import DrafterShape, Shape
from .target import Target
from .teacher import teacher_tokenizer
from .vocabulary import END_OF_TEXT, MASK, save, smaller_tokenizer


def main() -> None:
    """Writes --out and --out/draft from target.pt and drafter.pt in --work."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocabulary", type=int, default=8192)
    arguments = parser.parse_args()
    shape, drafter_shape = Shape(), DrafterShape()
    _, merges = teacher_tokenizer(arguments.teacher)
    tokenizer = smaller_tokenizer(merges, arguments.vocabulary)
    save(tokenizer, arguments.out, shape.context)
    target = Target(shape)
    target.load_state_dict(torch.load(arguments.work / "target.pt", map_location="cpu")["target"])
    drafter = Weights(drafter_sizes(drafter_shape, shape), ones=True)
    multi_token = Weights(multi_token_sizes(shape), ones=False)
    temperatures = [1.0] * drafter_shape.block
    stored = arguments.work / "drafter.pt"
    if stored.exists():
        state = torch.load(stored, map_location="cpu")
        drafter.load_state_dict(state["drafter"])
        multi_token.load_state_dict(state["multi_token"])
        temperatures = state["report"]["temperatures"]
    write_target(arguments.out, shape, target.named(), multi_token.named(), tokenizer.token_to_id(END_OF_TEXT))
    if stored.exists():
        write_drafter(arguments.out / "draft", drafter_shape, shape, drafter.named(), temperatures, tokenizer.token_to_id(MASK))
    for path in sorted(arguments.out.rglob("*")):
        if path.is_file():
            print(f"{path.relative_to(arguments.out)}: {path.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
