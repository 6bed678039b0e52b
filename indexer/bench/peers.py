"""Queries/s of faiss and numpy over the vectors that bench made, as JSON by way and batch.

    apt-get install python3-faiss            (Debian 12: faiss 1.7.3), for /usr/bin/python3
    pip install faiss-cpu==1.15.1 numpy      for another Python
    python peers.py installed|tuned FLAT.index QUERIES.f32 BATCH …

"installed" is faiss with its defaults, and numpy. "tuned" takes the better of faiss'
two ways of searching small batches for each batch; run it with OMP_WAIT_POLICY=PASSIVE.
"""
import json, sys, time
import faiss, numpy as np

mode, path, queries = sys.argv[1:4]
batches = [int(n) for n in sys.argv[4:]]
index = faiss.read_index(path)
q = np.fromfile(queries, np.float32).reshape(-1, index.d)
K = 5
out = {"version": faiss.__version__}


def best(f, runs):
    least = 1e9
    for _ in range(runs):
        t = time.perf_counter()
        f()
        least = min(least, time.perf_counter() - t)
    return least


for n in batches:
    runs = 12 if n < 16 else 3
    if mode == "installed":
        out[f"installed b{n}"] = n / best(lambda: index.search(q[:n], K), runs)
        continue
    least = 1e9
    for threshold in (1, 20):
        faiss.cvar.distance_compute_blas_threshold = threshold
        least = min(least, best(lambda: index.search(q[:n], K), runs))
    out[f"tuned b{n}"] = n / least
if mode == "installed":
    x = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d)

    def numpy_search(n):
        for lo in range(0, n, 64):
            s = q[lo:min(lo + 64, n)] @ x.T
            top = np.argpartition(-s, K, axis=1)[:, :K]
            np.take_along_axis(s, top, 1).argsort(axis=1)

    for n in batches:
        out[f"numpy b{n}"] = n / best(lambda: numpy_search(n), 8 if n < 16 else 2)
print(json.dumps(out))
