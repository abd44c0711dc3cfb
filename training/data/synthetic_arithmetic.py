"""Arithmetic with small numbers, with right answers and short worked steps."""

from __future__ import annotations

import random
from fractions import Fraction

from tool_values import PEOPLE

Exchange = tuple[str, str]

_WORDS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}


def _ask(random_source: random.Random, a: int, operator: str, b: int) -> str:
    sign = {"*": random_source.choice(["x", "*"]), "/": random_source.choice(["/", "÷"])}.get(operator, operator)
    return random_source.choice([
        f"What is {a} {sign} {b}?", f"{a} {sign} {b} = ?", f"{a} {sign} {b}", f"Calculate {a} {sign} {b}.", f"How much is {a} {_WORDS[operator]} {b}?",
        f"What is {a} {_WORDS[operator]} {b}?", f"Compute {a} {sign} {b}, please.", f"{a} {_WORDS[operator]} {b}?", f"Can you work out {a} {sign} {b}?",
    ])


def _state(random_source: random.Random, a: int, operator: str, b: int, value: object) -> str:
    sign = {"*": "x", "/": "÷"}.get(operator, operator)
    return random_source.choice([f"{a} {sign} {b} = {value}.", f"{a} {_WORDS[operator]} {b} is {value}.", f"The result is {value}.", f"{a} {sign} {b} = {value}"])


def _addition(random_source: random.Random) -> Exchange:
    if random_source.random() < 0.4:
        a, b = random_source.randint(0, 20), random_source.randint(0, 20)
        return _ask(random_source, a, "+", b), _state(random_source, a, "+", b, a + b)
    a, b = random_source.randint(11, 199), random_source.randint(11, 99)
    tens, ones = b // 10 * 10, b % 10
    if ones and tens and random_source.random() < 0.6:
        return (_ask(random_source, a, "+", b) + random_source.choice(["", " Show the steps.", " Explain."]),
                f"First add {tens}: {a} + {tens} = {a + tens}. Then add {ones}: {a + tens} + {ones} = {a + b}. So {a} + {b} = {a + b}.")
    return _ask(random_source, a, "+", b), _state(random_source, a, "+", b, a + b)


def _subtraction(random_source: random.Random) -> Exchange:
    if random_source.random() < 0.4:
        b = random_source.randint(0, 15)
        a = b + random_source.randint(0, 15)
        return _ask(random_source, a, "-", b), _state(random_source, a, "-", b, a - b)
    b = random_source.randint(11, 99)
    a = b + random_source.randint(5, 120)
    tens, ones = b // 10 * 10, b % 10
    if ones and random_source.random() < 0.6:
        return (_ask(random_source, a, "-", b) + random_source.choice(["", " Show your work.", " How do you get there?"]),
                f"First subtract {tens}: {a} - {tens} = {a - tens}. Then subtract {ones}: {a - tens} - {ones} = {a - b}. So {a} - {b} = {a - b}.")
    return _ask(random_source, a, "-", b), _state(random_source, a, "-", b, a - b)


def _multiplication(random_source: random.Random) -> Exchange:
    if random_source.random() < 0.6:
        a, b = random_source.randint(0, 12), random_source.randint(0, 12)
        return _ask(random_source, a, "*", b), _state(random_source, a, "*", b, a * b)
    a, b = random_source.randint(12, 60), random_source.randint(2, 12)
    tens, ones = a // 10 * 10, a % 10
    if not ones:
        return _ask(random_source, a, "*", b), _state(random_source, a, "*", b, a * b)
    return (_ask(random_source, a, "*", b), f"Split {a} into {tens} and {ones}: {tens} x {b} = {tens * b} and {ones} x {b} = {ones * b}. Together that is {tens * b} + {ones * b} = {a * b}.")


def _division(random_source: random.Random) -> Exchange:
    b = random_source.randint(2, 12)
    quotient = random_source.randint(1, 20)
    rest = random_source.randint(1, b - 1) if random_source.random() < 0.35 else 0
    a = b * quotient + rest
    if rest:
        return (_ask(random_source, a, "/", b), random_source.choice([f"{a} divided by {b} is {quotient} with a remainder of {rest}, because {b} x {quotient} = {b * quotient}.",
                                                                      f"{b} goes {quotient} times into {a}, and {rest} is left over."]))
    return _ask(random_source, a, "/", b), random_source.choice([_state(random_source, a, "/", b, quotient), f"{a} ÷ {b} = {quotient}, because {b} x {quotient} = {a}."])


