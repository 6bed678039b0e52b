package train

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/safetensors"
	"searchloop/rollout/trajectory"
)

func exp(x float32) float64 { return math.Exp(float64(x)) }

func mustGRPO(t testing.TB, w toyWorld, out string, set ...string) string {
	t.Helper()
	o := w.options(out)
	if err := grpo(context.Background(), toyRun(t, set...), o, toyKit); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

func lines(t testing.TB, dir string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, MetricsName))
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for l := range bytes.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal(l, &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func num(t testing.TB, m map[string]any, key string) float64 {
	t.Helper()
	x, ok := m[key].(float64)
	if !ok {
		t.Fatalf("%s is %v", key, m[key])
	}
	return x
}

func TestCheckpointOfGRPO(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 10, nil)
	out := mustGRPO(t, w, "out")
	m, err := manifest.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(out); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range m.Parts {
		names = append(names, p.Name)
	}
	want := "DONE config.json generation_config.json metrics.jsonl model.safetensors stats.json trainer/cursor.json trainer/state-00000006.safetensors vocab.txt rejects.jsonl"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("files: %s", got)
	}
	var meta Meta
	if err := json.Unmarshal(m.Meta, &meta); err != nil {
		t.Fatal(err)
	}
	if digest, err := WeightsDigest(out); err != nil || digest != meta.Policy || meta.Steps != 6 || meta.Rows != 40 {
		t.Errorf("meta %+v, digest %s, %v", meta, digest, err)
	}
	// The layout is the policy's.
	a, _ := safetensors.Open(w.at("policy"))
	b, _ := safetensors.Open(out)
	for _, n := range a.Names() {
		x, _ := a.Float32(n)
		y, _ := b.Float32(n)
		moved := 0.0
		for i := range x {
			moved += math.Abs(float64(x[i] - y[i]))
		}
		if n == "seen" && moved != 0 || n != "seen" && moved == 0 {
			t.Errorf("%s moved by %g", n, moved)
		}
	}
	ls := lines(t, out)
	if len(ls) != 6 {
		t.Fatalf("%d lines", len(ls))
	}
	// Before the first update the policy is the sampler, to the last bit of its
	// log-probs: the ratio is 1, the loss is -mean A plus KL.
	first := ls[0]
	if num(t, first, "ratio_min") != 1 || num(t, first, "ratio_max") != 1 || num(t, first, "ppo_kl") != 0 || num(t, first, "clip_high") != 0 {
		t.Errorf("first line: %v", first)
	}
	mis := first["mismatch"].(map[string]any)
	if mis["abs_max"].(float64) != 0 || mis["tokens"].(float64) < 10 {
		t.Errorf("mismatch %v", mis)
	}
	if num(t, first, "kl") <= 0 || num(t, first, "grad_norm") <= 0 {
		t.Errorf("first line: %v", first)
	}
	if num(t, ls[3], "ratio_max") <= 1 || ls[3]["pass"].(float64) != 1 || ls[3]["mismatch"] != nil {
		t.Errorf("fourth line: %v", ls[3])
	}
	rows := 0.0
	for _, l := range ls[:3] {
		rows += num(t, l, "rows")
	}
	if rows != 40 {
		t.Errorf("a pass has %g rows", rows)
	}
	// Nothing to do, fast, and nothing is touched.
	before, _ := os.Stat(filepath.Join(out, "model.safetensors"))
	mustGRPO(t, w, "out")
	if after, _ := os.Stat(filepath.Join(out, "model.safetensors")); !after.ModTime().Equal(before.ModTime()) {
		t.Error("a finished checkpoint was written again")
	}
	// Another folder, the same bytes.
	again := mustGRPO(t, w, "again")
	sameFiles(t, out, again, names)
}

func sameFiles(t testing.TB, a, b string, names []string) {
	t.Helper()
	for _, n := range names {
		x, err := os.ReadFile(filepath.Join(a, n))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, n))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs between %s and %s", n, filepath.Base(a), filepath.Base(b))
		}
	}
}

