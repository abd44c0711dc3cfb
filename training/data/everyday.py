"""Conversations about everyday subjects: a few kinds of question, asked in many ways, about what `everyday.txt.xz` knows.

A small model answers best what it has seen densely. So each subject comes with every way to ask that its kind has, and always with the
same short answer. The text is compressed to keep the checkout small (`xzless` shows it). `conversations(seed, count)` yields dictionaries `{"kind", "messages"}`; the same seed gives the same conversations.
"""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from fact_bank import CAPITALS

TEXT = Path(__file__).with_name("everyday.txt.xz")
PROMPTS = Path(__file__).parents[2] / "bench" / "prompts"

Exchange = tuple[str, str]

# How often each kind is drawn, in parts of the whole.
WEIGHTS: dict[str, int] = {
    "explain": 14, "poem": 8, "why": 8, "how": 7, "tips": 7, "compare": 7, "list": 8, "note": 6, "story": 9, "sum": 8, "function": 7, "loop": 4,
    "capital": 5, "author": 4, "translation": 4, "packing": 4, "better": 4, "use": 4, "scene": 4,
}
SYSTEMS = ["You are a helpful assistant.", "You are a friendly assistant.", "Answer briefly.", "You are a helpful assistant. Answer in a few sentences.",
           "Answer in plain words.", "You are a polite assistant. Keep your answers short."]
_SYSTEM_SHARE = 0.12
_SECOND_TURN_SHARE = 0.2
_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven"}

_ASK_WHAT = [
    "What {is} {x}?", "Explain what {x} {is} to a child.", "Explain what {x} {is} in two sentences.", "Tell me what {x} {is}.", "Explain {x} to a child.",
    "Explain {x} in two sentences.", "Explain {x} in simple words.", "Tell a child what {x} {is}.", "Can you explain what {x} {is}?", "Describe {x} in two sentences.",
    "Please explain what {x} {is}.", "How would you explain {x} to a small child?", "My daughter wants to know what {x} {is}.", "What {is} {x}? Keep it simple.",
    "In two sentences: what {is} {x}?", "Give me a short explanation of {x}.",
]
_ASK_POEM = [
    "Write a short poem about {x}.", "Write a poem about {x}.", "Write four lines about {x}.", "Can you write a little poem about {x}?", "A short poem about {x}, please.",
    "Please write a poem about {x}.", "Write a short rhyme about {x}.", "I would like a poem about {x}.", "Make a small poem about {x}.", "Give me a four-line poem about {x}.",
]
_ASK_WHY = ["Tell me why {x}.", "Can you explain why {x}?", "Do you know why {x}?", "Explain why {x}.", "I wonder why {x}.", "My son asks why {x}."]
_ASK_HOW = ["Explain how {x}.", "Can you tell me how {x}?", "Tell me how {x}.", "I would like to know how {x}.", "Explain to a child how {x}.", "Do you know how {x}?"]
_ASK_TIPS = [
    "Give me {n} tips for {x}.", "{N} tips for {x}, please.", "What are {n} good tips for {x}?", "I need {n} tips for {x}.", "Tell me {n} tips for {x}.",
    "Can you give me {n} tips for {x}?", "List {n} tips for {x}.", "Do you have {n} tips for {x}?", "Write {n} short tips for {x}.",
]
_ASK_DIFFERENCE = [
    "What is the difference between {a} and {b}?", "How are {a} and {b} different?", "Explain the difference between {a} and {b}.", "How can I tell {a} from {b}?",
    "Compare {a} and {b}.", "{A} or {b}: what is the difference?", "What makes {a} different from {b}?", "Tell me the difference between {a} and {b}.",
]
_ASK_LIST = [
    "Name {n} {x}.", "List {n} {x}.", "Tell me {n} {x}.", "Give me {n} {x}.", "Can you name {n} {x}?", "{N} {x}, please.", "Give me a list of {n} {x}.",
    "Please name {n} {x}.", "I need {n} {x}.", "Which {n} {x} do you know?", "Write down {n} {x}.",
]
_NOTES = {
    "thank-you": "a thank-you note", "sorry": "an apology", "invitation": "an invitation", "congratulation": "a note of congratulation", "birthday": "a birthday card",
    "get-well": "a get-well card", "farewell": "a farewell note", "request": "a polite note", "reminder": "a reminder", "welcome": "a welcome note",
}
_ASK_NOTE = ["Write {note} to {who} {what}.", "Please write {note} to {who} {what}.", "Help me write {note} to {who} {what}.", "I need {note} to {who} {what}.",
             "Can you write {note} to {who} {what}?", "Draft {note} to {who} {what}.", "Write a few lines to {who} {what}: {note}."]
