package train

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"searchloop/internal/model/qwenvl"
	"searchloop/rollout/trajectory"
)

// watched is a policy that notes the routes of its passes: those it is given and
// those that tokens took.
type watched struct {
	Policy
	given, taken *[][][]int32
}

func (w watched) Forward(b *qwenvl.Batch) (Pass, error) {
	*w.given = append(*w.given, b.Routes)
	p, err := w.Policy.Forward(b)
	return watchedPass{p, w.taken}, err
}

type watchedPass struct {
	Pass
	taken *[][][]int32
}

func (p watchedPass) Routes() [][]int32 { return p.Pass.(router).Routes() }

func (p watchedPass) Release() {
	*p.taken = append(*p.taken, p.Routes())
	p.Pass.Release()
}

func sparsePolicy(t *testing.T, dir string) {
	t.Helper()
	cfg := qwenvl.Config{Vocab: 40, Hidden: 16, Intermediate: 32, Layers: 3, Heads: 2, KVHeads: 1, HeadDim: 8, RopeTheta: 1e4, Tied: true, InitStd: .2,
		Experts: 6, TopExperts: 2, ExpertWidth: 8, SparseStep: 1, DenseLayers: []int{0}, ExpertLayout: qwenvl.ExpertsSeparate}
	if err := qwenvl.Init(cfg, 3).Save(dir); err != nil {
		t.Fatal(err)
	}
}

// Every update of a policy with experts sends each token through the experts
// that it took when old log-probs were computed, however rows are packed; the
// last layer's rows that nothing is asked of are the exception. With "off" the
// routers, which learn, choose otherwise sooner or later.
func TestT22UpdatesReplayTheRoutesOfTheOldPass(t *testing.T) {
	w := toyWorld{t.TempDir()}
	sparsePolicy(t, w.at("policy"))
	var rows []trajectory.Row
	var judged []trajectory.Judged
	for i := range 16 {
		row := trajectory.Row{ID: fmt.Sprintf("q%d#%d", i/4, i%4), Group: fmt.Sprint(i / 4), Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed, Temperature: 1, TopP: 1}
		for j := range 6 + i%4 {
			row.TokenIDs = append(row.TokenIDs, int32((7*i+5*j*j)%40))
		}
		row.LossMask, row.Logprobs = make([]bool, len(row.TokenIDs)), make([]float32, len(row.TokenIDs))
		for j := 4; j < len(row.TokenIDs); j++ {
			row.LossMask[j] = true
			row.Logprobs[j] = -3.6
		}
		rows = append(rows, row)
		judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Reward: float64(i % 2)})
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	dataset(t, w.at("judged"), "judged", judged)
	o := w.options("")
	o.Reference = w.at("policy")
	run := func(out string, set ...string) (given, taken [][][]int32) {
		t.Helper()
		k := toyKit
		k.load = func(dir string, freeze bool) (Policy, error) {
			p, err := LoadQwen(dir, freeze)
			return watched{p, &given, &taken}, err
		}
		o.Out = w.at(out)
		set = append(set, "grpo.old_logprobs=recompute", "grpo.max_mismatch=0", "grpo.kl=0", "grpo.pack_tokens=24", "grpo.optimizer.lr=0.05")
		if err := grpo(context.Background(), toyRun(t, set...), o, k); err != nil {
			t.Fatal(err)
		}
		return given, taken
	}
	given, taken := run("replayed")
	replays := 0
	for i, g := range given {
		if g == nil {
			continue // of the old pass
		}
		replays++
		if !reflect.DeepEqual(g, taken[i]) {
			t.Fatalf("pass %d took %v, was given %v", i, taken[i], g)
		}
		if g[0] != nil || g[1] == nil || g[2] == nil || !slices.ContainsFunc(g[2], func(x int32) bool { return x >= 0 }) {
			t.Fatalf("pass %d was given %v", i, g)
		}
	}
	if old := len(given) - replays; old == 0 || replays < 2*old {
		t.Fatalf("%d passes with routes of %d", replays, len(given))
	}
	given, _ = run("free", "grpo.router_replay=off")
	for i, g := range given {
		if g != nil {
			t.Errorf("off: pass %d was given routes", i)
		}
	}
}

func TestRoutesOnDisk(t *testing.T) {
	all := [][]int32{nil, {3, 1, 0, 2, 5, 4}, {-1, -1, 7, 6, 65000, 0}}
	var b []byte
	b = appendRoutes(b, all, 0, 2, 3)
	got, err := readRoutes(nil, b, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = readRoutes(got, appendRoutes(nil, all, 2, 3, 3), 1); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, all) {
		t.Errorf("%v, want %v", got, all)
	}
	for cut := range b {
		if _, err := readRoutes(nil, b[:cut], 2); err == nil {
			t.Errorf("%d bytes of %d are accepted", cut, len(b))
		}
	}
	if _, err := readRoutes(nil, append(b, 0), 2); err == nil {
		t.Error("a byte too many is accepted")
	}
}