// What stands at positions that were not sampled changes nothing, not a bit.
func TestMaskedPositionsAreNeverRead(t *testing.T) {
	root := t.TempDir()
	w := newToyWorld(t, filepath.Join(root, "a"), 6, nil)
	v := newToyWorld(t, filepath.Join(root, "b"), 6, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range rows {
			for j := range rows[i].Logprobs {
				if !rows[i].LossMask[j] {
					rows[i].Logprobs[j] = []float32{-200, float32(math.Inf(-1)), float32(math.NaN())}[j%3]
				}
			}
		}
		return rows, judged
	})
	names := []string{"model.safetensors", MetricsName, statsName}
	sameFiles(t, mustGRPO(t, w, "out"), mustGRPO(t, v, "out"), names)
}

// The gradient of a batch does not depend on how its rows are packed, but for
// the order of sums.
func TestPackingChangesNothing(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 10, nil)
	for _, mode := range []string{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean} {
		var first []map[string]any
		for _, budget := range []string{"8", "16", "40", "10000"} {
			out := mustGRPO(t, w, mode+budget, "grpo.pack_tokens="+budget, "grpo.updates=1", "grpo.passes=1", "grpo.aggregation="+mode)
			ls := lines(t, out)
			if first == nil {
				first = ls
			}
			for _, key := range []string{"loss", "policy_loss", "kl_loss", "grad_norm", "entropy", "kl"} {
				near(t, mode+" "+budget+" "+key, num(t, ls[0], key), num(t, first[0], key), 1e-6)
			}
			if got := num(t, ls[0], "packs"); budget == "8" && got != 40 || budget == "10000" && got != 1 {
				t.Errorf("budget %s: %g packs", budget, got)
			}
		}
	}
}

// With a learning rate of 0 every number stays what it was.
func TestNothingDriftsWithoutLearning(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 8, nil)
	out := mustGRPO(t, w, "out", "grpo.optimizer.lr=0", "grpo.updates=1", "grpo.passes=4")
	ls := lines(t, out)
	for _, l := range ls[1:] {
		for _, key := range []string{"loss", "grad_norm", "ratio_min", "ratio_max", "kl", "entropy"} {
			if l[key] != ls[0][key] {
				t.Errorf("step %v: %s is %v, was %v", l["step"], key, l[key], ls[0][key])
			}
		}
	}
	sameFiles(t, w.at("policy"), out, []string{"model.safetensors", "config.json", "vocab.txt"})
}

func TestBypassAndRecomputeAgreeOnOwnSamples(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 8, nil)
	a, b := mustGRPO(t, w, "bypass"), mustGRPO(t, w, "recompute", "grpo.old_logprobs=recompute")
	sameFiles(t, a, b, []string{"model.safetensors", statsName})
	x, y := lines(t, a), lines(t, b)
	for i := range x {
		delete(x[i], "mismatch") // of the first batch, and of all rows
		delete(y[i], "mismatch")
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("lines differ: %v\n%v", x, y)
	}
}

// Log-probs that are not the policy's stop the job before anything is trained.
func TestMismatchStops(t *testing.T) {
	shift := func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range rows {
			for j := range rows[i].Logprobs {
				if rows[i].LossMask[j] {
					rows[i].Logprobs[j] -= .5
				}
			}
		}
		return rows, judged
	}
	w := newToyWorld(t, t.TempDir(), 4, shift)
	for _, mode := range []string{Bypass, Recompute} {
		err := grpo(context.Background(), toyRun(t, "grpo.old_logprobs="+mode), w.options(mode), toyKit)
		if kindOf(err) != fail.Bound || !strings.Contains(err.Error(), "0.5") {
			t.Errorf("%s: %v", mode, err)
		}
		if _, err := os.Stat(filepath.Join(w.at(mode), "model.safetensors")); err == nil {
			t.Errorf("%s: a model was written", mode)
		}
	}
	mustGRPO(t, w, "lax", "grpo.max_mismatch=0.6")
}

// The rollouts of another policy are noticed in the same way.
func TestOtherPolicyStops(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 4, nil)
	toyFolder(t, w.at("policy"), 9, 4, 99)
	if err := grpo(context.Background(), toyRun(t), w.options("out"), toyKit); kindOf(err) != fail.Bound {
		t.Errorf("%v", err)
	}
}

