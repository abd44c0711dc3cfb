"""Prompts for a small teacher model, in great variety.

`prompts(seed, count)` fills templates from the banks of topics, tasks, questions and sentences. The same seed gives the
same prompts. Short prompts dominate.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

import code_bank
import code_edits
import question_bank
import sentence_bank
import task_bank
import topic_bank
from prompt_templates import MODIFIER_SHARE, MODIFIERS, SYSTEMS, TEMPLATES

Prompt = dict[str, str | None]

# How often each kind is drawn, in parts of the whole.
WEIGHTS: dict[str, int] = {
    "explain": 16, "how-to": 11, "list": 7, "compare": 5, "story": 8, "poem": 4, "message": 6, "brainstorm": 5, "advice": 6, "opinion": 5, "definition": 3,
    "small talk": 7, "role play": 2, "facts": 10, "summarise": 4, "rewrite": 5, "python code": 8, "other code": 4, "explain code": 3, "fix code": 1,
    "arithmetic": 3, "reasoning": 2,
}
SYSTEM_SHARE = 0.25

_ALL_CONCEPTS = [concept for concepts in topic_bank.CONCEPTS.values() for concept in concepts]
_CLAUSES = [concept for concept in _ALL_CONCEPTS if concept.startswith(("how ", "why "))]
_CONCEPTS = [concept for concept in _ALL_CONCEPTS if not concept.startswith(("how ", "why "))]
_SNIPPETS = [("python", snippet.code) for snippet in code_bank.PYTHON] + [
    (language, code) for language, _, code, _, _ in code_edits.OTHER_LANGUAGES]
_REPEATABLE = 4  # times that one prompt may occur in a call, for greetings and the like
_SUBJECTS = [subject for subjects in topic_bank.SUBJECTS.values() for subject in subjects]
_THINGS = [thing for group, things in topic_bank.GROUPS.items() if group not in ("body", "code", "planets") for thing in things]
_FIELD = re.compile(r"\{(\w+)\}")


def _pair(random_source: random.Random) -> tuple[str, str]:
    things = random_source.choice(list(topic_bank.GROUPS.values()))
    if " and " in things[0]:
        first, second = random_source.choice(things).split(" and ", 1)
        return first, second
    first, second = random_source.sample(things, 2)
    return first, second


def _paragraph(random_source: random.Random, documents: Sequence[str]) -> str:
    """A run of sentences of our own, or a paragraph of one of the documents that were passed in."""
    if documents and random_source.random() < 0.5:
        blocks = [block for block in random_source.choice(documents).split("\n\n")
                  if 120 < len(block) < 700 and block[0].isalpha() and block.rstrip().endswith(".") and "|" not in block]
        if blocks:
            return random_source.choice(blocks)
    sentences = random_source.choice(sentence_bank.PARAGRAPHS)
    length = random_source.randint(3, len(sentences))
    start = random_source.randint(0, len(sentences) - length)
    return " ".join(sentences[start:start + length])


def _buggy(random_source: random.Random) -> str:
    name, fault, right, _ = random_source.choice(code_edits.FAULTS)
    code = next(snippet.code for snippet in code_bank.PYTHON if snippet.name == name)
    return (code + "\n").replace(right, fault, 1).rstrip("\n")


def _numbers(random_source: random.Random) -> dict[str, str]:
    """Values of the fields of puzzles and word problems; related fields fit each other."""
    k = random_source.randint(2, 8)
    n = random_source.randint(3, 20)
    small = random_source.randint(2, 20)
    a, b, c = random_source.sample(sentence_bank.PERSONS, 3)
    return {
        "a": a, "b": b, "c": c, "k": str(k), "k2": str(2 * k), "k3": str(3 * k), "n": str(n), "m": str(random_source.randint(2, 12)),
        "small": str(small), "big": str(small + random_source.randint(3, 40)), "s": str(10 * random_source.randint(4, 15)),
        "p": str(10 * random_source.randint(1, 30)), "q": str(random_source.choice([5, 10, 15, 20, 25, 30, 50])), "total": str(n * random_source.randint(3, 12)),
    }


def _field_makers(random_source: random.Random, documents: Sequence[str]) -> dict[str, Callable[[], str]]:
    choose = random_source.choice
    pair = _pair(random_source)
    language = choose(list(task_bank.OTHER_TASKS))
    unit, tasks = task_bank.OTHER_TASKS[language]
    code_language, code = choose(_SNIPPETS)
    question = choose(question_bank.QUESTIONS)
    numbers = _numbers(random_source)

    def fill_numbers(text: str) -> str:
        return _FIELD.sub(lambda match: numbers[match[1]], text)

    return {
        "concept": lambda: choose(_CONCEPTS), "clause": lambda: choose(_CLAUSES), "activity": lambda: choose(topic_bank.ACTIVITIES), "subject": lambda: choose(_SUBJECTS),
        "subject2": lambda: choose(_SUBJECTS), "thing": lambda: choose(_THINGS), "first": lambda: pair[0], "second": lambda: pair[1],
        "situation": lambda: choose(topic_bank.SITUATIONS), "occasion": lambda: choose(topic_bank.OCCASIONS), "person": lambda: choose(sentence_bank.PERSONS),
        "place": lambda: choose(sentence_bank.PLACES), "number": lambda: choose(["two", "three", "three", "four", "five", "five", "six", "ten"]),
        "word": lambda: choose(sentence_bank.WORDS), "word2": lambda: choose(sentence_bank.WORDS), "rhyme": lambda: choose(sentence_bank.RHYMES),
        "opening": lambda: choose(sentence_bank.OPENINGS), "object": lambda: choose(sentence_bank.OBJECTS), "job": lambda: choose(sentence_bank.JOBS),
        "schoolsubject": lambda: choose(sentence_bank.SCHOOL_SUBJECTS), "pet": lambda: choose(sentence_bank.PETS), "cook": lambda: choose(sentence_bank.COOKING),
        "feeling": lambda: choose(topic_bank.SUBJECTS["feelings"]), "sport": lambda: choose(topic_bank.GROUPS["sports"]),
        "question": lambda: question, "question_lower": lambda: question[0].lower() + question[1:],
        "paragraph": lambda: _paragraph(random_source, documents), "informal": lambda: choose(sentence_bank.INFORMAL), "formal": lambda: choose(sentence_bank.FORMAL),
        "faulty": lambda: choose(sentence_bank.FAULTY), "sentence": lambda: choose(sentence_bank.SENTENCES), "beginning": lambda: choose(sentence_bank.BEGINNINGS),
        "task": lambda: choose(task_bank.PYTHON_TASKS), "language": lambda: language, "unit": lambda: unit, "othertask": lambda: choose(tasks),
        "code": lambda: code, "codelanguage": lambda: code_language, "buggy": lambda: _buggy(random_source),
        "word_problem": lambda: fill_numbers(choose(question_bank.WORD_PROBLEMS)), "puzzle": lambda: fill_numbers(choose(question_bank.PUZZLES)),
    }


def _vary(text: str, random_source: random.Random) -> str:
    """Small differences of how people type."""
    chance = random_source.random()
    if chance < 0.06 and "```" not in text and text[1:2].islower():
        text = text[0].lower() + text[1:]
    if 0.04 < chance < 0.12 and text.endswith((".", "?")) and len(text) < 60:
        text = text[:-1]
    if 0.12 < chance < 0.15:
        text = "Please " + text[0].lower() + text[1:] if text.split(" ")[0] in ("Write", "Explain", "Give", "List", "Describe", "Name", "Tell", "Compare") else text
    return text


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:] if text else text


def one_prompt(random_source: random.Random, documents: Sequence[str] = ()) -> Prompt:
    """One prompt, drawn with `random_source`."""
    kind = random_source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    template = random_source.choice(TEMPLATES[kind])
    makers = _field_makers(random_source, documents)
    text = _FIELD.sub(lambda match: makers[match[1]](), template)
    if kind in MODIFIERS and text[-1] in ".?!" and random_source.random() < MODIFIER_SHARE:
        text += random_source.choice(MODIFIERS[kind])
    text = re.sub(r"([.!?])\.", r"\1", _capitalise(text)) if "..." not in text else _capitalise(text)
    text = re.sub(r"(?<=[.?!] )[a-z](?=\w* [a-z])", lambda match: match[0].upper(), text) if kind == "advice" else text
    text = text.replace("a HTML", "an HTML")
    system = random_source.choice(SYSTEMS) if random_source.random() < SYSTEM_SHARE else None
    return {"system": system, "user": _vary(text, random_source), "kind": kind}


def prompts(seed: int, count: int, documents: Sequence[str] = ()) -> list[Prompt]:
    """`count` prompts `{"system", "user", "kind"}`, nearly all different; `documents` are optional texts to take paragraphs from."""
    random_source = random.Random(seed)
    result: list[Prompt] = []
    seen: Counter[str] = Counter()
    for _ in range(count):
        for _ in range(30):
            prompt = one_prompt(random_source, documents)
            text = str(prompt["user"])
            if seen[text] < (_REPEATABLE if prompt["kind"] == "small talk" else 1):
                break
        seen[text] += 1
        result.append(prompt)
    return result
