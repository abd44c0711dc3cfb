"""Templates of prompts by kind. A name in braces is filled from the banks; several variants of one request are wanted.

Fields: {concept}, {activity} (verb phrase), {subject} (noun phrase with article), {first}/{second} (two things of one
class), {situation} (sentence without its full stop), {occasion}, {person} (a first name), {number} (2 to 10).
"""

from __future__ import annotations

TEMPLATES: dict[str, list[str]] = {
    "explain": [
        "Explain {concept}.", "What is meant by {concept}?", "Tell me about {concept}.", "Explain {concept} to me.", "Can you explain {concept}?",
        "I don't understand {concept}. Can you help?", "Give me a short explanation of {concept}.", "Describe {concept} briefly.",
        "What should I know about {concept}?", "Why is it useful to know about {concept}?", "Write a paragraph about {concept}.", "Teach me something about {concept}.",
        "What is interesting about {concept}?", "Give a simple introduction to {concept}.", "Explain {concept} with an example.",
        "Explain {concept} like I'm five.", "What do people often get wrong about {concept}?", "Describe {concept} with a comparison from everyday life.",
        "I have to give a short talk on {concept}. What should I say?", "Write a short encyclopedia entry about {concept}.",
        "What would you tell a friend about {concept}?", "{concept}: what is it about?", "Please explain the basics of {concept}.",
        "Give me an overview of {concept}.", "My teacher talked about {concept} today. Explain it to me again.",
        "What is the most important thing to understand about {concept}?", "What are the key ideas of {concept}?",
        "Explain {clause}.", "Can you explain {clause}?", "Do you know {clause}?", "Tell me {clause}.", "My child asked me {clause}. What should I say?",
    ],
    "how-to": [
        "How do I {activity}?", "How can I {activity}?", "What is the best way to {activity}?", "Give me steps to {activity}.", "I want to {activity}. Where do I start?",
        "Teach me how to {activity}.", "Write a short guide: how to {activity}.", "What do I need to {activity}?", "Tips for someone who wants to {activity}?",
        "Can you tell me how to {activity}?", "Help me {activity}.", "What mistakes should I avoid when I {activity}?", "How long does it take to {activity}?",
        "Is it hard to {activity}?", "Explain step by step how to {activity}.", "I have never tried to {activity}. Any advice?",
        "Write {number} tips to {activity}.", "What is an easy way to {activity}?", "How would a beginner {activity}?", "Make a checklist for me to {activity}.",
    ],
    "list": [
        "List {number} facts about {concept}.", "Give me {number} examples related to {concept}.", "Name {number} things about {concept}.",
        "List {number} words related to {concept}.", "Write {number} questions about {concept}.", "List {number} reasons to learn about {concept}.",
        "Give me {number} quiz questions with answers about {concept}.", "List the main points about {concept}.", "Make a bullet list about {concept}.",
        "List {number} advantages of {thing}.", "List {number} disadvantages of {thing}.", "Name {number} uses of {thing}.",
        "Write a packing list for someone who wants to {activity}.", "List {number} things you need to {activity}.",
        "Give me {number} synonyms for the word \"{word}\".", "List {number} words that rhyme with \"{rhyme}\".",
        "Give {number} names for {subject} in a story.", "List {number} adjectives that describe {subject}.",
    ],
    "compare": [
        "Compare {first} and {second}.", "What is the difference between {first} and {second}?", "{first} or {second}: which is better?",
        "What do {first} and {second} have in common?", "Should I choose {first} or {second}?", "Give one advantage of {first} over {second}.",
        "How are {first} and {second} different?", "Explain the difference between {first} and {second} to a child.",
        "Which do you prefer, {first} or {second}?", "Write a short comparison of {first} and {second}.", "Make a table that compares {first} and {second}.",
        "When would you use {first} and when {second}?",
    ],
    "story": [
        "Write a short story about {subject}.", "Tell me a story about {subject}.", "Write a story about {subject} in five sentences.",
        "Write a bedtime story about {subject}.", "Tell a funny story about {subject}.", "Begin a story about {subject} and {subject2}.",
        "Write a story that begins with the words: \"{opening}\"", "Write a fable about {subject} with a moral.", "Write a very short story about {subject}.",
        "Write a dialogue between {subject} and {subject2}.", "Write a story about {subject} for a child named {person}.", "Describe {subject} as the opening of a novel.",
        "Write a mystery about {subject}.", "Write a story in which {subject} meets {subject2}.", "Tell a sad story about {subject}.",
        "Write a story about {subject} with a happy ending.", "Continue this story: \"{opening}\"", "Write a diary entry of {subject}.",
        "Give me an idea for a story about {subject}.", "Write a scene with {subject} at night.",
    ],
    "poem": [
        "Write a poem about {subject}.", "Write a short poem about {subject}.", "Write a haiku about {subject}.", "Write four lines that rhyme about {subject}.",
        "Write a limerick about {subject}.", "Write a children's rhyme about {subject}.", "Write a poem about {subject} and {subject2}.",
        "Write a song verse about {subject}.", "Write a sad poem about {subject}.", "Write a funny poem about {subject}.", "Write a poem without rhyme about {subject}.",
        "Write a birthday poem for {person}.", "Write two lines about {subject}.", "Write a lullaby about {subject}.",
    ],
    "message": [
        "Write a message: {occasion}.", "Write a short message: {occasion}.", "Help me write {occasion}.", "Draft {occasion}.", "Write a formal letter: {occasion}.",
        "Write a friendly note: {occasion}.", "Write {occasion}. My name is {person}.", "Write {occasion} in three sentences.",
        "Write politely to {person}: {occasion}.", "I need {occasion}. Can you write it?", "What should I say in {occasion}?",
        "Write a text message to {person}: {occasion}.", "Give me a subject line for {occasion}.",
    ],
    "brainstorm": [
        "Give me ideas to {activity}.", "Brainstorm {number} titles for a story about {subject}.", "Suggest {number} names for a café near {place}.",
        "Give me {number} ideas for a school project about {concept}.", "Suggest a slogan for {thing}.", "Give me {number} gift ideas for someone who loves {sport}.",
        "Think of {number} games to play about {concept}.", "What could I write about {concept}?", "Give me {number} blog post titles about {concept}.",
        "Suggest {number} activities for a day about {concept}.", "Invent a holiday about {subject}.", "Give me {number} questions to ask an expert in {concept}.",
        "Suggest a name and a slogan for a company that sells something like {object}.", "Give me {number} new uses for {object}.", "What if {subject} could talk? Give me ideas.",
    ],
    "advice": [
        "{situation}. What should I do?", "{situation}. Any advice?", "{situation}. Can you help me?", "{situation}.", "What would you do? {situation}.",
        "{situation}. What can I say?", "{situation}, and I don't know what to do.", "Hi, {situation}.", "{situation}. Give me {number} tips.",
        "{situation}. How do I start?", "{situation}. Is that normal?", "Do you have a moment? {situation}.", "{situation}. Please be honest with me.",
    ],
    "opinion": [
        "What do you think about {concept}?", "Is it important to know about {concept}?", "Do you like {thing}?", "Why do people like {thing}?", "Is it a good idea to {activity}?",
        "Should everyone learn about {concept}?", "What is the best thing about {thing}?", "Give arguments for and against {thing}.",
        "What makes {subject} a good subject for a story?", "Convince me to {activity}.", "Why should I {activity}?",
        "Write a short speech about {concept}.", "Write a review of {thing}.",
    ],
    "definition": [
        "What does the word \"{word}\" mean?", "Define \"{word}\".", "Use the word \"{word}\" in a sentence.", "What is the opposite of \"{word}\"?",
        "Give me a synonym for \"{word}\".", "Is \"{word}\" a noun, a verb or an adjective?", "Write two sentences with the word \"{word}\".",
        "How would you explain the word \"{word}\" to a child?", "What is the difference between \"{word}\" and \"{word2}\"?", "Where might you hear the word \"{word}\"?",
    ],
    "small talk": [
        "Hello!", "Hi", "Hey there", "Good morning!", "Good evening.", "Hi, how are you?", "How are you today?", "Hello, my name is {person}.", "Hi, I'm {person}.",
        "Thanks!", "Thank you, that was helpful.", "Thanks a lot for your help, bye!", "Goodbye", "Good night!", "See you later.", "Nice to meet you.", "What's up?",
        "Tell me a joke.", "Tell me a joke about {subject}.", "Do you know any jokes about {thing}?", "I'm bored.", "Can we talk?", "Tell me something interesting.",
        "Tell me a fun fact about {concept}.", "What is your favorite color?", "Do you like music?", "What do you do all day?", "Are you a robot?", "Can you help me?",
        "I had a good day today.", "I had a bad day.", "It's raining here.", "It's my birthday today!", "I'm happy.", "I'm a bit tired.", "I'm hungry.", "I love {thing}.",
        "I don't like {thing}.", "I just came back from {place}.", "Let's talk about {concept}.", "Ask me a question.", "Ask me a question about {concept}.",
        "Say something nice.", "Motivate me!", "I need some encouragement because I want to {activity}.", "Wish me luck, I'm going to {activity}!", "Guess what? I learned to {activity}!",
        "Tell me a riddle.", "Give me a tongue twister.", "What should we talk about?", "Do you ever sleep?", "Do you have feelings?", "What can I ask you?",
        "Happy New Year!", "Have a nice weekend!", "Sorry, I made a mistake.", "OK", "Cool, thanks.", "You are funny.", "I disagree with you.", "Good job!",
        "My favorite subject at school is {schoolsubject}.", "I have a pet. It's {pet}.", "I'm learning to {activity}.", "Today I want to {activity}.",
        "Yesterday I saw {subject}.", "I dreamed about {subject}.",
    ],
    "role play": [
        "Pretend you are {subject} and introduce yourself.", "You are a tour guide. Tell me about {place}.", "Act as a teacher and explain {concept}.",
        "Be my interviewer for a job as {job}. Ask the first question.", "You are a chef. Tell me how to {cook}.", "Imagine you are {subject}. What do you see?",
        "Speak like a pirate and tell me about {concept}.", "You are a weather reporter. Describe the weather near {place}.", "Answer as a poet: what is {feeling}?",
        "You are a sports commentator. Describe a match of {sport}.", "Let's play a game. You are a shopkeeper and I buy {object}.",
    ],
    "facts": ["{question}", "{question}", "Quick question: {question_lower}", "{question} Answer in one sentence.", "{question} Explain your answer.",
              "Do you know the answer? {question}", "I have a question. {question}", "{question} And why?"],
    "summarise": [
        "Summarize this: {paragraph}", "Summarize the following text in one sentence.\n\n{paragraph}", "What is the main idea of this paragraph?\n\n{paragraph}",
        "{paragraph}\n\nSummarize the text above.", "Give a title to this text: {paragraph}", "Make this shorter: {paragraph}",
        "Write three bullet points that summarize this text:\n\n{paragraph}", "What is this text about?\n\n{paragraph}", "Explain this text in simple words:\n\n{paragraph}",
        "List the key words of this text: {paragraph}", "TL;DR: {paragraph}", "Ask one question about this text: {paragraph}",
    ],
    "rewrite": [
        "Rewrite this in a formal way: \"{informal}\"", "Make this more polite: \"{informal}\"", "Fix the grammar: \"{faulty}\"", "Correct this sentence: {faulty}",
        "Rewrite this sentence in the past tense: {sentence}", "Rewrite this sentence in the future tense: {sentence}", "Make this sentence shorter: {sentence}",
        "Make this sentence more exciting: {sentence}", "Say this in other words: {sentence}", "Turn this into a question: {sentence}",
        "Rewrite this for a child: {sentence}", "Make this sound more friendly: \"{informal}\"", "Paraphrase: {sentence}", "Expand this into a paragraph: {sentence}",
        "Is there a mistake in this sentence? {faulty}", "Correct the spelling and punctuation: {faulty}", "Make this text more casual: \"{formal}\"",
        "Write the next sentence: {sentence}", "Turn this sentence into a headline: {sentence}", "Complete the sentence: {beginning}",
    ],
    "python code": [
        "Write a Python function that {task}.", "Write a function in Python that {task}.", "Python function that {task}", "How do I write a Python function that {task}?",
        "Write Python code that {task}.", "Write a Python function that {task}. Add a docstring.", "Write a Python function that {task} and show how to call it.",
        "Can you code a Python function that {task}?", "I need a short Python function that {task}.", "Write a Python function that {task}. Explain it briefly.",
        "Write a Python function with type hints that {task}.", "Give me a one-line Python solution that {task}.", "Write a test for a Python function that {task}.",
        "Show me how to write a loop in Python that {task}.", "Write a Python class with a method that {task}.",
    ],
    "other code": [
        "Write a {language} {unit} that {othertask}.", "How do I write a {language} {unit} that {othertask}?", "{language} {unit} that {othertask}",
        "Write a {language} {unit} that {othertask}. Explain it.", "Show me a {language} {unit} that {othertask}.", "I need a {language} {unit} that {othertask}.",
    ],
    "explain code": [
        "Explain this code:\n\n```{codelanguage}\n{code}\n```", "What does this code do?\n\n```{codelanguage}\n{code}\n```",
        "Can you explain this function line by line?\n\n```{codelanguage}\n{code}\n```", "Write a comment for this function:\n\n```{codelanguage}\n{code}\n```",
        "Give an example of how to use this function:\n\n```{codelanguage}\n{code}\n```", "How would you test this?\n\n```{codelanguage}\n{code}\n```",
        "Can this code be improved?\n\n```{codelanguage}\n{code}\n```", "Suggest a better name for this function:\n\n```{codelanguage}\n{code}\n```",
    ],
    "fix code": [
        "Fix the bug in this code:\n\n```python\n{buggy}\n```", "This function gives the wrong result. What is wrong?\n\n```python\n{buggy}\n```",
        "Why does this not work?\n\n```python\n{buggy}\n```", "Find the mistake:\n\n```python\n{buggy}\n```", "Please correct this function:\n\n```python\n{buggy}\n```",
    ],
    "arithmetic": ["{word_problem}", "{word_problem} Show your work.", "{word_problem} Think step by step.", "Solve this problem: {word_problem}", "{word_problem} Explain how you got the answer."],
    "reasoning": [
        "{puzzle}", "{puzzle} Explain your reasoning.", "{puzzle} Think step by step.", "Here is a puzzle: {puzzle}", "Let's think step by step. {puzzle}",
        "Can you solve this? {puzzle}",
    ],
}