_ASK_STORY = ["Tell me a very short story about {x}.", "Tell me a short story about {x}.", "Write a short story about {x}.", "Tell a story about {x}.",
              "Can you tell me a little story about {x}?", "Write a very short story about {x}.", "I would like a short story about {x}.", "A bedtime story about {x}, please."]
_STORY_SUBJECTS = {
    "lost": ["a lost {a}", "a {a} that got lost", "a {a} who cannot find the way home", "a little lost {a}", "a {a} who ran away"],
    "brave": ["a brave {a}", "a {a} who was afraid", "a small {a} and courage"], "friends": ["a lonely {a}", "a {a} and a friend", "friendship", "a {a} who finds a friend"],
    "helpful": ["a helpful {a}", "a clever {a}", "a {a} who helps somebody"], "greedy": ["a greedy {a}", "a hungry {a}", "a {a} who learns to share"],
    "discovery": ["a {a} that finds something", "a hidden treasure", "a discovery"], "dream": ["a {a} with a big dream", "a {a} who wants to see the world", "a {a} and a wish"],
    "winter": ["a {a} in winter", "a {a} in the snow"], "night": ["a {a} and the moon", "a {a} at night", "a {a} that could not sleep"],
}
_ANIMALS = ["cat", "dog", "kitten", "puppy", "rabbit", "hamster", "hedgehog", "lamb", "little goat", "piglet", "fox cub", "pony"]
_NAMES = ["Momo", "Tilly", "Bruno", "Pepper", "Felix", "Nino", "Oscar", "Toby", "Rusty", "Max"]
_CHILDREN = ["Anna", "Ben", "Clara", "David", "Emma", "Leo", "Mia", "Tom"]
_PLACES = ["the old mill", "the garden shed", "the bakery", "the big oak", "the church", "the pond"]
_FOODS = ["a piece of cheese", "warm milk", "a big bowl of soup", "an apple pie"]
_WEATHERS = ["rainy", "cold", "windy", "foggy", "stormy"]
_ASK_FUNCTION = [
    "Write a Python function that {x}.", "Write a function in Python that {x}.", "Give me a Python function that {x}.", "I need a Python function that {x}.",
    "Show me a Python function that {x}.", "Can you write a Python function that {x}?", "Write a small Python function that {x}.", "Please write a Python function that {x}.",
    "Python function that {x}?",
]
_ASK_LOOP = ["Write a Python loop that {x}.", "Write a for loop in Python that {x}.", "Show me a Python loop that {x}.", "Give me a loop in Python that {x}.",
             "Can you write a Python loop that {x}?", "I need a Python loop that {x}."]
_ASK_CAPITAL = ["What is the capital of {x}?", "Which city is the capital of {x}?", "Name the capital of {x}.", "Tell me the capital of {x}.", "Do you know the capital of {x}?",
                "What city is the capital of {x}?", "capital of {x}", "What is {x}'s capital city?"]
_ASK_AUTHOR = ["Who wrote {x}?", "Who is the author of {x}?", "Which writer wrote {x}?", "Tell me who wrote {x}.", "Do you know who wrote {x}?", "By whom is {x}?"]
_ASK_TRANSLATION = ['Translate "{x}" into {l}.', 'How do you say "{x}" in {l}?', 'What is "{x}" in {l}?', 'Say "{x}" in {l}.', 'Translate "{x}" to {l}.', 'What does "{x}" mean in {l}?',
                    'How do I say "{x}" in {l}?', 'Please translate "{x}" into {l}.']
_ASK_PACKING = ["What should I pack for {x}?", "What do I need for {x}?", "What should I take with me for {x}?", "Make a short packing list for {x}.", "What belongs in my bag for {x}?",
                "Help me pack for {x}.", "I am getting ready for {x}. What should I pack?"]
_ASK_BETTER = ["Is it better to {ab}?", "Should I {ab}?", "What is better: to {ab}?", "Do you think it is better to {ab}?", "Which is better, to {ab}?", "Is it a better idea to {ab}?"]
_ASK_USE = ["What {do} {x} do for us?", "How {do} {x} help us?", "What {are} {x} good for?", "Why {are} {x} useful?", "Why do we need {x}?", "Tell me what {x} {do} for people.",
            "How {are} {x} useful to people?", "Why {are} {x} important?"]
