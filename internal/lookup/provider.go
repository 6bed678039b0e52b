package lookup

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/unicode/norm"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/retry"
	"searchloop/internal/tape"
)

// Options of a Provider.
type Options struct {
	Name    string        // short and stable, for keys, records, reports and messages: "serper"
	KeyName string        // environment variable of its key, for hints
	Keep    time.Duration // how long results are kept; 0: not at all
	Empty   time.Duration // how long it is kept that there is nothing; 0: not at all
	Rate    float64       // requests a second, over all processes that share the store; 0: no limit
	Burst   int           // requests that may come at once: 1
	Price   float64       // dollars a request
	Retry   retry.Options // Name and Log are set here
}

// Answer is what a provider gave.
type Answer struct {
	Body    []byte    // in whatever form the caller gave it; shared, not to be changed
	Empty   bool      // there is nothing: no hits, no such page. Kept for Options.Empty only
	At      time.Time // when the provider gave it, to the second; set here
	Dollars float64   // what it cost, when the provider tells; 0: Options.Price
	Cached  bool      // it was kept, recorded, or asked for by another at the same time; set here
}

// NotRecorded is the class of the fault of a request that a frozen tape lacks.
const NotRecorded = "not recorded"

// Provider is the way to one outside service. Safe for concurrent use.
type Provider struct {
	desk *Desk
	opt  Options
	line *retry.Line

	mu      sync.Mutex
	flights map[string]*flight
}

// Provider makes the way to a provider.
func (d *Desk) Provider(opt Options) *Provider {
	opt.Retry.Name, opt.Retry.Log = opt.Name, d.opt.Log
	return &Provider{desk: d, opt: opt, line: retry.New(opt.Retry), flights: map[string]*flight{}}
}

// Normal is a query as keys have it: two that differ only in case, white space or
// Unicode composition ask for the same.
func Normal(query string) string {
	return strings.ToLower(strings.Join(strings.Fields(norm.NFC.String(query)), " "))
}

// kind is a provider's kind of record on the tape.
func (p *Provider) kind() string { return "lookup " + p.opt.Name }

// Ask returns the answer to a request. request names everything that the answer
// depends on and no secret; its JSON form is the key. ask makes the request once,
// without retrying; its context ends when nobody waits for the answer any more.
//
// The error is a *fail.Error of kind Service whose cause is a *retry.Fault, as of
// llm.Client.Chat: at the cost cap its verdict is Stop and its class CapReached. A
// request that is missing on a replayed tape is of kind BadInput; on a frozen one it
// is a fault of verdict Never and class NotRecorded.
func (p *Provider) Ask(ctx context.Context, request any, ask func(context.Context) (Answer, *retry.Fault)) (Answer, error) {
	return p.AskAfter(ctx, request, nil, ask)
}

// AskAfter is Ask of what must be made ready first: before is called once, when no
// answer is kept or recorded and nobody else is asking, and before anything is paced
// or paid. Its fault is not the provider's: nothing is asked then.
func (p *Provider) AskAfter(ctx context.Context, request any, before func(context.Context) *retry.Fault, ask func(context.Context) (Answer, *retry.Fault)) (Answer, error) {
	var rec taken
	on, err := p.desk.opt.Tape.Get(p.kind(), request, &rec)
	if err != nil {
		return Answer{}, err
	}
	if on && (rec.Fault == nil || rec.Fault.Never || p.desk.opt.Tape.Replays()) {
		p.count(func(u *manifest.Provider) { u.Cached++ })
		return rec.answer(), p.failure(rec.Fault.Retry())
	}
	if p.desk.opt.Tape.Replays() {
		p.count(func(u *manifest.Provider) { u.Failed++ })
		return Answer{}, p.failure(&retry.Fault{Verdict: retry.Never, Class: NotRecorded})
	}
	text, err := json.Marshal(request)
	if err != nil {
		return Answer{}, fail.Wrap(fail.Bug, "ask "+p.opt.Name, "", err)
	}
	key := "result/" + p.opt.Name + "/" + manifest.Hash(manifest.Canonical(text))
	a, f := p.kept(ctx, key, before, ask)
	if f == nil || tape.FaultOf(f) != nil {
		if err := p.desk.opt.Tape.Put(p.kind(), request, recorded(a, f)); err != nil {
			return Answer{}, err
		}
	}
	return a, p.failure(f)
}

// kept answers from the store, or else by a flight.
func (p *Provider) kept(ctx context.Context, key string, before func(context.Context) *retry.Fault, ask func(context.Context) (Answer, *retry.Fault)) (Answer, *retry.Fault) {
	if value, ok := p.desk.get(ctx, key); ok {
		if a, ok := decode(value); ok {
			p.count(func(u *manifest.Provider) { u.Cached++ })
			return a, nil
		}
	}
	a, f, joined := p.fly(ctx, key, func(ctx context.Context) (Answer, *retry.Fault) {
		if before != nil {
			if f := before(ctx); f != nil {
				return Answer{}, f
			}
		}
		a, f := p.pay(ctx, ask)
		if f == nil {
			ttl := p.opt.Keep
			if a.Empty {
				ttl = p.opt.Empty
			}
			p.desk.put(ctx, key, encode(a), ttl)
		}
		return a, f
	})
	if joined && f == nil {
		a.Cached = true
		p.count(func(u *manifest.Provider) { u.Cached++ })
	}
	return a, f
}

// pay makes the request: in turn, within the cap, as often as package retry says.
func (p *Provider) pay(ctx context.Context, ask func(context.Context) (Answer, *retry.Fault)) (a Answer, f *retry.Fault) {
	price := nanos(p.opt.Price)
	f = p.line.Do(ctx, func(ctx context.Context) (f *retry.Fault) {
		if err := p.desk.pace(ctx, p.opt.Name, p.opt.Rate, p.opt.Burst); err != nil {
			return &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: err}
		}
		if f := p.desk.ledger.book(ctx, p.opt.Name, price, false); f != nil {
			return f
		}
		p.count(func(u *manifest.Provider) { u.Calls++ })
		if a, f = ask(ctx); f != nil {
			p.desk.ledger.book(ctx, p.opt.Name, -price, true)
			p.count(func(u *manifest.Provider) { u.Failed++ })
			return f
		}
		a.At = time.Now().UTC().Truncate(time.Second)
		if a.Dollars > 0 {
			p.desk.ledger.book(ctx, p.opt.Name, nanos(a.Dollars)-price, true)
		}
		if a.Empty {
			p.count(func(u *manifest.Provider) { u.Empty++ })
		}
		return nil
	})
	return a, f
}

func (p *Provider) count(change func(*manifest.Provider)) {
	p.desk.ledger.tally(p.opt.Name, func(t *tally) { change(&t.Provider) })
}

// failure is the error of a fault; nil for none.
func (p *Provider) failure(f *retry.Fault) error {
	if f == nil {
		return nil
	}
	e := &fail.Error{Kind: fail.Service, Op: "ask " + p.opt.Name, Err: f}
	switch {
	case f.Class == CapReached:
		e.Hint = "run again with a higher --max-cost, or with 0 for none: finished work is kept"
	case f.Verdict == retry.Caller:
		e.Kind = fail.Interrupted
	case f.Verdict == retry.Stop && p.opt.KeyName != "":
		e.Hint = "check the key in " + p.opt.KeyName + " and run again: finished work is kept"
	case f.Verdict == retry.Stop:
		e.Hint = "run again when it answers: finished work is kept"
	}
	return e
}
