"""Tasks on a text or list that is given in the request: reformat, sort, count, find, answer from a sentence."""

from __future__ import annotations

import json
import random

from tool_values import CITIES, DAYS, PEOPLE

Exchange = tuple[str, str]

_LISTS: dict[str, list[str]] = {
    "fruits": ["apple", "banana", "cherry", "grape", "lemon", "mango", "orange", "peach", "pear", "plum", "kiwi", "melon"],
    "animals": ["ant", "bear", "cat", "dog", "eagle", "fox", "goat", "horse", "lion", "mouse", "owl", "rabbit", "tiger", "wolf", "zebra"],
    "colors": ["red", "blue", "green", "yellow", "orange", "purple", "black", "white", "brown", "pink"],
    "vegetables": ["carrot", "potato", "onion", "tomato", "spinach", "cabbage", "pepper", "bean", "pea"],
    "tools": ["hammer", "saw", "drill", "wrench", "pliers", "ruler", "knife"],
    "words": ["river", "stone", "cloud", "garden", "window", "music", "paper", "silver", "market", "winter", "candle", "bridge", "letter", "summer"],
}
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
_JOBS = ["teacher", "baker", "nurse", "pilot", "gardener", "programmer", "cook", "doctor", "farmer", "painter"]
_ADJECTIVES = ["small", "old", "red", "quiet", "new", "heavy", "bright", "green"]
_OBJECTS = ["bag", "book", "lamp", "key", "cup", "coat", "map", "ball", "hat", "letter"]
_PLACES = ["on the table", "under the chair", "in the kitchen", "next to the door", "in the car", "behind the sofa", "on the shelf"]
_EVENTS = ["The meeting", "The concert", "The exam", "The party", "The workshop", "The match", "The lecture", "The book sale"]


def _words(random_source: random.Random, low: int = 3, high: int = 6) -> tuple[str, list[str]]:
    kind = random_source.choice(list(_LISTS))
    return kind, random_source.sample(_LISTS[kind], random_source.randint(low, min(high, len(_LISTS[kind]))))


def _listing(items: list[str]) -> str:
    return ", ".join(items)


def _sort(random_source: random.Random) -> Exchange:
    kind, items = _words(random_source)
    reverse = random_source.random() < 0.2
    if reverse:
        return random_source.choice([f"Sort these {kind} from Z to A: {_listing(items)}", f"Reverse alphabetical order, please: {_listing(items)}"]), _listing(sorted(items, reverse=True))
    question = random_source.choice([f"Sort these {kind} alphabetically: {_listing(items)}", f"Put these in alphabetical order: {_listing(items)}", f"Sort: {_listing(items)}", f"Alphabetize this list: {_listing(items)}."])
    return question, random_source.choice([_listing(sorted(items)), f"In alphabetical order: {_listing(sorted(items))}.", "\n".join(f"{i + 1}. {item}" for i, item in enumerate(sorted(items)))])


def _json_list(random_source: random.Random) -> Exchange:
    _, items = _words(random_source)
    question = random_source.choice([f"Turn this list into JSON: {_listing(items)}", f"Write as a JSON array: {_listing(items)}", f"Convert to JSON: {_listing(items)}"])
    return question, f"```json\n{json.dumps(items)}\n```"


def _json_record(random_source: random.Random) -> Exchange:
    name, age, city, job = random_source.choice(PEOPLE), random_source.randint(18, 80), random_source.choice(CITIES), random_source.choice(_JOBS)
    sentence = random_source.choice([f"{name} is {age} years old and lives in {city}.", f"{name}, {age}, lives in {city}."])
    record: dict[str, object] = {"name": name, "age": age, "city": city}
    if random_source.random() < 0.5:
        sentence = f"{name} is {age} years old, works as a {job} and lives in {city}."
        record = {"name": name, "age": age, "job": job, "city": city}
    keys = ", ".join(record)
    question = random_source.choice([f"Extract {keys} as JSON: {sentence}", f"Turn this sentence into JSON with the keys {keys}: {sentence}", f"{sentence}\n\nGive me the data of this sentence as JSON with the keys {keys}."])
    return question, f"```json\n{json.dumps(record, indent=2)}\n```"


def _bullets(random_source: random.Random) -> Exchange:
    kind, items = _words(random_source)
    if random_source.random() < 0.5:
        return random_source.choice([f"Make a bullet list: {_listing(items)}", f"Write these {kind} as bullet points: {_listing(items)}"]), "\n".join(f"- {item}" for item in items)
    return random_source.choice([f"Make a numbered list: {_listing(items)}", f"Number these {kind}: {_listing(items)}"]), "\n".join(f"{i + 1}. {item}" for i, item in enumerate(items))


