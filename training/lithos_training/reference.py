"""Greedy tokens of Hugging Face's implementation on the exported file's values, for the engine's tests."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .checkpoint import read_values
from .vocabulary import TURN_END, template_renderer


def keep_in_bf16(model: torch.nn.Module) -> None:
    """Makes attention read keys (after their rotation) and values rounded to BF16, as the engine keeps them."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

    rotate = modeling.apply_rotary_pos_emb

    def rounded(query, key, *rest, **options):
        query, key = rotate(query, key, *rest, **options)
        return query, key.bfloat16().float()

    modeling.apply_rotary_pos_emb = rounded
    for name, module in model.named_modules():
        if name.endswith("self_attn.v_proj"):
            module.register_forward_hook(lambda module, inputs, output: output.bfloat16().float())


def main() -> None:
    """Writes JSON: for each prompt its token ids, the greedy continuation and the smallest gap between its best two logits."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    configuration = json.loads((arguments.model / "config.json").read_text())
    configuration.pop("quantization_config")
    configuration["dtype"] = "float32"
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**configuration)).eval().float()
    values = {n: t for n, t in read_values(arguments.model / "model.safetensors").items() if not n.startswith("mtp.")}
    missing, unexpected = model.load_state_dict(values, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    keep_in_bf16(model)
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    render = template_renderer()
    out = []
    for line in arguments.prompts.read_text().splitlines()[: arguments.count]:
        record = json.loads(line)
        ids = tokenizer.encode(render(record["messages"], record.get("tools"), True), add_special_tokens=False).ids
        tokens, gap = list(ids), float("inf")
        with torch.no_grad():
            for _ in range(arguments.tokens):
                best = model(torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2)
                gap = min(gap, (best.values[0] - best.values[1]).item())
                tokens.append(best.indices[0].item())
        out.append({"id": record.get("id"), "prompt": ids, "greedy": tokens[len(ids) :], "smallest_gap": gap})
        text = tokenizer.decode(tokens[len(ids) :], skip_special_tokens=False)
        print(record.get("id"), f"gap {gap:.4f}", repr(text.split(TURN_END)[0]), flush=True)
    arguments.out.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