_SINGULAR = frozenset(["the ocean", "the sun", "the moon", "rain", "wind", "music", "sport"])
_ASK_SCENE = ["Write one sentence that describes {x}.", "Describe {x} in one sentence.", "Give me one sentence about {x}.", "One sentence about {x}, please.",
              "Write a sentence about {x}.", "Can you describe {x} in one sentence?", "Write one beautiful sentence about {x}."]
_ASK_SUM = ["What is {a} plus {b}?", "{a} + {b}", "What is {a} + {b}?", "How much is {a} plus {b}?", "Add {a} and {b}.", "Calculate {a} + {b}.", "What do you get if you add {a} and {b}?"]
_ASK_REST = ["What is {a} minus {b}?", "{a} - {b}", "What is {a} - {b}?", "How much is {a} minus {b}?", "Subtract {b} from {a}."]
_ASK_PRODUCT = ["What is {a} times {b}?", "{a} x {b}", "How much is {a} times {b}?", "Multiply {a} by {b}."]
_SINGULAR_VERBS = {"changes": "change", "gets": "get", "floats": "float", "rusts": "rust", "rises": "rise", "pops": "pop", "beats": "beat", "turns": "turn", "feels": "feel", "cools": "cool",
                   "takes": "take"}
_THIRD_PERSON = {"get made": "is made", "work": "works", "stay": "stays", "keep": "keeps", "fly": "flies", "float": "floats", "dive": "dives", "rise": "rises", "drink": "drinks",
                 "grow": "grows", "become": "becomes", "make": "makes", "heal": "heals", "form": "forms"}
_PLURAL_DOERS = ("bees", "birds", "bats", "fish")


@cache
def _sections() -> dict[str, str]:
    """The parts of the text, which begin with lines "== name", without their comments."""
    text = re.sub(r"(?m)^#.*\n", "", lzma.decompress(TEXT.read_bytes()).decode())
    return dict(part.split("\n", 1) for part in re.split(r"(?m)^== ", text)[1:])


@cache
def _table(name: str) -> list[list[str]]:
    """The rows of a section: lines of fields with bars between them."""
    return [[field.strip() for field in line.split("|")] for line in _sections()[name].splitlines() if line]


@cache
def _blocks(name: str) -> list[tuple[str, str]]:
    """Entries of a section with empty lines between them: their first line and the rest."""
    return [tuple(block.split("\n", 1)) for block in _sections()[name].strip().split("\n\n")]  # type: ignore[misc]


