package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"searchloop/internal/recipe"
)

// parity.json is what the loss code of verl and of TRL makes of the same rows;
// testdata/parity.py says how it was made.
type parity struct {
	Versions               map[string]string
	Rewards, Advantages    []float64
	Groups                 []string
	Mask                   [][]int
	New, Old, Sampled, Ref [][]float64
	NearRef                [][]float64 `json:"near_ref"`
	Cases                  []parityCase
	Estimates              []struct {
		Source, Method string
		Eps            float64
		Values         []float64
	}
	Corrections []struct {
		How     string
		Weights [][]float64
		Mask    [][]int
		Metrics map[string]float64
	}
}

type parityCase struct {
	Source   string
	Settings struct {
		Loss, Aggregation, Correction string
		ClipLow                       float64 `json:"clip_low"`
		ClipHigh                      float64 `json:"clip_high"`
		DualClip                      float64 `json:"dual_clip"`
		KL                            float64
		KLEstimator                   string `json:"kl_estimator"`
		KLImportance                  bool   `json:"kl_importance"`
		NormTokens                    int    `json:"norm_tokens"`
		KLOnlyName                    string `json:"kl_only"`
		Near                          bool   `json:"near_ref"`
		Absolute                      bool
		SlopesOnly                    bool `json:"slopes_only"`
	}
	Loss, Norm float64
	Slopes     [][]float64
	Metrics    map[string]float64
}

// parityCorrections are the recipe's words for what parity.py asked verl for.
var parityCorrections = map[string]recipe.Correction{
	"token":       {Weights: "token", High: 2},
	"icepop":      {Weights: "token", Outside: "zero", Low: .7, High: 1.3},
	"sequence":    {Weights: "sequence", High: 1.5},
	"token-norm":  {Weights: "token", High: 2, Normalize: true},
	"token-k1":    {Reject: []recipe.Rejection{{By: "token-k1", Low: .7, High: 1.3}}},
	"token-k3":    {Reject: []recipe.Rejection{{By: "token-k3", High: .05}}},
	"seq-sum-k1":  {Reject: []recipe.Rejection{{By: "seq-sum-k1", Low: .6, High: 1.6}}},
	"seq-mean-k1": {Reject: []recipe.Rejection{{By: "seq-mean-k1", Low: .9, High: 1.1}}},
	"seq-mean-k3": {Reject: []recipe.Rejection{{By: "seq-mean-k3", High: .04}}},
	"seq-max-k2":  {Reject: []recipe.Rejection{{By: "seq-max-k2", High: .1}}},
}

