"""Edits of short functions: rename, document, annotate, default, check, comprehension, repair, error handling."""

from __future__ import annotations

import random
import re

from code_bank import PYTHON, Snippet
from code_edits import COMPREHENSIONS, ERROR_HANDLING, FAULTS, OTHER_LANGUAGES

Exchange = tuple[str, str]

_BY_NAME = {snippet.name: snippet for snippet in PYTHON}


def _block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def _request(random_source: random.Random, instruction: str, code: str, language: str = "python") -> str:
    return random_source.choice([f"{instruction}\n\n{_block(code, language)}", f"{_block(code, language)}\n\n{instruction}", f"{instruction}\n{_block(code, language)}"])


def _answer(random_source: random.Random, code: str, remark: str, language: str = "python") -> str:
    block = _block(code, language)
    return random_source.choice([block, f"{remark}\n\n{block}", f"{block}\n\n{remark}"])


def replace_name(code: str, old: str, new: str) -> str:
    """Renames an identifier; names inside strings and attributes keep their spelling."""
    pieces = re.split(r'(\"[^\"\n]*\")', code)
    pattern = re.compile(rf"(?<![\w.\"]){re.escape(old)}(?![\w\"])")
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            prefix_is_format = piece.endswith("f")
            pieces[index] = pattern.sub(new, piece[:-1] if prefix_is_format else piece) + ("f" if prefix_is_format else "")
        elif pieces[index - 1].endswith("f"):
            pieces[index] = re.sub(r"\{[^{}]*\}", lambda match: pattern.sub(new, match[0]), piece)
    return "".join(pieces)


def _insert_after_signature(code: str, lines: list[str]) -> str:
    head, _, body = code.partition(":\n")
    return head + ":\n" + "\n".join("    " + line for line in lines) + "\n" + body


def _rename(random_source: random.Random, snippet: Snippet) -> Exchange | None:
    if not snippet.renames:
        return None
    old, new = random_source.choice(snippet.renames)
    if re.search(rf"\b{re.escape(new)}\b", snippet.code):
        return None
    instruction = random_source.choice([f"Rename `{old}` to `{new}`.", f"Change the name `{old}` to `{new}` in this code.", f"Please rename the variable `{old}` to `{new}`.", f"Replace the name `{old}` by `{new}`:"])
    return _request(random_source, instruction, snippet.code), _answer(random_source, replace_name(snippet.code, old, new), f"I renamed `{old}` to `{new}`.")


def _rename_function(random_source: random.Random, snippet: Snippet) -> Exchange:
    new = random_source.choice(["compute_", "do_", "my_", "get_"]) + snippet.name
    return (_request(random_source, random_source.choice([f"Rename the function to `{new}`.", f"Call this function `{new}` instead."]), snippet.code),
            _answer(random_source, replace_name(snippet.code, snippet.name, new), f"The function is now called `{new}`."))


def _docstring(random_source: random.Random, snippet: Snippet) -> Exchange:
    instruction = random_source.choice(["Add a docstring.", "Document this function.", "Write a docstring for this function.", "Please add a docstring:", "Add a short description to this function."])
    return _request(random_source, instruction, snippet.code), _answer(random_source, _insert_after_signature(snippet.code, [f'"""{snippet.summary}"""']), "I added a docstring.")


def with_type_hints(snippet: Snippet) -> str:
    """The function with annotations."""
    parameters = ", ".join(f"{name}: {kind}" for name, kind in snippet.types.items())
    return re.sub(r"def (\w+)\([^)]*\):", lambda match: f"def {match[1]}({parameters}) -> {snippet.returns}:", snippet.code, count=1)


def _type_hints(random_source: random.Random, snippet: Snippet) -> Exchange:
    instruction = random_source.choice(["Add type hints.", "Annotate this function with types.", "Add type annotations to this function.", "Please add type hints:", "Make this function typed."])
    return _request(random_source, instruction, snippet.code), _answer(random_source, with_type_hints(snippet), "I added type hints.")


def _hints_and_docstring(random_source: random.Random, snippet: Snippet) -> Exchange:
    instruction = random_source.choice(["Add type hints and a docstring.", "Document and annotate this function."])
    return _request(random_source, instruction, snippet.code), _answer(random_source, _insert_after_signature(with_type_hints(snippet), [f'"""{snippet.summary}"""']), "The function now has type hints and a docstring.")


def _default(random_source: random.Random, snippet: Snippet) -> Exchange | None:
    if snippet.default is None:
        return None
    name, value = snippet.default
    instruction = random_source.choice([f"Give `{name}` the default value `{value}`.", f"Make `{name}` optional with the default `{value}`.", f"Add a default of `{value}` for the parameter `{name}`.", f"`{name}` should be `{value}` unless it is given."])
    code = re.sub(rf"\b{name}\):", f"{name}={value}):", snippet.code, count=1)
    return _request(random_source, instruction, snippet.code), _answer(random_source, code, f"`{name}` now defaults to `{value}`.")


def _guard(random_source: random.Random, snippet: Snippet) -> Exchange | None:
    if snippet.guard is None:
        return None
    condition, exception, message = snippet.guard
    code = _insert_after_signature(snippet.code, [f"if {condition}:", f'    raise {exception}("{message}")'])
    instruction = random_source.choice([f"Raise a `{exception}` if `{condition}`.", f"Add a check that raises `{exception}` when `{condition}`.", f"Add error handling: if `{condition}`, raise a `{exception}`.", f"Validate the input: `{condition}` should raise a `{exception}` that says \"{message}\"."])
    return _request(random_source, instruction, snippet.code), _answer(random_source, code, f"The function now raises a `{exception}` if `{condition}`.")


