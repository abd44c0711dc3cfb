"""From texts to windows: written answers, the teacher's examples, what is worth learning, packing."""

from __future__ import annotations

import random
import unittest

import numpy as np

from lithos_training import written
from lithos_training.corpus import keeps_to_the_subject, packed, repeats_itself, worth_learning

TEXT = """? What is rain?
? rain?

Rain is water that falls from clouds.

? Name two fruits.
Two fruits are:
1. Apple
2. Pear
"""


class Written(unittest.TestCase):
    def test_entries_keep_their_questions_and_lines(self):
        first, second = written.entries_of(TEXT)
        self.assertEqual(first.questions, ("What is rain?", "rain?"))
        self.assertEqual(first.answer, "Rain is water that falls from clouds.")
        self.assertEqual(second.answer, "Two fruits are:\n1. Apple\n2. Pear")

    def test_every_entry_of_the_project_is_whole(self):
        entries = written.entries()
        self.assertGreater(len(entries), 2000)
        for entry in entries:
            self.assertTrue(all(entry.questions), entry)
            self.assertLess(len(entry.answer), 1500, entry.questions)
            self.assertNotIn("<|", entry.answer)

    def test_no_test_prompt_is_learned(self):
        import json
        from pathlib import Path

        def plain(text: str) -> str:
            return "".join(c for c in text.lower() if c.isalnum())

        prompts = Path(__file__).parents[2] / "bench" / "prompts"
        tested = {plain(m["content"]) for path in prompts.glob("*.jsonl") for line in path.read_text().splitlines()
                  for m in json.loads(line)["messages"] if m["role"] == "user"}  # fmt: skip
        self.assertGreater(len(tested), 50)
        asked = {plain(question): question for entry in written.entries() for question in entry.questions}
        self.assertEqual([asked[key] for key in tested & asked.keys()], [])

    def test_examples_are_taken_off_again(self):
        known = written.entries_of(TEXT)
        text = written.examples(random.Random(1), known)
        self.assertEqual(text.count("<|im_start|>user"), written.EXAMPLES)
        turn = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        start = [{"role": "system", "content": written.SHORT_SYSTEM}]
        self.assertEqual(written.without_examples(start + turn * (written.EXAMPLES + 1)), turn)
        other = [{"role": "system", "content": "Be kind."}, *turn]
        self.assertEqual(written.without_examples(other), other)


class Cleaning(unittest.TestCase):
    def test_loops_are_refused(self):
        self.assertTrue(repeats_itself("The dog was brave. It had to do it alone. It had to do it alone. The end came."))
        self.assertTrue(repeats_itself("a canvas of the sea and a canvas of the sea and a canvas of the sea and a canvas of the sea"))
        self.assertFalse(repeats_itself("The dog ran home. Then it slept by the fire, and the cat lay down beside it."))
        self.assertFalse(repeats_itself("Two loops:\n```python\nfor i in range(9):\n    print(i)\nfor i in range(9):\n    print(i)\n```"))

    def test_an_answer_about_something_else_is_refused(self):
        def turns(question: str, answer: str) -> list[dict]:
            return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

        self.assertTrue(keeps_to_the_subject(turns("Why do dogs bark?", "A dog barks to warn others.")))
        self.assertTrue(keeps_to_the_subject(turns("Which bakery is best?", "Ask two bakers and compare.")))
        self.assertFalse(keeps_to_the_subject(turns("Why do dogs bark?", "Rain falls from clouds.")))
        self.assertTrue(keeps_to_the_subject(turns("Who are you?", "A small model.")))

    def test_a_foreign_name_is_refused(self):
        turns = [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am SmolLM."}]
        self.assertFalse(worth_learning(turns))
        turns[1]["content"] = "I am a small model."
        self.assertTrue(worth_learning(turns))


class Packing(unittest.TestCase):
    def test_every_token_is_kept_and_windows_are_filled(self):
        source = np.random.default_rng(0)
        sequences = [source.integers(0, 1000, source.integers(2, 90)).tolist() for _ in range(400)]
        windows, used = packed(sequences, filler=5000, window=128)
        self.assertEqual(windows.shape[1], 129)
        self.assertEqual(used.sum(), sum(map(len, sequences)))
        self.assertEqual((windows != 5000).sum(), used.sum())
        self.assertEqual(sorted(np.concatenate(sequences)), sorted(windows[windows != 5000]))
        self.assertGreater(used.sum() / windows.size, 0.97)

    def test_long_texts_share_one_token_between_windows(self):
        windows, used = packed([list(range(300))], filler=5000, window=128)
        firsts = sorted(int(row[0]) for row in windows)
        self.assertEqual(firsts, [0, 128, 256])
        self.assertEqual(used.sum(), 302)


if __name__ == "__main__":
    unittest.main()
