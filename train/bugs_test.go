package train

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// T1 to T24 are the classes of bugs that trainers of this kind are known for,
// one test each. 22 (experts routed otherwise than in the sampler) stands with the
// models, in internal/model/qwenvl.

// The loss depends on micro-batches.
func TestT1(t *testing.T) {
	d := newDrill(8)
	for name, g := range everyMode {
		want, grad := d.gradient(t, d.goal(t, g), []int{0, 1, 2, 3, 4, 5, 6, 7})
		for _, packs := range [][][]int{
			{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}, {{7, 6, 5}, {4, 3}, {2, 1, 0}}, {{0, 2, 4, 6}, {1, 3, 5, 7}}, {{3}, {0, 1, 2, 4, 5, 6, 7}},
		} {
			loss, other := d.gradient(t, d.goal(t, g), packs...)
			near(t, name+" loss", loss, want, 1e-6)
			sameGradient(t, name, grad, other, 1e-6)
		}
	}
}

// Gradient accumulation divides twice.
func TestT2(t *testing.T) {
	d := newDrill(8)
	for name, g := range everyMode {
		_, whole := d.gradient(t, d.goal(t, g), []int{0, 1, 2, 3, 4, 5, 6, 7})
		_, four := d.gradient(t, d.goal(t, g), []int{0, 1}, []int{2, 3}, []int{4, 5}, []int{6, 7})
		_, eight := d.gradient(t, d.goal(t, g), []int{0}, []int{1}, []int{2}, []int{3}, []int{4}, []int{5}, []int{6}, []int{7})
		sameGradient(t, name+" by 4", whole, four, 1e-6)
		sameGradient(t, name+" by 8", whole, eight, 1e-6)
	}
}

// The scale depends on the size of the batch.
func TestT3(t *testing.T) {
	d := newDrill(4)
	for name, g := range everyMode {
		a, x := d.gradient(t, d.goal(t, g), []int{0, 1, 2, 3})
		b, y := d.gradient(t, d.goal(t, g), []int{0, 1, 2, 3}, []int{0, 1, 2, 3})
		near(t, name+" doubled", b, a, 1e-6)
		sameGradient(t, name+" doubled", x, y, 1e-6)
	}
}

// Text is tokenised again: "he" and "llo" are not "hello".
func TestT4(t *testing.T) {
	row := goodRow()
	row.Turns = []trajectory.Turn{{Role: "assistant", Text: "something that no tokenizer would make these ids of"}}
	c := toyChecker()
	s, refusal := c.Row(&row)
	if refusal != nil || !slices.Equal(s.Tokens, row.TokenIDs) {
		t.Errorf("%v, %v", s, refusal)
	}
}

// Masks are shifted, ignored, or read where they are false.
func TestT5(t *testing.T) {
	row := goodRow()
	c := toyChecker()
	want, _ := c.Row(&row)
	for i := range row.Logprobs {
		if !row.LossMask[i] {
			row.Logprobs[i] = float32(math.NaN())
		}
	}
	got, refusal := c.Row(&row)
	if refusal != nil || !slices.Equal(got.Sampled, want.Sampled) || !slices.Equal(got.Spans, want.Spans) {
		t.Errorf("%v", refusal)
	}
	row.LossMask = row.LossMask[1:]
	if _, refusal = c.Row(&row); refusal == nil || refusal.Reason != LengthsDiffer {
		t.Errorf("%v", refusal)
	}
}

// Log-probs of trainer and sampler stand one token apart.
func TestT6(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 3, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range rows {
			l := rows[i].Logprobs
			copy(l, l[1:])
			l[len(l)-1] = -1
		}
		return rows, judged
	})
	if err := grpo(context.Background(), toyRun(t, "grpo.max_mismatch=0.05"), w.options("out"), toyKit); kindOf(err) != fail.Bound {
		t.Errorf("%v", err)
	}
}

// Sampler and trainer drift apart unseen.
func TestT7(t *testing.T) {
	var m Mismatch
	m.Add(f(-1, -2, -3), f(-1.5, -2.5, -3.5))
	if kindOf(m.check(.1)) != fail.Bound || math.Abs(m.AbsMean-.5) > 1e-9 {
		t.Errorf("%+v", m)
	}
	if m.check(.6) != nil {
		t.Error("below the bound")
	}
}

