"""Makes tiny.index, the reference file of this folder's tests.

    pip install faiss-cpu==1.15.1 numpy && python3 make.py

The vectors are small eighths, so that every inner product is exact in float32:
vector r, column c holds ((7*r + 3*c) % 17 - 8) / 8.
"""
import faiss
import numpy as np

ROWS, DIM = 37, 8
r, c = np.meshgrid(np.arange(ROWS), np.arange(DIM), indexing="ij")
x = (((7 * r + 3 * c) % 17 - 8) / 8).astype(np.float32)
index = faiss.index_factory(DIM, "Flat", faiss.METRIC_INNER_PRODUCT)
index.add(x)
faiss.write_index(index, "tiny.index")
print(faiss.__version__, index.ntotal, index.d)
# What faiss itself answers, for tiny.hits.txt: query, rows, scores.
scores, rows = index.search(x[:5], 6)
with open("tiny.hits.txt", "w") as f:
    for q in range(5):
        for k in range(6):
            f.write(f"{q} {rows[q, k]} {scores[q, k]:.6f}\n")
