"""Short functions and what is known about them: the material for explaining and editing code.

The functions are in `python_snippets.txt`. Each entry there begins with comment lines: `summary` (a docstring), `types` (parameters and result), and
optionally `default` (a default for the last parameter), `guard` (condition | exception | message) and `rename`
(old > new, ...). The functions are ours and work as their summary says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Snippet:
    """A function with the facts that edits need."""

    code: str
    name: str
    summary: str
    types: dict[str, str]
    returns: str
    default: tuple[str, str] | None = None
    guard: tuple[str, str, str] | None = None
    renames: list[tuple[str, str]] = field(default_factory=list)


def _parse(text: str) -> list[Snippet]:
    snippets = []
    for entry in text.strip().split("\n\n\n"):
        facts: dict[str, str] = {}
        lines = entry.strip("\n").split("\n")
        while lines[0].startswith("# "):
            key, _, value = lines.pop(0)[2:].partition(": ")
            facts[key] = value.strip()
        parameters, _, returns = facts["types"].rpartition("->")
        types = dict(part.strip().split(": ", 1) for part in parameters.split(";") if part.strip())
        default = tuple(facts["default"].split(" = ")) if "default" in facts else None
        guard = tuple(part.strip() for part in facts["guard"].split("|")) if "guard" in facts else None
        renames = [tuple(pair.strip().split(" > ")) for pair in facts.get("rename", "").split(",") if pair.strip()]
        code = "\n".join(lines)
        name = code.split("def ", 1)[1].split("(", 1)[0]
        snippets.append(Snippet(code, name, facts["summary"], types, returns.strip(), default, guard, renames))  # type: ignore[arg-type]
    return snippets


PYTHON: list[Snippet] = _parse(Path(__file__).with_name("python_snippets.txt").read_text(encoding="utf-8"))
