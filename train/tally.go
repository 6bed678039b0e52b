package train

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/ranks"
)

// Tally collects what the loss kernel saw during one optimizer batch. Sums are
// in float64 and in the order of the plan.
type Tally struct {
	Loss, Policy, KLTerm    float64 // weighted as in the loss
	KL, Entropy             float64 // sums of the unweighted values
	Ratio, PPOKL            float64 // sums of r and of old-new
	RatioMin, RatioMax      float64
	AbsDiff, MaxDiff        float64 // of |new-old|
	High, Low, Dual, Tokens int64   // tokens by the branch they took; all tokens
}

func (t *Tally) add(weight, policy, klTerm, kl, entropyCoef, entropy, d, r float64, which clip) {
	if t.Tokens == 0 {
		t.RatioMin, t.RatioMax = r, r
	}
	t.Tokens++
	t.Policy += weight * policy
	t.KLTerm += weight * klTerm
	t.Loss += weight * (policy + klTerm - entropyCoef*entropy)
	t.KL += kl
	t.Entropy += entropy
	t.Ratio += r
	t.RatioMin, t.RatioMax = min(t.RatioMin, r), max(t.RatioMax, r)
	t.PPOKL -= d
	t.AbsDiff += math.Abs(d)
	t.MaxDiff = max(t.MaxDiff, math.Abs(d))
	switch which {
	case clippedHigh:
		t.High++
	case clippedLow:
		t.Low++
	case clippedDual:
		t.Dual++
	}
}

// merge makes the tallies of all ranks one, each added in the order of the ranks.
func (t *Tally) merge(group ranks.Group) {
	all := exchanged(group, *t)
	*t = all[0]
	for _, o := range all[1:] {
		if t.Tokens == 0 {
			t.RatioMin, t.RatioMax = o.RatioMin, o.RatioMax
		}
		if o.Tokens > 0 {
			t.RatioMin, t.RatioMax = min(t.RatioMin, o.RatioMin), max(t.RatioMax, o.RatioMax)
		}
		t.MaxDiff = max(t.MaxDiff, o.MaxDiff)
		for _, sum := range []struct {
			to *float64
			x  float64
		}{{&t.Loss, o.Loss}, {&t.Policy, o.Policy}, {&t.KLTerm, o.KLTerm}, {&t.KL, o.KL}, {&t.Entropy, o.Entropy}, {&t.Ratio, o.Ratio}, {&t.PPOKL, o.PPOKL}, {&t.AbsDiff, o.AbsDiff}} {
			*sum.to += sum.x
		}
		t.High, t.Low, t.Dual, t.Tokens = t.High+o.High, t.Low+o.Low, t.Dual+o.Dual, t.Tokens+o.Tokens
	}
}

// exchanged gives every rank what each of them has, by rank.
func exchanged[T any](group ranks.Group, x T) []T {
	if group.Size() == 1 {
		return []T{x}
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(x); err != nil {
		panic(&ranks.Fault{Err: fail.Wrap(fail.Bug, "exchange figures", "", err)})
	}
	var all []T
	for r, b := range group.Gather(b.Bytes()) {
		var y T
		if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&y); err != nil {
			panic(&ranks.Fault{Err: fail.Wrap(fail.Bug, "exchange figures", fmt.Sprintf("rank %d", r), err)})
		}
		all = append(all, y)
	}
	return all
}

// per is sum divided by the number of tokens; 0 for none.
func (t *Tally) per(sum float64) float64 {
	if t.Tokens == 0 {
		return 0
	}
	return sum / float64(t.Tokens)
}

// Mismatch compares log-probs of the same tokens from two places: a is what the
// trainer computes, b what the sampler reported. Over tokens with d = a-b it
// reports the numbers by which a diverging policy is known early.
type Mismatch struct {
	Tokens  int64   `json:"tokens"`
	AbsMean float64 `json:"abs_mean"` // mean |d|
	AbsMax  float64 `json:"abs_max"`
	K1      float64 `json:"k1"`          // mean -d
	K3      float64 `json:"k3"`          // mean e^d-1-d
	Chi2    float64 `json:"chi2"`        // mean e^2d - 1
	Chi2Row float64 `json:"chi2_row"`    // the same of whole rows: mean e^2Σd - 1
	PPLA    float64 `json:"ppl_trainer"` // mean over rows of e^(-mean log-prob)
	PPLB    float64 `json:"ppl_sampler"`
	ESS     float64 `json:"ess"` // 1/mean((w/mean w)²), w = e^d clamped to [0.5, 2]

	sums mismatchSums
}

// mismatchSums are over tokens and, from rows on, over rows.
type mismatchSums struct {
	W, W2, Abs, Sum, K3, Squares float64

	Rows, RowSquares, PPLA, PPLB float64
}

// Add takes the parallel log-probs of one row.
func (m *Mismatch) Add(a, b []float32) {
	var total, sumA, sumB float64
	t := &m.sums
	for i := range a {
		total += float64(a[i]) - float64(b[i])
		sumA += float64(a[i])
		sumB += float64(b[i])
		d := float64(a[i]) - float64(b[i])
		m.Tokens++
		t.Abs += math.Abs(d)
		m.AbsMax = max(m.AbsMax, math.Abs(d))
		t.Sum += d
		d = min(max(d, -logClamp), logClamp)
		e := math.Exp(d)
		t.K3 += e - 1 - d
		t.Squares += e * e
		w := min(max(e, .5), 2)
		t.W += w
		t.W2 += w * w
	}
	if len(a) > 0 {
		t.Rows++
		t.RowSquares += math.Exp(2 * clampLog(total))
		t.PPLA += math.Exp(-sumA / float64(len(a)))
		t.PPLB += math.Exp(-sumB / float64(len(a)))
	}
	m.derive()
}

// derive works the means out.
func (m *Mismatch) derive() {
	n, t := float64(m.Tokens), &m.sums
	if n == 0 {
		return
	}
	m.AbsMean, m.K1, m.K3, m.Chi2 = t.Abs/n, -t.Sum/n, t.K3/n, t.Squares/n-1
	m.ESS = t.W * t.W / (n * t.W2)
	m.Chi2Row, m.PPLA, m.PPLB = t.RowSquares/t.Rows-1, t.PPLA/t.Rows, t.PPLB/t.Rows
}

// merge makes the comparisons of all ranks one.
func (m *Mismatch) merge(group ranks.Group) {
	type figures struct {
		Tokens int64
		AbsMax float64
		Sums   mismatchSums
	}
	all := exchanged(group, figures{m.Tokens, m.AbsMax, m.sums})
	m.Tokens, m.AbsMax, m.sums = all[0].Tokens, all[0].AbsMax, all[0].Sums
	for _, o := range all[1:] {
		m.Tokens, m.AbsMax = m.Tokens+o.Tokens, max(m.AbsMax, o.AbsMax)
		t, s := &m.sums, o.Sums
		*t = mismatchSums{t.W + s.W, t.W2 + s.W2, t.Abs + s.Abs, t.Sum + s.Sum, t.K3 + s.K3, t.Squares + s.Squares,
			t.Rows + s.Rows, t.RowSquares + s.RowSquares, t.PPLA + s.PPLA, t.PPLB + s.PPLB}
	}
	m.derive()
}
