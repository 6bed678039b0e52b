"""The peers of embedbench on the same GPU, in bfloat16 with SDPA. One line of JSON goes to standard output. The fastest of two turns
after a warm-up.

peer.py texts FOLDER PASSAGES.json: transformers, batches of 256 sorted by length, mean pooling and normalisation.
{"bare": passages/s without tokenising, "all": with it (Hugging Face's fast tokenizer on all cores, before the first batch), "peer"}
peer.py images FOLDER PHOTOS VECTORS.json N: timm's Eva, batches of 32; PIL decodes and prepares in as many processes as there are cores.
{"rate": images/s, "cosine": the least to the vectors of the first files, "peer"}
peer.py v4 FOLDER PHOTOS INPUT.json N: transformers' Qwen2.5-VL with the adapter added, texts in batches of 64 sorted by length, images in batches of 8 that are prepared
before the clock starts. {"texts", "images": a second, "text", "image": least cosine of the input's vectors to those in float32, "peertext", "peerimage": of its own in bfloat16, "peer"}
"""
import json
import os
import sys
import time

import torch


def best_of(turn):
    best = float("inf")
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        turn()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def texts(folder, path):
    import transformers
    from transformers import AutoModel, BertTokenizerFast

    texts = json.load(open(path))
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa", add_pooling_layer=False).cuda().eval()
    start = time.perf_counter()
    ids = tokenizer(texts, truncation=True, max_length=512)["input_ids"]
    tokenising = time.perf_counter() - start
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    pad = tokenizer.pad_token_id

    def turn(order):
        out = torch.empty(len(ids), model.config.hidden_size)
        parts = []
        for lo in range(0, len(order), 256):
            batch = [ids[i] for i in order[lo:lo + 256]]
            n = len(batch[0])
            x = torch.tensor([b + [pad] * (n - len(b)) for b in batch]).pin_memory().cuda(non_blocking=True)
            mask = (x != pad).long()
            h = model(input_ids=x, attention_mask=mask).last_hidden_state
            m = mask[..., None].to(h.dtype)
            parts.append(torch.nn.functional.normalize(((h * m).sum(1) / m.sum(1)).float(), dim=-1))
        out[torch.tensor(order)] = torch.cat(parts).cpu()
        return out

    with torch.inference_mode():
        turn(order[:4096])
        best = best_of(lambda: turn(order))
    print(json.dumps({"bare": len(ids) / best, "all": len(ids) / (best + tokenising), "peer": f"transformers {transformers.__version__}, torch {torch.__version__}"}))


