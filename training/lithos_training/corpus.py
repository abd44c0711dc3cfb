"""From texts and sampled conversations to windows of tokens: what the trainers read.

A window starts with the start of a text wherever texts are short, because a conversation starts from a zero state too. Texts that
are longer than a window are cut into several.
"""

from __future__ import annotations

import argparse
import importlib
import json
import lzma
import multiprocessing
import random
import re
import sys
import zlib
from pathlib import Path
from typing import Iterable, Iterator

import numpy as np
from tokenizers import Tokenizer

from . import written
from .stream import TOKEN, conversations
from .teacher import teacher_tokenizer
from .vocabulary import END_OF_TEXT, TURN_END, TURN_START, smaller_tokenizer, template_renderer
from .written import without_examples

WINDOW = 1024
# Texts that name the teacher would teach the student a wrong identity.
FOREIGN = re.compile(r"SmolLM|Hugging ?Face|OpenAI|ChatGPT|HuggingFace", re.IGNORECASE)
CODE = re.compile(r"```.*?(```|$)", re.DOTALL)
SENTENCE_END = re.compile(r"[.!?:]\s|\n")
WORD = re.compile(r"[a-z0-9]{3,}")
# Words are compared by their beginnings, so that "bakers" answers "bakery".
SUBJECT_LETTERS = 5
# The teacher's text comes after this system message mostly, so that a question without it gets the plain answers that were written.
TEACHER_SYSTEM = "You are a helpful assistant. Answer in detail."
TEACHER_SYSTEM_SHARE = 0.85
# Words of requests that do not say what they are about.
ASKING_WORDS = frozenset(
    """about act again all also and answer any are ask best better between can could describe did differ difference does doing each easy
    example examples explain few find first five for four from get give good had has have help how idea ideas into its just kind know
    let like list little make makes many may mean means might more most much name need new not one our out please quick reason reasons
    say sentence sentences short should simple simply small some something steps such suggest tell than that the their them then there
    these they thing things think this those three tip tips two use used using very want was way ways were what when where which who why
    will with word words work works would write you your""".split()
)


def packed(sequences: Iterable[list[int]], filler: int, window: int = WINDOW) -> tuple[np.ndarray, np.ndarray]:
    """Windows [n, window + 1] of u16 and how many of their tokens count. Best fit: each piece goes to the open window that it
    fills best; what is left over is `filler`."""
    size = window + 1
    pieces = []
    for sequence in sequences:
        # Pieces of a long text share one token, so that every token is predicted once.
        for start in range(0, max(len(sequence) - 1, 1), window):
            pieces.append(np.asarray(sequence[start : start + size], dtype=np.uint16))
    pieces.sort(key=len, reverse=True)
    open_windows: list[list[int]] = [[] for _ in range(size + 1)]
    # Bit r: some window has exactly r places left.
    rooms = 0
    contents: list[list[np.ndarray]] = []
    for piece in pieces:
        fitting = rooms >> len(piece)
        if fitting == 0:
            contents.append([piece])
            room, index = size, len(contents) - 1
        else:
            room = len(piece) + (fitting & -fitting).bit_length() - 1
            index = open_windows[room].pop()
            contents[index].append(piece)
            rooms ^= 0 if open_windows[room] else 1 << room
        open_windows[room - len(piece)].append(index)
        rooms |= 1 << room - len(piece)
    windows = np.full((len(contents), size), filler, dtype=np.uint16)
    used = np.zeros(len(contents), dtype=np.int32)
    order = np.random.default_rng(0)
    for index, parts in enumerate(contents):
        order.shuffle(parts)
        row = np.concatenate(parts)
        windows[index, : len(row)] = row
        used[index] = len(row)
    return windows, used


