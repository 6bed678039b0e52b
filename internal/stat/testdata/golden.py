"""Golden values of package stat, by SciPy and NumPy: golden.py > golden.json"""
import itertools, json, math, sys
import numpy as np, scipy
from scipy import stats

out = {"scipy": scipy.__version__, "numpy": np.__version__, "wilson": [], "mcnemar": [], "percentile": [], "pass": [], "bootstrap": []}
for n in [1, 2, 10, 171, 1013, 5000]:
    for hits in sorted({0, 1, n // 3, n // 2, n - 1, n}):
        ci = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
        out["wilson"].append([hits, n, ci.low, ci.high])
for b, c in [(0, 0), (1, 0), (0, 1), (5, 5), (8, 1), (1, 8), (10, 25), (100, 140), (700, 650), (0, 40)]:
    out["mcnemar"].append([b, c, stats.binomtest(min(b, c), b + c, 0.5).pvalue if b + c else 1.0])
xs = np.sort(np.random.default_rng(1).normal(size=101)).tolist()
out["xs"] = xs
for p in [0, 0.025, 0.5, 0.731, 0.975, 1]:
    out["percentile"].append([p, float(np.percentile(xs, 100 * p))])
for n in range(1, 9):
    for c in range(n + 1):
        for k in range(1, n + 1):  # by counting all draws of k
            hit = sum(any(i < c for i in pick) for pick in itertools.combinations(range(n), k))
            out["pass"].append([n, c, k, hit / math.comb(n, k)])
for n, share, delta in [(200, 0.25, 0.0), (400, 0.6, 0.05)]:
    a = [1.0 if i < n * share else 0.0 for i in range(n)]
    b = [1.0 - v if i % 20 == 0 else v for i, v in enumerate(a)]
    if delta:
        b = [1.0 if i % 7 == 0 else v for i, v in enumerate(a)]
    ci = stats.bootstrap((np.array(a),), np.mean, n_resamples=100000, method="percentile", rng=np.random.default_rng(2)).confidence_interval
    d = np.array(b) - np.array(a)
    di = stats.bootstrap((d,), np.mean, n_resamples=100000, method="percentile", rng=np.random.default_rng(3)).confidence_interval
    perm = stats.permutation_test((np.array(a), np.array(b)), lambda x, y: np.mean(y - x), permutation_type="samples", n_resamples=20000, rng=np.random.default_rng(4)).pvalue
    out["bootstrap"].append({"a": a, "b": b, "low": ci.low, "high": ci.high, "d_low": di.low, "d_high": di.high, "permutation_p": perm})
json.dump(out, sys.stdout, separators=(",", ":"))
print()
