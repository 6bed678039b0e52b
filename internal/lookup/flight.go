package lookup

import (
	"context"
	"errors"

	"searchloop/internal/retry"
)

// flight is a request that is being made, and those who wait for it.
type flight struct {
	done    chan struct{}
	waiting int
	cancel  context.CancelCauseFunc
	answer  Answer
	fault   *retry.Fault
}

// errAlone is the cause of a flight's end when nobody waits for it.
var errAlone = errors.New("nobody waits for the answer any more")

// fly makes the request of key, or joins the flight that is making it. A flight
// ends early only when all who wait for it have gone: the first one's deadline is
// not the others'.
func (p *Provider) fly(ctx context.Context, key string, ask func(context.Context) (Answer, *retry.Fault)) (_ Answer, _ *retry.Fault, joined bool) {
	p.mu.Lock()
	f := p.flights[key]
	if joined = f != nil; !joined {
		f = &flight{done: make(chan struct{})}
		var own context.Context
		own, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		p.flights[key] = f
		go func() {
			f.answer, f.fault = ask(own)
			p.mu.Lock()
			p.land(key, f)
			p.mu.Unlock()
			f.cancel(nil)
			close(f.done)
		}()
	}
	f.waiting++
	p.mu.Unlock()
	select {
	case <-f.done:
		return f.answer, f.fault, joined
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		p.land(key, f)
		f.cancel(errAlone)
	}
	return Answer{}, &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(ctx)}, joined
}

// land takes a flight off the list, unless another has begun in its place.
func (p *Provider) land(key string, f *flight) {
	if p.flights[key] == f {
		delete(p.flights, key)
	}
}