def _count(random_source: random.Random) -> Exchange:
    kind, items = _words(random_source, 3, 8)
    numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"]
    choice = random_source.randrange(3)
    if choice == 0:
        return random_source.choice([f"How many {kind} are in this list: {_listing(items)}?", f"Count the items: {_listing(items)}"]), random_source.choice([f"There are {numbers[len(items)]} items.", f"The list has {len(items)} items."])
    word = random_source.choice(items)
    if choice == 1:
        return random_source.choice([f"How many letters does the word \"{word}\" have?", f"Count the letters of \"{word}\"."]), f"The word \"{word}\" has {len(word)} letters: {', '.join(word)}."
    sentence = _plain_sentence(random_source)
    return f"How many words are in this sentence? {sentence}", f"The sentence has {len(sentence.split())} words."


def _case(random_source: random.Random) -> Exchange:
    sentence = _plain_sentence(random_source)
    choice = random_source.randrange(5)
    if choice == 0:
        return random_source.choice([f"Write in capital letters: {sentence}", f"Upper-case this: {sentence}", f"Convert to upper case: {sentence}"]), sentence.upper()
    if choice == 1:
        return random_source.choice([f"Write in lower case: {sentence}", f"Convert to lower case: {sentence.upper()}"]), sentence.lower()
    _, items = _words(random_source)
    if choice == 2:
        return f"Capitalize each word: {' '.join(items)}", " ".join(items).title()
    if choice == 3:
        word = random_source.choice(items)
        return random_source.choice([f"Spell the word \"{word}\" backwards.", f"Reverse the word \"{word}\"."]), word[::-1]
    return random_source.choice([f"Reverse the order of this list: {_listing(items)}", f"Write this list backwards: {_listing(items)}"]), _listing(items[::-1])


def _plain_sentence(random_source: random.Random) -> str:
    return random_source.choice([
        f"{random_source.choice(PEOPLE)} works as a {random_source.choice(_JOBS)} in {random_source.choice(CITIES)}.",
        f"The {random_source.choice(_ADJECTIVES)} {random_source.choice(_OBJECTS)} is {random_source.choice(_PLACES)}.",
        f"{random_source.choice(PEOPLE)} and {random_source.choice(PEOPLE)} meet on {random_source.choice(DAYS)}.",
        f"We visited {random_source.choice(CITIES)} in {random_source.choice(_MONTHS)}.",
    ])


def _dates(random_source: random.Random) -> Exchange:
    day, month, year = random_source.randint(1, 28), random_source.choice(_MONTHS), random_source.randint(1980, 2025)
    date = random_source.choice([f"{day} {month} {year}", f"{month} {day}, {year}"])
    if random_source.random() < 0.4:
        iso = f"{year}-{_MONTHS.index(month) + 1:02d}-{day:02d}"
        return random_source.choice([f"Write {date} in the form YYYY-MM-DD.", f"Convert the date {date} to ISO format."]), iso
    event, city = random_source.choice(_EVENTS), random_source.choice(CITIES)
    if random_source.random() < 0.5:
        day2, month2 = random_source.randint(1, 28), random_source.choice(_MONTHS)
        sentence = f"{event} in {city} was moved from {day} {month} to {day2} {month2}."
        return random_source.choice([f"Find the dates in this sentence: {sentence}", f"Which dates are mentioned? {sentence}", f"Extract all dates: {sentence}"]), f"The dates are {day} {month} and {day2} {month2}."
    sentence = f"{event} took place in {city} on {date}."
    return random_source.choice([f"Extract the date: {sentence}", f"What date is mentioned here? {sentence}", f"Find the date in this text: {sentence}"]), random_source.choice([date, f"The date is {date}."])


def _names(random_source: random.Random) -> Exchange:
    people = random_source.sample(PEOPLE, random_source.randint(2, 3))
    city = random_source.choice(CITIES)
    joined = " and ".join(people) if len(people) == 2 else f"{people[0]}, {people[1]} and {people[2]}"
    sentence = random_source.choice([f"{joined} travelled to {city} in {random_source.choice(_MONTHS)}.", f"On {random_source.choice(DAYS)}, {joined} had dinner in {city}."])
    if random_source.random() < 0.3:
        return f"Which city is named in this sentence? {sentence}", f"The city is {city}."
    return random_source.choice([f"List the names of the people: {sentence}", f"Which people are mentioned? {sentence}", f"Extract the names from this text: {sentence}"]), random_source.choice([", ".join(people), f"The people are {joined}.", "\n".join(f"- {person}" for person in people)])


