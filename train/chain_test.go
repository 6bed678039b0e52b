package train

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/rollout/trajectory"
)

// A sampler that is a little off is corrected for, through the whole job.
func TestCorrectedUpdate(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 6, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range rows {
			for k := range rows[i].Logprobs {
				if rows[i].LossMask[k] {
					rows[i].Logprobs[k] -= .02 * float32(i%3)
				}
			}
		}
		for k := range rows[5].Logprobs {
			if rows[5].LossMask[k] {
				rows[5].Logprobs[k] -= 2
			}
		}
		rows[7].LogprobMode, rows[7].Temperature = trajectory.LogprobRaw, .5
		return rows, judged
	})
	set := []string{"grpo.old_logprobs=recompute", "grpo.max_mismatch=0.5", "grpo.updates=1",
		"grpo.correction={weights: token, low: 0.5, high: 2, reject: [{by: seq-mean-k1, low: 0.5, high: 1.5}]}"}
	out := mustGRPO(t, w, "out", set...)
	for i, l := range lines(t, out) {
		c := l["correction"].(map[string]any)
		if num(t, c, "rejected_rows") <= 0 || num(t, c, "weight_mean") <= 1 || num(t, c, "weight_outside") <= 0 {
			t.Errorf("line %d: %v", i+1, c)
		}
		if i == 0 && num(t, l["mismatch"].(map[string]any), "ess") >= 1 {
			t.Errorf("%v", l["mismatch"])
		}
	}
	if s, _ := readStats(t, out); s.Refused[RawMode] != 1 {
		t.Errorf("refused %v: log-probs that cannot be compared cannot be corrected", s.Refused)
	}
	sameFiles(t, out, mustGRPO(t, w, "again", set...), []string{"model.safetensors", MetricsName})
}

// Epochs with an adapter: the second goes on where the first ended.
func TestLoRAEpochs(t *testing.T) {
	w := toyWorld{t.TempDir()}
	qwenFolder(t, w.at("policy"), 1)
	policy, err := LoadQwen(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	var rows []trajectory.Row
	var judged []trajectory.Judged
	for i := range 8 {
		row := trajectory.Row{ID: string(rune('a' + i)), Group: "q", Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed, Temperature: 1, TopP: 1,
			TokenIDs: []int32{20, int32(30 + i), int32(40 + i%2)}, LossMask: []bool{false, true, true}, Logprobs: make([]float32, 3)}
		rows = append(rows, row)
		judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Reward: float64(i % 2)})
	}
	rescore(t, policy, rows)
	dataset(t, w.at("rollouts"), "rollouts", rows)
	dataset(t, w.at("judged"), "judged", judged)
	set := []string{"grpo.lora={rank: 2, alpha: 4, rslora: true}", "grpo.kl=0", "grpo.updates=1", "grpo.passes=2"}
	o := w.options("one")
	if err := grpo(context.Background(), toyRun(t, set...), o, qwenKit); err != nil {
		t.Fatal(err)
	}
	if policy, err = LoadQwen(o.Out, false); err != nil {
		t.Fatal(err)
	}
	rescore(t, policy, rows)
	dataset(t, w.at("rollouts"), "rollouts", rows)
	o.Policy, o.Out = o.Out, w.at("two")
	if err := grpo(context.Background(), toyRun(t, set...), o, qwenKit); err != nil {
		t.Fatal(err)
	}
	c, err := readCursor(filepath.Join(o.Out, StateDir))
	if err != nil || c.Updates != 4 {
		t.Errorf("%+v, %v", c, err)
	}
	first := lines(t, o.Out)[0]
	if r := num(t, first, "ratio_max"); r > 1.0001 {
		t.Errorf("the second epoch begins at another policy than the first ended with: ratio %g", r)
	} // The rows as inspect prints them, from the folders alone.
	r := toyRun(t, set...)
	rec, err := r.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Inspect(&text, r.Log, rec, InspectOptions{Policy: w.at("policy"), Rollouts: o.Rollouts, Judged: o.Judged, Rows: 2}); err != nil {
		t.Fatal(err)
	}
	if strings.Count(text.String(), "advantage") != 2 || !strings.Contains(text.String(), "8 rows: 8 trained on") || !strings.Contains(text.String(), "«") {
		t.Error(text.String())
	}
}