func TestRowsLeftOut(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 8, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range judged {
			judged[i].Reward = float64(i % 2)
		}
		rows[0].Status = trajectory.Failed
		judged[1].Scored = false
		rows[2].Status = trajectory.Truncated
		rows[4].TopP = .9           // a refusal
		rows[5].TokenIDs[0] = 99    // another
		rows[6].Logprobs = nil      // and another
		judged[7].ID = "somebody's" // no judgement, and one too many
		for i := 8; i < 12; i++ {
			judged[i].Reward = 1 // a group without variance
		}
		rows[12].Group = "alone"
		rows = append(rows, rows[20]) // twice the same
		judged[16].Reward = math.NaN()
		rows[17].Group = ""
		rows[18].Images = []trajectory.Image{{ID: strings.Repeat("ab", 32), GridT: 1, GridH: 2, GridW: 2, Offset: 0}}
		rows[18].TokenIDs[0] = toyPad
		rows[19].Status = "strange"
		return rows, judged
	})
	read := func(out string) (Stats, []string) {
		var s Stats
		text, err := os.ReadFile(filepath.Join(out, statsName))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		text, err = os.ReadFile(filepath.Join(out, rejectsName))
		if err != nil {
			t.Fatal(err)
		}
		return s, strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	s, rejects := read(mustGRPO(t, w, "keep", "grpo.kl=0", "grpo.passes=1"))
	want := map[string]int64{Truncation: 1, BadToken: 1, LengthsDiffer: 1, NoJudgement: 1, Duplicate: 1, BadReward: 1, NoGroup: 1, NoImage: 1, BadStatus: 1}
	for reason, n := range want {
		if s.Refused[reason] != n {
			t.Errorf("%s: %d refused, want %d", reason, s.Refused[reason], n)
		}
	}
	if len(s.Refused) != len(want) || len(rejects) != len(want) || !strings.Contains(rejects[0], "q01#0") || !strings.Contains(rejects[0], `"row":5`) {
		t.Errorf("refused %v\n%s", s.Refused, strings.Join(rejects, "\n"))
	}
	// 33 rows: 1 failed, 1 unscored, 9 refused, 4 equal and dropped, and two of one: the row alone and what is left of q00.
	if s.Rows != 33 || s.Unscored != 1 || s.Status[trajectory.Failed] != 1 || s.EqualDropped < 4 || s.SingleGroups < 1 || s.JudgedOnly != 1 || s.TruncatedDropped != 0 {
		t.Errorf("%+v", s)
	}
	if s.Turns.n != 0 && s.CallErrors != 33 {
		t.Errorf("%+v", s)
	}
	kept := s.TrainedRows
	s, _ = read(mustGRPO(t, w, "kl", "grpo.passes=1"))
	if s.TrainedRows <= kept || s.EqualDropped != 0 {
		t.Errorf("with KL: %+v", s)
	}
	s, _ = read(mustGRPO(t, w, "drop", "grpo.truncated=drop", "grpo.kl=0"))
	if s.TruncatedDropped != 1 {
		t.Errorf("drop: %+v", s)
	}
}

func TestNothingToLearn(t *testing.T) {
	// All rewards equal: the policy stays, loudly; that is a result.
	w := newToyWorld(t, t.TempDir(), 3, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range judged {
			judged[i].Reward = 1
		}
		return rows, judged
	})
	out := mustGRPO(t, w, "out", "grpo.kl=0")
	if len(lines(t, out)) != 0 {
		t.Error("steps without rows")
	}
	sameFiles(t, w.at("policy"), out, []string{"model.safetensors"})
	// Nothing usable at all is an error.
	v := newToyWorld(t, t.TempDir(), 3, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range rows {
			rows[i].LogprobMode = trajectory.LogprobNone
		}
		return rows, judged
	})
	err := grpo(context.Background(), toyRun(t), v.options("out"), toyKit)
	if kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), NoLogprobs) {
		t.Errorf("%v", err)
	}
}

