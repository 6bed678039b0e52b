package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker/v2"
)

// Options of a Line. Zero values mean the stated defaults.
type Options struct {
	Name  string        // for the log: "policy server"
	Tries int           // attempts charged to one call: 5
	Base  time.Duration // upper bound of the first wait; doubles each time: 1 s
	Cap   time.Duration // upper bound of any wait: 60 s
	Open  time.Duration // pause after the breaker opened, before the service is asked again: 5 s
	Gone  time.Duration // a service without any success for so long is gone: 5 min
	Share float64       // failures the service may have in a minute, as a share of the calls: 0.1
	Burst uint32        // failures always allowed in that minute: 10
	Leave bool          // a paused service is left at once (verdict Again, class "paused"): the caller has another one
	Log   *slog.Logger  // nil: silent
}

// inARow is how many failures without a success between them open the breaker; with
// many calls in flight a quarter of them, since failures come back sooner than turns.
const inARow = 5

// probes is how many successes in a row close the breaker again.
const probes = 3

// Line is the way to one service. Safe for concurrent use.
type Line struct {
	opt     Options
	breaker *gobreaker.CircuitBreaker[struct{}]
	flying  atomic.Int64 // calls in flight

	mu        sync.Mutex
	downSince time.Time // first failure since the last success; zero when well
	downCount int       // failures since then
	last      *Fault    // newest failure, for the log
	told      time.Time // when the log last said that the service keeps failing
	stopped   *Fault    // set once: every later call ends with it
}

// New makes a Line.
func New(opt Options) *Line {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&opt.Base, time.Second)
	def(&opt.Cap, time.Minute)
	def(&opt.Open, 5*time.Second)
	def(&opt.Gone, 5*time.Minute)
	if opt.Tries <= 0 {
		opt.Tries = 5
	}
	if opt.Share <= 0 {
		opt.Share = 0.1
	}
	if opt.Burst == 0 {
		opt.Burst = 10
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	l := &Line{opt: opt}
	l.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         opt.Name,
		MaxRequests:  probes,
		Interval:     time.Minute,
		BucketPeriod: 5 * time.Second,
		Timeout:      opt.Open,
		// Every failure of the service costs one retry, so the count of failures in
		// the sliding minute is the count of retries: this is the retry budget.
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int64(c.ConsecutiveFailures) >= max(inARow, l.flying.Load()/4) ||
				c.TotalFailures > opt.Burst && float64(c.TotalFailures) > opt.Share*float64(c.Requests)
		},
		IsSuccessful: func(err error) bool { return verdictOf(err) != Again },
		IsExcluded: func(err error) bool {
			v := verdictOf(err)
			return err != nil && (v == Busy || v == Caller || v == Stop)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				l.tell()
			case gobreaker.StateClosed:
				l.mu.Lock()
				l.told = time.Time{}
				l.mu.Unlock()
				opt.Log.Info(opt.Name + " answers again")
			}
		},
	})
	return l
}

// Do runs call until it succeeds, fails for good, or the service is gone. While
// the breaker is open it waits without calling. The returned fault's Verdict is
// Again (tries used up), Never, Stop or Caller.
func (l *Line) Do(ctx context.Context, call func(context.Context) *Fault) *Fault {
	probing, f := l.once(ctx, call)
	if f == nil {
		return nil
	}
	attempts, charged, first := 0, 0, true
	wait := &backoff.ExponentialBackOff{ // the factor of 1 makes it full jitter: uniform in (0, 2·interval)
		InitialInterval: l.opt.Base / 2, MaxInterval: l.opt.Cap / 2, Multiplier: 2, RandomizationFactor: 1,
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if !first {
			probing, f = l.once(ctx, call)
		}
		if first = false; f == nil {
			return struct{}{}, nil
		}
		attempts += f.Attempts
		f.Attempts = attempts
		if f.Verdict == Again && !(probing && f.Down) {
			charged++
		}
		if f.Verdict > Busy || charged >= l.opt.Tries {
			return struct{}{}, backoff.Permanent(f)
		}
		if f.After > 0 {
			f.After = min(f.After, l.opt.Gone)
			l.opt.Log.Debug("waiting as asked", "service", l.opt.Name, "after", f.After)
			return struct{}{}, errors.Join(f, &backoff.RetryAfterError{Duration: f.After})
		}
		return struct{}{}, f
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(0))
	if err == nil {
		return nil
	}
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Verdict: Caller, Class: "cancelled", Err: err, Attempts: attempts}
}

