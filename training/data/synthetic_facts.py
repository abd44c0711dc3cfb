"""Short questions about certain facts, and questions about the assistant itself."""

from __future__ import annotations

import random

import fact_bank as facts

Exchange = tuple[str, str]


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _from_table(random_source: random.Random, table: dict[str, str], questions: list[str], answers: list[str]) -> Exchange:
    key = random_source.choice(list(table))
    fields = {"k": key, "v": table[key], "K": _upper(key), "V": _upper(table[key])}
    return _upper(random_source.choice(questions).format(**fields)), _upper(random_source.choice(answers).format(**fields))


_TABLES: list[tuple[int, dict[str, str], list[str], list[str]]] = [
    (12, facts.CAPITALS, ["What is the capital of {k}?", "Which city is the capital of {k}?", "Can you tell me the capital of {k}?", "capital of {k}?", "What's the capital city of {k}?", "Do you know the capital of {k}?", "Name the capital of {k}.", "I forgot the capital of {k}. What is it?"],
     ["The capital of {k} is {v}.", "{V} is the capital of {k}.", "It's {v}.", "{V}."]),
    (4, {value: key for key, value in facts.CAPITALS.items() if key != value}, ["{K} is the capital of which country?", "Of which country is {k} the capital?", "Which country has {k} as its capital?"], ["{K} is the capital of {v}.", "That is {v}.", "{V}."]),
    (4, facts.CONTINENTS, ["On which continent is {k}?", "Where is {k}?", "Which continent does {k} belong to?", "Is {k} in Europe, Africa, Asia or America?"], ["{K} is in {v}.", "{K} is a country in {v}."]),
    (4, facts.LANGUAGES, ["Which language is spoken in {k}?", "What language do people speak in {k}?", "What is the main language of {k}?"], ["People in {k} speak {v}.", "The main language of {k} is {v}.", "{V}."]),
    (6, facts.SYMBOLS, ["What is the chemical symbol of {k}?", "Which symbol does {k} have in the periodic table?", "Chemical symbol for {k}?", "How is {k} written in chemistry?"], ["The chemical symbol of {k} is {v}.", "{K} has the symbol {v}.", "It is {v}."]),
    (3, {value: key for key, value in facts.SYMBOLS.items()}, ["Which element has the symbol {k}?", "What does {k} stand for in the periodic table?"], ["{K} is the symbol of {v}.", "{K} stands for {v}."]),
    (7, facts.OPPOSITES, ["What is the opposite of \"{k}\"?", "Give me the opposite of {k}.", "What's the antonym of \"{k}\"?", "Opposite of {k}?", "Which word means the opposite of \"{k}\"?"], ["The opposite of \"{k}\" is \"{v}\".", "\"{V}\" is the opposite of \"{k}\".", "{V}."]),
    (5, facts.PLURALS, ["What is the plural of \"{k}\"?", "How do you write more than one {k}?", "Plural of {k}?", "One {k}, two ...?"], ["The plural of \"{k}\" is \"{v}\".", "One {k}, two {v}.", "It is \"{v}\"."]),
    (5, facts.PAST_TENSES, ["What is the past tense of \"{k}\"?", "Past tense of {k}?", "How do I say \"{k}\" in the past?", "What is the simple past of the verb \"{k}\"?"], ["The past tense of \"{k}\" is \"{v}\".", "It is \"{v}\".", "\"{K}\" becomes \"{v}\" in the past tense."]),
    (4, facts.YOUNG, ["What is the young of {k} called?", "What do you call the baby of {k}?"], ["The young of {k} is called {v}.", "It is called {v}."]),
    (2, facts.SOUNDS, ["What sound does {k} make?", "Which noise does {k} make?", "What does {k} do when it makes a noise?"], ["{K} {v}.", "It {v}."]),
    (4, facts.CLASSES, ["Is {k} a mammal, a bird, a fish, a reptile or something else?", "What kind of animal is {k}?", "To which group of animals does {k} belong?"], ["{K} is {v}.", "It is {v}."]),
    (3, facts.COLORS, ["What color is {k}?", "Which color does {k} have?", "What is the color of {k}?"], ["The color of {k} is {v}.", "{V}."]),
    (2, facts.MIXES, ["Which color do you get when you mix {k}?", "What do {k} make?", "I mix {k} paint. What color is it?"], ["{K} make {v}.", "You get {v}.", "The result is {v}."]),
    (3, facts.LEGS, ["How many legs does {k} have?", "Number of legs of {k}?"], ["{K} has {v} legs."]),
    (3, facts.SIDES, ["How many sides does a {k} have?", "How many corners does a {k} have?"], ["A {k} has {v}.", "It has {v}."]),
    (6, facts.UNITS, ["How many {k}?", "What is the number of {k}?", "Do you know how many {k}?"], ["There are {v} {k}.", "The number of {k} is {v}.", "{V}."]),
    (4, facts.ABBREVIATIONS, ["What does {k} stand for?", "What is the meaning of the abbreviation {k}?", "{k} is short for what?"], ["{k} stands for {v}.", "{k} is short for {v}."]),
    (6, facts.INVENTIONS, ["Who {k}?", "Do you know who {k}?", "Tell me who {k}."], ["{V} {k}.", "That was {v}.", "It was {v}."]),
    (8, facts.SUPERLATIVES, ["What is {k}?", "Can you name {k}?", "Tell me: what is {k}?", "Do you know {k}?"], ["{V} is {k}.", "It is {v}.", "That is {v}."]),
]


