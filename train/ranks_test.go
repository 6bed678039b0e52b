package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/ranks"
	"searchloop/internal/recipe"
)

// crew trains drills as the ranks of one process do; change, if there is one, may
// alter a rank's run.
func crew(t *testing.T, size int, dir string, mode recipe.GRPO, o recipe.Optimizer, steps []Step, change func(rank int, r *run)) (runs []*run, errs []error) {
	t.Helper()
	errs = make([]error, size)
	var jobs []*job.Run
	for rank, group := range ranks.Local(size) {
		d := newDrill(12)
		params := d.policy.Params()
		opt, err := newAdamW(o, params, group)
		if err != nil {
			t.Fatal(err)
		}
		schedule, err := NewSchedule(o, int64(len(steps)))
		if err != nil {
			t.Fatal(err)
		}
		goal := d.goal(t, mode)
		goal.measure = true
		r := &run{group: group, kind: "grpo", identity: "drill", dir: dir, policy: d.policy, params: params, opt: opt, schedule: schedule,
			rows: d.rows, steps: steps, budget: 64, images: d.images, goal: goal, log: slog.New(slog.DiscardHandler)}
		if change != nil {
			change(rank, r)
		}
		runs, jobs = append(runs, r), append(jobs, job.Testing(t))
	}
	var all sync.WaitGroup
	for i, r := range runs {
		all.Go(func() { errs[i] = r.train(t.Context(), jobs[i]) })
	}
	all.Wait()
	return runs, errs
}

// Packs shared among ranks, an optimizer whose state is shared too: the weights and
// metrics of a run without others, as far as another order of float32 sums leaves
// them; and the same bits on all ranks. A state that two ranks wrote is continued by
// three, and by one.
func TestRanksTrainAlike(t *testing.T) {
	steps := []Step{{Packs: [][]int{{0, 1}, {2}, {3, 4, 5}}}, {Packs: [][]int{{6}, {7, 8}, {9}, {10, 11}}, Idle: []int{3}}, {Packs: [][]int{{2, 1, 0}}}, {Packs: [][]int{{5, 4}, {11}}}}
	for name, mode := range map[string]recipe.GRPO{"ppo": everyMode["ppo entropy"], "gspo": everyMode["gspo"], "rollouts": everyMode["rollouts"], "tis": everyMode["tis"]} {
		for _, master := range []string{MasterWeights, MasterFloat32, MasterSplit} {
			t.Run(name+" "+master, func(t *testing.T) {
				o := recipe.Optimizer{Schedule: "constant", LR: 1e-3, Beta1: .9, Beta2: .99, Eps: 1e-8, WeightDecay: .1, ClipNorm: .5, Master: master}
				dir := t.TempDir()
				trained := func(size int, name string, steps []Step) []*run {
					t.Helper()
					runs, errs := crew(t, size, filepath.Join(dir, name), mode, o, steps, nil)
					for rank, err := range errs {
						if err != nil {
							t.Fatalf("rank %d of %d: %v", rank, size, err)
						}
					}
					return runs
				}
				alone := trained(1, "1", steps)[0]
				for size := 2; size <= 4; size++ {
					name := fmt.Sprint(size)
					runs := trained(size, name, steps)
					for rank, r := range runs {
						likeWeights(t, fmt.Sprintf("rank %d of %d and rank 0", rank, size), runs[0], r, 0)
						likeWeights(t, fmt.Sprintf("rank %d of %d and one alone", rank, size), alone, r, 1e-5)
					}
					likeMetrics(t, filepath.Join(dir, "1"), filepath.Join(dir, name))
				}
				trained(2, "begun", steps[:2])
				for _, size := range []int{3, 1} {
					name := fmt.Sprint("begun by two, ended by ", size)
					if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(dir, "begun"))); err != nil {
						t.Fatal(err)
					}
					for _, r := range trained(size, name, steps) {
						likeWeights(t, name, alone, r, 1e-5)
					}
					likeMetrics(t, filepath.Join(dir, "1"), filepath.Join(dir, name))
				}
			})
		}
	}
}

