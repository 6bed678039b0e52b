"""What two evaluations of one benchmark say, computed without any of our code:
  livevqa.py EVALUATION_A EVALUATION_B SEED RESAMPLES > livevqa.json
reads only samples.parquet (answers and truths) of both. Right answers are found anew,
the intervals and tests are SciPy's and NumPy's. Resamples are drawn by a generator of
Go's kind (PCG-DXSM, math/rand/v2), written here from its description, so that they can
be compared digit by digit; SciPy's own draws and the exact distribution stand beside."""
import glob, json, sys
import numpy as np, pyarrow, pyarrow.parquet as pq, scipy
from scipy import stats

M64, M128 = (1 << 64) - 1, (1 << 128) - 1


class PCG:
    """pcg.di.unimi.it-style DXSM with the cheap multiplier; IntN is Lemire's."""
    def __init__(self, hi, lo):
        self.state = hi << 64 | lo

    def uint64(self):
        self.state = (self.state * (2549297995355413924 << 64 | 4865540595714422341) + (6364136223846793005 << 64 | 1442695040888963407)) & M128
        hi, lo = self.state >> 64, self.state & M64
        hi ^= hi >> 32
        hi = hi * 0xda942042e4dd58b5 & M64
        hi ^= hi >> 48
        return hi * (lo | 1) & M64

    def below(self, n):
        if n & (n - 1) == 0:
            return self.uint64() & (n - 1)
        p = (self.uint64() >> 32) * n
        while p & 0xffffffff < n and p & 0xffffffff < (1 << 32) % n:
            p = (self.uint64() >> 32) * n
        return p >> 32


def means(values, resamples, seed):
    g, n = PCG(seed, 0), len(values)
    return np.array([sum(values[g.below(n)] for _ in range(n)) / n for _ in range(resamples)])


def interval(values, resamples, seed):
    m = means(values, resamples, seed)
    own = stats.bootstrap((np.array(values),), np.mean, n_resamples=20000, method="percentile", rng=np.random.default_rng(1)).confidence_interval
    return {"mean": float(np.mean(values)), "low": float(np.percentile(m, 2.5)), "high": float(np.percentile(m, 97.5)), "scipy_low": own.low, "scipy_high": own.high}


def exact(d):
    """Two-sided p of the bootstrap of a mean of -1, 0, 1 without drawing: the exact distribution of the sum."""
    one = np.array([d.count(-1), d.count(0), d.count(1)]) / len(d)
    all = np.array([1.0])
    for _ in d:
        all = np.convolve(all, one)
    n = len(d)
    return float(min(1, 2 * min(all[:n + 1].sum(), all[n:].sum())))


def read(folder):
    rows = pq.read_table(sorted(glob.glob(folder + "/part-*.parquet"))).to_pylist()
    right = {r["question"]: int(r["status"] == "ok" and r["answer"].strip().lower() in [t.strip().lower() for t in r["truth"]]) for r in rows}
    assert len(right) == len(rows), "one sample a question"
    return right


a, b = read(sys.argv[1]), read(sys.argv[2])
seed, resamples = int(sys.argv[3]), int(sys.argv[4])
out = {"scipy": scipy.__version__, "numpy": np.__version__, "pyarrow": pyarrow.__version__}
for name, right in [("a", a), ("b", b)]:
    values = [float(right[q]) for q in sorted(right)]
    w = stats.binomtest(sum(right.values()), len(right)).proportion_ci(0.95, method="wilson")
    out[name] = {"n": len(values), "accuracy": interval(values, resamples, seed), "wilson": {"low": w.low, "high": w.high}}
both = sorted(set(a) & set(b))
d = [b[q] - a[q] for q in both]
m = means([float(x) for x in d], 2000, 1)
gained, lost = [q for q in both if b[q] > a[q]], [q for q in both if b[q] < a[q]]
out["comparison"] = {
    "gained": gained, "lost": lost,
    "difference": interval([float(x) for x in d], 2000, 1),
    "p": float(min(1, 2 * (1 + min((m <= 0).sum(), (m >= 0).sum())) / 2001)), "exact_p": exact(d),
    "mcnemar": float(stats.binomtest(len(lost), len(gained) + len(lost), 0.5).pvalue),
}
json.dump(out, sys.stdout, indent=1)
print()
