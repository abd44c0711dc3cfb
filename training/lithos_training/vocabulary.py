"""The tokenizer of lithos-mini: the first merges of SmolLM2's byte-level BPE, and the chat template.

A BPE vocabulary is built merge by merge, the most useful first, so a prefix of the merges is the vocabulary that the same
training would have given at a smaller size. SmolLM2's tokenizer is under Apache-2.0.
"""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
MASK = "<|mask|>"
CONTROL = [END_OF_TEXT, TURN_START, TURN_END, MASK]
# Added tokens that stay visible in decoded text.
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
RESERVED = 16

TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in byte-level BPE, by byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    stands_for = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [stands_for[b] for b in range(256)]


def smaller_tokenizer(merges: list[str], size: int) -> Tokenizer:
    """A tokenizer of `size` tokens in all: bytes, then merges in their order, then control tokens and tags."""
    vocabulary: dict[str, int] = {}
    for token in byte_alphabet():
        vocabulary[token] = len(vocabulary)
    kept = []
    for merge in merges:
        left, right = merge.split(" ")
        if left + right not in vocabulary:
            if len(vocabulary) == size - RESERVED:
                break
            vocabulary[left + right] = len(vocabulary)
        kept.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=kept))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in TAGS])
    return tokenizer


def template_renderer():
    """`render(messages, tools, add_generation_prompt)` as Hugging Face renders chat templates."""

    def raise_exception(message: str):
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(TEMPLATE.read_text())

    def render(messages: list[dict], tools: list[dict] | None = None, add_generation_prompt: bool = False) -> str:
        return template.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt)

    return render


def save(tokenizer: Tokenizer, directory: Path, context: int) -> None:
    """Writes tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (directory / "chat_template.jinja").write_text(TEMPLATE.read_text())
    generation = {
        "do_sample": True,
        "temperature": 0.7,
        "min_p": 0.4,
        "repetition_penalty": 1.02,
        "eos_token_id": [tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)],
        "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
    }
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
