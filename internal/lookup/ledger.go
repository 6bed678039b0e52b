package lookup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"searchloop/internal/manifest"
	"searchloop/internal/retry"
)

// perDollar is the ledger's unit, a thousand millionth of a dollar: prices a token
// are small, and whole numbers add up the same in any order.
const perDollar = 1e9

// ledger holds what a run has spent, over all of its processes and attempts. It
// books before a call is made, so that no number of calls at once passes the cap,
// and takes back what was not billed. While the store fails, bookings wait here.
type ledger struct {
	desk  *Desk
	mu    sync.Mutex
	spent int64 // by this run, as far as known
	owed  int64 // part of it that the store does not know yet
	used  map[string]*tally
}

// tally is what one provider was asked for by this process.
type tally struct {
	manifest.Provider
	nanos int64
}

// CapReached is the class of the fault that ends a run at its cap.
const CapReached = "cost cap"

func nanos(dollars float64) int64 { return int64(math.Round(dollars * perDollar)) }

// book enters an amount, which may be negative. Without force it is refused, and
// entered nowhere, when it would lead beyond the cap.
func (l *ledger) book(ctx context.Context, provider string, amount int64, force bool) *retry.Fault {
	if amount == 0 {
		return nil
	}
	sum := l.add(ctx, amount)
	if limit := nanos(l.desk.opt.Cap); !force && limit > 0 && sum > limit {
		l.add(ctx, -amount)
		return &retry.Fault{Verdict: retry.Stop, Class: CapReached, Err: fmt.Errorf("a call of %s for $%.4g would bring the run's cost from $%.4f above its cap of $%.4g",
			provider, float64(amount)/perDollar, float64(sum-amount)/perDollar, l.desk.opt.Cap)}
	}
	l.tally(provider, func(t *tally) { t.nanos += amount })
	return nil
}

// add books with the store, together with what it missed before.
func (l *ledger) add(ctx context.Context, amount int64) int64 {
	l.mu.Lock()
	amount, l.owed = amount+l.owed, 0
	l.mu.Unlock()
	var sum int64
	err := errors.ErrUnsupported
	if s := l.desk.opt.Store; s != nil {
		sum, err = s.Add(context.WithoutCancel(ctx), "spent/"+l.desk.opt.Run, amount)
		l.desk.noted(ctx, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.spent = sum
		return sum
	}
	l.owed += amount
	return l.spent + l.owed
}

func (l *ledger) tally(provider string, change func(*tally)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.used[provider]
	if t == nil {
		t = &tally{}
		l.used[provider] = t
	}
	change(t)
	if note := l.desk.opt.Note; note != nil {
		note(provider, t.sum())
	}
}

// sum is the tally as a manifest has it.
func (t *tally) sum() manifest.Provider {
	t.Dollars = float64(t.nanos) / perDollar
	return t.Provider
}

// Spent is what the run has cost so far, in dollars, earlier attempts and other
// processes included.
func (d *Desk) Spent(ctx context.Context) float64 { return float64(d.ledger.add(ctx, 0)) / perDollar }

// Taken is what the providers were asked for by this process since the last call
// of Taken: each shard enters its own into its manifest. nil for nothing.
func (d *Desk) Taken() map[string]manifest.Provider {
	l := d.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	var out map[string]manifest.Provider
	for _, name := range slices.Sorted(maps.Keys(l.used)) {
		if out == nil {
			out = map[string]manifest.Provider{}
		}
		out[name] = l.used[name].sum()
	}
	clear(l.used)
	return out
}
