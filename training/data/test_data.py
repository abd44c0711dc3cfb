"""Tests of the training data: prompts, made conversations, cleaning and, where they were prepared, the documents.

    python3 -m unittest discover -s training/data -p 'test_*.py'

The documents are looked for in the folder named by LITHOS_TRAINING_DOCUMENTS; without it those checks are skipped.
"""

from __future__ import annotations

import ast
import json
import lzma
import os
import random
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import code_bank  # noqa: E402
import code_edits  # noqa: E402
import everyday  # noqa: E402
import fact_bank  # noqa: E402
import prepare  # noqa: E402
import request_prompts  # noqa: E402
import synthetic  # noqa: E402
import synthetic_arithmetic  # noqa: E402
import synthetic_code  # noqa: E402
import topic_bank  # noqa: E402
import topics  # noqa: E402
from cleaning import Duplicates, acceptable_code, strip_licence_header  # noqa: E402
from markup import html_to_markdown  # noqa: E402
from prompt_templates import TEMPLATES  # noqa: E402
from sources import SOURCES  # noqa: E402
from tool_bank import TOOLS  # noqa: E402

_JSON_TYPES = {"string": str, "integer": int, "number": (int, float)}


class Prompts(unittest.TestCase):
    def test_same_seed_same_prompts(self) -> None:
        self.assertEqual(topics.prompts(3, 500), topics.prompts(3, 500))
        self.assertNotEqual(topics.prompts(3, 500), topics.prompts(4, 500))

    def test_variety_and_length(self) -> None:
        drawn = topics.prompts(1, 8000)
        self.assertGreater(len({prompt["user"] for prompt in drawn}), 7700)
        short = sum(len(str(prompt["user"]).split()) < 40 for prompt in drawn)
        self.assertGreater(short, 0.9 * len(drawn))
        self.assertEqual({prompt["kind"] for prompt in drawn}, set(topics.WEIGHTS))

    def test_no_field_is_left_open(self) -> None:
        for prompt in topics.prompts(5, 4000):
            text = str(prompt["user"])
            if "```" not in text:
                self.assertNotRegex(text, r"\{\w+\}")

    def test_banks_are_large_enough(self) -> None:
        count = sum(map(len, [*topic_bank.CONCEPTS.values(), *topic_bank.SUBJECTS.values(), *topic_bank.GROUPS.values()]))
        count += len(topic_bank.ACTIVITIES) + len(topic_bank.SITUATIONS) + len(topic_bank.OCCASIONS)
        self.assertGreaterEqual(count, 1500)
        self.assertGreaterEqual(sum(map(len, TEMPLATES.values())), 150)

    def test_paragraphs_of_documents_are_used(self) -> None:
        paragraph = "A marmot whistles when it sees an eagle. The others hear it and run into their holes, where they wait until the danger has passed. This takes some minutes."
        self.assertTrue(any("marmot" in str(prompt["user"]) for prompt in topics.prompts(1, 500, [paragraph])))


