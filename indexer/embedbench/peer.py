"""The peer of embedbench: transformers in bfloat16 with SDPA on the same GPU, batches of 256 sorted by length, mean pooling and
normalisation. Arguments: the model's folder and a JSON list of passages. One line of JSON goes to standard output:
{"bare": passages/s without tokenising, "all": with it (Hugging Face's fast tokenizer on all cores, before the first batch), "peer"}.
The fastest of two turns after a warm-up.
"""
import json
import sys
import time

import torch
import transformers
from transformers import AutoModel, BertTokenizerFast

folder, texts = sys.argv[1], json.load(open(sys.argv[2]))
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


best = float("inf")
with torch.inference_mode():
    turn(order[:4096])
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        turn(order)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
print(json.dumps({"bare": len(ids) / best, "all": len(ids) / (best + tokenising), "peer": f"transformers {transformers.__version__}, torch {torch.__version__}"}))
