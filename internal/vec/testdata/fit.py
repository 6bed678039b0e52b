# Fits the polynomials of package vec: pip install numpy==2.4.6; python fit.py
# Each is the least greatest relative error, found by reweighted least squares in
# Chebyshev nodes and printed with the error that float64 arithmetic would give.
import math
import numpy as np

def fit(x, target, basis, rounds=400):
    w = np.ones_like(x)
    best = (1e9, None)
    for _ in range(rounds):
        a = basis * (np.sqrt(w) / np.abs(target[0]))[:, None]
        c, *_ = np.linalg.lstsq(a, target[1] * np.sqrt(w) / np.abs(target[0]), rcond=None)
        e = np.abs((basis @ c - target[1]) / target[0])
        if e.max() < best[0]:
            best = (e.max(), c)
        w *= e / e.max() + 1e-3
        w /= w.sum()
    return best

def nodes(lo, hi, n=4000):
    return (lo + hi) / 2 + (hi - lo) / 2 * np.cos(np.pi * (np.arange(n) + 0.5) / n)

# e^r = 1 + r + r²·P(r) on |r| <= ln 2 / 2
r = nodes(-0.3466, 0.3466)
err, c = fit(r, (np.exp(r), np.expm1(r) - r), np.stack([r ** (i + 2) for i in range(5)], 1))
print("exp", err, [float(np.float32(v)) for v in c])

# Φ(-x) = e^(-x²/2)·t·R(t), t = 1/(1 + tailP·x), on 0 <= x <= 13
tail_p = 0.35
x = np.concatenate([nodes(0, 13), nodes(0, 2)])
m = np.array([0.5 * math.erfc(v / math.sqrt(2)) * math.exp(v * v / 2) for v in x])
t = 1 / (1 + tail_p * x)
err, c = fit(x, (m, m), np.stack([t ** (i + 1) for i in range(9)], 1))
print("tail", err, [float(np.float32(v)) for v in c])