func loadParity(t *testing.T) *parity {
	t.Helper()
	raw, err := os.ReadFile("testdata/parity.json")
	if err != nil {
		t.Fatal(err)
	}
	p := new(parity)
	if err := json.Unmarshal(raw, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *parity) pick(m [][]float64, row int) []float32 {
	var out []float32
	for i, x := range m[row] {
		if p.Mask[row][i] == 1 {
			out = append(out, float32(x))
		}
	}
	return out
}

// rows are the rows as the trainer holds them.
func (p *parity) rows(c *Correction, ref [][]float64) []*Sequence {
	var out []*Sequence
	for i := range p.New {
		s := &Sequence{ID: fmt.Sprint(i), Old: p.pick(p.Old, i), Sampled: p.pick(p.Sampled, i), Ref: p.pick(ref, i), Advantage: p.Advantages[i]}
		s.Trained = len(s.Old)
		if c != nil {
			s.Weight, s.Skip, s.Kept, s.Outside = c.Row(s.Old, s.Sampled)
		}
		out = append(out, s)
	}
	return out
}

// run is one optimizer batch of the real objective over the rows.
func (p *parity) run(t *testing.T, g recipe.GRPO, ref [][]float64) (line *Line, slopes [][]float64, goal *improvement) {
	t.Helper()
	loss, err := NewLoss(g)
	if err != nil {
		t.Fatal(err)
	}
	divisor, err := NewDenominator(g.Aggregation, g.NormTokens)
	if err != nil {
		t.Fatal(err)
	}
	goal = &improvement{loss: loss, divisor: divisor, correction: mustCorrect(t, g.Correction)}
	rows := p.rows(goal.correction, ref)
	goal.begin(rows, nil)
	for i, s := range rows {
		d, h := make([]float32, s.Trained), make([]float32, s.Trained)
		goal.slopes([]*Sequence{s}, p.pick(p.New, i), make([]float32, s.Trained), d, h)
		full := make([]float64, len(p.Mask[i]))
		for k, m := range p.Mask[i] {
			if m == 1 {
				full[k], d = float64(d[0]), d[1:]
			}
		}
		slopes = append(slopes, full)
	}
	line = new(Line)
	if err := goal.finish(1, line); err != nil {
		t.Fatal(err)
	}
	return line, slopes, goal
}

// Loss, gradient and metrics are those of verl and TRL, for every mode both have.
func TestParityOfLosses(t *testing.T) {
	p := loadParity(t)
	counts := map[string]int{}
	for _, c := range p.Cases {
		s := &c.Settings
		name := fmt.Sprintf("%s %s%s %s %s", c.Source, s.Loss, s.KLOnlyName, s.Aggregation, s.Correction)
		counts[c.Source]++
		g := recipe.GRPO{Loss: s.Loss, Aggregation: s.Aggregation, ClipLow: s.ClipLow, ClipHigh: s.ClipHigh, DualClip: s.DualClip, KL: s.KL,
			KLEstimator: s.KLEstimator, KLImportance: s.KLImportance, NormTokens: s.NormTokens}
		if s.Absolute {
			g.ClipHigh = s.ClipHigh - 1 // TRL's cispo bounds the ratio itself, and from above only
		}
		if s.Correction != "" {
			var ok bool
			if g.Correction, ok = parityCorrections[s.Correction]; !ok {
				t.Fatalf("no correction %s", s.Correction)
			}
		}
		ref := p.Ref
		if s.Near {
			ref = p.NearRef
		}
		if s.KLOnlyName != "" {
			g.ClipLow, g.ClipHigh, g.KL, g.KLEstimator = .2, .28, 1, s.KLOnlyName
		}
		q := *p
		if s.KLOnlyName != "" {
			q.Advantages = make([]float64, len(p.Advantages))
		}
		line, slopes, _ := q.run(t, g, ref)
		if !s.SlopesOnly {
			near(t, name+": loss", float64(line.Loss), c.Loss, 1e-6)
		}
		norm := 0.0
		for i := range slopes {
			for k := range slopes[i] {
				near(t, fmt.Sprintf("%s: slope %d,%d", name, i, k), slopes[i][k], c.Slopes[i][k], 1e-6)
				norm += slopes[i][k] * slopes[i][k]
			}
		}
		near(t, name+": norm", math.Sqrt(norm), c.Norm, 1e-6)
		u := line.Update
		if s.Loss == LossPPO && c.Source == "verl" && s.DualClip != 0 {
			near(t, name+": clip fraction", float64(u.ClipHigh+u.ClipLow+u.ClipDual), c.Metrics["actor/pg_clipfrac"]+c.Metrics["actor/pg_clipfrac_lower"], 1e-6)
			near(t, name+": dual", float64(u.ClipDual), c.Metrics["actor/pg_clipfrac_lower"], 1e-6)
		}
		if c.Source == "verl" && s.Loss != "" {
			near(t, name+": ppo_kl", float64(u.PPOKL), c.Metrics["actor/ppo_kl"], 1e-6)
			if s.Loss == LossGSPO || s.Loss == LossCISPO || s.Loss == LossDPPO {
				near(t, name+": clip fraction", float64(u.Clipped), c.Metrics["actor/pg_clipfrac"], 1e-6)
			}
		}
		if c.Source == "trl" && s.Loss == LossPPO && s.DualClip == 0 {
			near(t, name+": low", float64(u.ClipLow), c.Metrics["clip_ratio/low_mean"], 1e-6)
			near(t, name+": high", float64(u.ClipHigh), c.Metrics["clip_ratio/high_mean"], 1e-6)
		}
		if kl, ok := c.Metrics["kl"]; ok {
			near(t, name+": kl", float64(u.KL), kl, 1e-6)
		}
	}
	if counts["verl"] < 20 || counts["trl"] < 10 {
		t.Errorf("cases %v", counts)
	}
	t.Logf("%v, versions %v", counts, p.Versions)
}

func TestParityOfAdvantages(t *testing.T) {
	p := loadParity(t)
	for _, e := range p.Estimates {
		rows := make([]Outcome, len(p.Rewards))
		for i := range rows {
			rows[i] = Outcome{Group: p.Groups[i], Reward: p.Rewards[i]}
		}
		a, err := Estimate(rows, e.Method, e.Eps)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range e.Values {
			near(t, e.Source+" "+e.Method, a.Values[i], v, 1e-6)
		}
	}
}

func TestParityOfCorrections(t *testing.T) {
	p := loadParity(t)
	if len(p.Corrections) != len(parityCorrections) {
		t.Errorf("%d corrections", len(p.Corrections))
	}
	for _, v := range p.Corrections {
		_, _, goal := p.run(t, recipe.GRPO{Aggregation: TokenMean, ClipLow: .2, ClipHigh: .28, DualClip: 3, Correction: parityCorrections[v.How]}, p.Ref)
		var m Mismatch
		rejected, tokens := 0, 0
		for i, s := range goal.rows {
			m.Add(s.Old, s.Sampled)
			k := 0
			w := goal.weight(s)
			for j, in := range p.Mask[i] {
				if in == 0 {
					continue
				}
				kept := s.Skip == nil || !s.Skip[k]
				if kept != (v.Mask[i][j] == 1) {
					t.Errorf("%s: row %d token %d kept %v", v.How, i, j, kept)
				}
				if v.Weights != nil {
					near(t, v.How, float64(w[k]), v.Weights[i][j], 1e-6)
				}
				if !kept {
					rejected++
				}
				tokens++
				k++
			}
		}
		for key, got := range map[string]float64{"kl": m.K1, "k3_kl": m.K3, "chi2_token": m.Chi2, "chi2_seq": m.Chi2Row, "training_ppl": m.PPLA, "rollout_ppl": m.PPLB} {
			near(t, v.How+" "+key, got, v.Metrics["rollout_corr/"+key], 1e-5)
		}
		if want, ok := v.Metrics["rollout_corr/rollout_rs_masked_fraction"]; ok {
			near(t, v.How+": rejected", float64(rejected)/float64(tokens), want, 1e-6)
			near(t, v.How+": rejected tokens", float64(goal.correction.describe(goal.rows).RejectTokens), want, 1e-6)
		}
	}
}