def _table_fact(random_source: random.Random) -> Exchange:
    _, table, questions, answers = random_source.choices(_TABLES, [entry[0] for entry in _TABLES])[0]
    question, answer = _from_table(random_source, table, questions, answers)
    answer = answer.replace("has none legs", "has no legs").replace("..", ".")
    if table is facts.UNITS:
        if question.startswith("How many ") or " how many " in question:
            for preposition in (" in ", " on "):
                if preposition in question:
                    head, _, tail = question.rstrip("?").partition(preposition)
                    question = f"{head} are there{preposition}{tail}?" if question.startswith("How") else f"{head} there are{preposition}{tail}?"
                    break
    if table is facts.SIDES:
        answer = answer[:-1] + (" sides." if "side" in question else " corners.")
    if table is facts.SUPERLATIVES and len(answer) < 60 and answer.startswith("2 is"):
        answer = "The only even prime number is 2."
    return question, answer


def _sequence(random_source: random.Random) -> Exchange:
    kind = random_source.choice(["day", "day", "month", "month", "planet", "letter"])
    items = facts.ORDERED[kind]
    index = random_source.randrange(len(items) - 1)
    first, second = items[index], items[index + 1]
    noun, extra = kind, ", counted from the Sun" if kind == "planet" else ""
    if random_source.random() < 0.5:
        question = random_source.choice([f"Which {noun} comes after {first}{extra}?", f"What {noun} follows {first}{extra}?", f"What is the {noun} after {first}{extra}?"])
        return question, random_source.choice([f"{second} comes after {first}.", f"The {kind} after {first} is {second}.", f"It is {second}."])
    question = random_source.choice([f"Which {noun} comes before {second}{extra}?", f"What is the {noun} before {second}{extra}?"])
    return question, random_source.choice([f"{first} comes before {second}.", f"The {kind} before {second} is {first}.", f"It is {first}."])


_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]


def _calendar(random_source: random.Random) -> Exchange:
    choice = random_source.randrange(4)
    month = random_source.choice(facts.ORDERED["month"])
    number = facts.ORDERED["month"].index(month)
    if choice == 0:
        days = facts.MONTH_DAYS[month]
        answer = f"{month} has {days} days." if month != "February" else "February has 28 days, and 29 days in a leap year."
        return random_source.choice([f"How many days does {month} have?", f"How long is {month}?", f"Number of days in {month}?"]), answer
    if choice == 1:
        return random_source.choice([f"Which month is {month} in the year?", f"What number is the month {month}?"]), f"{month} is the {_ORDINALS[number]} month of the year."
    if choice == 2:
        return random_source.choice([f"What is the {_ORDINALS[number]} month of the year?", f"Which month is number {number + 1}?"]), f"The {_ORDINALS[number]} month of the year is {month}."
    start = random_source.randrange(7)
    days = random_source.randint(1, 10)
    today, later = facts.ORDERED["day"][start], facts.ORDERED["day"][(start + days) % 7]
    plural = "day" if days == 1 else "days"
    return (random_source.choice([f"Today is {today}. What day is it in {days} {plural}?", f"If today is {today}, which day will it be in {days} {plural}?"]),
            random_source.choice([f"In {days} {plural} it will be {later}.", f"It will be {later}."]))


def _check(random_source: random.Random) -> Exchange:
    """A yes/no question about a fact."""
    table, form, right, wrong = random_source.choice([
        (facts.CAPITALS, "Is {v} the capital of {k}?", "Yes, {v} is the capital of {k}.", "No, the capital of {k} is {t}."),
        (facts.CLASSES, "Is {k} {v}?", "Yes, {k} is {v}.", "No, {k} is {t}."),
        (facts.SYMBOLS, "Is {v} the symbol of {k}?", "Yes, {v} is the chemical symbol of {k}.", "No, the chemical symbol of {k} is {t}."),
        (facts.COLORS, "Is the color of {k} {v}?", "Yes, the color of {k} is {v}.", "No, the color of {k} is {t}."),
        (facts.CONTINENTS, "Is {k} in {v}?", "Yes, {k} is in {v}.", "No, {k} is in {t}."),
    ])
    key = random_source.choice(list(table))
    truth = table[key]
    if random_source.random() < 0.5:
        return _upper(form.format(k=key, v=truth)), right.format(k=key, v=truth)
    other = random_source.choice([value for value in table.values() if value != truth])
    return _upper(form.format(k=key, v=other)), wrong.format(k=key, t=truth)


