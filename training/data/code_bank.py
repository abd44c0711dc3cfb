"""Short functions and what is known about them: the material for explaining and editing code.

Each entry of `_PYTHON` begins with comment lines: `summary` (a docstring), `types` (parameters and result), and
optionally `default` (a default for the last parameter), `guard` (condition | exception | message) and `rename`
(old > new, ...). The functions are ours and work as their summary says.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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


_PYTHON = '''
# summary: Return the sum of two numbers.
# types: a: float; b: float -> float
# default: b = 1
# rename: a > first, b > second
def add(a, b):
    return a + b


# summary: Return a divided by b.
# types: a: float; b: float -> float
# guard: b == 0 | ValueError | b must not be zero
# rename: a > numerator, b > denominator
def divide(a, b):
    return a / b


# summary: Return the area of a rectangle.
# types: width: float; height: float -> float
# guard: width < 0 or height < 0 | ValueError | sides must not be negative
# default: height = 1
# rename: width > length
def rectangle_area(width, height):
    return width * height


# summary: Return the area of a circle with the given radius.
# types: r: float -> float
# guard: r < 0 | ValueError | the radius must not be negative
# rename: r > radius
def circle_area(r):
    return 3.14159 * r * r


# summary: Return True if the number is even.
# types: n: int -> bool
# rename: n > number
def is_even(n):
    return n % 2 == 0


# summary: Return the factorial of n.
# types: n: int -> int
# guard: n < 0 | ValueError | n must not be negative
# rename: result > product, i > factor
def factorial(n):
    result = 1
    for i in range(2, n + 1):
        result *= i
    return result


# summary: Return the n-th Fibonacci number.
# types: n: int -> int
# guard: n < 0 | ValueError | n must not be negative
# rename: a > current, b > following
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


# summary: Return True if the number is prime.
# types: n: int -> bool
# rename: d > divisor, n > number
def is_prime(n):
    if n < 2:
        return False
    d = 2
    while d * d <= n:
        if n % d == 0:
            return False
        d += 1
    return True


# summary: Return the greatest common divisor of two numbers.
# types: a: int; b: int -> int
# rename: a > larger, b > smaller
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


# summary: Return the average of a list of numbers.
# types: values: list[float] -> float
# guard: not values | ValueError | the list is empty
# rename: values > numbers
def average(values):
    return sum(values) / len(values)


# summary: Return the largest value of a list.
# types: values: list[float] -> float
# guard: not values | ValueError | the list is empty
# rename: best > largest, v > value
def find_max(values):
    best = values[0]
    for v in values:
        if v > best:
            best = v
    return best


# summary: Return the smallest value of a list.
# types: values: list[float] -> float
# guard: not values | ValueError | the list is empty
# rename: low > smallest, v > value
def find_min(values):
    low = values[0]
    for v in values[1:]:
        if v < low:
            low = v
    return low


# summary: Return the text reversed.
# types: text: str -> str
# rename: text > word
def reverse_text(text):
    return text[::-1]


# summary: Return True if the word reads the same in both directions.
# types: word: str -> bool
# rename: cleaned > normalized
def is_palindrome(word):
    cleaned = word.lower()
    return cleaned == cleaned[::-1]


# summary: Return the number of vowels in a text.
# types: text: str -> int
# rename: c > letter, count > total
def count_vowels(text):
    count = 0
    for c in text.lower():
        if c in "aeiou":
            count += 1
    return count


# summary: Return the number of words in a text.
# types: text: str -> int
# rename: text > sentence
def count_words(text):
    return len(text.split())


# summary: Return how often each word occurs.
# types: words: list[str] -> dict[str, int]
# rename: counts > frequencies, w > word
def word_counts(words):
    counts = {}
    for w in words:
        counts[w] = counts.get(w, 0) + 1
    return counts


# summary: Return the text with every word capitalized.
# types: text: str -> str
# rename: parts > words
def title_case(text):
    parts = text.split()
    return " ".join(p.capitalize() for p in parts)


# summary: Return the list without duplicates, keeping the order.
# types: items: list[str] -> list[str]
# rename: seen > known, result > unique
def remove_duplicates(items):
    seen = set()
    result = []
    for item in items:
        if item not in seen:
            seen.add(item)
            result.append(item)
    return result


# summary: Return the last n items of a list.
# types: items: list[int]; n: int -> list[int]
# default: n = 1
# guard: n < 1 | ValueError | n must be at least 1
# rename: n > count
def last_items(items, n):
    return items[-n:]


# summary: Return the first n items of a list.
# types: items: list[int]; n: int -> list[int]
# default: n = 3
# guard: n < 0 | ValueError | n must not be negative
# rename: n > count
def first_items(items, n):
    return items[:n]


# summary: Split a list into chunks of the given size.
# types: items: list[int]; size: int -> list[list[int]]
# default: size = 10
# guard: size < 1 | ValueError | size must be positive
# rename: out > chunks, i > start
def chunk(items, size):
    out = []
    for i in range(0, len(items), size):
        out.append(items[i:i + size])
    return out


# summary: Return one flat list of the items of several lists.
# types: lists: list[list[int]] -> list[int]
# rename: flat > result, inner > part
def flatten(lists):
    flat = []
    for inner in lists:
        flat.extend(inner)
    return flat


# summary: Convert degrees Celsius to degrees Fahrenheit.
# types: celsius: float -> float
# rename: celsius > degrees
def to_fahrenheit(celsius):
    return celsius * 9 / 5 + 32


# summary: Convert degrees Fahrenheit to degrees Celsius.
# types: fahrenheit: float -> float
# rename: fahrenheit > degrees
def to_celsius(fahrenheit):
    return (fahrenheit - 32) * 5 / 9


# summary: Convert kilometers to miles.
# types: km: float -> float
# guard: km < 0 | ValueError | the distance must not be negative
# rename: km > kilometers
def to_miles(km):
    return km * 0.621371


# summary: Return the price after a discount in percent.
# types: price: float; percent: float -> float
# default: percent = 10
# guard: percent < 0 or percent > 100 | ValueError | percent must be between 0 and 100
# rename: percent > discount
def discounted(price, percent):
    return price * (1 - percent / 100)


# summary: Return the price with tax added.
# types: price: float; rate: float -> float
# default: rate = 0.2
# guard: price < 0 | ValueError | the price must not be negative
# rename: rate > tax_rate, price > net_price
def with_tax(price, rate):
    return price * (1 + rate)


# summary: Return a greeting for the given name.
# types: name: str; greeting: str -> str
# default: greeting = "Hello"
# guard: not name | ValueError | the name is empty
# rename: name > person
def greet(name, greeting):
    return f"{greeting}, {name}!"


# summary: Return True if the year is a leap year.
# types: year: int -> bool
# rename: year > y
def is_leap_year(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


# summary: Return the position of the target in a sorted list, or -1.
# types: items: list[int]; target: int -> int
# rename: low > left, high > right, mid > middle
def binary_search(items, target):
    low, high = 0, len(items) - 1
    while low <= high:
        mid = (low + high) // 2
        if items[mid] == target:
            return mid
        if items[mid] < target:
            low = mid + 1
        else:
            high = mid - 1
    return -1


# summary: Return the index of the target in a list, or -1 if it is missing.
# types: items: list[str]; target: str -> int
# rename: target > wanted, i > index
def linear_search(items, target):
    for i, item in enumerate(items):
        if item == target:
            return i
    return -1


# summary: Sort a list of numbers in place with bubble sort.
# types: items: list[int] -> list[int]
# rename: items > numbers, n > length
def bubble_sort(items):
    n = len(items)
    for i in range(n):
        for j in range(n - 1 - i):
            if items[j] > items[j + 1]:
                items[j], items[j + 1] = items[j + 1], items[j]
    return items


# summary: Merge two sorted lists into one sorted list.
# types: left: list[int]; right: list[int] -> list[int]
# rename: result > merged
def merge(left, right):
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    return result + left[i:] + right[j:]


# summary: Return the sum of the digits of a number.
# types: n: int -> int
# guard: n < 0 | ValueError | n must not be negative
# rename: total > digit_sum, n > number
def sum_digits(n):
    total = 0
    while n > 0:
        total += n % 10
        n //= 10
    return total


# summary: Return the sum of all even numbers in a list.
# types: numbers: list[int] -> int
# rename: total > even_sum, x > number
def sum_even(numbers):
    total = 0
    for x in numbers:
        if x % 2 == 0:
            total += x
    return total


# summary: Return the product of all numbers in a list.
# types: numbers: list[int] -> int
# rename: p > product, x > number
def multiply_all(numbers):
    p = 1
    for x in numbers:
        p *= x
    return p


# summary: Return the number limited to the range from low to high.
# types: value: float; low: float; high: float -> float
# default: high = 100
# guard: low > high | ValueError | low must not exceed high
# rename: value > number
def clamp(value, low, high):
    return max(low, min(value, high))


# summary: Return the distance between two points.
# types: x1: float; y1: float; x2: float; y2: float -> float
# rename: x1 > start_x, y1 > start_y, x2 > end_x, y2 > end_y
def distance(x1, y1, x2, y2):
    return ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5


# summary: Return all divisors of a number.
# types: n: int -> list[int]
# guard: n < 1 | ValueError | n must be positive
# rename: result > divisors, d > candidate
def divisors(n):
    result = []
    for d in range(1, n + 1):
        if n % d == 0:
            result.append(d)
    return result


# summary: Return the base raised to a non-negative exponent.
# types: base: float; exponent: int -> float
# default: exponent = 2
# guard: exponent < 0 | ValueError | the exponent must not be negative
# rename: result > power
def power(base, exponent):
    result = 1
    for _ in range(exponent):
        result *= base
    return result


# summary: Return a list of the squares of the numbers.
# types: numbers: list[int] -> list[int]
# rename: out > squares, n > number
def squares(numbers):
    out = []
    for n in numbers:
        out.append(n * n)
    return out


# summary: Return the longest word of a list.
# types: words: list[str] -> str
# guard: not words | ValueError | the list is empty
# rename: best > longest
def longest_word(words):
    best = words[0]
    for word in words:
        if len(word) > len(best):
            best = word
    return best


# summary: Group words by their first letter.
# types: words: list[str] -> dict[str, list[str]]
# rename: groups > by_letter
def group_by_letter(words):
    groups = {}
    for word in words:
        groups.setdefault(word[0], []).append(word)
    return groups


# summary: Return a dictionary with keys and values swapped.
# types: mapping: dict[str, str] -> dict[str, str]
# rename: mapping > original
def invert(mapping):
    return {value: key for key, value in mapping.items()}


# summary: Return the items that both lists contain.
# types: first: list[int]; second: list[int] -> list[int]
# rename: first > left, second > right
def common_items(first, second):
    return [item for item in first if item in second]


# summary: Return True if both words use the same letters.
# types: first: str; second: str -> bool
# rename: first > one, second > other
def are_anagrams(first, second):
    return sorted(first.lower()) == sorted(second.lower())


# summary: Read a text file and return its lines.
# types: path: str -> list[str]
# rename: f > file, path > filename
def read_lines(path):
    with open(path) as f:
        return f.read().splitlines()


# summary: Write the lines to a text file.
# types: path: str; lines: list[str] -> None
# rename: f > file
def write_lines(path, lines):
    with open(path, "w") as f:
        for line in lines:
            f.write(line + "\\n")


# summary: Return the number of lines in a file.
# types: path: str -> int
# rename: f > file, n > count
def count_lines(path):
    n = 0
    with open(path) as f:
        for _ in f:
            n += 1
    return n


# summary: Return the extension of a file name without the dot.
# types: filename: str -> str
# rename: filename > name
def extension(filename):
    return filename.rsplit(".", 1)[-1]


# summary: Return the initials of a full name.
# types: name: str -> str
# rename: name > full_name
def initials(name):
    return "".join(part[0].upper() for part in name.split())


# summary: Replace spaces by dashes and make the text lower case.
# types: title: str -> str
# rename: title > text
def slugify(title):
    return title.strip().lower().replace(" ", "-")


# summary: Shorten a text to a maximal length.
# types: text: str; limit: int -> str
# default: limit = 80
# guard: limit < 3 | ValueError | the limit is too small
# rename: limit > max_length
def shorten(text, limit):
    if len(text) <= limit:
        return text
    return text[:limit - 3] + "..."


# summary: Return the time as hours, minutes and seconds.
# types: seconds: int -> str
# guard: seconds < 0 | ValueError | seconds must not be negative
# rename: seconds > total
def format_time(seconds):
    hours, rest = divmod(seconds, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours:02d}:{minutes:02d}:{secs:02d}"


# summary: Return the letter grade for a score.
# types: score: int -> str
# guard: score < 0 or score > 100 | ValueError | the score must be between 0 and 100
# rename: score > points
def grade(score):
    if score >= 90:
        return "A"
    if score >= 80:
        return "B"
    if score >= 70:
        return "C"
    return "F"


# summary: Return Fizz, Buzz, FizzBuzz or the number itself.
# types: n: int -> str
# rename: n > number
def fizzbuzz(n):
    if n % 15 == 0:
        return "FizzBuzz"
    if n % 3 == 0:
        return "Fizz"
    if n % 5 == 0:
        return "Buzz"
    return str(n)


# summary: Return the binary digits of a number.
# types: n: int -> str
# guard: n < 0 | ValueError | n must not be negative
# rename: digits > bits
def to_binary(n):
    digits = ""
    while n > 0:
        digits = str(n % 2) + digits
        n //= 2
    return digits or "0"


# summary: Return the transposed matrix.
# types: matrix: list[list[int]] -> list[list[int]]
# rename: matrix > rows
def transpose(matrix):
    return [list(column) for column in zip(*matrix)]


# summary: Return the median of a list of numbers.
# types: values: list[float] -> float
# guard: not values | ValueError | the list is empty
# rename: mid > middle
def median(values):
    ordered = sorted(values)
    mid = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[mid]
    return (ordered[mid - 1] + ordered[mid]) / 2


# summary: Return the list rotated to the left by k positions.
# types: items: list[int]; k: int -> list[int]
# default: k = 1
# guard: not items | ValueError | the list is empty
# rename: k > steps
def rotate(items, k):
    k = k % len(items)
    return items[k:] + items[:k]


# summary: Return the running totals of a list of numbers.
# types: numbers: list[int] -> list[int]
# rename: total > running, out > totals
def running_totals(numbers):
    total = 0
    out = []
    for number in numbers:
        total += number
        out.append(total)
    return out


# summary: Encode a text with the Caesar cipher.
# types: text: str; shift: int -> str
# default: shift = 3
# rename: out > encoded, c > letter
def caesar(text, shift):
    out = ""
    for c in text:
        if c.islower():
            out += chr((ord(c) - ord("a") + shift) % 26 + ord("a"))
        else:
            out += c
    return out


# summary: Return the simple interest on an amount.
# types: amount: float; rate: float; years: int -> float
# default: years = 1
# guard: years < 0 | ValueError | years must not be negative
# rename: amount > principal
def interest(amount, rate, years):
    return amount * rate * years


# summary: Return True if the password is long enough and contains a digit.
# types: password: str -> bool
# rename: c > character
def is_strong(password):
    return len(password) >= 8 and any(c.isdigit() for c in password)


# summary: Return the number of days in a month of a common year.
# types: month: int -> int
# guard: month < 1 or month > 12 | ValueError | the month must be between 1 and 12
# rename: month > number
def days_in_month(month):
    days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return days[month - 1]


# summary: Return the total price of all items in a cart.
# types: cart: list[dict[str, float]] -> float
# rename: total > amount, item > entry
def cart_total(cart):
    total = 0
    for item in cart:
        total += item["price"] * item["quantity"]
    return total


# summary: Return the names of all users who are active.
# types: users: list[dict[str, str]] -> list[str]
# rename: names > active_names, u > user
def active_names(users):
    names = []
    for u in users:
        if u["active"]:
            names.append(u["name"])
    return names


# summary: Return the value for a key, or a fallback.
# types: settings: dict[str, str]; key: str; fallback: str -> str
# default: fallback = ""
# rename: settings > config
def get_setting(settings, key, fallback):
    if key in settings:
        return settings[key]
    return fallback


# summary: Return the sum of the numbers from 1 to n.
# types: n: int -> int
# guard: n < 0 | ValueError | n must not be negative
# rename: total > result, i > number
def sum_to(n):
    total = 0
    for i in range(1, n + 1):
        total += i
    return total


# summary: Return how often a letter occurs in a text.
# types: text: str; letter: str -> int
# guard: len(letter) != 1 | ValueError | exactly one letter is needed
# rename: n > count, c > character
def count_letter(text, letter):
    n = 0
    for c in text:
        if c == letter:
            n += 1
    return n


# summary: Return the pairs of numbers that add up to a target.
# types: numbers: list[int]; target: int -> list[tuple[int, int]]
# rename: pairs > result
def find_pairs(numbers, target):
    pairs = []
    for i, a in enumerate(numbers):
        for b in numbers[i + 1:]:
            if a + b == target:
                pairs.append((a, b))
    return pairs


# summary: Return the text without punctuation.
# types: text: str -> str
# rename: c > character
def strip_punctuation(text):
    return "".join(c for c in text if c.isalnum() or c.isspace())


# summary: Return the hypotenuse of a right triangle.
# types: a: float; b: float -> float
# guard: a < 0 or b < 0 | ValueError | sides must not be negative
# rename: a > first_leg, b > second_leg
def hypotenuse(a, b):
    return (a * a + b * b) ** 0.5


# summary: Return the body mass index.
# types: weight: float; height: float -> float
# guard: height <= 0 | ValueError | the height must be positive
# rename: weight > kilograms, height > meters
def body_mass_index(weight, height):
    return weight / height ** 2


# summary: Return the text repeated with a separator.
# types: text: str; times: int; separator: str -> str
# default: separator = " "
# guard: times < 1 | ValueError | times must be at least 1
# rename: times > count
def repeat(text, times, separator):
    return separator.join([text] * times)


# summary: Return True if all numbers in the list are positive.
# types: numbers: list[float] -> bool
# rename: n > number
def all_positive(numbers):
    for n in numbers:
        if n <= 0:
            return False
    return True


# summary: Return the second largest number of a list.
# types: numbers: list[int] -> int
# guard: len(set(numbers)) < 2 | ValueError | at least two different numbers are needed
# rename: ordered > unique
def second_largest(numbers):
    ordered = sorted(set(numbers))
    return ordered[-2]


# summary: Count down from n to zero and return the numbers.
# types: n: int -> list[int]
# guard: n < 0 | ValueError | n must not be negative
# rename: steps > numbers
def countdown(n):
    steps = []
    while n >= 0:
        steps.append(n)
        n -= 1
    return steps


# summary: Parse a line of the form key=value.
# types: line: str -> tuple[str, str]
# guard: "=" not in line | ValueError | the line has no equals sign
# rename: line > text
def parse_pair(line):
    key, value = line.split("=", 1)
    return key.strip(), value.strip()


# summary: Return the collatz sequence that starts at n.
# types: n: int -> list[int]
# guard: n < 1 | ValueError | n must be positive
# rename: seq > sequence
def collatz(n):
    seq = [n]
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        seq.append(n)
    return seq
'''

PYTHON: list[Snippet] = _parse(_PYTHON)
