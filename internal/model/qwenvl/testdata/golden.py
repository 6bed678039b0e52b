"""Writes the golden values of this folder with transformers as the reference.

    OUT=somewhere python3 golden.py

Made with Python 3.12.3, torch 2.11.0, transformers 5.17.0, safetensors 0.8.0; float32 on the CPU, one thread,
eager attention. Two tiny random models: vl/ (Qwen3-VL: untied head, deepstack after vision blocks 0 and 2) and
text/ (Qwen3, tied head). golden.json holds what is small, golden.safetensors logits, patches and gradients:

    CASE.logits [T, vocab] at temperature 1, CASE.patches [patches, columns], CASE.grad.PARAMETER

The scalar loss of a case is sum_r a_r*logp_r + b_r*H_r over its scored rows at the stated temperature; the ten
AdamW steps minimise -mean(logp) at temperature 1 over all scored rows of the model's cases; weight decay acts on
matrices only.
"""
import json
import os
import sys

import safetensors
import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

OUT = os.environ.get("OUT", ".")
IMAGE, VIDEO, START, END = 120, 121, 122, 123
TEMPERATURE = 0.8
ADAM = dict(lr=5e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


def randomise(model, seed):
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=gen)
            if p.ndim >= 2:
                p.copy_(noise * 0.15)
            elif name.endswith("norm.weight") or "layernorm" in name or "norm1.weight" in name or "norm2.weight" in name:
                p.copy_(1 + 0.2 * noise)
            else:
                p.copy_(0.1 * noise)


def vl_model():
    cfg = Qwen3VLConfig(
        text_config=dict(
            vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[4, 2, 2], mrope_interleaved=True),
        ),
        vision_config=dict(
            depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, temporal_patch_size=2,
            spatial_merge_size=2, out_hidden_size=32, num_position_embeddings=36, deepstack_visual_indexes=[0, 2],
        ),
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END,
        tie_word_embeddings=False,
    )
    cfg._attn_implementation = "eager"
    model = Qwen3VLForConditionalGeneration(cfg).float().eval()
    randomise(model, 11)
    return model


def text_model():
    cfg = Qwen3Config(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e6),
    )
    cfg._attn_implementation = "eager"
    model = Qwen3ForCausalLM(cfg).float().eval()
    randomise(model, 12)
    return model


GEN = torch.Generator().manual_seed(5)


def words(n):
    return torch.randint(1, 120, (n,), generator=GEN).tolist()