@cache
def test_prompts() -> frozenset[str]:
    """The questions of `bench/prompts`, as `plain` has them: none of them may be learned."""
    records = [json.loads(line) for path in sorted(PROMPTS.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
    return frozenset(plain(message["content"]) for record in records for message in record["messages"] if message["role"] == "user")


def plain(text: str) -> str:
    """A question's letters and digits, to compare it with others."""
    return "".join(character for character in text.lower() if character.isalnum())


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _enumeration(items: list[str]) -> str:
    return "\n".join(f"{index}. {_upper(item)}" for index, item in enumerate(items, 1))


def _explain(source: random.Random) -> Exchange:
    name, answer = source.choice(_table("explain"))
    return source.choice(_ASK_WHAT).format(x=name, **{"is": "are" if name == "glasses" else "is"}), answer


def _poem(source: random.Random) -> Exchange:
    subject, poem = source.choice(_blocks("poems"))
    return source.choice(_ASK_POEM).format(x=subject), poem


def _direct_why(clause: str) -> str | None:
    """The clause as a question with "why", where its verb is known."""
    found = re.match(r"(.+?) (is|are|should|do) (.*)", clause)
    if found:
        return f"Why {found[2]} {found[1]} {found[3]}?"
    for verb, base in _SINGULAR_VERBS.items():
        singular, found = re.subn(rf"\b{verb}\b", base, clause, count=1)
        if found:
            return f"Why does {singular}?"
    return None if " can " in clause else f"Why do {clause}?"


def _why(source: random.Random) -> Exchange:
    clause, answer = source.choice(_table("why"))
    direct = _direct_why(clause)
    if direct and source.random() < 0.6:
        return direct, answer
    return source.choice(_ASK_WHY).format(x=clause), answer


def _how(source: random.Random) -> Exchange:
    doing, answer = source.choice(_table("how"))
    plural = doing.startswith(_PLURAL_DOERS)
    if source.random() < 0.5:
        if doing.endswith(" get made"):
            return f"How is {doing.removesuffix(' get made')} made?", answer
        return f"How {'do' if plural else 'does'} {doing}?", answer
    if not plural:
        verb = next(verb for verb in _THIRD_PERSON if re.search(rf"\b{verb}\b", doing))
        doing = re.sub(rf"\b{verb}\b", _THIRD_PERSON[verb], doing, count=1)
    return source.choice(_ASK_HOW).format(x=doing), answer


def _tips(source: random.Random) -> Exchange:
    names, *tips = source.choice(_table("tips"))
    name, count = source.choice(names.split("/")), source.randint(2, min(len(tips), 5))
    number = _NUMBERS[count]
    return source.choice(_ASK_TIPS).format(n=number, N=_upper(number), x=name), f"Here are {number} tips for {name}:\n{_enumeration(tips[:count])}"


def _compare(source: random.Random) -> Exchange:
    first, second, answer = source.choice(_table("compare"))
    if source.random() < 0.25:
        first, second = second, first
    return source.choice(_ASK_DIFFERENCE).format(a=first, b=second, A=_upper(first)), answer


def _list(source: random.Random) -> Exchange:
    names, members = source.choice(_table("categories"))
    name, items = source.choice(names.split("/")), members.split(", ")
    count = source.choice([n for n in (2, 3, 3, 4, 5, 5, 6, 7) if n <= len(items)])
    number = _NUMBERS[count]
    return source.choice(_ASK_LIST).format(n=number, N=_upper(number), x=name), f"{_upper(number)} {name} are:\n{_enumeration(items[:count])}"


def _note(source: random.Random) -> Exchange:
    kind, who, greeting, what, first, second = source.choice(_table("notes"))
    return source.choice(_ASK_NOTE).format(note=_NOTES[kind], who=who, what=what), f"{greeting},\n{first} {second}\nBest wishes"


def _story(source: random.Random) -> Exchange:
    if source.random() < 0.3:
        subject, story = source.choice(_table("people_stories"))
    else:
        theme, story = source.choice(_blocks("stories"))
        fields = {"a": source.choice(_ANIMALS), "n": source.choice(_NAMES), "p": source.choice(_CHILDREN), "x": source.choice(_PLACES),
                  "f": source.choice(_FOODS), "w": source.choice(_WEATHERS), "he": "he", "He": "He", "his": "his", "him": "him"}  # fmt: skip
        subject = source.choice(_STORY_SUBJECTS[theme] + ["a {a}"]).format(**fields)
        story = story.format(**fields)
    return source.choice(_ASK_STORY).format(x=subject), story


def _sum(source: random.Random) -> Exchange:
    chance = source.random()
    if chance < 0.7:
        a, b = source.randint(0, 99), source.randint(0, 99)
        return source.choice(_ASK_SUM).format(a=a, b=b), f"{a} plus {b} is {a + b}."
    if chance < 0.9:
        b, rest = source.randint(0, 50), source.randint(0, 49)
        return source.choice(_ASK_REST).format(a=b + rest, b=b), f"{b + rest} minus {b} is {rest}."
    a, b = source.randint(1, 12), source.randint(1, 12)
    return source.choice(_ASK_PRODUCT).format(a=a, b=b), f"{a} times {b} is {a * b}."


def _function(source: random.Random) -> Exchange:
    does, returns, head, result, explanation = source.choice(_table("functions"))
    signature, _, before = head.partition(":")
    # Semicolons separate the lines before the result.
    body = [*before.split(";"), result] if before else [result]
    code = "\n".join([f"def {signature}:", *("    " + line for line in body if line)])
    return source.choice(_ASK_FUNCTION).format(x=source.choice([does, does, returns])), f"```python\n{code}\n```\n{explanation}"


def _loop(source: random.Random) -> Exchange:
    first, step, base = source.choice([0, 1, 1, 1, 2, 3, 5, 10]), source.choice([2, 3, 5, 10]), source.randint(2, 12)
    last = first + source.choice([3, 4, 5, 6, 8, 9, 9, 10, 15, 19, 20, 30, 50, 99])
    word, times = source.choice(["hello", "hi", "good day", "yes", "Python"]), source.randint(2, 10)
    does, lines, explanation = source.choice([
        *[(f"prints the numbers from {first} to {last}", [f"for number in range({first}, {last + 1}):", "    print(number)"],
           f"The range ends before {last + 1}, so the last number is {last}.")] * 3,
        (f"counts down from {last} to 1", [f"for number in range({last}, 0, -1):", "    print(number)"], "The step is -1, so the loop counts backwards."),
        (f"prints the even numbers up to {2 * base}", [f"for number in range(2, {2 * base + 1}, 2):", "    print(number)"], "The loop begins at 2 and takes steps of 2."),
        (f"prints the odd numbers up to {2 * base + 1}", [f"for number in range(1, {2 * base + 2}, 2):", "    print(number)"], "The loop begins at 1 and takes steps of 2."),
        (f"counts to {10 * step} in steps of {step}", [f"for number in range({step}, {10 * step + 1}, {step}):", "    print(number)"], f"Each step adds {step}."),
        (f"prints the squares from 1 to {base}", [f"for number in range(1, {base + 1}):", "    print(number * number)"], "Each number is multiplied by itself."),
        (f"prints the times table of {base}", ["for number in range(1, 11):", f"    print({base} * number)"], f"It prints ten multiples of {base}."),
        (f'prints "{word}" {times} times', [f"for _ in range({times}):", f'    print("{word}")'], f"The loop runs {times} times."),
        (f"adds the numbers from 1 to {last}", ["total = 0", f"for number in range(1, {last + 1}):", "    total += number", "print(total)"], "The sum grows by one number in each round."),
        ("prints every item of a list", ["for item in items:", "    print(item)"], "The loop visits the items in their order."),
        ("prints every letter of a word", ["for letter in word:", "    print(letter)"], "The loop visits the letters one after the other."),
    ])  # fmt: skip
    return source.choice(_ASK_LOOP).format(x=does), "```python\n" + "\n".join(lines) + f"\n```\n{explanation}"


def _capital(source: random.Random) -> Exchange:
    country, city = source.choice(list(CAPITALS.items()))
    return source.choice(_ASK_CAPITAL).format(x=country), f"The capital of {country} is {city.rstrip('.')}."


def _author(source: random.Random) -> Exchange:
    work, author, kind = source.choice(_table("authors"))
    return source.choice(_ASK_AUTHOR).format(x=work), f"{author} wrote {work}. It is a {kind}."


def _translation(source: random.Random) -> Exchange:
    languages = _table("phrases")[0][1:]
    phrase, *others = source.choice(_table("phrases")[1:])
    column = source.randrange(len(languages))
    return source.choice(_ASK_TRANSLATION).format(x=phrase, l=languages[column]), f'"{_upper(phrase)}" in {languages[column]} is "{others[column]}".'


def _packing(source: random.Random) -> Exchange:
    names, items, more = source.choice(_table("packing"))
    name = source.choice(names.split("/"))
    return source.choice(_ASK_PACKING).format(x=name), f"For {name}, pack {items}. {more.rstrip('.')}."


def _better(source: random.Random) -> Exchange:
    first, second, answer = source.choice(_table("better"))
    if source.random() < 0.6:
        a, b = first.split(), second.split()
        # "read at night or read at noon" is said as "read at night or at noon".
        shared = 1 if a[0] == b[0] and len(b) > 1 else 0
        second = " ".join(b[shared:])
    return source.choice(_ASK_BETTER).format(ab=f"{first} or {second}"), answer


def _use(source: random.Random) -> Exchange:
    names, answer = source.choice(_table("uses"))
    name = source.choice(names.split("/"))
    single = name in _SINGULAR
    return source.choice(_ASK_USE).format(x=name, do="does" if single else "do", are="is" if single else "are"), answer


def _scene(source: random.Random) -> Exchange:
    subject, sentence = source.choice(_table("scenes"))
    return source.choice(_ASK_SCENE).format(x=subject), sentence


_KINDS: dict[str, Callable[[random.Random], Exchange]] = {
    "explain": _explain, "poem": _poem, "why": _why, "how": _how, "tips": _tips, "compare": _compare, "list": _list, "note": _note, "story": _story, "sum": _sum,
    "function": _function, "loop": _loop, "capital": _capital, "author": _author, "translation": _translation, "packing": _packing, "better": _better, "use": _use,
    "scene": _scene,
}


def exchange(source: random.Random, kind: str | None = None) -> Exchange:
    """A question and its answer, of any kind or the one given; never one of the test prompts."""
    while True:
        question, answer = _KINDS[kind or source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]](source)
        if plain(question) not in test_prompts():
            return question, answer


def conversations(seed: int, count: int) -> Iterator[dict[str, object]]:
    """Yields `count` conversations of one or two questions; subjects come again, mostly asked for in other words."""
    source = random.Random(seed)
    for _ in range(count):
        kind = source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        turns = [exchange(source, kind)]
        if source.random() < _SECOND_TURN_SHARE:
            turns.append(exchange(source))
        messages = [{"role": "system", "content": source.choice(SYSTEMS)}] if source.random() < _SYSTEM_SHARE else []
        for question, answer in turns:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        yield {"kind": kind, "messages": messages}
