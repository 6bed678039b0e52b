"""Multiplies float32 matrices with numpy for the bench command beside this file: a line "FORM M N K OPERATIONS" in, GFLOP per second of
processor time out. The first line out names the library."""
import sys
import time

import numpy as np

blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
print("%s %s by numpy %s" % (blas["name"], blas["version"], np.__version__), flush=True)
rng, made = np.random.default_rng(1), {}
for line in sys.stdin:
    form, (m, n, k, span) = line.split()[0], map(int, line.split()[1:])
    if (form, m, n, k) not in made:
        a, b = rng.random((m, k), np.float32) - 0.5, rng.random((n, k), np.float32) - 0.5
        if form == "nn":
            b = np.ascontiguousarray(b.T).reshape(k, n)
        if form == "tn":
            a, b = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
        made = {(form, m, n, k): (a if form != "tn" else a.T, b.T if form == "nt" else b, np.empty((m, n), np.float32))}
    a, b, c = made[form, m, n, k]
    times = max(1, int(span / (2 * m * n * k)))
    began = time.process_time_ns()
    for _ in range(times):
        np.matmul(a, b, out=c)
    print(2 * m * n * k * times / (time.process_time_ns() - began), flush=True)
