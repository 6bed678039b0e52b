"""Reads and writes the same indices as TestPython, by Python's faiss.

    python3 peer.py DIR KINDS NPROBE EF_SEARCH K

DIR has vectors.f32 and queries.f32 (32 numbers each) and for every factory string
of KINDS, which are joined by semicolons, number i, go-i.index. peer.py searches
these, builds python-i.index of the same vectors, and prints as JSON
{"version", "go": hits, "python": hits}; hits are [ids, scores] by kind and query.
"""
import json
import sys

import faiss
import numpy as np

folder, kinds, nprobe, ef, k = sys.argv[1], sys.argv[2].split(";"), *map(int, sys.argv[3:])
vectors = np.fromfile(folder + "/vectors.f32", np.float32).reshape(-1, 32)
queries = np.fromfile(folder + "/queries.f32", np.float32).reshape(-1, 32)


def search(index):
    inner = faiss.downcast_index(index.index) if hasattr(index, "id_map") else faiss.downcast_index(index)
    if hasattr(inner, "nprobe"):
        inner.nprobe = nprobe
    if hasattr(inner, "hnsw"):
        inner.hnsw.efSearch = ef
    scores, ids = index.search(queries, k)
    return [[i.tolist(), s.tolist()] for i, s in zip(ids, scores.astype(float))]


out = {"version": faiss.__version__, "go": [], "python": []}
for i, kind in enumerate(kinds):
    index = faiss.read_index(f"{folder}/go-{i}.index")
    assert index.ntotal == len(vectors) and index.d == 32 and index.metric_type == faiss.METRIC_INNER_PRODUCT, kind
    out["go"].append(search(index))
    index = faiss.index_factory(32, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    if kind.startswith("IDMap"):
        index.add_with_ids(vectors, np.arange(len(vectors)))
    else:
        index.add(vectors)
    faiss.write_index(index, f"{folder}/python-{i}.index")
    out["python"].append(search(faiss.read_index(f"{folder}/python-{i}.index")))
print(json.dumps(out))
