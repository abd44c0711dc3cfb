"""Prompts of the shapes that `bench/prompts` measures, about other things: longer requests with several conditions, code to edit, texts to rewrite.

A drafter is as good as the text that it has seen its target write; these are for the target to write from. `prompts(seed, count, documents)`
yields lists of messages; excerpts of code and prose come from the documents of `prepare.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from everyday import plain, test_prompts
from sentence_bank import FORMAL, PARAGRAPHS, PERSONS
from topic_bank import ACTIVITIES, CONCEPTS, GROUPS, SITUATIONS

Messages = list[dict[str, str]]

TEMPLATES = Path(__file__).with_name("request_templates.txt").read_text(encoding="utf-8").splitlines()
_FIELD = re.compile(r"\{(\w+)\}")


def _choices(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", " ").split(";") if item.strip()]


_LANGUAGE = _choices("Python; Rust; Go; TypeScript; JavaScript; Java; C; C++; Ruby; Kotlin; Swift; PHP; C#")
_RELATIVE = _choices("boss; colleague; neighbour; sister; brother; mother; father; friend; aunt; uncle; cousin; daughter; son; flatmate; teacher; grandfather")
_COLUMN = _choices("name; city; price_cents; created_at; status; amount; category; email; quantity; country; score; paid_at")
_TABLE = _choices("users; invoices; books; rooms; bookings; teams; players; tickets; films; products; employees; visits")
_FOOD = _choices("three potatoes; some rice; a can of beans; two carrots; a bit of ham; an apple; half a cucumber; pasta; two onions; a lemon; some spinach; milk; flour; mushrooms")
_WANTED = _choices("""the number of rows for each {column}; the average {column}; the newest entry of each {column}; the ten largest values of {column}; each {column} with its total;
    all {table} without an entry; the share of each {column}; the months in which nothing happened""")
_STATE = _choices("blue; red; warm; cold; quiet; loud; bright; dark; wet; dry; green; full; empty")
_WHEN = _choices("the day; the night; summer; winter; the morning; the evening; spring; autumn; the week")
_ILLNESS = _choices("a cough; an allergy; a headache; a migraine; a sprain; a broken bone; hay fever; a fever; a rash; a sore throat; food poisoning; a stomach ache")
_WHERE = _choices("under the current folder; in /var/log; that changed this week; larger than 10 MB; in my home directory; without an extension; that are empty; older than a month")
FIELDS: dict[str, list[str]] = {
    "language": _LANGUAGE, "relative": _RELATIVE, "column": _COLUMN, "column2": _COLUMN, "column3": _COLUMN, "table": _TABLE, "table2": _TABLE, "wanted": _WANTED, "wanted2": _WANTED,
    "food": _FOOD, "food2": _FOOD, "food3": _FOOD, "food4": _FOOD, "state": _STATE, "state2": _STATE, "when": _WHEN, "when2": _WHEN, "illness": _ILLNESS, "illness2": _ILLNESS,
    "where": _WHERE, "person": PERSONS, "person2": PERSONS, "sequence": _choices("prime; triangular; Lucas; Catalan; square; perfect; happy; Pell"),
    "without": _choices("recursion; a loop; libraries; a list; division; floating point"),
    "function": _choices("merge_sorted; longest_line; group_by_length; parse_date; is_balanced; top_three; to_roman; flatten; chunks; first_repeated; rotate; normalise; try_add; next_id"),
    "argument": _choices("text: &str; values; items: list[int]; s string; path; first, second; words: string[]; numbers, limit"),
    "task": _choices("""counts the lines of a text; merges two sorted lists; finds the longest word; groups words by their first letter; turns a number into Roman numerals; checks brackets;
        removes empty lines; returns the three most frequent values; splits a list into parts of equal length; parses a date; rotates a list by k places; finds the first value that
        occurs twice; compares two version numbers; formats seconds as hours and minutes; reads a file and sorts its lines; computes a checksum; capitalises each word; returns true
        if a token was free and takes it; keeps the last ten values; retries three times"""),
    "condition": _choices("must not change its input; returns an empty list for empty input; ignores case; keeps the order; throws an error on negative numbers; works in linear time; accepts any iterable"),
    "files": _choices("all files; all images; text files; empty folders; duplicate files; log files; broken links; the largest files; hidden files"),
    "order": _choices("size; name; age, newest first; extension; size, largest first; number of lines"),
    "shelltask": _choices("""count lines; rename files; replace a word in many files; compress a folder; list running processes; show free disk space; download a page; sort by the second column;
        compare two folders; remove trailing spaces; find the process on a port; join two files; read a CSV file; parse JSON; measure time"""),
    "database": _choices("PostgreSQL; SQLite; MySQL; MariaDB"), "class": _choices("cache; queue; stack; counter; timer; bank account; priority queue; circular buffer; event emitter; matrix; tree; logger"),
    "parameter": _choices("the capacity; a name; the size; a list of values; a limit in seconds; a callback"), "parameter2": _choices("an optional clock; a default value; the rate; a comparison; an error handler"),
    "mustnot": _choices("use threads; block; allocate; use timers; raise; keep old entries"),
    "pattern": _choices("times such as 08:45; hex colours; e-mail addresses; phone numbers; IPv4 addresses; version numbers such as 1.20.3; words that begin with a capital letter; dates such as 31.12.2023; licence plates; prices in euros"),
    "input": _choices("a JSON file; a list of numbers; lines of text; a log file; a table with tabs; dates, one a line; two columns of numbers; a Markdown file"),
    "output": _choices("the most frequent word; the sum and the mean; the lines in reverse; a table; the number of words of each line; the days between them; the headings; a histogram"),
    "n": [], "m": [], "k": [], "j": [], "vehicle": _choices("bus; car; ferry; lorry; cyclist; tram; ship; plane"), "clock": _choices("07:20; 08:45; 09:10; 10:05; 11:50; 12:30"),
    "clock2": _choices("13:05; 14:40; 15:15; 16:55; 18:20; 19:00"), "letter": ["x", "y", "z", "a", "n", "t"], "times": ["two", "three", "four", "five", "six"],
    "things": _choices("stamps; cards; apples; books; coins; shells; pens; sweets"), "good": _choices("bicycle; coat; phone; table; ticket; lamp; camera; guitar"), "percent": ["5", "10", "15", "25", "30", "40", "50"],
    "period": _choices("week; year; day"), "operation": _choices("sum; product; difference"), "parity": ["even", "odd"], "parity2": ["even", "odd"],
    "event": _choices("the sum is 7; both numbers are equal; the smaller number is 2; at least one six comes; the sum is greater than 9; the product is even"),
    "event2": _choices("both are red; they have different colours; at least one is blue; none is red"), "area": _choices("field; pool; room; playground; terrace; park; carpet; yard"),
    "plan": _choices("a birthday for my son; a week in Rome; a vegetable garden; a small wedding; a move; a picnic for ten people; my working day; a trip with two children; a reading list; a dinner for six"),
    "annoying": _choices("talking during films; borrowing my things; coming late; looking at the phone at dinner; calling me at night; singing at work; leaving dishes in the sink; giving advice that I did not ask for"),
    "them": ["him", "her", "them"], "problem": _choices("does not answer my letters; is always tired; has lost a job; cannot sleep; wants to borrow money; is angry with me; never has time; eats too little"),
    "problem2": _choices("my knees hurt; I have little time; I am afraid to begin; I have no teacher; it is too expensive; I give up quickly; I cannot read music"),
    "thing": _choices("sea; moon; desert; forest; street; river; school; house; lake"), "equipment": _choices("an oven; a stove; much oil; any salt; a mixer; a fridge; cheese"),
    "medium": _choices("film; song; game; museum; podcast; novel; walk; restaurant; comic; board game"), "mood": _choices("funny; sad; exciting; calm; for children; old; about the sea; romantic"),
    "gift": _choices("a laptop; a new stove; a hearing aid; a dog; a tablet; a bicycle; an e-book reader; a garden"), "exercise": _choices("train; increase the weight; swim; learn new words; cycle; add new pieces; save money"),
    "hobby": _choices("swimming; drawing; chess; the piano; yoga; baking; gardening; photography; singing; writing"),
    "scene": _choices("""the last day of summer; a small bakery at dawn; a railway station at night; the first frost; an empty playground; a fish market; a thunderstorm over the fields; an old attic; a
        busy kitchen; a mountain hut; a street after rain; a winter morning; a barber's shop; an orchard in October; a ferry in fog; a school yard at noon; a garden at night"""),
    "hero": _choices("a postman; an old sailor; a shy pupil; a train driver; a widow; a young baker; a night nurse; a shepherd; a piano tuner; a beekeeper; a clockmaker; a taxi driver"),
    "object": _choices("a key without a lock; a map of a town that does not exist; an old photograph of herself; a ring in a loaf of bread; a ticket for yesterday; a diary; a coin from the future; a box that ticks"),
    "where2": _choices("on the roof; in a library book; under the floor; in the snow; in a coat pocket; at the bottom of a well; on a bench; in a violin case"), "words": ["fifty", "eighty", "a hundred", "two hundred", "three hundred", "four hundred"],
    "addressee": _choices("bank; neighbour; insurance; school; internet provider; landlady; tax office; former employer; hotel; airline; doctor"),
    "complaint": _choices("""The lift has not worked for a month; My order has not arrived; The bill is too high; I was promised a call and nobody called; The bathroom window does not close; My suitcase was lost;
        The invoice lists things that I did not buy; The noise at night does not stop; My certificate is missing; I wrote three times without an answer"""),
    "demand": _choices("my money back; an answer within a week; a date for the repair; a new part; an apology; a written explanation; a lower rent until then"),
    "question": _choices("children should have phones; cities should ban cars; homework is useful; zoos should exist; we should work four days a week; people should eat meat; museums should be free; schools should start later; robots should look like people"),
    "celebration": _choices("birthday; retirement; graduation; golden wedding; farewell; christening; moving party"),
    "detail": _choices("They met on a train; She always forgets her keys; He taught me to swim; There will be sixty guests; We have been friends for twenty years; He once baked a cake with salt"),
}  # fmt: skip
_EDITS = _choices("""Add comments to this code; What does this code do; Find the mistake in this code and fix it; Shorten this code without changing what it does; Rename the variables to something readable;
    Add type hints. Give back only the function; Explain this code line by line; Make this return an error instead of panicking; Replace the nested ifs by early returns; Convert this to async code;
    Add a `--verbose` flag; Give the magic numbers names; Write a test for this; Split this into two functions; The number can become negative here. Clamp it and show me the changed lines as a diff;
    This is wrong for empty input. Fix it and change nothing else; Translate this code to Python; Handle errors in this code; Make this faster; Use constants in this code""")
