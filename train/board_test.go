package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPoints(t *testing.T) {
	line := &Line{Step: 2, Loss: -.5, GradNorm: Number(math.NaN()), Skipped: true, Tokens: 30,
		Update: &Update{KL: .25, Mismatch: &Mismatch{AbsMean: .125}}}
	got, err := points("grpo", line, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, p := range got {
		values[p.Tag] = p.Value
	}
	for tag, want := range map[string]float64{"grpo/loss": -.5, "grpo/skipped": 1, "grpo/kl": .25, "grpo/mismatch/abs_mean": .125, "grpo/tokens_per_second": 15} {
		if x, ok := values[tag]; !ok || x != want {
			t.Errorf("%s is %g", tag, x)
		}
	}
	if _, ok := values["grpo/grad_norm"]; ok {
		t.Error("a norm that is no number has a point")
	}
}

// Event files are beside the checkpoint and change nothing in it.
func TestTensorBoard(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 6, nil)
	quiet := mustGRPO(t, w, "quiet")
	o := w.options("out")
	o.TensorBoard = w.at("board")
	if err := grpo(context.Background(), toyRun(t), o, toyKit); err != nil {
		t.Fatal(err)
	}
	sameCheckpoint(t, quiet, o.Out)
	found, _ := filepath.Glob(filepath.Join(o.TensorBoard, "events.out.tfevents.*"))
	if len(found) != 1 {
		t.Fatalf("files %v", found)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "grpo/loss"); n != 6 {
		t.Errorf("%d points of the loss", n)
	}
}
