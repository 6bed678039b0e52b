package train

import "math"

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

	w, w2, abs, sum, k3, squares float64

	rows, rowSquares, pplA, pplB float64
}

// Add takes the parallel log-probs of one row.
func (m *Mismatch) Add(a, b []float32) {
	var total, sumA, sumB float64
	for i := range a {
		total += float64(a[i]) - float64(b[i])
		sumA += float64(a[i])
		sumB += float64(b[i])
		d := float64(a[i]) - float64(b[i])
		m.Tokens++
		m.abs += math.Abs(d)
		m.AbsMax = max(m.AbsMax, math.Abs(d))
		m.sum += d
		d = min(max(d, -logClamp), logClamp)
		e := math.Exp(d)
		m.k3 += e - 1 - d
		m.squares += e * e
		w := min(max(e, .5), 2)
		m.w += w
		m.w2 += w * w
	}
	n := float64(m.Tokens)
	if n == 0 {
		return
	}
	m.AbsMean, m.K1, m.K3, m.Chi2 = m.abs/n, -m.sum/n, m.k3/n, m.squares/n-1
	m.ESS = m.w * m.w / (n * m.w2)
	if len(a) == 0 {
		return
	}
	m.rows++
	m.rowSquares += math.Exp(2 * clampLog(total))
	m.pplA += math.Exp(-sumA / float64(len(a)))
	m.pplB += math.Exp(-sumB / float64(len(a)))
	m.Chi2Row, m.PPLA, m.PPLB = m.rowSquares/m.rows-1, m.pplA/m.rows, m.pplB/m.rows
}
