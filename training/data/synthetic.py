"""Conversations that are right by construction, for what a small teacher model cannot do.

`conversations(seed, count)` yields dictionaries `{"kind", "messages"}` and, where tools are given, `"tools"`: messages
in the chat format of Hugging Face, tools as JSON-schema functions. The same seed gives the same conversations.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from synthetic_arithmetic import arithmetic
from synthetic_code import code_edit
from synthetic_facts import fact, identity
from synthetic_text import text_task
from synthetic_tools import tool_conversation

# How often each kind is drawn, in parts of the whole.
WEIGHTS: dict[str, int] = {"tools": 38, "arithmetic": 17, "code": 15, "identity": 3, "text": 15, "facts": 12}

_EXCHANGES: dict[str, Callable[[random.Random], tuple[str, str]]] = {"arithmetic": arithmetic, "code": code_edit, "identity": identity, "text": text_task, "facts": fact}
_SYSTEMS: dict[str, list[str]] = {
    "arithmetic": ["You are a helpful assistant.", "You are a patient teacher of mathematics.", "Answer briefly."],
    "code": ["You are a helpful assistant.", "You are a programming assistant. Answer with code.", "You are a coding assistant."],
    "identity": ["You are a helpful assistant."], "text": ["You are a helpful assistant.", "Follow the instruction exactly.", "Answer briefly."],
    "facts": ["You are a helpful assistant.", "Answer briefly.", "Answer in one sentence."],
}
_SYSTEM_SHARE = 0.15
_SECOND_TURN_SHARE = 0.2   # conversations without tools that go on with another question
_ATTEMPTS = 40             # draws to find a conversation that was not yielded before
_REPEATABLE = frozenset(["identity"])


def _without_tools(kind: str, random_source: random.Random) -> dict[str, object]:
    messages: list[dict[str, object]] = []
    if random_source.random() < _SYSTEM_SHARE:
        messages.append({"role": "system", "content": random_source.choice(_SYSTEMS[kind])})
    turns = 1
    while random_source.random() < _SECOND_TURN_SHARE and turns < 3:
        turns += 1
    for turn in range(turns):
        maker = _EXCHANGES[kind if turn == 0 or random_source.random() < 0.7 else random_source.choice(list(_EXCHANGES))]
        question, answer = maker(random_source)
        if any(message["content"] == question for message in messages):
            continue
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"kind": kind, "messages": messages}


def conversations(seed: int, count: int) -> Iterator[dict[str, object]]:
    """Yields `count` conversations; all differ, except that questions about the assistant may come again."""
    random_source = random.Random(seed)
    seen: set[int] = set()
    for _ in range(count):
        for _ in range(_ATTEMPTS):
            kind = random_source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            conversation = {"kind": kind, **tool_conversation(random_source)} if kind == "tools" else _without_tools(kind, random_source)
            key = hash(json.dumps(conversation["messages"], sort_keys=True))
            if key not in seen or kind in _REPEATABLE:
                break
        seen.add(key)
        yield conversation
