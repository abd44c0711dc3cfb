"""Makes reference.gguf and reference.safetensors: quantized by other implementations, with the values that they decode to.

pip install gguf==0.19.0 safetensors==0.8.0 ml_dtypes==0.6.0 numpy; python make_reference.py
"""

import pathlib

import gguf
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
random = np.random.default_rng(1)
rows, cols = 3, 64
values = (random.standard_normal((rows, cols)) * 0.1).astype(np.float32)

writer = gguf.GGUFWriter(here / "reference.gguf", "llama")
writer.add_block_count(2)
writer.add_rope_freq_base(10000.0)
writer.add_token_list(["a", "b", "é"])
writer.add_token_types([1, 3, 1])
writer.add_add_bos_token(False)
for kind in [Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q8_0]:
    stored = gguf.quantize(values, kind)
    writer.add_tensor(f"{kind.name.lower()}.weight", stored, raw_dtype=kind)
    writer.add_tensor(f"{kind.name.lower()}.expected", gguf.dequantize(stored, kind))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

fp8 = (values / 0.001).astype(ml_dtypes.float8_e4m3fn)
codes = random.integers(0, 16, (rows, cols), dtype=np.uint8)
e2m1 = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
scales = np.abs(random.standard_normal((rows, cols // 16)) * 40).astype(ml_dtypes.float8_e4m3fn)
expanded = np.repeat(scales.astype(np.float32), 16, axis=1)
save_file(
    {
        "bf16.weight": values.astype(ml_dtypes.bfloat16),
        "bf16.expected": values.astype(ml_dtypes.bfloat16).astype(np.float32),
        "fp8.weight": fp8,
        "fp8.weight_scale": np.array(0.001, np.float32),
        "fp8.expected": fp8.astype(np.float32) * np.float32(0.001),
        "nvfp4.weight": codes[:, 0::2] | codes[:, 1::2] << 4,
        "nvfp4.weight_scale": scales,
        "nvfp4.weight_scale_2": np.array(0.003, np.float32),
        "nvfp4.expected": e2m1 * expanded * np.float32(0.003),
    },
    here / "reference.safetensors",
)
