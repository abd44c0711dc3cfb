"""The training model against Hugging Face's implementation and against itself."""

from __future__ import annotations

import unittest

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from lithos_training import formats
from lithos_training.decode_attention import decode_attention
from lithos_training.delta import chunked_delta_rule, delta_step
from lithos_training.shape import Shape
from lithos_training.target import (
    Target,
    TargetState,
    attention_step_inputs,
    attention_step_output,
    delta_layer_step,
    hugging_face_tensors,
    rms_norm,
    working_copies,
)

SMALL = Shape(vocabulary=128, hidden=64, feed_forward=96, layers=4, query_heads=3, kv_heads=1, head_width=32, key_heads=2,
              value_heads=4, state_width=16, rotary_width=8)  # fmt: skip


def small_target() -> Target:
    torch.manual_seed(3)
    target = Target(SMALL)
    with torch.no_grad():
        for name, parameter in target.named().items():
            if name.endswith("norm"):
                parameter += 0.1 * torch.randn_like(parameter)
            if name in ("embed_tokens", "lm_head"):
                parameter *= 20
    return target


class TargetTest(unittest.TestCase):
    def test_equals_hugging_face(self):
        target = small_target()
        config = Qwen3_5TextConfig(**SMALL.configuration(end_of_text=0))
        reference = Qwen3_5ForCausalLM(config).eval()
        missing, unexpected = reference.load_state_dict(hugging_face_tensors(SMALL, target.named()), strict=False)
        self.assertEqual((missing, unexpected), ([], []))
        tokens = torch.randint(0, SMALL.vocabulary, (2, 128))
        with torch.no_grad():
            working = working_copies(target.named(), quantized=False, dtype=torch.float32)
            h, taps = target(tokens, working, taps=(1, 2))
            logits = rms_norm(h, 1 + working["norm"], SMALL.epsilon) @ working["lm_head"].T
            expected = reference(tokens, output_hidden_states=True, use_cache=False)
        self.assertLess((logits - expected.logits).abs().max().item(), 2e-4)
        self.assertLess((taps[0] - expected.hidden_states[2]).abs().max().item(), 2e-4)

    def test_step_equals_sequence(self):
        target = small_target()
        tokens = torch.randint(0, SMALL.vocabulary, (2, 64))
        with torch.no_grad():
            working = working_copies(target.named(), quantized=False, dtype=torch.float32)
            whole, _ = target(tokens, working)
            state = TargetState(SMALL, 2, 64, torch.device("cpu"), torch.float32)
            state.delta += 7.0  # A fresh slot must not see what its predecessor left.
            for position in range(64):
                positions = torch.tensor([position, position])
                h = working["embed_tokens"][tokens[:, position]]
                deltas = attentions = 0
                for kind, w in zip(SMALL.layer_types, target.layer_weights(working)):
                    if kind == "linear_attention":
                        h = delta_layer_step(SMALL, h, w, state.delta[deltas], state.history[deltas], positions == 0)
                        deltas += 1
                    else:
                        query, gate, key, value = attention_step_inputs(SMALL, h, w, positions)
                        out = decode_attention(query, key, value, state.keys[attentions], state.values[attentions], positions)
                        h = attention_step_output(SMALL, h, out, gate, w)
                        attentions += 1
                self.assertLess((h - whole[:, position]).abs().max().item(), 1e-3)

    def test_chunked_rule_and_its_gradient(self):
        torch.manual_seed(5)
        shape = (2, 128, 3)
        query, key = torch.randn(2, *shape, 8, dtype=torch.float32)
        key = key / key.norm(dim=-1, keepdim=True)
        value, gate = torch.randn(*shape, 6), -torch.rand(*shape)
        beta = torch.rand(*shape)
        inputs = [t.requires_grad_() for t in (query, key, value, gate, beta)]
        weight = torch.randn(*shape, 6)
        out = chunked_delta_rule(*inputs)
        gradients = torch.autograd.grad((out * weight).sum(), inputs)
        state = torch.zeros(2, 3, 8, 6)
        rows = []
        for t in range(128):
            row, state = delta_step(state, *(x[:, t] for x in inputs))
            rows.append(row)
        expected = torch.stack(rows, dim=1)
        expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)
        self.assertLess((out - expected).abs().max().item(), 1e-4)
        for got, want in zip(gradients, expected_gradients):
            self.assertLess((got - want).abs().max().item(), 1e-3 * want.abs().max().item())


class FormatsTest(unittest.TestCase):
    def test_codes_and_fake_quantization_agree(self):
        torch.manual_seed(7)
        w = torch.randn(2, 24, 64) * torch.logspace(-3, 1, 24)[:, None]
        w[0, 0, :7] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
        decoded = formats.nvfp4_decoded(w)
        for index in range(2):
            tensors = formats.nvfp4_tensors("x", w[index])
            packed = tensors["x.weight"]
            codes = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1)
            scale = tensors["x.weight_scale"].float().repeat_interleave(16, dim=1)
            read = formats.e2m1_values(codes) * scale * tensors["x.weight_scale_2"]
            self.assertTrue(torch.equal(read, decoded[index]))
            tensors = formats.fp8_tensors("x", w[index])
            read = tensors["x.weight"].float() * tensors["x.weight_scale"]
            self.assertTrue(torch.equal(read, formats.fp8_decoded(w)[index]))

    def test_every_code_is_its_own_nearest(self):
        codes = torch.arange(16, dtype=torch.uint8)
        self.assertTrue(torch.equal(formats.e2m1_codes(formats.e2m1_values(codes))[1:8], codes[1:8]))
        ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0])
        self.assertEqual(formats.e2m1_codes(ties).tolist(), [0, 2, 2, 4, 4, 6, 6, 14])


if __name__ == "__main__":
    unittest.main()
