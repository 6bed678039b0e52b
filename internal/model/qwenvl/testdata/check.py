"""Loads models that Init, Save and WriteConfig wrote with transformers and compares.

    SEARCHLOOP_CHECK=/tmp/check go test -run TestWriteForReference ./internal/model/qwenvl
    python3 testdata/check.py /tmp/check

Last run with torch 2.11.0 and transformers 5.17.0. For every folder below: no weight is missing or left over, the
logits of a text with an image agree, and so does a greedy continuation through transformers' cache.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

for name in sorted(os.listdir(sys.argv[1])):
    folder = os.path.join(sys.argv[1], name)
    with open(os.path.join(folder, "check.json")) as f:
        check = json.load(f)
    data = load_file(os.path.join(folder, "check.safetensors"))
    auto = AutoModelForImageTextToText if check["grids"] else AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    model.eval()
    ids = torch.tensor([check["tokens"]])
    kw = {}
    if check["grids"]:
        kw = dict(pixel_values=data["patches"], image_grid_thw=torch.tensor(check["grids"]),
                  mm_token_type_ids=(ids == check["pad"]).int())
    with torch.no_grad():
        logits = model(input_ids=ids, **kw).logits[0]
        if hasattr(model.model, "rope_deltas"):
            model.model.rope_deltas = None
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(check["greedy"]),
                             do_sample=False, pad_token_id=0, eos_token_id=None, **kw)[0, ids.shape[1]:].tolist()
    worst = (logits - data["logits"]).abs().max().item()
    print(name, type(model).__name__, model.config.dtype, "logits differ by", worst, "of", logits.abs().max().item(),
          "greedy", out == check["greedy"])
    assert worst < 1e-4 * max(1.0, logits.abs().max().item()) and out == check["greedy"], (out, check["greedy"])
print("agrees with transformers", transformers.__version__, "torch", torch.__version__)
