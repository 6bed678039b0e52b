"""The peer of searchbench: PyTorch on the same GPU. Arguments are rows, dim and k; a line of JSON each {"name", "value", "peer"} goes to
standard output, milliseconds by CUDA events, the median of nine.

A search is the product of half floats over chunks of rows, topk of every chunk, and topk of those; the chunk is the fastest of some.
One query is a product of matrix and vector over all rows, then topk.

Where FAISS with a GPU is installed its flat index of half floats is measured too, by the wall, with queries and hits that stay on the GPU.
"""
import json
import statistics
import sys
import time

import torch

rows, dim, k = map(int, sys.argv[1:])
name = "torch " + torch.__version__
x = torch.empty(rows, dim, device="cuda", dtype=torch.float16)
for i in range(0, rows, 1 << 20):
    x[i:i + (1 << 20)] = torch.randn(min(1 << 20, rows - i), dim, device="cuda") * dim ** -0.5


def median(f, n=9):
    times = []
    for _ in range(n + 2):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times[2:])


def chunked(q, chunk):
    scores, ids = [], []
    for i in range(0, rows, chunk):
        s, j = torch.topk(q @ x[i:i + chunk].T, k)
        scores.append(s)
        ids.append(j + i)
    s, j = torch.topk(torch.cat(scores, 1), k)
    return s, torch.cat(ids, 1).gather(1, j)


for batch in (1, 8, 64, 128, 512, 1024):
    q = torch.randn(batch, dim, device="cuda").half()
    best = None
    for chunk in (1 << 17, 1 << 19, 1 << 21, 1 << 25):
        if batch * min(chunk, rows) * 2 > 8 << 30:
            continue
        t = median(lambda: chunked(q, chunk), 3)
        if best is None or t < best[0]:
            best = (t, chunk)
    value = median(lambda: chunked(q, best[1]))
    if batch == 1:
        value = min(value, median(lambda: torch.topk(torch.mv(x, q[0]), k)))
    print(json.dumps(dict(name=f"search fp16, batch {batch}", value=value, peer=f"{name}, chunks of {min(best[1], rows)}")), flush=True)

try:
    import faiss
    import faiss.contrib.torch_utils  # takes tensors
    resources = faiss.StandardGpuResources()
except (ImportError, AttributeError) as e:
    print(json.dumps(dict(name="FAISS", missing=f"{type(e).__name__}: {e}")))
    sys.exit()
x = None
torch.cuda.empty_cache()
how = faiss.GpuIndexFlatConfig()
how.useFloat16 = True
index = faiss.GpuIndexFlatIP(resources, dim, how)
for i in range(0, rows, 1 << 20):
    index.add(torch.randn(min(1 << 20, rows - i), dim, device="cuda") * dim ** -0.5)
torch.cuda.empty_cache()
for batch in (1, 8, 64, 128, 512, 1024):
    q = torch.randn(batch, dim, device="cuda")
    times = []
    for _ in range(11):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        index.search(q, k)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(json.dumps(dict(name=f"search fp16, batch {batch}", value=1e3 * statistics.median(times[2:]), peer=f"faiss {faiss.__version__}, GpuIndexFlatIP")), flush=True)
