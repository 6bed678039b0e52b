// Package budget bounds what models may be asked for: in dollars, requests and tokens,
// over all attempts at a dataset. It asks nothing itself.
package budget

import (
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// Limits are what a run may cost in all, attempts that were interrupted included.
// Zero is no limit.
type Limits struct {
	Dollars  float64
	Requests int64
	Tokens   int64 // of prompts and replies
}

// Budget counts what models were asked for, and refuses more at its limits. Safe
// for concurrent use; the nil Budget has no limits and counts nothing.
type Budget struct {
	limits Limits

	mu   sync.Mutex
	used manifest.Usage
	open int64 // requests begun and not ended
}

// New begins with what earlier attempts have used.
func New(l Limits, used manifest.Usage) *Budget { return &Budget{limits: l, used: used} }

// Begin is called before a request; its error ends the job, which goes on where it
// was when it is run again with higher limits.
func (b *Budget) Begin() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, u := b.limits, b.used
	over := func(what, flag string, used, limit any) error {
		return fail.WithHint(fail.New(fail.Service, "ask a model", "", "the budget is used up: %v of %v %s", used, limit, what),
			"what is finished is kept; run again with a higher "+flag)
	}
	switch {
	case l.Dollars > 0 && u.Cost >= l.Dollars:
		return over("dollars", "--max-cost", u.Cost, l.Dollars)
	case l.Requests > 0 && u.Requests+b.open >= l.Requests:
		return over("requests", "--max-requests", u.Requests+b.open, l.Requests)
	case l.Tokens > 0 && u.PromptTokens+u.CompletionTokens >= l.Tokens:
		return over("tokens", "--max-tokens", u.PromptTokens+u.CompletionTokens, l.Tokens)
	}
	b.open++
	return nil
}

// End is called after every request that Begin let pass.
func (b *Budget) End(u manifest.Usage) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	b.used = b.used.Add(u)
}
