"""Writes update.json: loss and norm of the gradient over all weights of a whole update, by transformers and torch.

    python3 update.py

The policy is the tiny Qwen3-VL of internal/model/qwenvl/testdata/vl; one row holds an image, one an observation inside the
response. Old and reference log-probs are the policy's own with noise, so that some tokens are clipped. Losses are written
down here as their papers state them; nothing of the trainer is used. The norm is what clip_grad_norm_ measures.
Versions are in update.json; float32 on the CPU, one thread, eager attention.
"""
import json
import os

import torch
import transformers
from transformers import AutoModelForImageTextToText

HERE = os.path.dirname(os.path.abspath(__file__))
IMAGE, START, END = 120, 122, 123
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
model = AutoModelForImageTextToText.from_pretrained(
    os.path.join(HERE, "../../internal/model/qwenvl/testdata/vl"), dtype=torch.float32, attn_implementation="eager").eval()
gen = torch.Generator().manual_seed(3)
words = lambda n: torch.randint(1, 120, (n,), generator=gen).tolist()
patches = lambda n: torch.tensor([((i * 7919) % 1000 - 500) / 250 for i in range(n * 96)]).reshape(n, 96)


def row(advantage, prompt, parts, grid=None):
    """parts: (tokens, trained)"""
    tokens, mask = list(prompt), [False] * len(prompt)
    for part, trained in parts:
        tokens += part
        mask += [trained] * len(part)
    return dict(tokens=tokens, mask=mask, advantage=advantage, grid=grid)


rows = [
    row(1.25, words(5), [(words(9), True)]),
    row(-0.75, words(4), [(words(4), True), (words(3), False), (words(6), True)]),
    row(0.5, [START] + [IMAGE] * 6 + [END] + words(3), [(words(7), True)], [1, 4, 6]),
    row(-1.0, words(6), [(words(2), True)]),
]


def forward(r):
    ids = torch.tensor([r["tokens"]])
    kw = {}
    if r["grid"]:
        n = r["grid"][0] * r["grid"][1] * r["grid"][2]
        kw = dict(pixel_values=patches(n), image_grid_thw=torch.tensor([r["grid"]]), mm_token_type_ids=(ids == IMAGE).int())
    model.model.rope_deltas = None
    lp = torch.log_softmax(model(input_ids=ids, use_cache=False, **kw).logits[0, :-1], -1)
    at = torch.tensor(r["mask"][1:])
    return lp.gather(1, ids[0, 1:, None])[at, 0], -(lp.exp() * lp).sum(-1)[at]


with torch.no_grad():
    for r in rows:
        lp, _ = forward(r)
        noise = lambda s: s * torch.randn(lp.shape, generator=gen)
        r["old"], r["ref"] = (lp + noise(0.3)).tolist(), (lp + noise(0.2)).tolist()

CASES = [
    dict(loss="ppo", aggregation="token-mean", clip_low=0.2, clip_high=0.28, dual_clip=3.0, kl=0.05, kl_estimator="k3", entropy=0.0),
    dict(loss="ppo", aggregation="seq-mean-token-mean", clip_low=0.2, clip_high=0.2, dual_clip=0.0, kl=0.0, kl_estimator="k3", entropy=0.01),
    dict(loss="gspo", aggregation="seq-mean-token-mean", clip_low=0.05, clip_high=0.05, dual_clip=0.0, kl=0.0, kl_estimator="k3", entropy=0.0),
    dict(loss="cispo", aggregation="token-mean", clip_low=0.2, clip_high=0.28, dual_clip=0.0, kl=0.1, kl_estimator="k2", entropy=0.0),
    dict(loss="sapo", aggregation="seq-mean-token-sum", clip_low=0.2, clip_high=0.28, dual_clip=0.0, kl=0.0, kl_estimator="k3", entropy=0.0),
    dict(loss="dppo", aggregation="token-mean", clip_low=0.005, clip_high=0.005, dual_clip=0.0, kl=0.0, kl_estimator="k3", entropy=0.0, old_kl=0.001),
]


def tokens_of(c, r, lp, entropy):
    old, a = torch.tensor(r["old"]), r["advantage"]
    d = lp - old
    ratio = d.exp()
    clipped = ratio.clamp(1 - c["clip_low"], 1 + c["clip_high"])
    if c["loss"] == "ppo":
        loss = torch.maximum(-a * ratio, -a * clipped)
        if c["dual_clip"] and a < 0:
            loss = loss.clamp(max=-a * c["dual_clip"])
    elif c["loss"] == "gspo":
        s = d.mean().exp()
        loss = torch.maximum(-a * s, -a * s.clamp(1 - c["clip_low"], 1 + c["clip_high"])).expand(len(lp))
    elif c["loss"] == "cispo":
        loss = -clipped.detach() * a * lp
    elif c["loss"] == "sapo":
        tau = 1.0 if a > 0 else 1.05
        loss = -4 / tau * torch.sigmoid(tau * (ratio - 1)) * a
    else:
        moved = lp.exp() - old.exp()
        keep = ~((moved > c["clip_high"]) if a > 0 else (moved < -c["clip_low"]))
        loss = -a * ratio * keep.detach() + c["old_kl"] * d**2
    x = lp - torch.tensor(r["ref"])
    kl = {"k2": x**2 / 2, "k3": (-x).exp() + x - 1}[c["kl_estimator"]]
    return loss + c["kl"] * kl - c["entropy"] * entropy, kl


report = dict(versions=dict(torch=torch.__version__, transformers=transformers.__version__), rows=rows, cases=[])
for c in CASES:
    model.zero_grad()
    per = [tokens_of(c, r, *forward(r)) for r in rows]
    count = sum(len(l) for l, _ in per)
    loss = {
        "token-mean": lambda: sum(l.sum() for l, _ in per) / count,
        "seq-mean-token-mean": lambda: sum(l.mean() for l, _ in per) / len(per),
        "seq-mean-token-sum": lambda: sum(l.sum() for l, _ in per) / len(per),
    }[c["aggregation"]]()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    report["cases"].append(dict(settings=c, loss=loss.item(), norm=norm.item(), kl=(sum(k.sum() for _, k in per) / count).item()))
with open(os.path.join(HERE, "update.json"), "w") as f:
    json.dump(report, f)
    f.write("\n")
print(report["versions"], [(c["settings"]["loss"], c["loss"], c["norm"]) for c in report["cases"]])