def _percentage(random_source: random.Random) -> Exchange:
    percent = random_source.choice([5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80])
    base = random_source.choice([20, 40, 50, 60, 80, 100, 120, 150, 160, 200, 240, 250, 300, 400, 500, 600, 800, 1000])
    value = Fraction(percent * base, 100)
    text = str(value.numerator) if value.denominator == 1 else str(float(value))
    question = random_source.choice([f"What is {percent}% of {base}?", f"What is {percent} percent of {base}?", f"How much is {percent} % of {base}?", f"Calculate {percent}% of {base}."])
    return question, random_source.choice([f"{percent}% of {base} is {text}.", f"{percent}% of {base} = {percent}/100 x {base} = {text}.", f"One percent of {base} is {base / 100:g}. Times {percent}, that is {text}."])


def _comparison(random_source: random.Random) -> Exchange:
    a, b = random_source.sample(range(1, 200), 2)
    if random_source.random() < 0.5:
        return random_source.choice([f"Which is larger, {a} or {b}?", f"Is {a} or {b} bigger?", f"What is the larger number: {a} or {b}?"]), random_source.choice([f"{max(a, b)} is larger than {min(a, b)}.", f"The larger number is {max(a, b)}."])
    return random_source.choice([f"Is {a} greater than {b}?", f"Is {a} more than {b}?"]), (f"Yes, {a} is greater than {b}." if a > b else f"No, {a} is less than {b}.")


def _number_property(random_source: random.Random) -> Exchange:
    n = random_source.randint(1, 120)
    choice = random_source.randrange(5)
    if choice == 0:
        return random_source.choice([f"Is {n} even or odd?", f"Is the number {n} odd or even?"]), f"{n} is {'even' if n % 2 == 0 else 'odd'}."
    if choice == 1:
        divisor = next((d for d in range(2, n) if n % d == 0), None)
        if n == 1:
            answer = "No, 1 is not a prime number."
        elif divisor is None:
            answer = f"Yes, {n} is a prime number: only 1 and {n} divide it."
        else:
            answer = f"No, {n} is not prime, because it is {divisor} x {n // divisor}."
        return random_source.choice([f"Is {n} a prime number?", f"Is {n} prime?"]), answer
    if choice == 2:
        return random_source.choice([f"What is half of {n * 2}?", f"Half of {n * 2}?"]), f"Half of {n * 2} is {n}."
    if choice == 3:
        return random_source.choice([f"What is twice {n}?", f"Double {n}.", f"What is the double of {n}?"]), f"Twice {n} is {2 * n}."
    root = random_source.randint(1, 15)
    if random_source.random() < 0.5:
        return f"What is the square root of {root * root}?", f"The square root of {root * root} is {root}, because {root} x {root} = {root * root}."
    return random_source.choice([f"What is {root} squared?", f"What is the square of {root}?"]), f"{root} squared is {root} x {root} = {root * root}."


def _sum_of_list(random_source: random.Random) -> Exchange:
    numbers = [random_source.randint(1, 30) for _ in range(random_source.randint(3, 5))]
    text = ", ".join(map(str, numbers))
    choice = random_source.randrange(4)
    if choice == 0:
        return random_source.choice([f"Add these numbers: {text}.", f"What is the sum of {text}?"]), f"{' + '.join(map(str, numbers))} = {sum(numbers)}."
    if choice == 1:
        return random_source.choice([f"Which is the largest of these numbers: {text}?", f"Find the maximum of {text}."]), f"The largest number is {max(numbers)}."
    if choice == 2:
        return random_source.choice([f"Sort these numbers: {text}.", f"Put {text} in order, smallest first."]), ", ".join(map(str, sorted(numbers)))
    step, start = random_source.randint(2, 9), random_source.randint(1, 12)
    items = [start + step * index for index in range(5)]
    return f"What comes next: {', '.join(map(str, items[:4]))}, ...?", f"The numbers grow by {step}, so the next one is {items[4]}."


_THINGS = ["apples", "marbles", "stickers", "books", "pencils", "cookies", "stamps", "coins", "balloons", "shells", "cards", "eggs", "oranges", "flowers"]