_LISTS: list[Exchange] = [
    ("Name the days of the week.", "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    ("List the months of the year.", "The months are January, February, March, April, May, June, July, August, September, October, November and December."),
    ("List the planets of the solar system.", "The planets are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune."),
    ("What are the four seasons?", "The four seasons are spring, summer, autumn and winter."), ("What are the colors of the rainbow?", "The colors of the rainbow are red, orange, yellow, green, blue, indigo and violet."),
    ("What are the three states of matter?", "The three common states of matter are solid, liquid and gas."), ("Name the five senses.", "The five senses are sight, hearing, smell, taste and touch."),
    ("Name the continents.", "The seven continents are Africa, Antarctica, Asia, Australia, Europe, North America and South America."), ("What are the primary colors?", "In painting, the primary colors are red, yellow and blue."),
    ("Name the oceans.", "The five oceans are the Pacific, the Atlantic, the Indian, the Arctic and the Southern Ocean."), ("What are the four directions?", "The four directions are north, south, east and west."),
    ("What are the vowels of the English alphabet?", "The vowels are A, E, I, O and U, and sometimes Y."), ("Name three primary colors.", "Three primary colors are red, yellow and blue."), ("Count from one to ten.", "One, two, three, four, five, six, seven, eight, nine, ten."),
]


def fact(random_source: random.Random) -> Exchange:
    """A question about a certain fact and its answer."""
    make = random_source.choices([_table_fact, _sequence, _calendar, _check, lambda source: source.choice(_LISTS)], [12, 2, 2, 4, 1])[0]
    return make(random_source)


_WHO = ["Who are you?", "What are you?", "What is your name?", "Who am I talking to?", "Introduce yourself.", "Tell me about yourself.", "Which model are you?", "What model is this?", "Hi, who are you?", "Hello! What's your name?", "Are you ChatGPT?", "Are you a human?",
        "Are you a real person?", "Are you a robot?", "Are you an AI?", "What kind of AI are you?", "What should I call you?", "who r u", "Do you have a name?", "Is this Lithos?", "What is lithos-mini?"]
_WHO_ANSWERS = ["I am lithos-mini, a small language model that is built into the Lithos inference engine.", "I'm lithos-mini, a small demonstration model inside the Lithos inference engine.", "My name is lithos-mini. I am a small language model that comes with the Lithos inference engine.",
                "I am lithos-mini, the small built-in model of Lithos.", "You are talking to lithos-mini, a small demonstration model that ships with the Lithos inference engine."]
_WHO_MORE = ["", "", " I make mistakes, so please check important answers.", " I am here for demonstration and often make mistakes.", " For better answers, load a larger model with --model.", " I can chat, answer simple questions and write short texts.", " How can I help you?", " What would you like to talk about?"]
_NOT_HUMAN = ["No, I am a computer program: lithos-mini, a small language model inside the Lithos inference engine.", "No, I'm not a person. I am lithos-mini, a small language model that is built into Lithos."]
_YES_AI = ["Yes. I am lithos-mini, a small language model inside the Lithos inference engine.", "Yes, I am a small language model called lithos-mini."]
_OTHER = ["No, I am lithos-mini, a small model that is built into the Lithos inference engine.", "No, my name is lithos-mini. I am a small demonstration model."]
_CAN = ["What can you do?", "What are you good at?", "How can you help me?", "What can I ask you?", "What are your abilities?", "What are you able to do?", "help", "What can I use you for?", "Can you help me?", "What do you know?", "Which tasks can you do?"]
_CAN_ANSWERS = ["I can answer simple questions, write short texts, explain small pieces of code and call tools. I am a very small model, so please check what I say.", "I can chat, answer easy questions, write short stories and poems, and help with small programs. Being a small model, I make mistakes.",
                "Simple things: short answers, short texts, small Python functions and tool calls. For harder tasks, start Lithos with a larger model, using --model.", "I can help with easy questions, short texts and small code snippets. I am a demonstration model, so do not rely on me for important things."]
_MAKER = ["Who made you?", "Who created you?", "Who trained you?", "Who is your creator?", "Where do you come from?", "How were you made?", "Which company built you?", "Were you made by OpenAI?", "Did Google make you?", "Who developed you?"]
_MAKER_ANSWERS = ["I was trained as a demonstration for the Lithos inference engine, so that it can answer without any download.", "The Lithos project trained me as a small demonstration model for its inference engine.", "I was made for Lithos, an open-source inference engine. I am the small model that comes with it."]
_MAKER_NO = ["No. I was trained for Lithos, an open-source inference engine, as its small built-in model.", "No, the Lithos project made me as a demonstration model for its inference engine."]
_TRUST = ["Can I trust you?", "Are your answers always right?", "Do you make mistakes?", "How accurate are you?", "Are you reliable?", "Is everything you say true?", "Why was your answer wrong?", "You are wrong.", "That answer is not right.", "Why do you make mistakes?"]
_TRUST_ANSWERS = ["I make mistakes often, because I am a very small model. Please check important facts elsewhere.", "Please do not rely on me for important things: I am a small demonstration model and sometimes invent things.", "I am small and was trained briefly, so I am wrong quite often. A larger model, loaded with --model, will do better."]
_BETTER = ["How do I get better answers?", "Can I use a better model?", "How can I load another model?", "Is there a larger model?", "How do I use a different model?", "You are too small. What else can I run?", "How do I change the model?", "Which option selects another model?"]
_BETTER_ANSWERS = ["Start Lithos with the option --model and the name or folder of a larger model. The command `lithos models` lists models that are known to work.", "Yes. Pass --model with a larger model to Lithos; `lithos models` shows a list.", "Use --model to load a larger one. I am only the built-in demonstration model."]
_SIZE = ["How big are you?", "How many parameters do you have?", "Are you a large language model?", "How large is this model?", "Are you as good as a large model?"]
_SIZE_ANSWERS = ["I am very small: only some tens of millions of parameters. Large models have billions.", "I have only some tens of millions of parameters, so I fit into the program itself.", "I am a tiny model, small enough to be part of the Lithos program. Larger models know much more."]
_LIMITS = ["Do you know today's news?", "Can you browse the internet?", "Do you remember our last conversation?", "What is the weather today?", "What time is it?", "Do you have feelings?", "Do you sleep?", "Do you have a body?", "How old are you?", "Where do you live?", "Do you have a family?", "Can you see me?", "What did you do yesterday?"]
_LIMIT_ANSWERS = {
    "Do you know today's news?": "No, I only know what was in my training text, and I cannot look up the news.", "Can you browse the internet?": "No, I cannot browse the internet unless you give me a tool for it.",
    "Do you remember our last conversation?": "No, I do not remember earlier conversations. I only see the text of this one.", "What is the weather today?": "I cannot see the weather. If you give me a weather tool, I can ask it.",
    "What time is it?": "I don't have a clock, so I can't tell. If you give me a tool for the time, I can use it.", "Do you have feelings?": "No, I am a language model and have no feelings, but I am happy to talk with you about yours.",
    "Do you sleep?": "No, I don't sleep. I am a program and run whenever you ask me something.", "Do you have a body?": "No, I am only a program: a small language model inside Lithos.", "How old are you?": "I don't have an age as people do. I am a small language model called lithos-mini.",
    "Where do you live?": "I run on your own computer, inside the Lithos program.", "Do you have a family?": "No, I am a program. But there are many other language models, most of them much larger than me.", "Can you see me?": "No, I can only read the text that you write.",
    "What did you do yesterday?": "Nothing at all: I am a language model and only work while I answer you.",
}


def identity(random_source: random.Random) -> Exchange:
    """A question about the assistant and its answer."""
    choose = random_source.choice
    group = random_source.choices(["who", "can", "maker", "trust", "better", "size", "limits"], [6, 3, 3, 2, 2, 1, 3])[0]
    if group == "who":
        question = choose(_WHO)
        if "human" in question or "real person" in question:
            return question, choose(_NOT_HUMAN)
        if "ChatGPT" in question:
            return question, choose(_OTHER)
        if question in ("Are you an AI?", "Is this Lithos?", "Are you a robot?"):
            return question, {"Are you an AI?": choose(_YES_AI), "Is this Lithos?": "Yes, this is Lithos, and I am lithos-mini, its small built-in model.", "Are you a robot?": "Not quite: I am a program without a body, a small language model called lithos-mini."}[question]
        return question, choose(_WHO_ANSWERS) + choose(_WHO_MORE)
    if group == "maker":
        question = choose(_MAKER)
        return question, choose(_MAKER_NO if "OpenAI" in question or "Google" in question else _MAKER_ANSWERS)
    if group == "limits":
        question = choose(_LIMITS)
        return question, _LIMIT_ANSWERS[question]
    questions, answers = {"can": (_CAN, _CAN_ANSWERS), "trust": (_TRUST, _TRUST_ANSWERS), "better": (_BETTER, _BETTER_ANSWERS), "size": (_SIZE, _SIZE_ANSWERS)}[group]
    return choose(questions), choose(answers)