// NaN: exp overflows beside the mask, and empty masks divide 0 by 0.
func TestT8(t *testing.T) {
	d := newDrill(3)
	goal := d.goal(t, recipe.GRPO{Correction: recipe.Correction{Reject: []recipe.Rejection{{By: "token-k1", Low: .01, High: 100}}}})
	want, grad := d.gradient(t, goal, []int{0, 2})
	s := d.rows[1]
	s.Skip, s.Kept = make([]bool, s.Trained), 0
	for i := range s.Skip {
		s.Skip[i], s.Old[i] = true, float32([]float64{-200, math.Inf(-1), math.NaN()}[i%3])
	}
	got, other := d.gradient(t, goal, []int{0, 1, 2})
	if got != want || !slices.Equal(grad, other) {
		t.Errorf("rejected rows change the loss from %g to %g", want, got)
	}
	loss, grad := d.gradient(t, goal, []int{1})
	if loss != 0 || slices.ContainsFunc(grad, func(x float32) bool { return x != 0 }) {
		t.Errorf("nothing to train on gives loss %g", loss)
	}
}

// qwenRows are rows of random text for a tiny Qwen3-VL.
func qwenRows(t *testing.T, n int) (Policy, []*Sequence) {
	t.Helper()
	dir := t.TempDir()
	qwenFolder(t, dir, 3)
	policy, err := LoadQwen(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var rows []*Sequence
	for range n {
		s := &Sequence{Temperature: 1}
		for range 5 + rng.IntN(9) {
			s.Tokens = append(s.Tokens, int32(10+rng.IntN(200)))
		}
		s.Spans, s.Trained = []Span{{2, int32(len(s.Tokens))}}, len(s.Tokens)-2
		rows = append(rows, s)
	}
	return policy, rows
}

func scoreOf(t *testing.T, policy Policy, rows ...*Sequence) []float32 {
	t.Helper()
	var p packed
	logp, err := p.score(policy, nil, rows)
	if err != nil {
		t.Fatal(err)
	}
	return logp
}

// The first ratio is not 1, because the passes were packed otherwise.
func TestT9(t *testing.T) {
	policy, rows := qwenRows(t, 7)
	all := scoreOf(t, policy, rows...)
	for i := len(rows) - 1; i >= 0; i-- {
		n := rows[i].Trained
		if got := scoreOf(t, policy, rows[i]); !slices.Equal(got, all[len(all)-n:]) {
			t.Errorf("row %d has other log-probs alone", i)
		}
		all = all[:len(all)-n]
	}
}

// A row in a pack of seven is another row, or padding is seen.
func TestT10(t *testing.T) {
	policy, rows := qwenRows(t, 7)
	at := 0
	for _, s := range rows[:3] {
		at += s.Trained
	}
	if !slices.Equal(scoreOf(t, policy, rows...)[at:at+rows[3].Trained], scoreOf(t, policy, rows[3])) {
		t.Error("a row's log-probs depend on its pack")
	}
}

// Attention leaks over the borders of a pack.
func TestT11(t *testing.T) {
	policy, rows := qwenRows(t, 2)
	n := rows[1].Trained
	before := scoreOf(t, policy, rows...)
	for i := range rows[0].Tokens {
		rows[0].Tokens[i]++
	}
	after := scoreOf(t, policy, rows...)
	if !slices.Equal(before[len(before)-n:], after[len(after)-n:]) || slices.Equal(before, after) {
		t.Error("the second row sees the first")
	}
}

// Still images move in time, or positions are off after them.
func TestT12(t *testing.T) {
	cfg := qwenvl.Config{ImagePadID: 9, MergeSize: 2, Vision: qwenvl.VisionConfig{Depth: 1}}
	pos, next, err := qwenvl.Positions([]int32{1, 9, 9, 9, 9, 1, 1, 9, 9, 1}, [][3]int32{{1, 4, 4}, {1, 2, 4}}, cfg)
	if got, want := fmt.Sprint(pos, next, err), "[[0 1 1 1 1 3 4 5 5 7] [0 1 1 2 2 3 4 5 5 7] [0 1 2 1 2 3 4 5 6 7]] 8 <nil>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A tool's image whose tokens were cut shifts every later image.
func TestT13(t *testing.T) {
	c := Checker{Traits: Traits{Vocab: 100, ImagePad: 3, Merge: 2}, Budget: 100}
	s := &Sequence{Tokens: []int32{5, 3, 3, 3, 3, 6, 7}, Spans: []Span{{5, 7}}, Trained: 2, Images: []ImageRef{{Grid: [3]int32{1, 4, 4}, Offset: 1}}}
	if r := c.Sequence(s); r != nil {
		t.Fatal(r)
	}
	s.Tokens = slices.Delete(slices.Clone(s.Tokens), 3, 4)
	s.Spans = []Span{{4, 6}}
	if r := c.Sequence(s); r == nil || r.Reason != BadImages {
		t.Errorf("%v", r)
	}
}

// The head needs all logits at once, or its chunks change the result.
func TestT14(t *testing.T) {
	policy, rows := qwenRows(t, 3)
	var p packed
	if err := p.assemble(policy, nil, rows); err != nil {
		t.Fatal(err)
	}
	pass, err := policy.Forward(&p.batch)
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Release()
	whole, _ := pass.Score(p.rows, p.targets, 1)
	for _, chunk := range []int{1, 5} {
		var parts []float32
		for i := 0; i < len(p.rows); i += chunk {
			to := min(i+chunk, len(p.rows))
			l, _ := pass.Score(p.rows[i:to], p.targets[i:to], 1)
			parts = append(parts, l...)
		}
		if !slices.Equal(whole, parts) {
			t.Errorf("chunks of %d give other log-probs", chunk)
		}
	}
}

// Weights that no row of a batch reached decay all the same; or rows with and
// without images in one batch disturb each other, whichever pack they are in.
func TestT15(t *testing.T) {
	d := newDrill(4)
	opt, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, WeightDecay: .5}, d.policy.Params())
	if err != nil {
		t.Fatal(err)
	}
	seen := d.policy.Params()[3]
	before := slices.Clone(seen.W)
	d.gradient(t, d.goal(t, recipe.GRPO{}), []int{0, 1, 2, 3})
	opt.Step(.1)
	if !slices.Equal(before, seen.W) {
		t.Error("the tensor of images moved without an image")
	}

	read, _ := toyKit.pictures("")
	d.images = OpenPictures(read)
	picture, err := d.images.Add("data:;base64,cGljdHVyZQ==", "")
	if err != nil {
		t.Fatal(err)
	}
	s := d.rows[2]
	s.Tokens = append([]int32{1, toyPad, toyPad, 2}, s.Tokens...)
	s.Images = []ImageRef{{ID: picture, Grid: [3]int32{1, 2, 4}, Offset: 1}}
	for i := range s.Spans {
		s.Spans[i].From, s.Spans[i].To = s.Spans[i].From+4, s.Spans[i].To+4
	}
	s.Spans = append([]Span{{2, 3}}, s.Spans...) // a token that sees a patch is scored too
	s.Trained++
	s.Old, s.Sampled, s.Ref = append(s.Old, -1), append(s.Sampled, -1), append(s.Ref, -1)
	want, grad := d.gradient(t, d.goal(t, recipe.GRPO{}), []int{0, 1, 2, 3})
	if slices.Max(seen.G) == 0 && slices.Min(seen.G) == 0 {
		t.Error("the tensor of images has no gradient with an image")
	}
	for _, packs := range [][][]int{{{2}, {0, 1, 3}}, {{0}, {1}, {3}, {2}}, {{3, 2}, {1, 0}}} {
		loss, other := d.gradient(t, d.goal(t, recipe.GRPO{}), packs...)
		near(t, "mixed packs", loss, want, 1e-6)
		sameGradient(t, "mixed packs", grad, other, 1e-6)
	}
}

