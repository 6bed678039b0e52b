"""Writes the golden values of the sparse decoders, as golden.py does for Qwen3-VL and Qwen3.

    OUT=somewhere python3 golden_moe.py

Made with the versions that moe.json states; float32 on the CPU, one thread, eager attention. Tiny random models: vlmoe/
(Qwen3-VL-MoE, 6 experts of which a token takes 2, first layer dense) and moe/ (Qwen3-MoE: experts stored one by one,
every layer sparse, 8 experts of which a token takes 3). moe.json and moe.safetensors are laid out as golden.json and
golden.safetensors; routes are the experts of every token, [sparse layer][token][k], best first.
"""
import json
import os
import sys

import safetensors
import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

import golden
from golden import ADAM, END, IMAGE, OUT, START, TEMPERATURE, VIDEO, case, image, randomise, words

golden.ADAM = ADAM


def vl_model():
    cfg = Qwen3VLMoeConfig(
        text_config=dict(
            vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-6, moe_intermediate_size=24,
            num_experts=6, num_experts_per_tok=2, decoder_sparse_step=1, mlp_only_layers=[0],
            rope_parameters=dict(rope_type="default", rope_theta=5e6, mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision_config=dict(
            depth=2, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, temporal_patch_size=2,
            spatial_merge_size=2, out_hidden_size=32, num_position_embeddings=36, deepstack_visual_indexes=[0]),
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END,
        tie_word_embeddings=False)
    cfg._attn_implementation = "eager"
    model = Qwen3VLMoeForConditionalGeneration(cfg).float().eval()
    randomise(model, 31)
    return model


def text_model():
    cfg = Qwen3MoeConfig(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-6, moe_intermediate_size=24,
        num_experts=8, num_experts_per_tok=3, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=True)
    cfg._attn_implementation = "eager"
    model = Qwen3MoeForCausalLM(cfg).float().eval()
    randomise(model, 32)
    return model


def routes(model, cases, report):
    """The experts that each case's tokens take, from the routers' inputs and weights."""
    seen = []
    hooks = []
    for name, mod in model.named_modules():
        if name.endswith("mlp.gate"):
            def hook(m, args, out, k=model.config.get_text_config().num_experts_per_tok):
                z = torch.nn.functional.linear(args[0].reshape(-1, args[0].shape[-1]), m.weight)
                seen.append(z.softmax(-1).topk(k, -1).indices.tolist())
            hooks.append(mod.register_forward_hook(hook))
    for c in cases:
        seen.clear()
        with torch.no_grad():
            golden.logits_of(model, c)
        next(r for r in report["cases"] if r["name"] == c["name"])["routes"] = list(seen)
    for h in hooks:
        h.remove()


def main():
    tensors, report = {}, dict(
        versions=dict(python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__,
                      safetensors=safetensors.__version__),
        temperature=TEMPERATURE, adam=ADAM, cases=[], losses={})
    vl = vl_model()
    vl.save_pretrained(f"{OUT}/vlmoe")
    cases = [
        case("moetext", [words(9), words(14)], [], {1}),
        case("moeone", [words(5), image((1, 4, 6)), words(4), words(7)], [(1, 4, 6)], {3}),
        case("moetool", [words(6), words(5), words(3) + image((1, 6, 4)) + words(4), words(6)], [(1, 6, 4)], {1, 3}),
    ]
    state = {k: v.clone() for k, v in vl.state_dict().items()}
    report["losses"]["vlmoe"] = golden.run(vl, cases, tensors, report)
    vl.load_state_dict(state)
    routes(vl, cases, report)
    text = text_model()
    text.save_pretrained(f"{OUT}/moe")
    cases = [case("moe", [words(8), words(15)], [], {0, 1})]
    state = {k: v.clone() for k, v in text.state_dict().items()}
    report["losses"]["moe"] = golden.run(text, cases, tensors, report)
    text.load_state_dict(state)
    routes(text, cases, report)
    save_file(tensors, f"{OUT}/moe.safetensors")
    with open(f"{OUT}/moe.json", "w") as f:
        json.dump(report, f)
    for d in ("vlmoe", "moe"):
        for f in os.listdir(f"{OUT}/{d}"):
            if f not in ("config.json", "model.safetensors"):
                os.remove(f"{OUT}/{d}/{f}")
    print(report["versions"], report["losses"])


main()