func TestGRPOSettingsAreChecked(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 2, nil)
	for _, set := range []string{"grpo.updates=0", "grpo.passes=0", "grpo.pack_tokens=0", "grpo.clip_low=0", "grpo.optimizer.beta1=1", "grpo.optimizer.eps=0", "grpo.aggregation=", "grpo.old_logprobs=", "grpo.advantage_eps=-1"} {
		if err := grpo(context.Background(), toyRun(t, set), w.options("out"), toyKit); kindOf(err) != fail.Usage {
			t.Errorf("%s: %v", set, err)
		}
	}
	o := w.options("out")
	o.Reference = ""
	if err := grpo(context.Background(), toyRun(t), o, toyKit); kindOf(err) != fail.Usage {
		t.Errorf("no reference: %v", err)
	}
}

// The moments of an epoch are continued in the next one, and only there.
func TestEpochsAreOneOptimization(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 6, nil)
	first := mustGRPO(t, w, "first", "grpo.max_mismatch=0")
	c, err := readCursor(filepath.Join(first, StateDir))
	if err != nil || c.Updates != 6 {
		t.Fatalf("%+v, %v", c, err)
	}
	o := w.options("second")
	o.Policy = first
	if err := grpo(context.Background(), toyRun(t, "grpo.max_mismatch=0"), o, toyKit); err != nil {
		t.Fatal(err)
	}
	if c, err = readCursor(filepath.Join(o.Out, StateDir)); err != nil || c.Updates != 12 || c.Step != 6 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The end-to-end test of the arithmetic: two tokens can be said, one is
// rewarded. Its probability passes .95, with every advantage and aggregation.
func TestBandit(t *testing.T) {
	for _, c := range [][]string{
		{"grpo.advantage=grpo"},
		{"grpo.advantage=dr_grpo", "grpo.aggregation=seq-mean-token-sum"},
		{"grpo.advantage=rloo", "grpo.aggregation=seq-mean-token-mean", "grpo.old_logprobs=recompute"},
		{"grpo.kl=0"},
	} {
		root := t.TempDir()
		w := toyWorld{root}
		toyFolder(t, w.at("policy"), 6, 4, 1)
		o := w.options("")
		o.Reference = w.at("policy")
		rng := rand.New(rand.NewPCG(5, 5))
		var p, entropy float64
		for e := range 8 {
			policy, err := loadToy(o.Policy, false)
			if err != nil {
				t.Fatal(err)
			}
			play := &player{policy: policy, rng: rng, vocab: 6}
			rows, judged := play.play(t, [][]int32{{4}, {5}}, 16, 1, func(_, said []int32) float64 {
				if said[0] == 4 {
					return 1
				}
				return 0
			})
			for i := range rows { // the toy's image tokens are not to be trained on
				if id := rows[i].TokenIDs[1]; id >= 1 && id <= 3 {
					judged[i].Scored = false
				}
			}
			dataset(t, w.at("rollouts"), "rollouts", rows)
			dataset(t, w.at("judged"), "judged", judged)
			o.Rollouts, o.Judged, o.Out = w.at("rollouts"), w.at("judged"), filepath.Join(root, "epoch", string(rune('a'+e)))
			set := append([]string{"grpo.optimizer.lr=0.2", "grpo.optimizer.weight_decay=0", "grpo.kl=0.001"}, c...)
			if err := grpo(context.Background(), toyRun(t, set...), o, toyKit); err != nil {
				t.Fatal(err)
			}
			o.Policy = o.Out
			if ls := lines(t, o.Out); len(ls) > 0 {
				entropy = num(t, ls[len(ls)-1], "entropy")
			}
		}
		policy, _ := loadToy(o.Policy, false)
		var k packed
		logp, err := k.score(policy, nil, []*Sequence{{Tokens: []int32{4, 4}, Spans: []Span{{1, 2}}, Trained: 1, Temperature: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if p = exp(logp[0]); p < .95 || entropy > .9 {
			t.Errorf("%v: probability %.3f, entropy %.3f", c, p, entropy)
		}
	}
}
