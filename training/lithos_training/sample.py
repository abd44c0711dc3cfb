"""Stage a: conversations sampled from SmolLM2-135M-Instruct."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import numpy as np
import torch

from .stream import SlotStream, Turns
from .teacher import Teacher, teacher_tokenizer
from .vocabulary import TURN_END

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


def prompt_rows(tokenizer, count: int, seed: int, free_share: float) -> tuple[list[list[int]], list[bool]]:
    """Token rows that start conversations; in `free_share` of them the model writes the question itself."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
    import topics

    rng = random.Random(seed)
    texts, free = [], []
    for prompt in topics.prompts(seed, count):
        free.append(rng.random() < free_share)
        system = f"<|im_start|>system\n{prompt['system']}<|im_end|>\n" if prompt.get("system") and not free[-1] else SYSTEM
        question = "" if free[-1] else prompt["user"] + "<|im_end|>\n<|im_start|>assistant\n"
        texts.append(system + "<|im_start|>user\n" + question)
    rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    kept = [index for index, row in enumerate(rows) if len(row) < 320]
    return [rows[index] for index in kept], [free[index] for index in kept]


def main() -> None:
    """Samples for a given time and writes the record of all slots."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the record, a .npy file")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--slots", type=int, default=4096)
    parser.add_argument("--capacity", type=int, default=896, help="longest conversation, tokens")
    parser.add_argument("--prompts", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer, _ = teacher_tokenizer(arguments.teacher)
    rows, free = prompt_rows(tokenizer, arguments.prompts, arguments.seed, free_share=0.25)
    print(f"{len(rows)} prompts", flush=True)
    device = torch.device("cuda")
    torch.manual_seed(arguments.seed)
    turns = Turns(
        end=tokenizer.token_to_id(TURN_END),
        before_question=tokenizer.encode("\n<|im_start|>user\n").ids,
        before_answer=tokenizer.encode("\n<|im_start|>assistant\n").ids,
        follow_probability=0.25,
        follow_before=400,
    )
    # Mostly a warm temperature; a share of greedy text, which is what most users will see.
    temperatures = torch.tensor([0.3, 0.7, 0.7, 0.8], device=device).repeat(arguments.slots // 4)
    with torch.no_grad():
        model = Teacher(arguments.teacher, arguments.slots, arguments.capacity, device)
        stream = SlotStream(model, rows, free, turns, temperatures, 0.1, arguments.capacity, most_steps=40_000)
        record = stream.run(arguments.seconds)
    np.save(arguments.out, record)
    print(f"{record.shape[0]} steps of {record.shape[1]} slots in {stream.seconds:.1f} s: "
          f"{record.size / stream.seconds / 1e3:.0f}k tokens/s, {int(stream.taken)} conversations begun", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
