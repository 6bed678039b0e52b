"""Makes the reference files of this folder's tests with faiss itself.

    pip install faiss-cpu==1.15.1 numpy && python3 make.py

The vectors are small eighths, so that every inner product is exact in float32:
vector r, column c holds ((7*r + 3*c) % 17 - 8) / 8. NAME.index is the file that
faiss writes, NAME.hits.txt what it answers: query, row, score. tiny is an
IndexFlatIP; the others are named after what they hold.
"""
import faiss
import numpy as np

ROWS, DIM = 37, 8
r, c = np.meshgrid(np.arange(ROWS), np.arange(DIM), indexing="ij")
x = (((7 * r + 3 * c) % 17 - 8) / 8).astype(np.float32)
IP, L2 = faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2
for name, factory, metric in [("tiny", "Flat", IP), ("flat-l2", "Flat", L2), ("fp16-ip", "SQfp16", IP), ("fp16-l2", "SQfp16", L2), ("sq8-ip", "SQ8", IP), ("sq8-l2", "SQ8", L2)]:
    index = faiss.index_factory(DIM, factory, metric)
    index.train(x)
    index.add(x)
    faiss.write_index(index, name + ".index")
    print(faiss.__version__, name, index.ntotal, index.d)
    scores, rows = index.search(x[:5], 6)
    with open(name + ".hits.txt", "w") as f:
        for q in range(5):
            for k in range(6):
                f.write(f"{q} {rows[q, k]} {scores[q, k]:.6f}\n")