def messages_of(text: str) -> list[dict] | None:
    """The turns of a conversation as a model wrote it, or nothing if it does not have their form."""
    messages = []
    for turn in text.split(TURN_START)[1:]:
        turn = turn.replace(END_OF_TEXT, "")
        if "\n" not in turn or not turn.rstrip("\n").endswith(TURN_END):
            return None
        role, content = turn.rstrip("\n").removesuffix(TURN_END).split("\n", 1)
        if role not in ("system", "user", "assistant") or TURN_END in content or not content.strip():
            return None
        messages.append({"role": role, "content": content.strip()})
    # The teacher's standing system message names it; the others belong to the prompt.
    if messages and messages[0]["role"] == "system" and FOREIGN.search(messages[0]["content"]):
        messages = messages[1:]
    roles = [m["role"] for m in messages if m["role"] != "system"]
    return messages if roles and roles == ["user", "assistant"] * (len(roles) // 2) else None


def repeats_itself(answer: str) -> bool:
    """Whether an answer outside code says a sentence twice or says little new for its length."""
    prose = CODE.sub("", answer)
    sentences = [s.strip().lower() for s in SENTENCE_END.split(prose) if len(s.strip()) > 12]
    if len(set(sentences)) < len(sentences):
        return True
    words = prose.lower().split()
    runs = list(zip(words, words[1:], words[2:]))
    return len(set(runs)) < 0.9 * len(runs)


def subjects(text: str) -> set[str]:
    """The beginnings, without a plural's s, of the words of a text that say what it is about."""
    words = WORD.findall(text.lower())
    return {word.rstrip("s")[:SUBJECT_LETTERS] for word in words if word not in ASKING_WORDS}


def keeps_to_the_subject(messages: list[dict]) -> bool:
    """Whether the first answer names something that its question is about. Small teachers wander, and a smaller student learns it."""
    turns = [m["content"] for m in messages if m["role"] != "system"]
    wanted = subjects(turns[0])
    return not wanted or bool(wanted & subjects(turns[1]))


def worth_learning(messages: list[dict]) -> bool:
    """Whether a sampled conversation is clean: on its subject, no foreign identity, no loops, no runaway turns."""
    if not keeps_to_the_subject(messages):
        return False
    for message in messages:
        content = message["content"]
        if FOREIGN.search(content) or len(content) > 3000:
            return False
        if message["role"] == "user" and len(content) > 1200:
            return False
        if message["role"] == "assistant" and repeats_itself(content):
            return False
        raw = content.encode()
        if len(raw) > 300 and len(zlib.compress(raw)) < 0.28 * len(raw):
            return False
    return True


def clean_conversations(streams: list[list[int]], teacher: Tokenizer) -> list[list[dict]]:
    """What is worth learning of the teacher's token streams, without the examples that they began with."""
    out = []
    for text in teacher.decode_batch(streams, skip_special_tokens=False):
        messages = messages_of(text)
        messages = messages and without_examples(messages)
        if messages and worth_learning(messages):
            out.append(messages)
    return out


def _clean_part(part: tuple[Path, int, int, Path]) -> list[list[dict]]:
    """The clean conversations of some slots of a record: the work of one process."""
    path, index, parts, teacher_path = part
    teacher, _ = teacher_tokenizer(teacher_path)
    record = np.load(path, mmap_mode="r")[:, index::parts]
    return clean_conversations([(c & TOKEN).tolist() for c in conversations(record, teacher.token_to_id(TURN_END))], teacher)


def sampled_conversations(records: list[Path], teacher: Path, parts: int = 32) -> Iterator[list[dict]]:
    """Clean, distinct conversations of records of the teacher."""
    seen = set()
    with multiprocessing.get_context("spawn").Pool() as pool:
        for chats in pool.imap(_clean_part, [(path, index, parts, teacher) for path in records for index in range(parts)]):
            for messages in chats:
                key = hash("\n".join(m["content"] for m in messages))
                if key not in seen:
                    seen.add(key)
                    yield messages


def encoded(texts: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of each text and the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    return [encoding.ids + [end] for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def document_lines(path: Path) -> list[dict[str, str]]:
    """Records of a JSON Lines file compressed with xz: `source`, `name` and `text`."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def made_texts(source: str, seed: int, count: int) -> list[str]:
    """Conversations that `data/synthetic.py` or `data/everyday.py` makes, rendered, without those that ask what is measured."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
    import everyday

    maker, render = importlib.import_module(source), template_renderer()
    return [
        render(c["messages"], c.get("tools"))
        for c in maker.conversations(seed, count)
        if not any(m["role"] == "user" and everyday.plain(m["content"]) in everyday.test_prompts() for m in c["messages"])
    ]


def as_the_teachers(chat: list[dict], source: random.Random) -> list[dict]:
    """A sampled conversation, mostly with the system message that marks the teacher's text."""
    if chat[0]["role"] == "system" or source.random() >= TEACHER_SYSTEM_SHARE:
        return chat
    return [{"role": "system", "content": TEACHER_SYSTEM}, *chat]


def save(path: Path, texts: list[str], tokenizer: Tokenizer) -> None:
    """Encodes, packs and writes one source."""
    windows, used = packed(encoded(texts, tokenizer), tokenizer.token_to_id(END_OF_TEXT))
    np.savez(path, windows=windows, used=used)
    filled = used.sum() / windows.size
    print(f"{path.name}: {len(texts)} texts, {sum(map(len, texts)) / 1e6:.1f} M characters, {used.sum() / 1e6:.2f} M tokens, "
          f"{len(windows)} windows, {filled:.1%} filled", flush=True)  # fmt: skip


def main() -> None:
    """Builds one source's windows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("source", choices=["documents", "synthetic", "everyday", "written", "conversations"])
    parser.add_argument("--teacher", type=Path, required=True, help="GGUF file of SmolLM2-135M-Instruct")
    parser.add_argument("--documents", type=Path, help="documents.train.jsonl.xz")
    parser.add_argument("--record", type=Path, nargs="*", help="records that sampling wrote")
    parser.add_argument("--count", type=int, default=100_000, help="how many conversations to make, for synthetic and everyday")
    parser.add_argument("--copies", type=int, default=8, help="how often each written answer occurs, asked for in other ways")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--heldout", type=float, default=0.01, help="share of the conversations kept for measuring")
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    _, merges = teacher_tokenizer(arguments.teacher)
    tokenizer = smaller_tokenizer(merges, arguments.vocabulary)
    out = arguments.work / f"{arguments.source}.npz"
    if arguments.source == "documents":
        save(out, [line["text"] for line in document_lines(arguments.documents)], tokenizer)
    elif arguments.source in ("synthetic", "everyday"):
        save(out, made_texts(arguments.source, 1, arguments.count), tokenizer)
    elif arguments.source == "written":
        render = template_renderer()
        save(out, [render(chat) for chat in written.conversations(1, arguments.copies)], tokenizer)
    else:
        chats = list(sampled_conversations(arguments.record, arguments.teacher))
        source = random.Random(1)
        source.shuffle(chats)
        kept = round(len(chats) * arguments.heldout)
        with open(arguments.work / "conversations.heldout.jsonl", "w") as lines:
            for chat in chats[:kept]:
                lines.write(json.dumps({"messages": chat}, ensure_ascii=False) + "\n")
        render = template_renderer()
        save(out, [render(as_the_teachers(chat, source)) for chat in chats[kept:]], tokenizer)


if __name__ == "__main__":
    main()
