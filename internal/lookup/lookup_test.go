package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/kv"
	"searchloop/internal/kv/kvtest"
	"searchloop/internal/manifest"
	"searchloop/internal/retry"
	"searchloop/internal/tape"
)

type query struct {
	Q string `json:"q"`
}

// service answers queries with "<n>: <query>", n counting its calls.
type service struct{ calls atomic.Int32 }

func (s *service) ask(q string) func(context.Context) (Answer, *retry.Fault) {
	return func(context.Context) (Answer, *retry.Fault) {
		n := s.calls.Add(1)
		switch {
		case strings.HasPrefix(q, "nothing"):
			return Answer{Body: []byte("[]"), Empty: true}, nil
		case strings.HasPrefix(q, "never"):
			return Answer{}, &retry.Fault{Verdict: retry.Never, Class: "http 400"}
		case strings.HasPrefix(q, "broken"):
			return Answer{}, &retry.Fault{Verdict: retry.Again, Class: "http 500"}
		}
		return Answer{Body: fmt.Appendf(nil, "%d: %s", n, q)}, nil
	}
}

func openStore(t *testing.T, place string) kv.Store {
	t.Helper()
	s, err := kv.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var kept = Options{Name: "web", Keep: time.Hour, Empty: 100 * time.Millisecond, Price: 0.01, Retry: retry.Options{Tries: 2, Base: time.Millisecond}}

func TestKeptByKind(t *testing.T) {
	store := openStore(t, t.TempDir())
	s := &service{}
	ask := func(p *Provider, q string) (Answer, error) { return p.Ask(t.Context(), query{q}, s.ask(q)) }
	d := NewDesk(DeskOptions{Store: store, Run: "r"})
	opt := kept
	opt.Empty = time.Second
	p := d.Provider(opt)
	first, err := ask(p, "a")
	if err != nil || string(first.Body) != "1: a" || first.Cached || first.At.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	// Another run and process: the same answer, of the same time.
	again, err := ask(NewDesk(DeskOptions{Store: store, Run: "other"}).Provider(kept), "a")
	if err != nil || !again.Cached || string(again.Body) != "1: a" || !again.At.Equal(first.At) || s.calls.Load() != 1 {
		t.Errorf("%+v, %v, %d calls", again, err, s.calls.Load())
	}
	// Nothing found is kept, but not for long.
	for range 2 {
		if a, err := ask(p, "nothing"); err != nil || !a.Empty {
			t.Error(a, err)
		}
	}
	if s.calls.Load() != 2 {
		t.Errorf("%d calls: that there is nothing was not kept", s.calls.Load())
	}
	time.Sleep(1200 * time.Millisecond)
	ask(p, "nothing")
	if s.calls.Load() != 3 {
		t.Error("that there is nothing was kept too long")
	}
	// Errors are never kept: each time they are tried.
	for i, q := range []string{"never", "never", "broken", "broken"} {
		var f *retry.Fault
		if _, err := ask(p, q); fail.KindOf(err) != fail.Service || !errors.As(err, &f) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if s.calls.Load() != 3+2+4 {
		t.Errorf("%d calls", s.calls.Load())
	}
	use := d.Taken()["web"]
	if want := (manifest.Provider{Calls: 9, Failed: 6, Empty: 2, Cached: 1, Dollars: 0.03}); use != want {
		t.Errorf("%+v, want %+v", use, want)
	}
	if d.Taken() != nil {
		t.Error("what was taken is counted twice")
	}
}

func TestEqualRequestsInFlightAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDesk(DeskOptions{})
		p := d.Provider(kept)
		var calls atomic.Int32
		slow := func(ctx context.Context) (Answer, *retry.Fault) {
			calls.Add(1)
			select {
			case <-time.After(time.Minute):
				return Answer{Body: []byte("x")}, nil
			case <-ctx.Done():
				return Answer{}, &retry.Fault{Verdict: retry.Caller, Err: context.Cause(ctx)}
			}
		}
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx := t.Context()
				if i == 0 {
					ctx = hasty
				} else {
					time.Sleep(time.Millisecond)
				}
				a, err := p.Ask(ctx, query{"a"}, slow)
				if i == 0 && fail.KindOf(err) != fail.Interrupted || i > 0 && (err != nil || string(a.Body) != "x") {
					t.Errorf("%d: %v, %v", i, a, err)
				}
			})
		}
		wg.Wait()
		if u := d.Taken()["web"]; calls.Load() != 1 || u.Calls != 1 || u.Cached != 9 {
			t.Errorf("%d calls, %+v", calls.Load(), u)
		}
		// When all who wait have gone, the request ends.
		hasty, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		p.Ask(hasty, query{"b"}, slow)
		synctest.Wait()
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("it went on for %v", d)
		}
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := kept
		opt.Rate, opt.Burst = 10, 5
		s := &service{}
		p := NewDesk(DeskOptions{}).Provider(opt)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 25 {
			wg.Go(func() { p.Ask(t.Context(), query{fmt.Sprint(i)}, s.ask("a")) })
		}
		wg.Wait()
		if d := time.Since(begin).Round(time.Millisecond); d != 2*time.Second {
			t.Errorf("25 requests at 10/s with a burst of 5 took %v", d)
		}
	})
}

