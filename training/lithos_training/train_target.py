"""Stage b: the target, by next-token prediction; its last stretch on the values that the exported file will hold."""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as distributed

from .checkpoint import read_target
from .optimizer import Muon, Schedule
from .shape import Shape
from .target import HIDDEN_MATRICES, Target, working_copies
from .windows import Windows, inputs_and_labels


def optimizers_for(target: Target, muon_rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for hidden matrices; Adam for embedding, head, norms, convolution and the gates' vectors."""
    named = target.named()
    hidden = [named[name] for name in HIDDEN_MATRICES]
    tables = [named[name] for name in ("embed_tokens", "lm_head")]
    others = [p for name, p in named.items() if name not in HIDDEN_MATRICES + ["embed_tokens", "lm_head"]]
    adam = torch.optim.AdamW(
        [{"params": tables, "lr": adam_rate, "weight_decay": 0.01}, {"params": others, "lr": adam_rate, "weight_decay": 0.0}],
        betas=(0.9, 0.95), fused=target.embed_tokens.is_cuda,
    )  # fmt: skip
    return [Muon(hidden, lr=muon_rate, weight_decay=0.05), adam]


@torch.no_grad()
def heldout_losses(target: Target, windows: Windows, quantized: bool, batch: int, end: int) -> dict[str, float]:
    """Nats per token on each source's held-out windows."""
    working = working_copies(target.named(), quantized)
    out = {}
    for name, rows in windows.heldout.items():
        total = count = 0.0
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            padded = torch.cat([part, part.new_full((batch - len(part), part.shape[1]), -1)])
            tokens, labels = inputs_and_labels(padded, end)
            h, _ = target(tokens, working)
            counted = (labels >= 0).sum().item()
            total += target.loss(h, working["norm"], working["lm_head"], labels, target.shape.epsilon).item() * counted
            count += counted
        out[name] = total / count
    return out


class Peers:
    """The processes that train together, one for each GPU (`torchrun`); alone without it."""

    def __init__(self) -> None:
        self.count, self.index = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
        if self.count > 1:
            distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def average_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Every process then has the mean of all gradients."""
        if self.count > 1:
            gradients = [p.grad for p in parameters if p.grad is not None]
            flat = torch.cat([g.flatten() for g in gradients])
            distributed.all_reduce(flat)
            flat /= self.count
            for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients])):
                gradient.copy_(mean.view_as(gradient))

    def first_says(self, value: float) -> float:
        """The first process's value, for all: clocks differ, decisions must not."""
        if self.count == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        distributed.broadcast(shared, 0)
        return shared.item()

    def say(self, text: str) -> None:
        """Prints, once."""
        if self.index == 0:
            print(text, flush=True)


def main() -> None:
    """Trains for a given time; goes on from the checkpoint in --work if there is one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--source", action="append", required=True, metavar="NAME=REPEATS", help="NAME.npz in --work")
    parser.add_argument("--initial", type=Path, help="an exported model to begin with instead of random weights")
    parser.add_argument("--minutes", type=float, default=13)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--quantize-from", type=float, default=0.85, help="share of the time after which weights are quantized")
    parser.add_argument("--muon-rate", type=float, default=4e-3)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--most-steps", type=int, default=1 << 30)
    parser.add_argument("--end", type=int, default=8176, help="the end-of-text token")
    arguments = parser.parse_args()
    peers = Peers()
    device = peers.device
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(1)
    sources = {arguments.work / f"{name}.npz": int(repeats) for name, repeats in (s.split("=") for s in arguments.source)}
    windows = Windows(sources, device, share=(peers.index, peers.count))
    target = (read_target(arguments.initial)[0] if arguments.initial else Target(Shape())).to(device)
    shape = target.shape
    parameters = list(target.parameters())
    peers.say(f"{sum(p.numel() for p in parameters) / 1e6:.1f} M parameters, {len(windows.windows)} windows, {peers.count} processes")
    optimizers = optimizers_for(target, arguments.muon_rate, arguments.adam_rate)
    schedule = Schedule(optimizers)
    checkpoint, spent, tokens_seen = arguments.work / "target.pt", 0.0, 0
    if checkpoint.exists():
        stored = torch.load(checkpoint, map_location=device)
        target.load_state_dict(stored["target"])
        for optimizer, state in zip(optimizers, stored.get("optimizers", [])):
            optimizer.load_state_dict(state)
        spent, tokens_seen = stored["seconds"], stored["tokens"]
        windows.generator.manual_seed(int(spent) + 1)
        peers.say(f"resumed after {spent:.0f} s")
    if device.type == "cuda":
        target.compile()
    budget, step, last_print = arguments.minutes * 60, 0, 0.0
    started = None

    def store() -> None:
        if peers.index != 0:
            return
        state = {"target": target.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "seconds": spent, "tokens": tokens_seen}
        torch.save(state, checkpoint)

    def step_loss(quantized: bool) -> torch.Tensor:
        tokens, labels = inputs_and_labels(windows.batch(arguments.batch), arguments.end)
        working = working_copies(target.named(), quantized)
        h, _ = target(tokens, working)
        loss = target.loss(h, working["norm"], working["lm_head"], labels, shape.epsilon)
        loss.backward()
        return loss

    # Compiling is not training time.
    warm = time.monotonic()
    for _ in range(2):
        step_loss(False)
        target.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize()
    peers.say(f"compiled in {time.monotonic() - warm:.0f} s")
    started, before = time.monotonic(), spent
    stored_at = started
    while spent < budget and step < arguments.most_steps:
        progress = spent / budget
        schedule.set(progress)
        loss = step_loss(progress >= arguments.quantize_from)
        peers.average_gradients(parameters)
        torch.nn.utils.clip_grad_norm_(target.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        target.zero_grad(set_to_none=True)
        step += 1
        tokens_seen += peers.count * arguments.batch * (windows.windows.shape[1] - 1)
        if step % 20 == 0:
            value = loss.item()
            if not math.isfinite(value):
                raise SystemExit(f"the loss is {value} at step {step}: lower --muon-rate or --adam-rate")
            now = time.monotonic()
            spent = peers.first_says(before + now - started)
            if now - last_print > 15:
                rate = peers.count * step * arguments.batch * (windows.windows.shape[1] - 1) / (now - started)
                peers.say(f"step {step} {spent:.0f} s loss {value:.4f} {rate / 1e3:.0f}k tokens/s epoch {windows.epochs}")
                last_print = now
            if now - stored_at > 120:
                store()
                stored_at = time.monotonic()
    store()
    if peers.count > 1:
        distributed.destroy_process_group()
    if peers.index != 0:
        return
    for quantized in (False, True):
        losses = heldout_losses(target, windows, quantized, arguments.batch, arguments.end)
        print(f"held out, {'as exported' if quantized else 'unquantized'}: "
              + ", ".join(f"{name} {value:.4f} nats/token" for name, value in losses.items()), flush=True)  # fmt: skip
    print(f"{tokens_seen / 1e6:.0f} M tokens in {spent:.0f} s", flush=True)


if __name__ == "__main__":
    main()
