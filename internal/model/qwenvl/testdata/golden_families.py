"""Writes the golden values of the other families, as golden.py does for Qwen3-VL and Qwen3.

    OUT=somewhere python3 golden_families.py

Made with the versions that families.json states; float32 on the CPU, one thread, eager attention. Tiny random models:
qwen25vl/ (Qwen2.5-VL: windows of 2x2 tokens, full attention in block 1 only, untied head), qwen2/ (Qwen2.5 text, tied) and
llama/ (Llama, as SmolLM2 is one: tied, no biases). families.json and families.safetensors are laid out as golden.json and
golden.safetensors; windows are the tower's window index and cumulative lengths for several grids.
"""
import json
import os
import sys
import types

import safetensors
import torch
import transformers
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2_5_VLConfig,
                          Qwen2_5_VLForConditionalGeneration)

from golden import ADAM, END, IMAGE, OUT, START, TEMPERATURE, VIDEO, case, image, randomise, run, words

TEXT = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-6)


def vl_model():
    cfg = Qwen2_5_VLConfig(
        text_config=dict(TEXT, rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 3, 3])),
        vision_config=dict(
            depth=3, hidden_size=16, intermediate_size=24, num_heads=2, in_channels=3, patch_size=4,
            temporal_patch_size=2, spatial_merge_size=2, window_size=16, fullatt_block_indexes=[1], out_hidden_size=32,
            tokens_per_second=2),
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END,
        tie_word_embeddings=False)
    cfg._attn_implementation = "eager"
    model = Qwen2_5_VLForConditionalGeneration(cfg).float().eval()
    randomise(model, 21)
    return model


def text_model(config, cls, seed, **kw):
    cfg = config(**TEXT, tie_word_embeddings=True, **kw)
    cfg._attn_implementation = "eager"
    model = cls(cfg).float().eval()
    randomise(model, seed)
    return model


def windows(report):
    """The index of one tower with windows of 4 tokens, patches of 14: the published geometry."""
    cls = transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel
    for window, patch, grids in [(112, 14, [(1, 12, 20)]), (112, 14, [(1, 16, 16)]), (16, 4, [(1, 4, 6), (1, 4, 4)]), (16, 4, [(2, 6, 2)])]:
        me = types.SimpleNamespace(window_size=window, patch_size=patch, spatial_merge_size=2, spatial_merge_unit=4)
        try:
            idx, cu = cls.get_window_index(me, torch.tensor(grids))
        except AttributeError:
            from transformers.vision_utils import get_vision_window_index
            idx, cu = get_vision_window_index(torch.tensor(grids), spatial_merge_size=2, window_size=window, patch_size=patch)
        cu = torch.unique_consecutive(torch.as_tensor(cu))
        report["windows"].append(dict(window=window, patch=patch, grids=grids, index=torch.as_tensor(idx).tolist(), cu=cu.tolist()))


def main():
    tensors, report = {}, dict(
        versions=dict(python=sys.version.split()[0], torch=torch.__version__, transformers=transformers.__version__,
                      safetensors=safetensors.__version__),
        temperature=TEMPERATURE, adam=ADAM, cases=[], windows=[], losses={})
    vl = vl_model()
    vl.save_pretrained(f"{OUT}/qwen25vl")
    cases = [
        case("25text", [words(9), words(14)], [], {1}),
        case("25one", [words(5), image((1, 4, 6)), words(4), words(7)], [(1, 4, 6)], {3}),
        case("25two", [words(4), image((1, 4, 4)), words(3), image((1, 2, 10)), words(2), words(8)],
             [(1, 4, 4), (1, 2, 10)], {5}),
        case("25tool", [words(6), words(5), words(3) + image((1, 6, 8)) + words(4), words(6)], [(1, 6, 8)], {1, 3}),
    ]
    report["losses"]["qwen25vl"] = run(vl, cases, tensors, report)
    text = text_model(Qwen2Config, Qwen2ForCausalLM, 22, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    text.save_pretrained(f"{OUT}/qwen2")
    report["losses"]["qwen2"] = run(text, [case("qwen2", [words(8), words(15)], [], {0, 1})], tensors, report)
    text = text_model(LlamaConfig, LlamaForCausalLM, 23, rope_parameters=dict(rope_type="default", rope_theta=1e5))
    text.save_pretrained(f"{OUT}/llama")
    report["losses"]["llama"] = run(text, [case("llama", [words(8), words(15)], [], {0, 1})], tensors, report)
    try:
        windows(report)
    except Exception as e:  # the index is also worked out by hand in the test
        print("no window index:", repr(e))
    save_file(tensors, f"{OUT}/families.safetensors")
    with open(f"{OUT}/families.json", "w") as f:
        json.dump(report, f)
    for d in ("qwen25vl", "qwen2", "llama"):
        for f in os.listdir(f"{OUT}/{d}"):
            if f not in ("config.json", "model.safetensors"):
                os.remove(f"{OUT}/{d}/{f}")
    print(report["versions"], report["losses"])


main()