func TestCostCap(t *testing.T) {
	place := t.TempDir()
	s := &service{}
	desk := func(limit float64) *Desk {
		return NewDesk(DeskOptions{Store: openStore(t, place), Run: "r", Cap: limit})
	}
	// Two processes, many at once: not one call beyond the cap.
	var wg sync.WaitGroup
	var refused atomic.Int32
	for i := range 2 {
		p := desk(0.10).Provider(kept)
		for j := range 20 {
			wg.Go(func() {
				_, err := p.Ask(t.Context(), query{fmt.Sprint(i, j)}, s.ask("x"))
				if err != nil {
					refused.Add(1)
					var f *retry.Fault
					if fail.ExitCode(err) != 69 || !errors.As(err, &f) || f.Verdict != retry.Stop || f.Class != CapReached ||
						!strings.Contains(err.Error(), "--max-cost") || !strings.Contains(err.Error(), "$0.1") {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := s.calls.Load(); n > 10 || n < 8 || int32(40)-n != refused.Load() {
		t.Errorf("%d calls, %d refused", n, refused.Load())
	}
	// A resumed run knows what was spent; a higher cap lets it go on.
	if d := desk(0.10); d.Spent(t.Context()) < 0.08 || d.Spent(t.Context()) > 0.1001 {
		t.Errorf("spent %g", d.Spent(t.Context()))
	}
	if _, err := desk(0.20).Provider(kept).Ask(t.Context(), query{"more"}, s.ask("x")); err != nil {
		t.Error(err)
	}
	// What failed was not billed.
	d := desk(0)
	before := d.Spent(t.Context())
	d.Provider(kept).Ask(t.Context(), query{"broken"}, s.ask("broken"))
	if got := d.Spent(t.Context()); got != before {
		t.Errorf("spent %g, was %g", got, before)
	}
	// What the provider says it cost counts, not the list price.
	told := func(context.Context) (Answer, *retry.Fault) { return Answer{Dollars: 0.0123}, nil }
	if _, err := d.Provider(kept).Ask(t.Context(), query{"told"}, told); err != nil {
		t.Error(err)
	}
	if got := d.Spent(t.Context()) - before; got < 0.01229 || got > 0.01231 {
		t.Errorf("it cost %g", got)
	}
}

// TestStoreGone holds that a Redis that goes in the middle costs one warning and
// no answer, and that what was spent meanwhile is entered when it is back.
func TestStoreGone(t *testing.T) {
	r := kvtest.Start(t)
	var log bytes.Buffer
	d := NewDesk(DeskOptions{Store: openStore(t, r.URL), Run: "r", Log: slog.New(slog.NewTextHandler(&log, nil))})
	opt := kept
	opt.Rate, opt.Burst = 1000, 100
	p := d.Provider(opt)
	s := &service{}
	for i := range 40 {
		if i == 10 {
			r.Stop()
		}
		if _, err := p.Ask(t.Context(), query{fmt.Sprint(i)}, s.ask("x")); err != nil {
			t.Fatal(i, err)
		}
	}
	r.Again()
	store := openStore(t, r.URL)
	d.opt.Store = store // a fresh connection: no need to wait until the old one asks again
	if got := d.Spent(t.Context()); got < 0.3999 || got > 0.4001 {
		t.Errorf("spent %g, want 0.40", got)
	}
	if nanos, err := store.Add(t.Context(), "spent/r", 0); nanos != 400_000_000 || err != nil {
		t.Error(nanos, err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "answers again") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

func TestRecordedRunIsReplayed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tape")
	s := &service{}
	queries := []string{"a", "nothing", "never", "broken", "b"}
	run := func(record, replay string) (out []string) {
		tp, err := tape.Open(record, replay)
		if err != nil {
			t.Fatal(err)
		}
		p := NewDesk(DeskOptions{Tape: tp}).Provider(kept)
		for _, q := range queries {
			a, err := p.Ask(t.Context(), query{q}, s.ask(q))
			out = append(out, fmt.Sprintf("%s %v %v %v", a.Body, a.Empty, a.At, err))
		}
		return out
	}
	recorded := strings.Join(run(dir, ""), "\n")
	calls := s.calls.Load()
	if replayed := strings.Join(run("", dir), "\n"); replayed != recorded || s.calls.Load() != calls {
		t.Errorf("recorded\n%s\nreplayed\n%s\nwith %d calls", recorded, replayed, s.calls.Load()-calls)
	}
	queries = append(queries, "c")
	if out := run("", dir); !strings.Contains(out[5], `not recorded: lookup web {"q":"c"}`) {
		t.Error(out[5])
	}
	// Frozen: what is there is answered, what is not is not asked and ends nothing.
	frozen, digest, err := tape.Frozen(dir)
	if err != nil || len(digest) != 16 {
		t.Fatal(digest, err)
	}
	p, calls := NewDesk(DeskOptions{Tape: frozen}).Provider(kept), s.calls.Load()
	if a, err := p.Ask(t.Context(), query{"a"}, s.ask("a")); err != nil || len(a.Body) == 0 {
		t.Error(a, err)
	}
	var f *retry.Fault
	if _, err := p.Ask(t.Context(), query{"c"}, s.ask("c")); !errors.As(err, &f) || f.Verdict != retry.Never || f.Class != NotRecorded || s.calls.Load() != calls {
		t.Error(err)
	}
	if _, _, err := tape.Frozen(t.TempDir()); fail.KindOf(err) != fail.BadInput {
		t.Errorf("an empty folder: %v", err)
	}
	// Recording goes on where it was; only what failed for no lasting reason is asked again.
	run(dir, "")
	if n := s.calls.Load() - calls; n != 2+1 {
		t.Errorf("%d calls", n)
	}
}

func TestEntries(t *testing.T) {
	for _, a := range []Answer{{Body: []byte{}}, {Body: []byte("x"), Empty: true}, {Body: bytes.Repeat([]byte{0, 255}, 1000)}} {
		a.At, a.Cached = time.Unix(1234567, 0).UTC(), true
		b := encode(a)
		got, ok := decode(b)
		if !ok || !bytes.Equal(got.Body, a.Body) || got.Empty != a.Empty || !got.At.Equal(a.At) {
			t.Errorf("%+v became %+v", a, got)
		}
		for i := range b {
			if got, ok := decode(b[:i]); ok && !bytes.Equal(got.Body, nil) {
				t.Errorf("cut at %d: %+v", i, got)
			}
		}
	}
}

func TestNormal(t *testing.T) {
	if a, b := Normal("  Who IS\tCafe\u0301 "), Normal("who is café"); a != b || a != "who is café" {
		t.Errorf("%q, %q", a, b)
	}
}