def prepared(path):
    from PIL import Image
    from torchvision import transforms
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    t = transforms.Compose([transforms.Resize(512, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(512), transforms.ToTensor(), transforms.Normalize(mean, std)])
    return t(Image.open(path).convert("RGB"))


class Photos(torch.utils.data.Dataset):
    def __init__(self, files, n):
        self.files, self.n = files, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return prepared(self.files[i % len(self.files)])


def images(folder, photos, vectors, n):
    import timm.models.eva
    from safetensors.torch import load_file

    model = timm.models.eva.Eva(img_size=512, patch_size=14, embed_dim=1024, depth=24, num_heads=16, mlp_ratio=2.6667, qkv_fused=False, swiglu_mlp=True, scale_mlp=True,
                                scale_attn_inner=True, use_rot_pos_emb=True, ref_feat_shape=(16, 16), global_pool="token", num_classes=0)
    state = {}
    for k, v in load_file(os.path.join(folder, "model.safetensors")).items():
        k = k.removeprefix("vision_model.")
        for b, a in (("q_bias", "q_proj.bias"), ("v_bias", "v_proj.bias"), ("attn.inner_attn_ln", "attn.norm"), ("mlp.ffn_ln", "mlp.norm"), ("w1", "fc1_g"), ("w2", "fc1_x"), ("w3", "fc2")):
            k = k.replace(b, a)
        state[k] = v
    print(model.load_state_dict(state, strict=False), file=sys.stderr)
    model = model.cuda().to(torch.bfloat16).eval()
    files = sorted(os.path.join(photos, f) for f in os.listdir(photos))
    loader = torch.utils.data.DataLoader(Photos(files, int(n)), batch_size=32, num_workers=os.cpu_count(), pin_memory=True, persistent_workers=True, prefetch_factor=4)

    def turn():
        return torch.cat([model(x.cuda(non_blocking=True).to(torch.bfloat16)).float() for x in loader]).cpu()

    with torch.inference_mode():
        out = turn()  # starts the processes, too
        best = best_of(turn)
    ours = torch.tensor(json.load(open(vectors))).view(-1, 1024)
    cosine = torch.nn.functional.cosine_similarity(ours, out[:len(ours)]).min().item()
    print(json.dumps({"rate": int(n) / best, "cosine": cosine, "peer": f"timm {timm.__version__}, torch {torch.__version__}"}))


def v4(folder, photos, path, n):
    import transformers
    from PIL import Image
    from safetensors.torch import load_file
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLModel
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    given, c = json.load(open(path)), json.load(open(os.path.join(folder, "config.json")))
    text = c["text_config"]
    text["rope_parameters"] = dict(text.pop("rope_scaling"), rope_theta=text.pop("rope_theta"))
    text["rope_parameters"].pop("type")
    config = Qwen2_5_VLConfig(text_config=text, vision_config=c["vision_config"], **{k: c[k] for k in c if k.endswith("token_id")})
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen2_5_VLModel(config).eval()
    torch.set_default_dtype(torch.float32)
    state = {(k.replace("model.", "language_model.", 1) if k.startswith("model.") else k): v for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    lora = load_file(os.path.join(folder, "adapters", "adapter_model.safetensors"))
    for a in [k for k in lora if ".lora_A." in k]:
        to = a.split(".lora_A.")[0].removeprefix("base_model.model.model.") + ".weight"
        state[to] = (state[to].cuda().float() + lora[a.replace(".lora_A.", ".lora_B.")].cuda().float() @ lora[a].cuda().float()).to(torch.bfloat16)
    print(model.load_state_dict(state, strict=False), file=sys.stderr)
    start, end, pad = (c[k] for k in ("vision_start_token_id", "vision_end_token_id", "image_token_id"))
    ids = given["ids"]
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    unit = lambda x: torch.nn.functional.normalize(x.float(), dim=-1)

    def of_texts(order):
        out = torch.empty(len(ids), config.text_config.hidden_size)
        parts = []
        for lo in range(0, len(order), 64):
            batch = [ids[i] for i in order[lo:lo + 64]]
            wide = len(batch[0])
            x = torch.tensor([b + [0] * (wide - len(b)) for b in batch])
            mask = torch.arange(wide)[None] < torch.tensor([len(b) for b in batch])[:, None]
            x, mask = x.pin_memory().cuda(non_blocking=True), mask.long().cuda()
            h = model(input_ids=x, attention_mask=mask, use_cache=False).last_hidden_state
            m = mask[..., None].to(h.dtype)
            parts.append(unit((h * m).sum(1) / m.sum(1)))
        out[torch.tensor(order)] = torch.cat(parts).cpu()
        return out

    files = sorted(os.path.join(photos, f) for f in os.listdir(photos))
    processor = Qwen2VLImageProcessor(size=dict(shortest_edge=3136, longest_edge=602112), image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])
    ready = []
    for lo in range(0, min(int(n), len(files)), 8):
        seen = processor(images=[Image.open(f).convert("RGB") for f in files[lo:lo + 8]], return_tensors="pt")
        ready.append((seen["pixel_values"].pin_memory(), seen["image_grid_thw"]))
    row = [257] + [117, 115, 101, 114, 10] + [start] + [pad] * 391 + [end] + list(b"Describe the image.") + [258, 10]
    first, last = row.index(start), row.index(end) + 1

    def of_images(n):
        parts = []
        for i in range(n // 8):
            pixels, grid = ready[i % len(ready)]
            x = torch.tensor([row] * len(grid)).cuda()
            h = model(input_ids=x, attention_mask=torch.ones_like(x), pixel_values=pixels.cuda(non_blocking=True).to(model.dtype), image_grid_thw=grid.cuda(),
                      mm_token_type_ids=(x == pad).int(), use_cache=False).last_hidden_state
            parts.append(unit(h[:, first:last].mean(1)))
        return torch.cat(parts).cpu()

    k, sample = len(given["texts"]) // config.text_config.hidden_size, []
    with torch.inference_mode():
        of_texts(order[:512])
        of_images(32)
        on_text, on_image = best_of(lambda: of_texts(order)), best_of(lambda: of_images(int(n)))
        own = of_texts(list(sorted(range(k), key=lambda i: -len(ids[i]))))[:k], of_images(k)
        model.float()
        exact = of_texts(list(sorted(range(k), key=lambda i: -len(ids[i]))))[:k], of_images(k)
    least = lambda a, b: (a * b).sum(-1).min().item()
    ours = [torch.tensor(given[x]).view(k, -1) for x in ("texts", "images")]
    print(json.dumps(dict(texts=len(ids) / on_text, images=int(n) / on_image, text=least(ours[0], exact[0]), image=least(ours[1], exact[1]), peertext=least(own[0], exact[0]),
                          peerimage=least(own[1], exact[1]), peer=f"transformers {transformers.__version__}, torch {torch.__version__}")))


if __name__ == "__main__":
    dict(texts=texts, images=images, v4=v4)[sys.argv[1]](*sys.argv[2:])