def _word_problem(random_source: random.Random) -> Exchange:
    first, second = random_source.sample(PEOPLE, 2)
    thing = random_source.choice(_THINGS)
    a, b, c = random_source.randint(3, 30), random_source.randint(2, 20), random_source.randint(2, 9)
    more, less = max(a, b) + 1, min(a, b)
    hour = random_source.randint(1, 12)
    problems: list[Exchange] = [
        (f"{first} has {a} {thing} and gets {b} more. How many {thing} does {first} have now?", f"{first} has {a} + {b} = {a + b} {thing} now."),
        (f"{first} has {more} {thing} and gives {less} to {second}. How many are left?", f"{more} - {less} = {more - less}, so {first} has {more - less} {thing} left."),
        (f"There are {c} boxes with {a} {thing} each. How many {thing} are there in total?", f"{c} boxes with {a} {thing} each make {c} x {a} = {c * a} {thing}."),
        (f"{c * a} {thing} are shared equally among {c} children. How many does each child get?", f"Each child gets {c * a} ÷ {c} = {a} {thing}."),
        (f"One ticket costs {a} dollars. How much do {c} tickets cost?", f"{c} tickets cost {c} x {a} = {c * a} dollars."),
        (f"{first} is {a} years old. {second} is {c} years older. How old is {second}?", f"{second} is {a} + {c} = {a + c} years old."),
        (f"A car drives {10 * c} kilometers per hour. How far does it go in {less} hours?", f"In {less} hours it goes {10 * c} x {less} = {10 * c * less} kilometers."),
        (f"{first} reads {b} pages a day. How many pages is that in a week?", f"A week has 7 days, so {first} reads 7 x {b} = {7 * b} pages."),
        (f"A rectangle is {a} cm long and {b} cm wide. What is its area?", f"The area is length times width: {a} x {b} = {a * b} square centimeters."),
        (f"A square has sides of {b} cm. What is its perimeter?", f"A square has four equal sides, so the perimeter is 4 x {b} = {4 * b} cm."),
        (f"{first} buys a book for {a} dollars and a pen for {c} dollars and pays with {a + c + b} dollars. How much change is there?", f"The two cost {a} + {c} = {a + c} dollars. The change is {a + c + b} - {a + c} = {b} dollars."),
        (f"{first} has {a} {thing}. {second} has {c} times as many. How many does {second} have?", f"{second} has {c} x {a} = {c * a} {thing}."),
        (f"A bus has {more + 20} seats, and {less} are taken. How many seats are free?", f"{more + 20} - {less} = {more + 20 - less} seats are free."),
        (f"{first} saves {b} dollars a week. How long does it take to save {b * c} dollars?", f"It takes {b * c} ÷ {b} = {c} weeks."),
        (f"{first} had some {thing}, lost {less}, and has {more} left. How many were there at first?", f"At first there were {more} + {less} = {more + less} {thing}."),
        (f"It is {hour} o'clock. What time is it in {c} hours?", f"In {c} hours it will be {(hour + c - 1) % 12 + 1} o'clock."),
        (f"{first} has {a} {thing}, {second} has {b}. How many do they have together?", f"Together they have {a} + {b} = {a + b} {thing}."),
        (f"{first} has {more} {thing} and {second} has {less}. How many more does {first} have?", f"{first} has {more} - {less} = {more - less} more."),
        (f"{first} buys {c} {thing} for {b} dollars each and has {c * b + a} dollars. How much money is left?", f"The {thing} cost {c} x {b} = {c * b} dollars. {c * b + a} - {c * b} = {a} dollars are left."),
        (f"A shirt costs {20 * c} dollars and is 25% off. What does it cost now?", f"25% of {20 * c} is {5 * c}. The shirt now costs {20 * c} - {5 * c} = {15 * c} dollars."),
    ]
    question, answer = random_source.choice(problems)
    return question + random_source.choice(["", "", "", " Think step by step.", " Show your work."]), answer


def arithmetic(random_source: random.Random) -> Exchange:
    """A question with numbers and its right answer."""
    makers = [_addition, _subtraction, _multiplication, _division, _percentage, _comparison, _number_property, _sum_of_list, _word_problem]
    return random_source.choices(makers, [3, 3, 3, 2, 2, 1, 2, 2, 8])[0](random_source)
