"""Stage c: the drafter and the multi-token layer, on text that the quantized target writes."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from .calibrate import calibrated_temperatures
from .checkpoint import read_drafter, read_target
from .drafter import (
    Weights,
    block_hidden,
    context_features,
    drafter_losses,
    drafter_sizes,
    drafter_working,
    greedy_drafts,
    multi_token_loss,
    multi_token_sizes,
)
from .optimizer import Muon, Schedule
from .shape import DrafterShape, Shape
from .target import Target, rms_norm, working_copies
from .windows import Windows, inputs_and_labels


def optimizers_for(weights: list[Weights], muon_rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for matrices, Adam for tables and vectors."""
    tables = ("markov_w1", "markov_w2", "confidence_head.proj")
    matrices, others = [], []
    for group in weights:
        for name, parameter in group.named().items():
            (matrices if parameter.dim() == 2 and not name.endswith(tables) else others).append(parameter)
    return [Muon(matrices, lr=muon_rate, weight_decay=0.02), torch.optim.Adam(others, lr=adam_rate, betas=(0.9, 0.95))]


class Frozen:
    """The quantized target: what it computes on a batch of windows."""

    def __init__(self, target: Target, taps: tuple[int, ...]):
        self.target, self.taps = target, taps
        self.working = {name: w.detach() for name, w in working_copies(target.named(), quantized=True).items()}
        self.head, self.embedding = self.working["lm_head"], self.working["embed_tokens"]

    @torch.no_grad()
    def __call__(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(taps [batch, T, taps * hidden], hidden after the final norm [batch, T, hidden])."""
        h, tapped = self.target(tokens, self.working, self.taps)
        return torch.cat(tapped, -1), rms_norm(h, 1 + self.working["norm"].float(), self.target.shape.epsilon)


def block_batch(windows: Tensor, anchors: Tensor, block: int, end: int) -> tuple[Tensor, Tensor]:
    """(tokens before, tokens after) each row of the blocks at `anchors`, [batch, anchors, block]; -1 after the end of the text."""
    places = anchors[..., None] + torch.arange(block, device=windows.device)
    rows = torch.arange(len(windows), device=windows.device)[:, None, None]
    before, after = windows[rows, places], windows[rows, places + 1]
    return torch.where(before < 0, end, before).long(), after.long()


@torch.no_grad()
def acceptance(shape: DrafterShape, frozen: Frozen, weights: Weights, windows: Tensor, mask: int, end: int) -> tuple[Tensor, Tensor]:
    """(matches, confidence logits) [blocks, block] of greedy drafts on windows of greedy text."""
    working = drafter_working(weights, quantized=True)
    matches, confidences = [], []
    for part in windows.split(16):
        tokens, _ = inputs_and_labels(part, end)
        tapped, _ = frozen(torch.cat([tokens, tokens[:1].expand(16 - len(tokens), -1)])) if len(tokens) < 16 else frozen(tokens)
        tapped = tapped[: len(tokens)]
        anchors = torch.arange(1, tokens.shape[1] - shape.block, 8, device=tokens.device).expand(len(tokens), -1)
        before, after = block_batch(part, anchors, shape.block, end)
        ids = torch.full_like(before, mask)
        ids[..., 0] = before[..., 0]
        hidden = block_hidden(shape, working, context_features(shape, working, tapped), F.embedding(ids, frozen.embedding), anchors)
        drafts, confidence = greedy_drafts(shape, working, hidden, before[..., 0], frozen.head)
        whole = (after >= 0).all(-1)
        matches.append((drafts == after)[whole])
        confidences.append(confidence[whole])
    return torch.cat(matches), torch.cat(confidences)


@torch.no_grad()
def begin_with(weights: Weights, values: dict[str, Tensor]) -> None:
    """Sets every weight to the value of its name."""
    for name, parameter in weights.named().items():
        parameter.copy_(values[name])


def main() -> None:
    """Trains for a given time and writes drafter.pt: weights, the multi-token layer and calibrated temperatures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--source", action="append", required=True, metavar="NAME=REPEATS")
    parser.add_argument("--initial", type=Path, help="an exported model whose drafter and multi-token layer to begin with")
    parser.add_argument("--greedy", default="greedy", help="the source that calibration uses")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--anchors", type=int, default=64, help="blocks a window")
    parser.add_argument("--quantize-from", type=float, default=0.7)
    parser.add_argument("--muon-rate", type=float, default=3e-3)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--most-steps", type=int, default=1 << 30)
    parser.add_argument("--end", type=int, default=8176)
    parser.add_argument("--mask", type=int, default=8179)
    arguments = parser.parse_args()
    device = torch.device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(2)
    shape, drafter_shape = Shape(), DrafterShape()
    target = Target(shape).to(device)
    target.load_state_dict(torch.load(arguments.work / "target.pt", map_location=device)["target"])
    target.requires_grad_(False)
    target.compile()
    frozen = Frozen(target, drafter_shape.taps)
    sources = {arguments.work / f"{name}.npz": int(repeats) for name, repeats in (s.split("=") for s in arguments.source)}
    windows = Windows(sources, device, heldout=0.02)
    drafter = Weights(drafter_sizes(drafter_shape, shape), ones=True).to(device)
    multi_token = Weights(multi_token_sizes(shape), ones=False).to(device)
    if arguments.initial:
        begin_with(drafter, read_drafter(arguments.initial / "draft", shape)[1])
        begin_with(multi_token, read_target(arguments.initial)[1])
    optimizers = optimizers_for([drafter, multi_token], arguments.muon_rate, arguments.adam_rate)
    schedule = Schedule(optimizers)
    compiled = torch.compile(drafter_losses, dynamic=False)
    compiled_multi_token = torch.compile(multi_token_loss, dynamic=False)

    def losses(quantized: bool) -> tuple[Tensor, Tensor, Tensor]:
        batch = windows.batch(arguments.batch)
        tokens, labels = inputs_and_labels(batch, arguments.end)
        tapped, hidden = frozen(tokens)
        anchors = torch.randint(1, tokens.shape[1] - drafter_shape.block, (len(batch), arguments.anchors), device=device)
        before, after = block_batch(batch, anchors, drafter_shape.block, arguments.end)
        ids = torch.full_like(before, arguments.mask)
        ids[..., 0] = before[..., 0]
        rows = torch.arange(len(batch), device=device)[:, None, None]
        places = anchors[..., None] + torch.arange(drafter_shape.block, device=device)
        with torch.no_grad():
            target_logits = hidden[rows, places] @ frozen.head.T
            next_logits = hidden[:, 1:] @ frozen.head.T
            next_embedding = F.embedding(tokens[:, 1:], frozen.embedding)
        loss, overlap = compiled(
            drafter_shape, drafter_working(drafter, quantized), tapped, F.embedding(ids, frozen.embedding), anchors, before, after,
            target_logits, frozen.head,
        )  # fmt: skip
        working = {name: p.to(torch.bfloat16) for name, p in multi_token.named().items()}
        valid = (labels[:, 1:] >= 0).float()
        second = compiled_multi_token(shape, working, next_embedding, hidden[:, :-1], next_logits, frozen.head, valid)
        (loss + second).backward()
        return loss, second, overlap

    warm = time.monotonic()
    losses(False)
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    print(f"{len(windows.windows)} windows; compiled in {time.monotonic() - warm:.0f} s", flush=True)
    started = last_print = time.monotonic()
    budget, spent, step = arguments.minutes * 60, 0.0, 0
    while spent < budget and step < arguments.most_steps:
        schedule.set(spent / budget)
        loss, second, overlap = losses(spent / budget >= arguments.quantize_from)
        for group in optimizers:
            torch.nn.utils.clip_grad_norm_([p for g in group.param_groups for p in g["params"]], 1.0)
            group.step()
            group.zero_grad(set_to_none=True)
        step += 1
        if step % 20 == 0:
            value = loss.item()
            if not math.isfinite(value):
                raise SystemExit(f"the loss is {value} at step {step}: lower the rates")
            spent = time.monotonic() - started
            if time.monotonic() - last_print > 10:
                shown = " ".join(f"{x:.2f}" for x in overlap.tolist())
                print(f"step {step} {spent:.0f} s loss {value:.3f} overlap {shown} multi-token {second.item():.3f}", flush=True)
                last_print = time.monotonic()
    matches, confidences = acceptance(drafter_shape, frozen, drafter, windows.heldout[arguments.greedy], arguments.mask, arguments.end)
    temperatures, errors = calibrated_temperatures(matches.cpu().numpy(), confidences.float().cpu().numpy())
    alive = matches.cumprod(-1).float()
    per_round = 1 + alive.sum(-1).mean().item()
    given = [alive[:, k].sum().item() / max(alive[:, k - 1].sum().item() if k else len(alive), 1) for k in range(drafter_shape.block)]
    report = {"tokens_per_round": per_round, "acceptance_given_previous": given, "temperatures": temperatures, "calibration_error": errors,
              "blocks": len(alive), "steps": step}  # fmt: skip
    print(json.dumps(report), flush=True)
    state = {"drafter": drafter.state_dict(), "multi_token": multi_token.state_dict(), "report": report}
    torch.save(state, arguments.work / "drafter.pt")


if __name__ == "__main__":
    main()