_TEXT_WORK = _choices("""Summarise this in one sentence; Rewrite this sentence in plain English; Make this shorter; Rewrite this text politely; Say this in simpler words; Turn this into a list; What is this text about;
    Write a headline for this; Continue this text; Correct the mistakes in this text; Explain this to a child""")
_LANGUAGES_BY_ENDING = {"py": "python", "rs": "rust", "js": "javascript", "ts": "typescript", "c": "c", "h": "c", "sql": "sql", "sh": "bash", "mjs": "javascript"}


def _filled(template: str, source: random.Random) -> str:
    numbers = {"n": str(source.randint(11, 300)), "m": str(source.randint(8, 60)), "k": str(source.randint(3, 12)), "j": str(source.randint(2, 6))}
    while _FIELD.search(template):
        template = _FIELD.sub(lambda found: numbers.get(found[1]) or source.choice(FIELDS[found[1]]), template)
    return template


def _excerpt(source: random.Random, text: str, fewest: int, most: int) -> str:
    """Some consecutive lines that begin at an unindented one, without their last line if that only opens something."""
    lines = text.split("\n")
    starts = [index for index, line in enumerate(lines) if line[:1].isalpha() and index + fewest < len(lines)]
    if not starts:
        return "\n".join(lines[:most])
    start = source.choice(starts)
    end = start + source.randint(fewest, most)
    ends = [index for index in range(start + 2, min(end, len(lines))) if lines[index] in ("}", "};", "")]
    return "\n".join(lines[start : ends[-1] + 1 if ends else end]).strip("\n")


