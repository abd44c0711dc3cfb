"""Stage a: conversations sampled from SmolLM2-135M-Instruct."""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
from pathlib import Path

import numpy as np
import torch

from . import written
from .stream import SlotStream, Turns
from .teacher import Teacher, teacher_tokenizer
from .vocabulary import TURN_END

# Prompts are made by as many processes, each with a seed of its own.
PARTS = 16
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


def prompt_texts(seed: int, count: int, short_share: float, free_share: float) -> list[tuple[str, bool]]:
    """Starts of conversations, and whether the model is to write the question itself. A `short_share` of them begins with examples
    of short answers."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
    import topics

    source, known, texts = random.Random(seed), written.entries(), []
    for prompt in topics.prompts(seed, count):
        short, free = source.random() < short_share, source.random() < free_share
        if short:
            start = written.examples(source, known)
        elif prompt.get("system") and not free:
            start = f"<|im_start|>system\n{prompt['system']}<|im_end|>\n"
        else:
            start = SYSTEM
        question = "" if free else f"{prompt['user']}<|im_end|>\n<|im_start|>assistant\n"
        texts.append((f"{start}<|im_start|>user\n{question}", free))
    return texts


def prompt_rows(tokenizer, longest: int, parts: list[tuple]) -> tuple[list[list[int]], list[bool]]:
    """Token rows of the starts of all parts (the arguments of `prompt_texts`), and whether the model writes the question."""
    with multiprocessing.Pool() as pool:
        texts = [text for part in pool.starmap(prompt_texts, parts) for text in part]
    rows = [encoding.ids for encoding in tokenizer.encode_batch_fast([text for text, _ in texts], add_special_tokens=False)]
    kept = [index for index, row in enumerate(rows) if len(row) < longest]
    return [rows[index] for index in kept], [texts[index][1] for index in kept]


def main() -> None:
    """Samples for a given time and writes the record of all slots."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the record, a .npy file")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--slots", type=int, default=8192)
    parser.add_argument("--capacity", type=int, default=512, help="longest conversation with its examples, tokens")
    parser.add_argument("--prompts", type=int, default=400_000)
    parser.add_argument("--short", type=float, default=0.75, help="share of conversations that begin with examples of short answers")
    parser.add_argument("--free", type=float, default=0.15, help="share of first questions that the teacher writes itself")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer, _ = teacher_tokenizer(arguments.teacher)
    each = arguments.prompts // PARTS
    parts = [(arguments.seed * 1000 + part, each, arguments.short, arguments.free) for part in range(PARTS)]
    rows, free = prompt_rows(tokenizer, arguments.capacity * 3 // 4, parts)
    print(f"{len(rows)} prompts", flush=True)
    device = torch.device("cuda")
    torch.manual_seed(arguments.seed)
    turns = Turns(
        end=tokenizer.token_to_id(TURN_END),
        before_question=tokenizer.encode("\n<|im_start|>user\n").ids,
        before_answer=tokenizer.encode("\n<|im_start|>assistant\n").ids,
        follow_probability=0.25,
        follow_before=arguments.capacity * 2 // 3,
    )
    # A small student learns plain text better than rare turns: cool temperatures, variety comes from the prompts.
    temperatures = torch.tensor([0.2, 0.4, 0.5, 0.7], device=device).repeat(arguments.slots // 4)
    with torch.no_grad():
        model = Teacher(arguments.teacher, arguments.slots, arguments.capacity, device)
        stream = SlotStream(model, rows, free, turns, temperatures, 0.1, arguments.capacity, most_steps=40_000)
        record = stream.run(arguments.seconds)
    np.save(arguments.out, record)
    print(f"{record.shape[0]} steps of {record.shape[1]} slots in {stream.seconds:.1f} s: "
          f"{record.size / stream.seconds / 1e3:.0f}k tokens/s, {int(stream.taken)} conversations begun", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