def image(grid):
    t, h, w = grid
    return [START] + [IMAGE] * (t * h * w // 4) + [END]


def case(name, parts, grids, scored):
    """parts: lists of tokens; scored: which parts are scored (by index)."""
    tokens, rows = [], []
    for i, p in enumerate(parts):
        if i in scored:
            rows += [len(tokens) + j - 1 for j in range(len(p)) if len(tokens) + j > 0]
        tokens += p
    patches = None
    if grids:
        n = sum(t * h * w for t, h, w in grids)
        patches = torch.randn(n, 3 * 2 * 4 * 4, generator=GEN)
    return dict(
        name=name, tokens=tokens, grids=grids, rows=rows, targets=[tokens[r + 1] for r in rows],
        a=[((r * 7) % 11 - 5) / 10 for r in range(len(rows))], b=[0.05 * (r % 3 - 1) for r in range(len(rows))],
        patches=patches,
    )


def logits_of(model, c):
    ids = torch.tensor([c["tokens"]])
    kw = {}
    if c["grids"]:
        kw = dict(pixel_values=c["patches"], image_grid_thw=torch.tensor(c["grids"]),
                  mm_token_type_ids=(ids == IMAGE).int())
    if hasattr(model.model, "rope_deltas"):
        model.model.rope_deltas = None
    return model(input_ids=ids, use_cache=False, **kw).logits[0]


def score(logits, c, temperature):
    z = logits[c["rows"]] / temperature
    lp = torch.log_softmax(z, -1)
    return lp.gather(1, torch.tensor(c["targets"])[:, None])[:, 0], -(lp.exp() * lp).sum(-1)


def run(model, cases, tensors, report):
    for c in cases:
        model.zero_grad()
        logits = logits_of(model, c)
        logp, entropy = score(logits, c, TEMPERATURE)
        loss = (torch.tensor(c["a"]) * logp + torch.tensor(c["b"]) * entropy).sum()
        loss.backward()
        n = c["name"]
        tensors[f"{n}.logits"] = logits.detach().clone()
        if c["patches"] is not None:
            tensors[f"{n}.patches"] = c["patches"]
        for name, p in model.named_parameters():
            if p.grad is not None:
                tensors[f"{n}.grad.{name}"] = p.grad.clone()
        out = {k: v for k, v in c.items() if k != "patches"}
        out.update(logp=logp.tolist(), entropy=entropy.tolist(), loss=loss.item())
        if c["grids"]:
            ids = torch.tensor([c["tokens"]])
            pos, delta = model.model.get_rope_index(ids, (ids == IMAGE).int(), torch.tensor(c["grids"]))
            out.update(positions=pos[:, 0].tolist(), next=len(c["tokens"]) + delta.item())
        report["cases"].append(out)
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW(
        [dict(params=decay, weight_decay=ADAM["weight_decay"]), dict(params=plain, weight_decay=0.0)],
        lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"])
    n = sum(len(c["rows"]) for c in cases)
    losses = []
    for _ in range(11):
        opt.zero_grad()
        total = 0.0
        for c in cases:
            logp, _ = score(logits_of(model, c), c, 1.0)
            loss = -logp.sum() / n
            loss.backward()
            total += loss.item()
        losses.append(total)
        opt.step()
    return losses


def main():
    tensors, report = {}, dict(
        versions=dict(python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__,
                      safetensors=safetensors.__version__),
        temperature=TEMPERATURE, adam=ADAM, cases=[], interpolation=[])
    vl = vl_model()
    vl.save_pretrained(f"{OUT}/vl")
    cases = [
        case("text", [words(9), words(14)], [], {1}),
        case("one", [words(5), image((1, 4, 6)), words(4), words(7)], [(1, 4, 6)], {3}),
        case("two", [words(4), image((1, 4, 4)), words(3), image((1, 2, 6)), words(2), words(8)],
             [(1, 4, 4), (1, 2, 6)], {5}),
        case("tool", [words(6), words(5), words(3) + image((1, 6, 4)) + words(4), words(6)], [(1, 6, 4)], {1, 3}),
    ]
    report["vl_losses"] = run(vl, cases, tensors, report)
    text = text_model()
    text.save_pretrained(f"{OUT}/text")
    report["text_losses"] = run(text, [case("qwen3", [words(8), words(15)], [], {0, 1})], tensors, report)
    for side, grid in [(48, (1, 4, 4)), (48, (1, 6, 10)), (6, (2, 4, 8)), (6, (1, 2, 12))]:
        idx, w = get_vision_interpolation_indices_and_weights(
            torch.tensor([grid]), num_grid_per_side=side, mode="bilinear", align_corners=True, spatial_merge_size=2)
        report["interpolation"].append(dict(side=side, grid=grid, indices=idx.tolist(), weights=w.tolist()))
    save_file(tensors, f"{OUT}/golden.safetensors")
    with open(f"{OUT}/golden.json", "w") as f:
        json.dump(report, f)
    for d in ("vl", "text"):
        for f in os.listdir(f"{OUT}/{d}"):
            if f not in ("config.json", "model.safetensors"):
                os.remove(f"{OUT}/{d}/{f}")
    print(report["versions"], report["vl_losses"], report["text_losses"])
    for root, _, files in os.walk(OUT):
        for f in files:
            print(os.path.join(root, f), os.path.getsize(os.path.join(root, f)))


if __name__ == "__main__":
    main()
