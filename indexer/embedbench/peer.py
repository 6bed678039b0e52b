"""The peers of embedbench on the same GPU, in bfloat16 with SDPA. One line of JSON goes to standard output. The fastest of two turns
after a warm-up.

peer.py texts FOLDER PASSAGES.json: transformers, batches of 256 sorted by length, mean pooling and normalisation.
{"bare": passages/s without tokenising, "all": with it (Hugging Face's fast tokenizer on all cores, before the first batch), "peer"}
peer.py images FOLDER PHOTOS VECTORS.json N: timm's Eva, batches of 32; PIL decodes and prepares in as many processes as there are cores.
{"rate": images/s, "cosine": the least to the vectors of the first files, "peer"}
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


if __name__ == "__main__":
    dict(texts=texts, images=images)[sys.argv[1]](*sys.argv[2:])