// A run resumed at its end does nothing, and calls that success too early.
func TestT16(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 4, nil)
	out := mustGRPO(t, w, "out", "grpo.updates=1", "grpo.passes=1")
	whole, _ := os.ReadFile(filepath.Join(out, "model.safetensors"))
	for _, name := range []string{"manifest.json", doneName, "model.safetensors"} {
		if err := os.Remove(filepath.Join(out, name)); err != nil {
			t.Fatal(err)
		}
	}
	mustGRPO(t, w, "out", "grpo.updates=1", "grpo.passes=1")
	again, err := os.ReadFile(filepath.Join(out, "model.safetensors"))
	if err != nil || !bytes.Equal(whole, again) || len(lines(t, out)) != 1 {
		t.Errorf("%v, %d lines", err, len(lines(t, out)))
	}
}

// Names change between loading and saving.
func TestT17(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	qwenFolder(t, dir, 3)
	policy, err := LoadQwen(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.Save(out); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, dir, out, []string{"model.safetensors", "config.json"})
}

// Equal rewards have a spread of rounding errors.
func TestT18(t *testing.T) {
	r := float64(float32(.1))
	for _, a := range estimate(t, AdvantageGRPO, 1e-9, r, r, r, r, r, r, r, r) {
		if a != 0 {
			t.Errorf("advantage %g", a)
		}
	}
}

