"""Measures the exported files: answers to fixed prompts, tokens per round of the drafter, acceptance by position, calibration.

Greedy verification accepts a draft where it equals the target's own greedy token. So the rounds of a whole answer follow from
one pass over it: the drafts at every position, compared with the text that the target wrote.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from .calibrate import calibration_error
from .checkpoint import read_drafter, read_target
from .delta import CHUNK
from .drafter import block_hidden, context_features, greedy_drafts
from .student import Student
from .target import rms_norm, working_copies
from .vocabulary import MASK, TURN_END, template_renderer


@torch.no_grad()
def greedy_answers(target, working: dict[str, Tensor], prompts: list[list[int]], most: int, end: int) -> list[list[int]]:
    """Greedy continuations, up to `most` tokens, with the end token if it came."""
    capacity = max(map(len, prompts)) + most + 1
    student = Student(target, working, len(prompts), capacity)
    device = working["embed_tokens"].device
    answers: list[list[int]] = [[] for _ in prompts]
    token = torch.tensor([p[0] for p in prompts], device=device)
    for position in range(capacity - 1):
        positions = torch.full((len(prompts),), position, device=device)
        chosen = student.step(token, positions).float().argmax(-1).tolist()
        following = []
        for index, prompt in enumerate(prompts):
            if position + 1 < len(prompt):
                following.append(prompt[position + 1])
                continue
            if len(answers[index]) < most and end not in answers[index][-1:]:
                answers[index].append(chosen[index])
            following.append(chosen[index])
        if all(len(a) == most or a[-1:] == [end] for a in answers):
            break
        token = torch.tensor(following, device=device)
    return answers


@torch.no_grad()
def drafts_everywhere(target, working, drafter_shape, drafter, prompt: list[int], answer: list[int], mask: int) -> tuple[Tensor, Tensor]:
    """(drafts, confidence logits) [answer length, block]: row i drafts what follows answer token i."""
    tokens = torch.tensor([prompt + answer], device=working["embed_tokens"].device)
    padded = F.pad(tokens, (0, -tokens.shape[1] % CHUNK))
    _, tapped = target(padded, working, drafter_shape.taps)
    features = context_features(drafter_shape, drafter, torch.cat(tapped, -1))
    anchors = torch.arange(len(prompt), tokens.shape[1], device=tokens.device)[None]
    ids = torch.full((1, len(answer), drafter_shape.block), mask, device=tokens.device)
    ids[..., 0] = tokens[:, len(prompt) :]
    hidden = block_hidden(drafter_shape, drafter, features, F.embedding(ids, working["embed_tokens"]), anchors)
    drafts, confidences = greedy_drafts(drafter_shape, drafter, hidden, ids[..., 0], working["lm_head"])
    return drafts[0], confidences[0]


def rounds_of(drafts: np.ndarray, answer: list[int]) -> list[int]:
    """Accepted drafts of each round. The first token comes from the prompt's pass; a round at answer token i drafts i + 1 on.

    All rounds of an answer make `len(answer) - 1` tokens: after the last draft of an answer there is no token more."""
    accepted, place = [], 0
    while place + 1 < len(answer):
        following = answer[place + 1 : place + 1 + drafts.shape[1]]
        matches = 0
        while matches < len(following) and drafts[place, matches] == following[matches]:
            matches += 1
        accepted.append(matches)
        place += matches + 1
    return accepted


def main() -> None:
    """Prints one JSON object; --answers also writes the answers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, nargs="+", required=True, help="JSON Lines files of bench/prompts")
    parser.add_argument("--most", type=int, default=192, help="longest answer in tokens")
    parser.add_argument("--answers", type=Path)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target, _, _ = read_target(arguments.model)
    target = target.to(device)
    working = {n: w.detach() for n, w in working_copies(target.named(), quantized=False, dtype=torch.float32).items()}
    drafter_shape, drafter, configuration = read_drafter(arguments.model / "draft", target.shape)
    drafter = {name: tensor.to(device) for name, tensor in drafter.items()}
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    end, mask = tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(MASK)
    render, block = template_renderer(), drafter_shape.block
    kinds, prompts, records = [], [], []
    for path in arguments.prompts:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            prompts.append(tokenizer.encode(render(record["messages"], record.get("tools"), True), add_special_tokens=False).ids)
            kinds.append(path.stem)
            records.append(record)
    answers = greedy_answers(target, working, prompts, arguments.most, end)
    accepted, made, matches, confidences = defaultdict(list), defaultdict(int), [], []
    for kind, prompt, answer in zip(kinds, prompts, answers):
        drafts, confidence = drafts_everywhere(target, working, drafter_shape, drafter, prompt, answer, mask)
        drafts = drafts.cpu().numpy()
        accepted[kind] += rounds_of(drafts, answer)
        made[kind] += len(answer) - 1
        for i in range(len(answer) - block):
            matches.append(drafts[i] == np.array(answer[i + 1 : i + 1 + block]))
            confidences.append(confidence[i].cpu().numpy())
    survived = np.cumprod(np.array(matches), axis=1).astype(float)
    temperatures = np.array(configuration.get("confidence_temperatures", [1.0] * block))
    survival = np.cumprod(1 / (1 + np.exp(-np.array(confidences) / temperatures)), axis=1)
    everything = [a for rounds in accepted.values() for a in rounds]
    report = {
        "tokens_per_round": {kind: round(made[kind] / len(rounds), 3) for kind, rounds in accepted.items()},
        "tokens_per_round_over_all_rounds": round(sum(made.values()) / len(everything), 3),
        "rounds": len(everything),
        "acceptance_by_position": [round(float(np.mean([a > k for a in everything])), 3) for k in range(block)],
        "calibration_error_by_position": [round(calibration_error(survival[:, k], survived[:, k]), 3) for k in range(block)],
        "answers_that_ended": f"{sum(a[-1:] == [end] for a in answers)} of {len(answers)}",
        "answer_tokens": sum(map(len, answers)),
    }
    report["tokens_per_round_mean_of_kinds"] = round(float(np.mean(list(report["tokens_per_round"].values()))), 3)
    print(json.dumps(report, indent=1))
    if arguments.answers:
        with open(arguments.answers, "w") as lines:
            for kind, record, answer in zip(kinds, records, answers):
                text = tokenizer.decode([t for t in answer if t != end], skip_special_tokens=False)
                lines.write(json.dumps({"kind": kind, "id": record.get("id"), "prompt": record["messages"][-1]["content"], "answer": text}) + "\n")


if __name__ == "__main__":
    main()
