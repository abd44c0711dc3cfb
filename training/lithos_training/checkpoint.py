"""Hugging Face directories: writing the trained models in their final formats, and reading such files back as plain values."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import formats
from .drafter import drafter_format, drafter_sizes, multi_token_sizes
from .shape import DrafterShape, Shape
from .target import FORMATS, Target, hugging_face_tensors

ALGORITHMS = {"nvfp4": {"quant_algo": "W4A16_NVFP4", "group_size": formats.GROUP}, "fp8": {"quant_algo": "FP8"}}


def _base(name: str) -> str:
    """The name in `FORMATS` of a tensor of the checkpoint: without the model's and the layer's prefix and `.weight`."""
    name = name.removesuffix(".weight")
    parts = name.split(".")
    return ".".join(parts[3:]) if name.startswith("model.layers.") else parts[-1]


def stored_tensors(tensors: dict[str, Tensor], form_of) -> tuple[dict[str, Tensor], dict[str, dict]]:
    """(tensors in their final formats, the format of each quantized module). `form_of` tells the format of a name."""
    out, quantized = {}, {}
    for name, tensor in tensors.items():
        form, module = form_of(name), name.removesuffix(".weight")
        if form == "nvfp4":
            out |= formats.nvfp4_tensors(module, tensor)
        elif form == "fp8":
            out |= formats.fp8_tensors(module, tensor)
        else:
            out[name] = tensor.to(torch.bfloat16).contiguous()
        if form in ALGORITHMS:
            quantized[module] = ALGORITHMS[form]
    return {name: tensor.cpu() for name, tensor in out.items()}, quantized


def quantization(quantized: dict[str, dict], left: list[str]) -> tuple[dict, dict]:
    """(`hf_quant_config.json`, `quantization_config` of config.json) in the form of NVIDIA's Model Optimizer."""
    algorithms = {entry["quant_algo"] for entry in quantized.values()}
    algorithm = "MIXED_PRECISION" if len(algorithms) > 1 else "NVFP4"
    producer = {"name": "lithos-training", "version": "1"}
    inner = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "quantized_layers": quantized, "exclude_modules": left}
    config = {"quant_method": "modelopt", "quant_algo": algorithm, "quantized_layers": quantized, "ignore": left, "producer": producer}
    return {"producer": producer, "quantization": inner}, config


def write_target(directory: Path, shape: Shape, parameters: dict[str, Tensor], multi_token: dict[str, Tensor], end: int) -> None:
    """Writes config.json, hf_quant_config.json and model.safetensors of the target with its multi-token layer."""
    tensors = hugging_face_tensors(shape, parameters)
    tensors |= {f"{name}.weight": tensor.detach().float() for name, tensor in multi_token.items()}

    def form_of(name: str) -> str:
        # The multi-token layer is NVFP4 throughout, without training for it: the file has to stay small.
        if name.startswith("mtp."):
            return "nvfp4" if tensors[name].dim() == 2 else "bf16"
        return FORMATS.get(_base(name), "bf16")

    stored, quantized = stored_tensors(tensors, form_of)
    producer, config = quantization(quantized, [])
    directory.mkdir(parents=True, exist_ok=True)
    configuration = shape.configuration(end) | {"quantization_config": config}
    (directory / "config.json").write_text(json.dumps(configuration, indent=2) + "\n")
    (directory / "hf_quant_config.json").write_text(json.dumps(producer, indent=2) + "\n")
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})


def write_drafter(
    directory: Path, shape: DrafterShape, target: Shape, parameters: dict[str, Tensor], temperatures: list[float], mask: int
) -> None:
    """Writes config.json and model.safetensors of the drafter. `confidence_temperatures` divide the confidence logits by position."""
    bare = {"confidence_head.proj.bias"}
    tensors = {name + ("" if name in bare else ".weight"): tensor.detach().float() for name, tensor in parameters.items()}
    stored, quantized = stored_tensors(tensors, lambda name: drafter_format(name.removesuffix(".weight")))
    _, config = quantization(quantized, [])
    configuration = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "vocab_size": target.vocabulary,
        "hidden_size": target.hidden,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "layer_types": ["full_attention"] * shape.layers,
        "num_attention_heads": shape.query_heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "attention_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": target.context,
        "tie_word_embeddings": False,
        "num_target_layers": target.layers,
        "block_size": shape.block,
        "target_layer_ids": list(shape.taps),
        "mask_token_id": mask,
        "markov_rank": shape.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "confidence_temperatures": [round(t, 4) for t in temperatures],
        "dtype": "bfloat16",
        "quantization_config": config,
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(configuration, indent=2) + "\n")
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})