def _about_sentence(random_source: random.Random) -> Exchange:
    """A question whose answer is in the sentence that comes with it."""
    choose = random_source.choice
    name, other, city, job, thing, place = choose(PEOPLE), choose(PEOPLE), choose(CITIES), choose(_JOBS), choose(_OBJECTS), choose(_PLACES)
    event, day, hour, adjective = choose(_EVENTS), choose(DAYS), choose(range(1, 12)), choose(_ADJECTIVES)
    wrong_city = choose([entry for entry in CITIES if entry != city])
    wrong_job = choose([entry for entry in _JOBS if entry != job])
    sentence, question, answer = choose([
        (f"{name} lives in {city}.", f"Where does {name} live?", f"{name} lives in {city}."),
        (f"{name} lives in {city} and works as a {job}.", f"What is {name}'s job?", f"{name} is a {job}."),
        (f"The {adjective} {thing} is {place}.", f"Where is the {thing}?", f"The {thing} is {place}."),
        (f"The {adjective} {thing} is {place}.", f"What is {place}?", f"The {adjective} {thing} is {place}."),
        (f"{event} begins on {day} at {hour} o'clock.", f"When does {event.lower()} begin?", f"{event} begins on {day} at {hour} o'clock."),
        (f"{event} is on {day} in {city}.", f"Where is {event.lower()}?", f"{event} is in {city}."),
        (f"{name} works as a {job}.", f"Is {name} a {job}?", f"Yes, {name} works as a {job}."),
        (f"{name} works as a {job}.", f"Is {name} a {wrong_job}?", f"No, {name} works as a {job}."),
        (f"{name} comes from {city}.", f"Does {name} come from {wrong_city}?", f"No, {name} comes from {city}."),
        (f"{name} comes from {city}.", f"Does {name} come from {city}?", f"Yes, {name} comes from {city}."),
        (f"{name} has a {adjective} {thing}.", f"What does {name} have?", f"{name} has a {adjective} {thing}.".replace("a old", "an old")),
        (f"{name} has a {adjective} {thing}.", f"How old is {name}?", f"The text does not say how old {name} is."),
        (f"{name} lives in {city}.", f"What is {name}'s phone number?", "The text does not give a phone number."),
        (f"{event} is on {day}.", "Who is invited?", "The text does not say who is invited."),
    ])
    sentence = sentence.replace("a old", "an old")
    if other != name and random_source.random() < 0.3:
        sentence += " " + choose([f"{other} likes music.", f"{other} is on holiday.", "It is raining today.", "The shops are closed."])
    return choose([f"{sentence} {question}", f"{sentence}\n\n{question}", f"Text: {sentence}\nQuestion: {question}", f"Answer from the text. {sentence} {question}"]), answer


def _member(random_source: random.Random) -> Exchange:
    kind, items = _words(random_source)
    word = random_source.choice(_LISTS[kind])
    shortest, longest = min(items, key=len), max(items, key=len)
    lengths = sorted(map(len, items))
    if random_source.random() < 0.5 or lengths[-1] == lengths[-2] or lengths[0] == lengths[1]:
        present = word in items
        return random_source.choice([f"Is \"{word}\" in this list? {_listing(items)}", f"Does the list contain \"{word}\"? {_listing(items)}"]), (f"Yes, \"{word}\" is in the list." if present else f"No, \"{word}\" is not in the list.")
    if random_source.random() < 0.5:
        return f"Which is the longest word: {_listing(items)}?", f"The longest word is \"{longest}\"."
    return f"Which is the shortest word: {_listing(items)}?", f"The shortest word is \"{shortest}\"."


def _odd_one_out(random_source: random.Random) -> Exchange:
    first, second = random_source.sample(["fruits", "animals", "colors", "tools", "vegetables"], 2)
    if {first, second} & {"colors"} and {first, second} & {"fruits"}:
        second = "animals" if first != "animals" else "tools"
    if first == second:
        second = "tools"
    items = random_source.sample([item for item in _LISTS[first] if item != "orange"], 3)
    intruder = random_source.choice([item for item in _LISTS[second] if item != "orange"])
    shown = items + [intruder]
    random_source.shuffle(shown)
    if first == "fruits" and second == "vegetables" or first == "vegetables" and second == "fruits":
        return _sort(random_source)
    return random_source.choice([f"Which word does not belong: {_listing(shown)}?", f"Find the odd one out: {_listing(shown)}."]), f"\"{intruder[0].upper() + intruder[1:]}\" does not belong, because the others are {first}."


def _table(random_source: random.Random) -> Exchange:
    people = random_source.sample(PEOPLE, 3)
    ages = [random_source.randint(18, 70) for _ in people]
    text = ", ".join(f"{person} ({age})" for person, age in zip(people, ages))
    if random_source.random() < 0.5:
        rows = "\n".join(f"| {person} | {age} |" for person, age in zip(people, ages))
        return random_source.choice([f"Make a Markdown table of name and age: {text}", f"Turn this into a table: {text}"]), f"| Name | Age |\n| --- | --- |\n{rows}"
    rows = "\n".join(f"{person},{age}" for person, age in zip(people, ages))
    return random_source.choice([f"Convert to CSV with the columns name and age: {text}", f"Write as CSV (name, age): {text}"]), f"```csv\nname,age\n{rows}\n```"


def text_task(random_source: random.Random) -> Exchange:
    """A task on a given text or list, and its right answer."""
    makers = [_sort, _json_list, _json_record, _bullets, _count, _case, _dates, _names, _about_sentence, _member, _odd_one_out, _table]
    return random_source.choices(makers, [3, 2, 3, 2, 3, 3, 3, 2, 6, 2, 1, 2])[0](random_source)
