package retry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func again(class string) *Fault { return &Fault{Verdict: Again, Class: class} }

// Time inside a synctest bubble is virtual, so that minutes of outage cost nothing.

func TestTriesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Name: "s"})
		n := 0
		f := l.Do(t.Context(), func(context.Context) *Fault { n++; return again("http 500") })
		if f == nil || f.Verdict != Again || f.Class != "http 500" || f.Attempts != 5 || n != 5 {
			t.Fatalf("got %+v after %d calls, want 5 attempts and the class kept", f, n)
		}
	})
}

func TestOutcomesThatAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Name: "s"})
		n := 0
		f := l.Do(t.Context(), func(context.Context) *Fault { n++; return &Fault{Verdict: Never, Class: "bad request"} })
		if f == nil || f.Verdict != Never || n != 1 {
			t.Fatalf("got %+v after %d calls", f, n)
		}
		l.Do(t.Context(), func(context.Context) *Fault { n++; return &Fault{Verdict: Stop, Class: "http 401"} })
		f = l.Do(t.Context(), func(context.Context) *Fault { n++; return nil })
		if f == nil || f.Verdict != Stop || f.Class != "http 401" || n != 2 {
			t.Fatalf("after a stop the next call must not reach the service: %+v, %d calls", f, n)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Name: "s"})
		start, n := time.Now(), 0
		f := l.Do(t.Context(), func(context.Context) *Fault {
			if n++; n == 1 {
				return &Fault{Verdict: Busy, Class: "http 429", After: 3 * time.Second}
			}
			return nil
		})
		if f != nil || n != 2 || time.Since(start) < 3*time.Second {
			t.Fatalf("fault %v, %d calls, %s", f, n, time.Since(start))
		}
		// Patience is not charged: a busy service answers in the end.
		n = 0
		f = l.Do(t.Context(), func(context.Context) *Fault {
			if n++; n <= 12 {
				return &Fault{Verdict: Busy, Class: "http 429", After: time.Second}
			}
			return nil
		})
		if f != nil || n != 13 {
			t.Fatalf("fault %v after %d calls", f, n)
		}
	})
}

func TestOutageIsWaitedForAndThenGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Name: "s", Gone: 2 * time.Minute})
		back := time.Now().Add(time.Minute)
		calls := 0
		service := func(context.Context) *Fault {
			calls++
			if time.Now().Before(back) {
				return &Fault{Verdict: Again, Class: "transport", Down: true}
			}
			return nil
		}
		// A service that is away for a minute costs a patient call nothing but time.
		var wg sync.WaitGroup
		var failed atomic.Int32
		for range 8 {
			wg.Go(func() {
				if f := l.Do(t.Context(), service); f != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		if failed.Load() != 0 || calls > 60 {
			t.Fatalf("%d calls failed, %d calls made", failed.Load(), calls)
		}
		back = time.Now().Add(time.Hour)
		start := time.Now()
		var last *Fault
		for range 100 {
			if last = l.Do(t.Context(), service); last != nil && last.Verdict == Stop {
				break
			}
		}
		if last == nil || last.Verdict != Stop || last.Class != "gone" {
			t.Fatalf("want gone, got %v", last)
		}
		if d := time.Since(start); d < 2*time.Minute || d > 4*time.Minute {
			t.Fatalf("given up after %s", d)
		}
	})
}

func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Name: "s"})
		end := time.Now().Add(20 * time.Second)
		var calls, faults, failed int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 40 {
					f := l.Do(t.Context(), func(context.Context) *Fault {
						time.Sleep(200 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						calls++
						if time.Now().Before(end) && calls%2 == 0 {
							faults++
							return &Fault{Verdict: Again, Class: "http 503", Down: true}
						}
						return nil
					})
					if f != nil {
						mu.Lock()
						failed++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if failed != 0 || float64(faults) > 0.1*640 {
			t.Fatalf("%d of 640 samples failed, %d retries, want none and at most 64", failed, faults)
		}
	})
}

func TestCancelledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Name: "s"})
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("deadline")
		go func() { time.Sleep(2 * time.Second); cancel(why) }()
		f := l.Do(ctx, func(context.Context) *Fault {
			return &Fault{Verdict: Busy, Class: "http 429", After: time.Hour}
		})
		if f == nil || f.Verdict != Caller || !errors.Is(f, why) {
			t.Fatalf("got %+v", f)
		}
	})
}

// Failures that come back at once, before the first of many turns does, are no
// outage; a service that answers nothing is one, however many ask.
func TestQuickFailuresAmongManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			every int
			away  bool
		}{{16, false}, {1, true}} {
			l := New(Options{Name: "s"})
			var n atomic.Int32
			opened := false
			for range 400 {
				go l.Do(t.Context(), func(context.Context) *Fault {
					if n.Add(1)%int32(c.every) == 0 {
						return again("http 500")
					}
					time.Sleep(time.Second)
					return nil
				})
			}
			synctest.Wait()
			opened = !l.Well()
			if opened != c.away {
				t.Errorf("one failure in %d: paused %v", c.every, opened)
			}
			if !c.away {
				time.Sleep(time.Minute)
			}
		}
		time.Sleep(10 * time.Minute)
	})
}
