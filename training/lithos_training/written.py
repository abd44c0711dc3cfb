"""Short answers that were written for this project (data/written/*.txt.xz), as text to learn from and as examples for the teacher.

A file holds entries: lines that begin with "? " are ways to ask, the lines after them are the answer.
"""

from __future__ import annotations

import lzma
import random
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "data" / "written"
# What the teacher is told before the examples. Conversations that begin with it lose it, and the examples, before the student sees them.
SHORT_SYSTEM = "You are a helpful assistant. Answer in a few short, simple sentences."
EXAMPLES = 2
# Longer examples would leave the teacher little room.
LONGEST_EXAMPLE = 280


@dataclass(frozen=True)
class Entry:
    """An answer and the ways to ask for it."""

    questions: tuple[str, ...]
    answer: str


def entries_of(text: str) -> list[Entry]:
    """The entries of a file, in order."""
    entries: list[Entry] = []
    questions: list[str] = []
    answer: list[str] = []

    def close() -> None:
        body = "\n".join(answer).strip()
        if questions and body:
            entries.append(Entry(tuple(questions), body))

    for line in text.split("\n"):
        if line.startswith("? "):
            if "".join(answer).strip():
                close()
                questions, answer = [], []
            questions.append(line[2:].strip())
        else:
            answer.append(line.rstrip())
    close()
    return entries


def entries(folder: Path = FOLDER) -> list[Entry]:
    """All entries of a folder's files."""
    return [entry for path in sorted(folder.glob("*.txt.xz")) for entry in entries_of(lzma.decompress(path.read_bytes()).decode())]


def conversations(seed: int, copies: int, known: list[Entry] | None = None) -> list[list[dict]]:
    """Every entry `copies` times as a conversation: each time another way to ask, sometimes a system message, sometimes after another entry."""
    known = entries() if known is None else known
    source = random.Random(seed)
    out = []
    for copy in range(copies):
        for entry in known:
            messages = [{"role": "system", "content": "You are a helpful assistant."}] if source.random() < 0.1 else []
            turns = [entry] if source.random() < 0.75 else [source.choice(known), entry]
            for turn in turns:
                question = turn.questions[(copy + source.randrange(2)) % len(turn.questions)]
                messages += [{"role": "user", "content": question}, {"role": "assistant", "content": turn.answer}]
            out.append(messages)
    return out


def examples(source: random.Random, known: list[Entry]) -> str:
    """The system message and a few random entries as turns of ChatML, which a question follows."""
    text = f"<|im_start|>system\n{SHORT_SYSTEM}<|im_end|>\n"
    short = 0
    while short < EXAMPLES:
        entry = source.choice(known)
        if len(entry.answer) <= LONGEST_EXAMPLE:
            text += f"<|im_start|>user\n{source.choice(entry.questions)}<|im_end|>\n<|im_start|>assistant\n{entry.answer}<|im_end|>\n"
            short += 1
    return text


def without_examples(messages: list[dict]) -> list[dict]:
    """A sampled conversation without the system message for short answers and the examples after it; any other as it is."""
    if messages and messages[0] == {"role": "system", "content": SHORT_SYSTEM}:
        return messages[1 + 2 * EXAMPLES :]
    return messages
