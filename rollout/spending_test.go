package rollout

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// What providers were asked for is counted over all attempts, each call once: of an
// attempt that was thrown away, of one that was stopped, and of rows played again.
func TestCallsOfAllAttemptsAreCounted(t *testing.T) {
	b, calls, _ := liveBench(t)
	b.opt.Cache = "" // every attempt pays
	var waiting atomic.Int32
	gate := make(chan struct{})
	b.hold = func() {
		waiting.Add(1)
		<-gate
	}
	// The first attempt searches all it wants to, and is thrown away before an answer.
	ctx, cancel := context.WithCancel(t.Context())
	r := job.Testing(t)
	r.RecipePath = b.recipe
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, r, b.opt) }()
	for end := time.Now().Add(30 * time.Second); waiting.Load() < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no trajectory gets to its answer")
		}
	}
	cancel()
	if err := <-ended; fail.KindOf(err) != fail.Interrupted {
		t.Fatal(err)
	}
	close(gate)
	thrown := calls.Load()
	if thrown < 4 {
		t.Fatalf("%d calls", thrown)
	}
	used := func() (n, failed int64, dollars float64) {
		m, err := manifest.Open(b.opt.Out)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"serper", "serpapi"} {
			p := m.Usage.Providers[name]
			n, failed, dollars = n+p.Calls, failed+p.Failed, dollars+p.Dollars
		}
		return n, failed, dollars
	}
	// The second is made in two shards: what the first had spent is taken over.
	if _, err := b.run(t, func(r *job.Run, _ *Options) { r.Shards = 2 }); err != nil {
		t.Fatal(err)
	}
	n, failed, dollars := used()
	if n != int64(calls.Load()) || n <= int64(thrown) || failed == 0 || dollars <= 0 {
		t.Errorf("%d calls counted (%d failed, $%g), %d were made, %d of them thrown away", n, failed, dollars, calls.Load(), thrown)
	}
	// Nothing to do: nothing is counted again.
	if _, err := b.run(t, func(r *job.Run, _ *Options) { r.Shards = 2 }); err != nil {
		t.Fatal(err)
	}
	if again, _, _ := used(); again != n {
		t.Errorf("%d, then %d", n, again)
	}
}
