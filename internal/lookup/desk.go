// Package lookup asks outside providers for results (searches, pages) at most
// once: results are kept in a store, equal requests in flight are one, requests
// are paced and paid within a cap, and all of it can be recorded and replayed. A
// request and the function that makes it once go in; the answer comes out, or a
// classified failure after package retry has done what it can.
//
// It knows no provider's protocol and reads no answer. The keys and entries in the
// store are described in docs/cache.md.
package lookup

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"searchloop/internal/kv"
	"searchloop/internal/manifest"
	"searchloop/internal/tape"
)

// DeskOptions are what the providers of a run share.
type DeskOptions struct {
	Store kv.Store     // results, limits and spending; nil: this process alone, nothing is kept
	Tape  *tape.Tape   // nil: neither recorded nor replayed
	Run   string       // names the run to the ledger: a resumed run must have the same
	Cap   float64      // dollars the run may spend; 0: no cap
	Fresh bool         // results in the store are not used, only replaced
	Log   *slog.Logger // nil: silent

	// Note is told what a provider was asked for since the last call of Taken, with
	// every change, and before a call is made; nil: nobody. Calls come one at a time.
	Note func(provider string, sum manifest.Provider)
}

// Desk is where the providers of a run are asked. Safe for concurrent use.
type Desk struct {
	opt    DeskOptions
	ledger *ledger

	mu     sync.Mutex
	failed bool                     // the store failed last time
	local  map[string]*rate.Limiter // limits while there is no store
}

// NewDesk makes a Desk. The store stays the caller's to close.
func NewDesk(opt DeskOptions) *Desk {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	d := &Desk{opt: opt, local: map[string]*rate.Limiter{}}
	d.ledger = &ledger{desk: d, used: map[string]*tally{}}
	return d
}

// get reads the store; a store that fails has nothing.
func (d *Desk) get(ctx context.Context, key string) ([]byte, bool) {
	if d.opt.Store == nil || d.opt.Fresh {
		return nil, false
	}
	value, found, err := d.opt.Store.Get(ctx, key)
	d.noted(ctx, err)
	return value, found && err == nil
}

func (d *Desk) put(ctx context.Context, key string, value []byte, ttl time.Duration) {
	if d.opt.Store != nil && ttl > 0 {
		d.noted(ctx, d.opt.Store.Put(ctx, key, value, ttl))
	}
}

// pace waits for the turn of one request to a provider: in the queue that all
// processes share, or in this process's own when there is none or it fails.
func (d *Desk) pace(ctx context.Context, provider string, perSecond float64, burst int) error {
	if perSecond <= 0 {
		return nil
	}
	burst = max(1, burst)
	if d.opt.Store != nil {
		wait, err := d.opt.Store.Slot(ctx, "rate/"+provider, time.Duration(float64(time.Second)/perSecond), burst)
		if d.noted(ctx, err); err == nil {
			return sleep(ctx, wait)
		}
	}
	d.mu.Lock()
	l := d.local[provider]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(perSecond), burst)
		d.local[provider] = l
	}
	d.mu.Unlock()
	return l.Wait(ctx)
}

func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// noted says once that the store has failed, and once that it is back.
func (d *Desk) noted(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil && !d.failed:
		d.opt.Log.Warn("the store of results fails: going on without it, with limits of this process alone", "because", err)
	case err == nil && d.failed:
		d.opt.Log.Info("the store of results answers again")
	}
	d.failed = err != nil
}