class Conversations(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.drawn = list(synthetic.conversations(11, 6000))

    def test_same_seed_same_conversations(self) -> None:
        self.assertEqual(list(synthetic.conversations(11, 300)), self.drawn[:300])

    def test_distinct(self) -> None:
        texts = {json.dumps(conversation["messages"]) for conversation in self.drawn if conversation["kind"] != "identity"}
        self.assertEqual(len(texts), sum(conversation["kind"] != "identity" for conversation in self.drawn))

    def test_turns_follow_each_other(self) -> None:
        allowed = {None: {"system", "user"}, "system": {"user"}, "user": {"assistant"}, "assistant": {"user", "tool"}, "tool": {"tool", "assistant"}}
        for conversation in self.drawn:
            previous: str | None = None
            for message in conversation["messages"]:
                self.assertIn(message["role"], allowed[previous])
                self.assertTrue(message["content"] or message.get("tool_calls"), conversation)
                previous = message["role"]
            self.assertEqual(previous, "assistant")
            self.assertNotIn("tool_calls", conversation["messages"][-1])

    def test_calls_match_their_schema(self) -> None:
        calls = 0
        for conversation in self.drawn:
            functions = {tool["function"]["name"]: tool["function"] for tool in conversation.get("tools", [])}
            pending: list[str] = []
            for message in conversation["messages"]:
                for call in message.get("tool_calls", []):
                    calls += 1
                    function, arguments = functions[call["function"]["name"]], call["function"]["arguments"]
                    properties = function["parameters"]["properties"]
                    self.assertLessEqual(set(function["parameters"]["required"]), set(arguments))
                    for name, value in arguments.items():
                        self.assertIsInstance(value, _JSON_TYPES[properties[name]["type"]], (function["name"], name))
                        self.assertNotIsInstance(value, bool)
                        if "enum" in properties[name]:
                            self.assertIn(value, properties[name]["enum"])
                    pending.append(call["function"]["name"])
                if message["role"] == "tool":
                    self.assertEqual(message["name"], pending.pop(0))
            self.assertEqual(pending, [])
        self.assertGreater(calls, 1000)

    def test_no_field_is_left_open(self) -> None:
        for conversation in self.drawn:
            if conversation["kind"] in ("tools", "facts", "identity", "arithmetic"):
                for message in conversation["messages"]:
                    if message["role"] in ("user", "assistant") and "`" not in message["content"]:
                        self.assertNotRegex(message["content"], r"\{[a-z_]\w*\}")

    def test_tools(self) -> None:
        self.assertGreaterEqual(len(TOOLS), 60)
        self.assertEqual(len({tool.name for tool in TOOLS}), len(TOOLS))


class Everyday(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.drawn = list(everyday.conversations(4, 12_000))

    def exchanges(self) -> list[tuple[str, str]]:
        turns = [[m["content"] for m in conversation["messages"] if m["role"] != "system"] for conversation in self.drawn]
        return [pair for contents in turns for pair in zip(contents[::2], contents[1::2])]

    def test_no_test_prompt_is_learned(self) -> None:
        tested = everyday.test_prompts()
        self.assertGreater(len(tested), 80)
        self.assertEqual([question for question, _ in self.exchanges() if everyday.plain(question) in tested], [])
        # Without the filter some would be: the kinds and subjects are those of the prompts.
        self.assertIn(everyday.plain(everyday._ASK_WHAT[1].format(x="a computer", **{"is": "is"})), tested)

    def test_every_kind_and_subject_is_whole(self) -> None:
        self.assertEqual({conversation["kind"] for conversation in self.drawn}, set(everyday.WEIGHTS))
        for question, answer in self.exchanges():
            self.assertNotRegex(question + answer, r"\{[a-z]+\}(?!!)|\.\.|\|", (question, answer))
            self.assertLess(len(answer), 500, question)

    def test_sums_and_lists_are_right(self) -> None:
        sums = [re.fullmatch(r"(\d+) (plus|minus|times) (\d+) is (\d+)\.", answer) for _, answer in self.exchanges()]
        results = {"plus": int.__add__, "minus": int.__sub__, "times": int.__mul__}
        found = [match for match in sums if match]
        self.assertGreater(len(found), 500)
        for match in found:
            self.assertEqual(results[match[2]](int(match[1]), int(match[3])), int(match[4]), match[0])
        for _, answer in self.exchanges():
            heading = re.match(r"(Here are )?(two|three|four|five|six|seven) .*:\n1\. ", answer, re.IGNORECASE)
            if heading:
                self.assertEqual(len(re.findall(r"(?m)^\d\. ", answer)), {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}[heading[2].lower()])

    def test_code_parses(self) -> None:
        blocks = [block for _, answer in self.exchanges() for block in re.findall(r"```python\n(.*?)```", answer, re.DOTALL)]
        self.assertGreater(len(blocks), 500)
        for block in set(blocks):
            ast.parse(block)


class Requests(unittest.TestCase):
    def test_requests_are_filled_and_new(self) -> None:
        documents = [{"name": "a.py", "text": "import os\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return 2 * x\n"},
                     {"name": "a.html", "text": "A marmot whistles when it sees an eagle, and the others run into their holes and wait.\n\nShort."}]  # fmt: skip
        drawn = [messages[-1]["content"] for messages in request_prompts.prompts(2, 3000, documents)]
        self.assertEqual(drawn, [messages[-1]["content"] for messages in request_prompts.prompts(2, 3000, documents)])
        self.assertFalse({everyday.plain(text) for text in drawn} & everyday.test_prompts())
        self.assertTrue(any("```python" in text for text in drawn) and any("marmot" in text for text in drawn))
        for text in drawn:
            if "```" not in text:
                self.assertNotRegex(text, r"\{[a-z]\w*\}")


class Arithmetic(unittest.TestCase):
    def test_every_equation_holds(self) -> None:
        random_source = random.Random(2)
        checked = 0
        for _ in range(20_000):
            question, answer = synthetic_arithmetic.arithmetic(random_source)
            for left, right in re.findall(r"(?<![\d/])(\d+(?: [-+x÷] \d+)+) = (\d+)", answer.replace("/100 x", "/100x")):
                expression = left.replace("x", "*").replace("÷", "/")
                self.assertEqual(eval(expression), int(right), (question, answer))  # noqa: S307 - digits and operators only
                checked += 1
            direct = re.fullmatch(r"(?:What is |Calculate |Compute )?(\d+) ([-+*x/÷]) (\d+)(?:\?|\.| = \?|, please\.)?", question)
            if direct and "remainder" not in answer and "left over" not in answer:
                value = eval(f"{direct[1]}{direct[2].replace('x', '*').replace('÷', '/')}{direct[3]}")  # noqa: S307
                self.assertEqual(float(re.findall(r"\d+", answer.split(", because")[0])[-1]), value, (question, answer))
                checked += 1
            percent = re.search(r"(\d+) ?(?:%|percent) of (\d+)", question)
            if percent:
                self.assertEqual(float(re.findall(r"\d+(?:\.\d+)?", answer.rstrip("."))[-1]), int(percent[1]) * int(percent[2]) / 100, (question, answer))
        self.assertGreater(checked, 10_000)


class Code(unittest.TestCase):
    def test_answers_parse(self) -> None:
        random_source = random.Random(3)
        for _ in range(4000):
            question, answer = synthetic_code.code_edit(random_source)
            for block in re.findall(r"```python\n(.*?)```", answer, re.DOTALL):
                ast.parse(block)
            self.assertTrue("```" in answer or "`" in answer or answer.startswith("It "), (question, answer))

    def test_faults_change_the_function(self) -> None:
        by_name = {snippet.name: snippet.code + "\n" for snippet in code_bank.PYTHON}
        for name, wrong, right, _ in code_edits.FAULTS:
            self.assertIn(right, by_name[name])
            self.assertNotIn(wrong, by_name[name])
        self.assertGreaterEqual(len(code_bank.PYTHON), 80)
        self.assertGreaterEqual(len(code_edits.OTHER_LANGUAGES), 30)

    def test_renaming_leaves_strings_alone(self) -> None:
        self.assertEqual(synthetic_code.replace_name('a = f"{a} a" + "a" + b.a', "a", "z"), 'z = f"{z} a" + "a" + b.a')

    def test_renamed_functions_still_compute(self) -> None:
        for snippet in code_bank.PYTHON:
            code = snippet.code
            for old, new in snippet.renames:
                code = synthetic_code.replace_name(code, old, new)
            names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
            self.assertFalse(names & {old for old, _ in snippet.renames} - {new for _, new in snippet.renames}, snippet.name)


class Facts(unittest.TestCase):
    def test_tables(self) -> None:
        self.assertGreaterEqual(len(fact_bank.CAPITALS), 150)
        self.assertEqual(fact_bank.CAPITALS["Australia"], "Canberra")
        self.assertEqual(fact_bank.SYMBOLS["sodium"], "Na")
        for table in (fact_bank.CAPITALS, fact_bank.SYMBOLS, fact_bank.OPPOSITES, fact_bank.PLURALS):
            self.assertTrue(all(key and value for key, value in table.items()))


class Cleaning(unittest.TestCase):
    def test_html(self) -> None:
        page = '<html><body><nav>menu</nav><main><h1>Title<a class="headerlink">¶</a></h1><p>One <code>x</code>\n word.</p><ul><li>a</li><li>b</li></ul><pre><code class="language-rust">let x = 1;\n</code></pre></main></body></html>'
        self.assertEqual(html_to_markdown(page), "# Title\n\nOne `x` word.\n\n- a\n- b\n\n```rust\nlet x = 1;\n```")

    def test_licence_header_goes(self) -> None:
        self.assertEqual(strip_licence_header("# Copyright 2020 Somebody\n# Licensed under MIT\n\nimport os\n"), "import os")
        self.assertEqual(strip_licence_header("/* Copyright X.\n   All rights reserved. */\nint a;"), "int a;")

    def test_data_files_are_refused(self) -> None:
        self.assertFalse(acceptable_code("x = [" + "1, 2, 3, 4,\n" * 100 + "]"))

    def test_duplicates(self) -> None:
        duplicates = Duplicates()
        first = "This is a paragraph that is long enough to be remembered as such. " * 4
        second = "Quite another text, which nobody has seen before this test was written by us. " * 4
        self.assertIsNotNone(duplicates.filter_documentation(first + "\n\n" + second))
        self.assertIsNone(duplicates.filter_documentation(first.upper()))

    def test_sources_are_unique(self) -> None:
        self.assertEqual(len({source.name for source in SOURCES}), len(SOURCES))


class Documents(unittest.TestCase):
    def test_split_is_by_name(self) -> None:
        lines = [{"source": "s", "name": str(index), "text": "text"} for index in range(2000)]
        train, held_out = prepare.split(lines)
        self.assertFalse({line["name"] for line in train} & {line["name"] for line in held_out})
        self.assertTrue(10 < len(held_out) < 90)

    def test_prepared_documents(self) -> None:
        folder = os.environ.get("LITHOS_TRAINING_DOCUMENTS")
        if not folder:
            self.skipTest("LITHOS_TRAINING_DOCUMENTS is not set")
        found: dict[str, set[tuple[str, str]]] = {}
        texts: dict[str, set[int]] = {}
        for part in ("train", "heldout"):
            with lzma.open(Path(folder) / f"documents.{part}.jsonl.xz", "rt") as stream:
                lines = [json.loads(line) for line in stream]
            found[part] = {(line["source"], line["name"]) for line in lines}
            texts[part] = {hash(line["text"]) for line in lines}
        self.assertFalse(found["train"] & found["heldout"])
        self.assertFalse(texts["train"] & texts["heldout"])
        self.assertLess((Path(folder) / "documents.train.jsonl.xz").stat().st_size, 16 * 1024 * 1024)


if __name__ == "__main__":
    unittest.main()
