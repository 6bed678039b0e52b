"""How far transformers in bfloat16 is from the golden values, which are float32: the error that the GPU back end is
allowed twice of.

    OUT=somewhere python3 golden_bf16.py

Reads golden.* and families.* and writes bf16.json: for every case the relative error |x - golden| / |golden| of the
logits and of each parameter's gradient; eager attention, log-probs and entropy taken from the logits in float32.
bf16.json states the versions and the device.
"""
import json
import os

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.environ.get("OUT", HERE)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FOLDERS = dict(qwen3="text", qwen2="qwen2", llama="llama")


def relative(x, want):
    return ((x.float().cpu() - want).norm() / want.norm().clamp_min(1e-30)).item()


def run(name, report):
    with open(f"{HERE}/{name}.json") as f:
        golden = json.load(f)
    tensors = load_file(f"{HERE}/{name}.safetensors")
    for c in golden["cases"]:
        folder = FOLDERS.get(c["name"], "qwen25vl" if c["name"].startswith("25") else "vl")
        auto = AutoModelForCausalLM if folder in FOLDERS.values() else AutoModelForImageTextToText
        model = auto.from_pretrained(f"{HERE}/{folder}", dtype=torch.bfloat16, attn_implementation="eager").to(DEVICE).eval()
        ids = torch.tensor([c["tokens"]], device=DEVICE)
        kw = {}
        if c["grids"]:
            kw = dict(pixel_values=tensors[c["name"] + ".patches"].to(DEVICE, torch.bfloat16),
                      image_grid_thw=torch.tensor(c["grids"], device=DEVICE), mm_token_type_ids=(ids == 120).int())
        logits = model(input_ids=ids, **kw).logits[0]
        lp = torch.log_softmax(logits[c["rows"]].float() / golden["temperature"], -1)
        logp = lp.gather(1, torch.tensor(c["targets"], device=DEVICE)[:, None])[:, 0]
        entropy = -(lp.exp() * lp).sum(-1)
        (torch.tensor(c["a"], device=DEVICE) * logp + torch.tensor(c["b"], device=DEVICE) * entropy).sum().backward()
        grads = {}
        for key, p in model.named_parameters():
            want = tensors.get(f"{c['name']}.grad.{key}")
            if want is not None and p.grad is not None and want.norm() > 0:
                grads[key] = relative(p.grad, want)
        report["cases"][c["name"]] = dict(logits=relative(logits, tensors[c["name"] + ".logits"]), grads=grads)


report = dict(versions=dict(torch=torch.__version__, transformers=transformers.__version__, device=DEVICE), cases={})
for name in ("golden", "families"):
    run(name, report)
with open(f"{OUT}/bf16.json", "w") as f:
    json.dump(report, f)
for name, c in report["cases"].items():
    print(name, "logits", c["logits"], "worst gradient", max(c["grads"].values()))
