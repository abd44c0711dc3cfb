"""Samples conversations from a model in many slots at once: a slot whose conversation ends takes the next prompt.

Everything that decides the next token lies on the GPU, so that a step can be one CUDA graph. Each step records, for
every slot, the token that went in, with flags: `FRESH` where a conversation starts, `SAMPLED` where the model chose it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Protocol

import numpy as np
import torch
from torch import Tensor

FRESH = 1 << 20
SAMPLED = 1 << 21
TOKEN = FRESH - 1
MODEL_WRITES_QUESTION = 1


class StepModel(Protocol):
    """A model that appends one token to every slot. A slot at position 0 starts anew."""

    def step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits of the next token, [slots, vocabulary]."""


@dataclass(frozen=True)
class Turns:
    """How conversations go on: what stands between an answer and the next question, and before the answer to that."""

    end: int
    before_question: list[int]
    before_answer: list[int]
    follow_probability: float
    follow_before: int
    """No further question is begun from this position on."""


def choose(logits: Tensor, temperature: Tensor, min_p: float) -> Tensor:
    """One token a slot by the Gumbel-max trick at `temperature` [slots] (0 is greedy), among tokens whose probability at
    temperature 1 is at least `min_p` times the largest."""
    logits = logits.float()
    kept = logits >= logits.amax(-1, keepdim=True) + float(np.log(min_p))
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-6)))
    return torch.where(kept, logits + temperature[:, None] * noise, float("-inf")).argmax(-1)


class SlotStream:
    """The state of all slots and the rule that advances it."""

    def __init__(
        self,
        model: StepModel,
        prompts: list[list[int]],
        model_writes_question: list[bool],
        turns: Turns,
        temperatures: Tensor,
        min_p: float,
        capacity: int,
        most_steps: int,
    ):
        device, slots = temperatures.device, len(temperatures)
        self.model, self.turns, self.min_p, self.capacity = model, turns, min_p, capacity
        self.temperatures, self.prompts = temperatures, len(prompts)
        rows = prompts + [turns.before_question, turns.before_answer]
        longest = max(map(len, rows))
        table = np.zeros((len(rows), longest), dtype=np.int64)
        for index, row in enumerate(rows):
            table[index, : len(row)] = row
        self.table = torch.from_numpy(table).to(device)
        self.lengths = torch.tensor([len(row) for row in rows], device=device)
        self.first_turn = torch.tensor([int(w) for w in model_writes_question], device=device)
        self.row = torch.arange(slots, device=device) % len(prompts)
        self.cursor = torch.zeros(slots, dtype=torch.long, device=device)
        self.position = torch.zeros(slots, dtype=torch.long, device=device)
        self.turn = self.first_turn[self.row]
        self.sampled = torch.zeros(slots, dtype=torch.bool, device=device)
        self.token = self.table[self.row, 0]
        self.taken = torch.tensor(slots, device=device)
        self.step_index = torch.zeros(1, dtype=torch.long, device=device)
        self.record = torch.zeros(most_steps, slots, dtype=torch.int32, device=device)
        self.compiled_advance: Callable = torch.compile(self._advanced, dynamic=False) if device.type == "cuda" else self._advanced

    def _advanced(self, logits, row, cursor, position, turn, sampled, token, taken):
        choice = choose(logits, self.temperatures, self.min_p)
        forced = cursor + 1 < self.lengths[row]
        ended = ~forced & sampled & (token == self.turns.end)
        follows = (torch.rand_like(self.temperatures) < self.turns.follow_probability) & (position < self.turns.follow_before)
        full = position + 1 >= self.capacity
        to_question = ended & (turn == 0) & follows & ~full
        to_answer = ended & (turn == MODEL_WRITES_QUESTION) & ~full
        anew = full | (ended & ~to_question & ~to_answer)
        place = taken + anew.long().cumsum(0) - 1
        row = torch.where(anew, place % self.prompts, row)
        row = torch.where(to_question, self.prompts, torch.where(to_answer, self.prompts + 1, row))
        starts_row = anew | to_question | to_answer
        turn = torch.where(anew, self.first_turn[row.clamp(max=self.prompts - 1)], turn)
        turn = torch.where(to_question, MODEL_WRITES_QUESTION, torch.where(to_answer, 0, turn))
        cursor = torch.where(starts_row, 0, torch.where(forced, cursor + 1, cursor))
        from_table = starts_row | forced
        token = torch.where(from_table, self.table[row, cursor], choice)
        return row, cursor, torch.where(anew, 0, position + 1), turn, ~from_table, token, taken + anew.sum()

    def step(self) -> None:
        """Records the current tokens, runs the model and advances every slot."""
        flags = (self.position == 0).int() * FRESH + self.sampled.int() * SAMPLED
        self.record.index_copy_(0, self.step_index, (self.token.int() | flags)[None])
        logits = self.model.step(self.token, self.position)
        state = (self.row, self.cursor, self.position, self.turn, self.sampled, self.token, self.taken)
        for old, new in zip(state, self.compiled_advance(logits, *state)):
            old.copy_(new)
        self.step_index += 1

    @torch.no_grad()
    def run(self, seconds: float) -> np.ndarray:
        """Steps until `seconds` have passed or the record is full. Returns the record, [steps, slots]."""
        most = self.record.shape[0]
        if self.record.is_cuda:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
            advance, done = graph.replay, 3
        else:
            advance, done = self.step, 0
        started = time.monotonic()
        while done < most and time.monotonic() - started < seconds:
            for _ in range(min(50, most - done)):
                advance()
                done += 1
            if self.record.is_cuda:
                torch.cuda.synchronize()
        self.seconds = time.monotonic() - started
        return self.record[:done].cpu().numpy()


def conversations(record: np.ndarray, end: int) -> list[np.ndarray]:
    """The finished conversations of a record, each an array of tokens with the `SAMPLED` flag kept; the one that a slot was
    in the middle of, and those that ran into the capacity, are left out."""
    out = []
    for column in record.T:
        starts = np.flatnonzero(column & FRESH)
        for first, last in zip(starts, starts[1:]):
            conversation = column[first:last] & ~FRESH
            if conversation[-1] & TOKEN == end:
                out.append(conversation)
    return out