def _fault(random_source: random.Random) -> Exchange:
    name, wrong, right, why = random_source.choice(FAULTS)
    code = _BY_NAME[name].code
    faulty = (code + "\n").replace(right, wrong, 1).rstrip("\n")
    instruction = random_source.choice(["Fix the bug in this function.", "This function gives wrong results. Fix it.", "What is wrong here? Please correct it.", "There is a mistake in this code. Fix it.", "Find and fix the bug:", "Please debug this function.",
                                        f"This should work like this: {_BY_NAME[name].summary[0].lower()}{_BY_NAME[name].summary[1:]} But it does not. Fix it."])
    reason = why[0].upper() + why[1:] + "." if why[0].isalpha() else why + "."
    return _request(random_source, instruction, faulty), random_source.choice([f"{_block(code)}\n\n{reason}", f"{reason} Here is the corrected code:\n\n{_block(code)}", _block(code)])


def _comprehension(random_source: random.Random) -> Exchange:
    loop, comprehension = random_source.choice(COMPREHENSIONS)
    kind = {"{": "a comprehension", "s": "a generator expression", "a": "`any`"}.get(comprehension.split(" = ", 1)[1][0], "a list comprehension")
    instruction = random_source.choice([f"Rewrite this loop with {kind}.", f"Turn the loop into {kind}.", f"Make this shorter with {kind}.", f"Use {kind} instead of the loop:"])
    if random_source.random() < 0.25:
        return _request(random_source, "Rewrite this as a loop.", comprehension), _answer(random_source, loop, "Here it is as a loop.")
    return _request(random_source, instruction, loop), _answer(random_source, comprehension, f"The loop is now {kind}.")


def _error_handling(random_source: random.Random) -> Exchange:
    before, after, what = random_source.choice(ERROR_HANDLING)
    instruction = random_source.choice(["Add error handling.", "Handle errors in this function.", "Make this function more robust.", "What if something goes wrong here? Add error handling.", "Please add a try and except block:"])
    return _request(random_source, instruction, before), _answer(random_source, after, what[0].upper() + what[1:] + ".")


def _other_language(random_source: random.Random) -> Exchange:
    language, name, code, summary, renames = random_source.choice(OTHER_LANGUAGES)
    choice = random_source.randrange(3)
    if choice == 0:
        old, new = random_source.choice(list(renames.items()))
        instruction = random_source.choice([f"Rename `{old}` to `{new}`.", f"Please change the name `{old}` to `{new}`."])
        return _request(random_source, instruction, code, language), _answer(random_source, replace_name(code, old, new), f"I renamed `{old}` to `{new}`.", language)
    if choice == 1:
        comment = f"/// {summary}" if language == "rust" else f"/** {summary} */"
        instruction = random_source.choice(["Add a documentation comment.", "Document this function.", "Write a doc comment for this function."])
        return _request(random_source, instruction, code, language), _answer(random_source, f"{comment}\n{code}", "I added a documentation comment.", language)
    public = f"pub {code}" if language == "rust" else f"export {code}"
    instruction = "Make this function public." if language == "rust" else "Export this function."
    return _request(random_source, instruction, code, language), _answer(random_source, public, "The function is now public." if language == "rust" else "The function is now exported.", language)


def _write(random_source: random.Random, snippet: Snippet) -> Exchange:
    """Writing the function from its description."""
    wish = snippet.summary[0].lower() + snippet.summary[1:].rstrip(".")
    verb, _, rest = wish.partition(" ")
    third = {"split": "splits", "convert": "converts", "return": "returns", "merge": "merges", "replace": "replaces", "shorten": "shortens", "group": "groups", "read": "reads", "write": "writes", "encode": "encodes", "sort": "sorts", "parse": "parses", "count": "counts"}.get(verb, verb)
    question = random_source.choice([f"Write a Python function `{snippet.name}` that {third} {rest}.", f"Write a Python function that {third} {rest}.", f"How can I {wish} in Python?", f"Python function to {wish}", f"I need a function `{snippet.name}({', '.join(snippet.types)})`: {wish}."])
    code = random_source.choice([snippet.code, with_type_hints(snippet), _insert_after_signature(snippet.code, [f'"""{snippet.summary}"""'])])
    return question, random_source.choice([_block(code), f"Here is the function:\n\n{_block(code)}", f"{_block(code)}\n\nCall it as `{snippet.name}({', '.join(snippet.types)})`."])


def _explain(random_source: random.Random, snippet: Snippet) -> Exchange:
    """Saying what a function does."""
    question = _request(random_source, random_source.choice(["What does this function do?", "Explain this function in one sentence.", "What is the purpose of this code?"]), snippet.code)
    verb, _, rest = snippet.summary.partition(" ")
    third = verb.lower() + ("es" if verb.lower().endswith("s") else "s")
    return question, random_source.choice([f"The function `{snippet.name}` {third} {rest}", f"It {third} {rest}"]).replace("Groups", "groups")


def code_edit(random_source: random.Random) -> Exchange:
    """A request to edit, write or explain a short piece of code, and the result."""
    while True:
        snippet = random_source.choice(PYTHON)
        kind = random_source.choices(["rename", "function", "doc", "hints", "both", "default", "guard", "fault", "comprehension", "errors", "other", "write", "explain"],
                                     [5, 2, 4, 4, 2, 3, 4, 5, 3, 2, 4, 5, 3])[0]
        standalone = {"fault": _fault, "comprehension": _comprehension, "errors": _error_handling, "other": _other_language}
        if kind in standalone:
            return standalone[kind](random_source)
        makers = {"rename": _rename, "function": _rename_function, "doc": _docstring, "hints": _type_hints, "both": _hints_and_docstring, "default": _default, "guard": _guard, "write": _write, "explain": _explain}
        exchange = makers[kind](random_source, snippet)
        if exchange is not None:
            return exchange