# Added after some prompts.
_LENGTHS = [" Keep it short.", " In one paragraph, please.", " Please be brief.", " In about 100 words.", " Answer in three sentences.", " Thanks!"]
_MANNERS = [" Use simple words.", " Give an example.", " Use bullet points.", " Explain it for a beginner.", " Write it for a ten-year-old.", " Be precise.",
            " Answer in two sentences.", " End with a question for me.", " Use an analogy.", " Use a friendly tone."]
MODIFIERS: dict[str, list[str]] = {
    "explain": _LENGTHS + _MANNERS, "compare": _LENGTHS + _MANNERS, "opinion": _LENGTHS + _MANNERS, "how-to": _LENGTHS + _MANNERS,
    "list": [" Keep it short.", " Please number them.", " One line each, please.", " Thanks!", " No explanations.", " Explain each one briefly."],
    "story": [" Keep it short.", " In about 100 words.", " Use simple words.", " Be creative.", " Make it funny.", " Write it for a ten-year-old.", " Thanks!", " Give it a title."],
    "poem": [" Keep it short.", " Use simple words.", " Be creative.", " Make it rhyme.", " Give it a title.", " Thanks!"],
    "message": [" Keep it short.", " Use a friendly tone.", " Be polite.", " Thanks!", " Three sentences are enough.", " Make it sound warm."],
    "brainstorm": [" Be creative.", " Keep it short.", " Thanks!", " Make a list.", " Something unusual, please."],
    "advice": [" Please be brief.", " Thanks!", " Use bullet points.", " I would like some honest words.", " Just one idea, please."],
}
MODIFIER_SHARE = 0.45

SYSTEMS: list[str] = [
    "You are a helpful assistant.", "You are a helpful AI assistant.", "You are a friendly assistant who answers briefly.", "Answer in at most three sentences.",
    "You are a patient teacher. Explain things simply.", "You are a concise assistant.", "You are a helpful assistant. Be polite and clear.", "Answer clearly and correctly.",
    "You are a creative writer.", "You are an assistant for everyday questions.", "You are a programming tutor. Give short code examples.",
    "You give practical advice in plain language.", "You help people write better texts.",
]