// once makes one call as soon as the breaker lets it. probing: the breaker was
// not closed, so that a service still out of reach is no fault of this call.
func (l *Line) once(ctx context.Context, call func(context.Context) *Fault) (probing bool, _ *Fault) {
	for {
		if f := l.Ended(); f != nil {
			return false, f
		}
		probing = l.breaker.State() != gobreaker.StateClosed
		var fault *Fault
		_, err := l.breaker.Execute(func() (struct{}, error) {
			l.flying.Add(1)
			fault = call(ctx)
			l.flying.Add(-1)
			if fault != nil {
				fault.Attempts = 1
				l.mu.Lock()
				l.last = fault
				l.mu.Unlock()
				return struct{}{}, fault
			}
			return struct{}{}, nil
		})
		if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
			if l.opt.Leave {
				return probing, &Fault{Verdict: Again, Class: "paused", Down: true}
			}
			select {
			case <-ctx.Done():
				return probing, &Fault{Verdict: Caller, Class: "cancelled", Err: context.Cause(ctx)}
			case <-time.After(l.opt.Open / 8):
			}
			continue
		}
		return probing, l.note(fault)
	}
}

// Well says whether calls reach the service: it is neither paused nor stopped.
func (l *Line) Well() bool { return l.breaker.State() == gobreaker.StateClosed && l.Ended() == nil }

// Last is the newest failure, in words; "" when there was none.
func (l *Line) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return ""
	}
	return l.last.Error()
}

// Pause is how long the service is left alone once it keeps failing.
func (l *Line) Pause() time.Duration { return l.opt.Open }

// tellEvery is the time between two lines that say that a service keeps failing.
const tellEvery = 30 * time.Second

// tell logs that the service is paused, why, and how long that will be borne.
func (l *Line) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.told.IsZero() && time.Since(l.told) < tellEvery {
		return
	}
	l.told = time.Now()
	left := l.opt.Gone
	if !l.downSince.IsZero() {
		left -= time.Since(l.downSince)
	}
	why := ""
	if l.last != nil {
		why = l.last.Error()
	}
	l.opt.Log.Warn(l.opt.Name+" keeps failing: waiting for it", "because", why, "ask_again_in", l.opt.Open, "give_up_in", max(0, left.Round(time.Second)))
}

// note keeps the time since the last success and decides that a service is gone.
func (l *Line) note(f *Fault) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case f == nil || f.Verdict == Never:
		l.downSince, l.downCount = time.Time{}, 0
	case f.Verdict == Stop:
		stop := *f
		l.stopped = &stop
	case f.Verdict == Again || f.Verdict == Busy:
		if l.downCount++; l.downCount == 1 {
			l.downSince = time.Now()
		}
		if d := time.Since(l.downSince); d > l.opt.Gone && l.downCount > inARow {
			gone := Fault{Verdict: Stop, Class: "gone", Attempts: f.Attempts,
				Err: fmt.Errorf("no success for %s and %d calls; the last one: %s", d.Round(time.Second), l.downCount, f)}
			l.stopped = &gone
			f = &Fault{Verdict: Stop, Class: gone.Class, Err: gone.Err, Attempts: f.Attempts}
		}
	}
	return f
}

// Ended is a copy of the fault that stopped the line; nil while calls are made.
func (l *Line) Ended() *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped == nil {
		return nil
	}
	f := *l.stopped
	f.Attempts = 0
	return &f
}

func verdictOf(err error) Verdict {
	if err == nil {
		return Never
	}
	var f *Fault
	if errors.As(err, &f) {
		return f.Verdict
	}
	return Never
}