func likeWeights(t *testing.T, what string, a, b *run, bound float64) {
	t.Helper()
	for i, p := range a.params {
		for k, x := range p.W {
			y := b.params[i].W[k]
			if d := math.Abs(float64(x) - float64(y)); !(d <= bound*max(.1, math.Abs(float64(x)))) {
				t.Fatalf("%s: %s[%d] is %g and %g", what, p.Name, k, x, y)
			}
		}
	}
}

func likeMetrics(t *testing.T, a, b string) {
	t.Helper()
	read := func(dir string) (lines []map[string]any) {
		text, err := os.ReadFile(filepath.Join(dir, MetricsName))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var m map[string]any
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, m)
		}
		return lines
	}
	var like func(path string, x, y any)
	like = func(path string, x, y any) {
		switch x := x.(type) {
		case map[string]any:
			for k, v := range x {
				if k == "steps" { // the plan's, which is cut short here
					continue
				}
				like(path+" "+k, v, y.(map[string]any)[k])
			}
		case float64:
			if z, ok := y.(float64); !ok || !(math.Abs(x-z) <= 1e-5*max(.1, math.Abs(x))) {
				t.Errorf("%s: %v and %v", path, x, y)
			}
		default:
			if x != y {
				t.Errorf("%s: %v and %v", path, x, y)
			}
		}
	}
	x, y := read(a), read(b)
	if len(x) == 0 || len(x) != len(y) {
		t.Fatalf("%d and %d lines", len(x), len(y))
	}
	for i := range x {
		like(fmt.Sprint("step ", i+1), x[i], y[i])
	}
}

// Each rank keeps its share of the moments and no more.
func TestRanksShareTheState(t *testing.T) {
	params := newDrill(1).policy.Params()
	total := 0
	for i := range params {
		total += params[i].size()
	}
	kept := 0
	for _, group := range ranks.Local(3) {
		a, err := newAdamW(recipe.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8}, params, group)
		if err != nil {
			t.Fatal(err)
		}
		own := 0
		for _, all := range a.shares {
			for _, s := range all {
				if s.moments != nil {
					own += s.n
				}
			}
		}
		if own < total/3-8 || own > total/3+8 {
			t.Errorf("rank %d keeps the state of %d of %d values", group.Rank(), own, total)
		}
		kept += own
	}
	if kept != total {
		t.Errorf("the state of %d values is kept, of %d", kept, total)
	}
}

// One rank that is told to stop stops all after the same step; one that fails ends
// the others, which would wait for it.
func TestRanksEndTogether(t *testing.T) {
	steps := []Step{{Packs: [][]int{{0}, {1}}}, {Packs: [][]int{{2}, {3}}}}
	o := recipe.Optimizer{Schedule: "constant", LR: 1e-3, Beta1: .9, Beta2: .99, Eps: 1e-8}
	stop := make(chan struct{})
	close(stop)
	dir := t.TempDir()
	_, errs := crew(t, 2, dir, everyMode["ppo"], o, steps, func(rank int, r *run) {
		if rank == 1 {
			r.stopping = stop
		}
	})
	for rank, err := range errs {
		if kindOf(err) != fail.Interrupted || !strings.Contains(err.Error(), "stopped after step 0 of 2") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if _, err := readCursor(filepath.Join(dir, StateDir)); err != nil {
		t.Error(err)
	}

	_, errs = crew(t, 2, t.TempDir(), everyMode["ppo"], o, steps, func(rank int, r *run) {
		if rank == 1 {
			r.policy = failing{r.policy}
		}
	})
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "no more memory") {
		t.Errorf("the rank that fails says %v", errs[1])
	}
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "another rank failed") || !strings.Contains(errs[0].Error(), "no more memory") || kindOf(errs[0]) != fail.Service {
		t.Errorf("the other says %v", errs[0])
	}
}

// failing is a policy whose passes fail.
type failing struct{ Policy }

func (failing) Forward(*qwenvl.Batch) (Pass, error) {
	return nil, fail.New(fail.Service, "forward", "", "no more memory")
}
