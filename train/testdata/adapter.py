"""Loads an adapter that grpo or sft wrote with PEFT itself, and writes what PEFT would have called its tensors.

    SEARCHLOOP_ADAPTER=/tmp/adapter go test -run TestLoRA$ ./train
    python3 adapter.py /tmp/adapter

The folder holds policy/ (the base), out/ (the merged checkpoint) and out/adapter/. With the adapter the base must give the
logits of the merged checkpoint, no key may be missing or left over, and merging by PEFT must give the same weights. adapter.json
is written beside this file: names and shapes as PEFT saves a fresh adapter with the same settings, and the versions.
"""
import json
import os
import sys
import tempfile
import warnings

import peft
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

root = sys.argv[1]
load = lambda name: AutoModelForImageTextToText.from_pretrained(os.path.join(root, name), dtype=torch.float32).eval()
ids = torch.randint(10, 200, (2, 17), generator=torch.Generator().manual_seed(1))
with warnings.catch_warnings(), torch.no_grad():
    warnings.simplefilter("error", UserWarning)  # PEFT only warns about keys that do not fit
    base = load("policy")
    plain = base(input_ids=ids).logits
    ours = peft.PeftModel.from_pretrained(base, os.path.join(root, "out", "adapter"))
    got, want = ours(input_ids=ids).logits, load("out")(input_ids=ids).logits
    print("logits differ by", (got - want).abs().max().item(), "the adapter moves them by", (got - plain).abs().max().item())
    assert (got - want).abs().max() < 1e-4 < 1e-2 < (got - plain).abs().max()
    merged = ours.merge_and_unload().state_dict()
    worst = max((merged[k] - v).abs().max().item() for k, v in load("out").state_dict().items())
    print("merged by PEFT, weights differ by", worst)
    assert worst < 1e-6

with open(os.path.join(root, "out", "adapter", "adapter_config.json")) as f:
    settings = json.load(f)
fresh = peft.get_peft_model(load("policy"), peft.LoraConfig(
    r=settings["r"], lora_alpha=settings["lora_alpha"], target_modules=settings["target_modules"]))
with tempfile.TemporaryDirectory() as tmp:
    fresh.save_pretrained(tmp)
    theirs = load_file(os.path.join(tmp, "adapter_model.safetensors"))
mine = load_file(os.path.join(root, "out", "adapter", "adapter_model.safetensors"))
shapes = {k: list(v.shape) for k, v in sorted(theirs.items())}
assert shapes == {k: list(v.shape) for k, v in sorted(mine.items())}
versions = dict(peft=peft.__version__, torch=torch.__version__, transformers=transformers.__version__)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "adapter.json"), "w") as f:
    json.dump(dict(versions=versions, shapes=shapes), f, indent=1)
    f.write("\n")
print(len(shapes), "tensors as PEFT names them;", versions)
