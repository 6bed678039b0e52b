# Writes golden.safetensors and golden.json with the reference implementation:
# pip install safetensors==0.8.0 numpy==2.4.6; python golden.py
import json, os, struct
import numpy as np
from safetensors import TensorSpec, serialize

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)

# Values that rounding gets wrong: ties, subnormals, the edges of the half's range.
edges = [0.0, -0.0, 1.0, -1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 65504.0, 65519.996, 65520.0, -70000.0,
         2**-14, 2**-14 - 2**-25, 2**-24, 2**-25, 1.5 * 2**-25, 2**-26, 3e-8, 1e-40, 3.4028235e38, float("inf"), float("-inf")]
f32 = np.concatenate([np.array(edges, np.float32), rng.standard_normal(233).astype(np.float32) * np.exp(rng.standard_normal(233) * 6).astype(np.float32)])

def bf16(x):
    b = x.view(np.uint32).astype(np.uint64)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16)

with np.errstate(over="ignore"):
    f16 = f32.astype(np.float16)
b16 = bf16(f32)
tensors = {
    "layer.weight": ("float32", [16, 16], f32.tobytes()),
    "layer.half": ("float16", [2, 128], f16.tobytes()),
    "layer.brain <&> é": ("bfloat16", [256], b16.tobytes()),
    "empty": ("float32", [0, 4], b""),
    "scalar": ("float32", [], struct.pack("<f", 2.5)),
}
keep = {k: np.frombuffer(b + b"\0", np.uint8) for k, (d, s, b) in tensors.items()}
specs = {k: TensorSpec(dtype=d, shape=s, data_ptr=keep[k].ctypes.data, data_len=len(b)) for k, (d, s, b) in tensors.items()}
raw = serialize(specs, {"format": "pt"})
open(os.path.join(here, "golden.safetensors"), "wb").write(raw)
json.dump({"f32": [int(v) for v in f32.view(np.uint32)], "f16": [int(v) for v in f16.view(np.uint16)], "bf16": [int(v) for v in b16]},
          open(os.path.join(here, "golden.json"), "w"))