def prompts(seed: int, count: int, documents: Sequence[dict[str, str]]) -> Iterator[Messages]:
    """`count` beginnings of conversations that end with a request. `documents` have a `name`, whose ending tells code, and a `text`."""
    source = random.Random(seed)
    code = [(_LANGUAGES_BY_ENDING[ending], d["text"]) for d in documents if (ending := d["name"].rsplit(".", 1)[-1]) in _LANGUAGES_BY_ENDING]
    prose = [d["text"] for d in documents if d["name"].rsplit(".", 1)[-1] not in _LANGUAGES_BY_ENDING]
    made = 0
    while made < count:
        chance = source.random()
        if chance < 0.3 and code:
            language, text = source.choice(code)
            excerpt = _excerpt(source, text, 4, 22)
            request = f"{source.choice(_EDITS)}{source.choice(['.', '.', ':'])}\n\n```{language}\n{excerpt}\n```"
        elif chance < 0.42:
            paragraphs = [p for p in source.choice(prose).split("\n\n") if 80 < len(p) < 600 and p[0].isalpha()] if prose else []
            text = source.choice(paragraphs or [" ".join(source.choice(PARAGRAPHS))] + FORMAL)
            request = f"{source.choice(_TEXT_WORK)}: {text}"
        else:
            request = _filled(source.choice(TEMPLATES), source)
        if len(request) > 1600 or plain(request) in test_prompts():
            continue
        messages: Messages = []
        if source.random() < 0.12:
            concept = source.choice(source.choice(list(CONCEPTS.values())))
            asked = [f"Tell me about {concept}.", f"How do I {source.choice(ACTIVITIES)}?", f"{source.choice(SITUATIONS)}. What should I do?"]
            replies = ["Gladly! What would you like to know?", "That is normal at the start. Begin slowly and do a little every day.", f"Then try it with {source.choice(source.choice(list(GROUPS.values())))}."]
            messages = [{"role": "user", "content": source.choice(asked)}, {"role": "assistant", "content": source.choice(replies)}]
        elif source.random() < 0.1:
            messages = [{"role": "system", "content": source.choice(["You are a friendly assistant. Answer in at most three sentences.", "You are a coding assistant.", "Answer briefly."])}]
        made += 1
        yield [*messages, {"role": "user", "content": request}]