def read_values(path: Path) -> dict[str, Tensor]:
    """Every matrix and vector of a safetensors file, decoded to f32, by its name without scales."""
    out: dict[str, Tensor] = {}
    with safe_open(path, "pt") as stored:
        names = set(stored.keys())
        for name in sorted(names):
            if name.endswith((".weight_scale", ".weight_scale_2")):
                continue
            tensor, module = stored.get_tensor(name), name.removesuffix(".weight")
            if f"{module}.weight_scale_2" in names:
                codes = torch.stack([tensor & 15, tensor >> 4], dim=-1).flatten(1)
                scale = stored.get_tensor(f"{module}.weight_scale").float().repeat_interleave(formats.GROUP, dim=1)
                tensor = formats.e2m1_values(codes) * (scale * stored.get_tensor(f"{module}.weight_scale_2"))
            elif f"{module}.weight_scale" in names:
                tensor = tensor.float() * stored.get_tensor(f"{module}.weight_scale")
            out[name] = tensor.float()
    return out


def read_target(directory: Path) -> tuple[Target, dict[str, Tensor], dict[str, Tensor]]:
    """(the target with the file's values as its weights, the weights of its multi-token layer, all values by their names)."""
    configuration = json.loads((directory / "config.json").read_text())
    shape = shape_of(configuration)
    values = read_values(directory / "model.safetensors")
    target = Target(shape)
    with torch.no_grad():
        for name, parameter in target.named().items():
            if name == "lm_head":
                parameter.copy_(values["lm_head.weight"])
            elif name in ("embed_tokens", "norm"):
                parameter.copy_(values[f"model.{name}.weight"])
            else:
                suffix = "" if name in ("linear_attn.A_log", "linear_attn.dt_bias") else ".weight"
                found = (values.get(f"model.layers.{layer}.{name}{suffix}") for layer in range(shape.layers))
                parameter.copy_(torch.stack([t for t in found if t is not None]).view(parameter.shape))
    multi_token = {name: values[f"{name}.weight"] for name in multi_token_sizes(shape) if f"{name}.weight" in values}
    return target, multi_token, values


def shape_of(configuration: dict) -> Shape:
    """The shape that a config.json describes."""
    rotary = configuration["rope_parameters"]
    return Shape(
        vocabulary=configuration["vocab_size"],
        hidden=configuration["hidden_size"],
        feed_forward=configuration["intermediate_size"],
        layers=configuration["num_hidden_layers"],
        full_attention_interval=configuration["full_attention_interval"],
        query_heads=configuration["num_attention_heads"],
        kv_heads=configuration["num_key_value_heads"],
        head_width=configuration["head_dim"],
        key_heads=configuration["linear_num_key_heads"],
        value_heads=configuration["linear_num_value_heads"],
        state_width=configuration["linear_key_head_dim"],
        convolution=configuration["linear_conv_kernel_dim"],
        rotary_width=round(configuration["head_dim"] * rotary["partial_rotary_factor"]),
        rope_theta=rotary["rope_theta"],
        epsilon=configuration["rms_norm_eps"],
        context=configuration["max_position_embeddings"],
    )


def read_drafter(directory: Path, target: Shape) -> tuple[DrafterShape, dict[str, Tensor], dict]:
    """(shape, weights by name without `.weight`, config.json) of a drafter."""
    configuration = json.loads((directory / "config.json").read_text())
    shape = DrafterShape(
        layers=configuration["num_hidden_layers"],
        feed_forward=configuration["intermediate_size"],
        query_heads=configuration["num_attention_heads"],
        kv_heads=configuration["num_key_value_heads"],
        head_width=configuration["head_dim"],
        taps=tuple(configuration["target_layer_ids"]),
        block=configuration["block_size"],
        markov_rank=configuration["markov_rank"],
        rope_theta=configuration["rope_theta"],
        epsilon=configuration["rms_norm_eps"],
    )
    values = read_values(directory / "model.safetensors")
    weights = {name: values[name if name in values else f"{name}.weight"] for name in drafter_sizes(shape, target)}
    return shape, weights, configuration