// "The loss starts at 0": at ratio 1 it is -mean A, and nothing else.
func TestT19(t *testing.T) {
	d := newDrill(4)
	sum, n := 0.0, 0.0
	for _, s := range d.rows {
		s.Old = scoreOf(t, d.policy, s)
		sum, n = sum+s.Advantage*float64(s.Trained), n+float64(s.Trained)
	}
	loss, _ := d.gradient(t, d.goal(t, recipe.GRPO{DualClip: 3}), []int{0, 1, 2, 3})
	near(t, "loss", loss, -sum/n, 1e-7)
}

// One path lacks a term that another has. Every mode, written down plainly.
func TestT20(t *testing.T) {
	d := newDrill(6)
	for name, g := range everyMode {
		goal := d.goal(t, g)
		got, _ := d.gradient(t, goal, []int{0, 1, 2, 3, 4, 5})
		near(t, name, got, plainLoss(t, d.policy, d.rows, g), 2e-6)
	}
}

// Ratios of a sequence are summed instead of multiplied, or cross its borders in
// a pack.
func TestT21(t *testing.T) {
	w, _, _, _ := mustCorrect(t, recipe.Correction{Weights: "sequence", High: 100}).Row(f(.1, .9, -.5, 1.5), make([]float32, 4))
	near(t, "product", float64(w[0]), 7.3890561, 1e-5)
	d := newDrill(4)
	g := recipe.GRPO{Loss: LossGSPO, ClipLow: .9, ClipHigh: 9, Aggregation: SeqMeanTokenMean}
	_, one := d.gradient(t, d.goal(t, g), []int{0, 1, 2, 3})
	_, apart := d.gradient(t, d.goal(t, g), []int{0}, []int{1}, []int{2}, []int{3})
	sameGradient(t, "segments", one, apart, 1e-6)
}

// Groups of 1, 2 and 5 rows run into each other; a single row keeps its reward.
func TestT23(t *testing.T) {
	var rows []Outcome
	for i, g := range []string{"c", "a", "c", "b", "c", "b", "c", "c"} {
		rows = append(rows, Outcome{Group: g, Reward: float64(i % 3)})
	}
	a, err := Estimate(rows, AdvantageGRPO, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for i, r := range rows {
		sums[r.Group] += a.Values[i]
	}
	if a.Values[1] != 0 || math.Abs(sums["b"]) > 1e-9 || math.Abs(sums["c"]) > 1e-9 || len(a.Groups) != 3 {
		t.Errorf("%v, %v", a.Values, sums)
	}
}

// Steps below a bfloat16's last bit are lost.
func TestT24(t *testing.T) {
	p := []Param{{Name: "w", Shape: []int{1}, W: f(.02), G: f(.5), NoDecay: true}}
	opt, err := NewAdamW(recipe.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8}, p)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		opt.Step(1e-6)
	}
	near(t, "moved", float64(.02-p[0].W[0]), 1e-4, 1e-6)
}
