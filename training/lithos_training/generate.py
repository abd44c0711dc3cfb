"""Text that the quantized target writes, for the drafter: half of it greedy, half at a temperature."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from . import written
from .corpus import document_lines, packed
from .shape import Shape
from .stream import TOKEN, SlotStream, Turns, conversations
from .student import Student
from .target import Target, working_copies
from .teacher import teacher_tokenizer
from .vocabulary import END_OF_TEXT, TURN_END, smaller_tokenizer, template_renderer


def prompt_texts(count: int, seed: int, documents: Path | None) -> list[str]:
    """Rendered starts of conversations: short prompts of every kind, longer requests, made conversations up to a turn of the assistant,
    everyday and written questions."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
    import everyday
    import request_prompts
    import synthetic
    import topics

    render, rng = template_renderer(), np.random.default_rng(seed)
    starts: list[tuple[list[dict], list[dict] | None]] = []
    for prompt in topics.prompts(seed, round(0.2 * count)):
        system = [{"role": "system", "content": prompt["system"]}] if prompt.get("system") else []
        starts.append((system + [{"role": "user", "content": prompt["user"]}], None))
    starts += [(messages, None) for messages in request_prompts.prompts(seed, round(0.35 * count), document_lines(documents) if documents else [])]
    asked = [question for entry in written.entries() for question in entry.questions]
    starts += [([{"role": "user", "content": str(question)}], None) for question in rng.choice(asked, round(0.1 * count))]
    made = [*synthetic.conversations(seed, round(0.25 * count)), *everyday.conversations(seed, round(0.1 * count))]
    for conversation in made:
        messages = conversation["messages"]
        answers = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
        starts.append((messages[: answers[rng.integers(len(answers))]], conversation.get("tools")))
    texts = [render(messages, tools, True) for messages, tools in starts]
    rng.shuffle(texts)
    return texts


def save(path: Path, streams: list[np.ndarray], end: int) -> None:
    """Packs and writes one source."""
    windows, used = packed([(s & TOKEN).tolist() + [end] for s in streams], end)
    np.savez(path, windows=windows, used=used)
    print(f"{path.name}: {len(streams)} conversations, {used.sum() / 1e6:.2f} M tokens, {len(windows)} windows", flush=True)


def main() -> None:
    """Writes greedy.npz and warm.npz in --work."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--slots", type=int, default=4096)
    parser.add_argument("--capacity", type=int, default=768)
    parser.add_argument("--prompts", type=int, default=150_000)
    parser.add_argument("--documents", type=Path, help="documents.train.jsonl.xz, for excerpts to ask about")
    parser.add_argument("--prompts-only", action="store_true", help="write prompts.json and stop")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    _, merges = teacher_tokenizer(arguments.teacher)
    tokenizer: Tokenizer = smaller_tokenizer(merges, arguments.vocabulary)
    stored = arguments.work / "prompts.json"
    if not stored.exists():
        stored.write_text(json.dumps(prompt_texts(arguments.prompts, arguments.seed, arguments.documents)))
    if arguments.prompts_only:
        return
    texts = json.loads(stored.read_text())
    rows = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False) if len(e.ids) < 600]
    device = torch.device("cuda")
    torch.manual_seed(arguments.seed)
    target = Target(Shape()).to(device)
    target.load_state_dict(torch.load(arguments.work / "target.pt", map_location=device)["target"])
    with torch.no_grad():
        working = working_copies(target.named(), quantized=True)
        student = Student(target, working, arguments.slots, arguments.capacity)
        half = arguments.slots // 2
        temperatures = torch.cat([torch.zeros(half), torch.full((half,), 0.7)]).to(device)
        end_of_turn = tokenizer.token_to_id(TURN_END)
        turns = Turns(
            end=end_of_turn,
            before_question=tokenizer.encode("\n<|im_start|>user\n").ids,
            before_answer=tokenizer.encode("\n<|im_start|>assistant\n").ids,
            follow_probability=0.0,
            follow_before=0,
        )
        stream = SlotStream(student, rows, [False] * len(rows), turns, temperatures, 0.02, arguments.capacity, most_steps=40_000)
        record = stream.run(arguments.seconds)
    print(f"{record.shape[0]} steps in {stream.seconds:.1f} s: {record.size / stream.seconds / 1e3:.0f}k tokens/s", flush=True)
    end = tokenizer.token_to_id(END_OF_TEXT)
    save(arguments.work / "greedy.npz", conversations(record[:, :half], end_of_turn), end)
    warm = conversations(record[:, half:], end_of_turn)
    save(arguments.work / "warm.npz", warm, end)
    for stream_tokens in warm[:6]:
        print(repr(tokenizer.decode((stream_tokens & TOKEN).tolist(), skip_special_tokens=False)), flush=True)


if __name__ == "__main__":
    main()
