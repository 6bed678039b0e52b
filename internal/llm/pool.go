package llm

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
)

// Pool is one model on one or several servers. A conversation stays with the
// server that has its beginning in the cache, unless that one is overloaded or
// away; then another goes on with it. Safe for concurrent use.
//
// A Pool of one server is that server. With several, each has a breaker of its
// own, and a server that fails a call is not asked again for that call before the
// others have been: only when all have failed it is a failure of the pool, which
// waits, tries again and gives up as a Client does. A server that is away is asked
// for its models every few seconds, by nobody's conversation, and comes back when
// it still has the model.
type Pool struct {
	servers []*server
	most    int         // calls at once to one server; 0: any number
	moves   bool        // PoolOptions.Moves
	line    *retry.Line // nil with one server
	log     *slog.Logger
	stop    context.CancelFunc
	checks  sync.WaitGroup

	mu      sync.Mutex
	groups  map[string]*group
	waiting list.List // of chan struct{}: callers for whom every server is full
}

// server is one of a pool's; its fields are the pool's to lock.
type server struct {
	*Client
	load int  // calls in flight
	away bool // as the log said last
}

// group is where the conversations with one beginning went.
type group struct {
	home *server
	open int // conversations
}

// PoolOptions say how a pool uses its servers.
type PoolOptions struct {
	URLs      []string
	PerServer int // calls at once to one server; 0: any number
	Retry     retry.Options
	Moves     bool // its servers may be elsewhere tomorrow: no address names the pool
}

// Open connects to the servers of a pool. All of them must have the same model:
// the one that opt names, or the only one of each. opt.URL is not looked at.
func Open(ctx context.Context, opt Options, p PoolOptions) (*Pool, error) {
	pool := &Pool{most: p.PerServer, moves: p.Moves, log: opt.Log, groups: map[string]*group{}, stop: func() {}}
	if pool.log == nil {
		pool.log = slog.New(slog.DiscardHandler)
	}
	opt.Retry = p.Retry
	if len(p.URLs) > 1 {
		opt.Retry.Name, opt.Retry.Log = opt.Name+"s", pool.log
		pool.line = retry.New(opt.Retry)
		opt.Retry = retry.Options{Base: p.Retry.Base, Cap: p.Retry.Cap, Open: p.Retry.Open, Gone: never, Tries: 1, Leave: true}
	}
	for i, url := range p.URLs {
		opt.URL = url
		c, err := New(opt)
		if err == nil {
			err = c.Probe(ctx)
		}
		if err == nil {
			err = c.choose(ctx)
		}
		if err != nil {
			return nil, err
		}
		if first := pool.first(); i > 0 && c.Model() != first.Model() {
			return nil, fail.WithHint(fail.New(fail.Usage, "ask for models", c.shown, "it has %q, %s has %q", c.Model(), first.shown, first.Model()),
				"all servers of a policy must serve the same model")
		}
		if slices.ContainsFunc(pool.servers, func(s *server) bool { return s.base == c.base }) {
			return nil, fail.New(fail.Usage, "connect to the "+opt.Name, c.shown, "given twice")
		}
		pool.servers = append(pool.servers, &server{Client: c})
	}
	if len(pool.servers) == 0 {
		return nil, fail.New(fail.Usage, "connect to the "+opt.Name, "", "no address")
	}
	if pool.line != nil {
		ctx, stop := context.WithCancel(context.Background())
		pool.stop = stop
		pool.checks.Go(func() { pool.check(ctx) })
	}
	return pool, nil
}

// never is the patience with one server of many: it may come back any time.
const never = 1 << 62

func (p *Pool) first() *server {
	if len(p.servers) == 0 {
		return nil
	}
	return p.servers[0]
}

// Close ends the checks of servers that are away.
func (p *Pool) Close() {
	p.stop()
	p.checks.Wait()
}

// Name says what is asked: URL#model of one server, #model of several or of one that
// moves, since which of them answered is of no matter.
func (p *Pool) Name() string {
	if p.moves || len(p.servers) > 1 {
		return "#" + p.first().Model()
	}
	return p.first().URL() + "#" + p.first().Model()
}

// Tokenizer is that of Options.Tokenizer; nil when none was given.
func (p *Pool) Tokenizer() *Tokenizer {
	if len(p.servers) == 0 || p.first().opt.Tokenizer == "" {
		return nil
	}
	return p.first().tokens
}

// check asks the servers that are away for their models until ctx ends.
func (p *Pool) check(ctx context.Context) {
	tick := time.NewTicker(p.line.Pause())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range p.servers {
			well := s.line.Well()
			if !well && s.line.Ended() == nil {
				_ = s.Probe(ctx) // a success closes the breaker, step by step
				well = s.line.Well()
			}
			p.note(s, well)
		}
	}
}

// note tells when a server goes away or comes back.
func (p *Pool) note(s *server, well bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !well && !s.away:
		p.log.Warn("a server is away; the others go on with its conversations", "server", s.shown, "because", s.line.Last())
	case well && s.away:
		p.log.Info("a server is back", "server", s.shown)
		p.wake(p.waiting.Len())
	}
	s.away = !well
}

// Session is one conversation with the servers of a pool: one turn after the other.
type Session struct {
	pool  *Pool
	key   string
	group *group
	home  *server // where its last turn was made
	wrote written
}

// Session begins a conversation. Those of one group begin alike (the samples of a
// question), so that one server's cache serves all of them. Close must be called.
func (p *Pool) Session(key string) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[key]
	if g == nil {
		g = new(group)
		p.groups[key] = g
	}
	g.open++
	return &Session{pool: p, key: key, group: g}
}

// Close ends the conversation.
func (s *Session) Close() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.group.open--; s.group.open == 0 {
		delete(s.pool.groups, s.key)
	}
}

// Chat asks for one turn; see Client.Chat. Reply.Attempts counts the calls to all
// servers.
func (s *Session) Chat(ctx context.Context, r Request) (reply *Reply, err error) {
	attempts := 0
	r.kept = &s.wrote
	err = s.do(ctx, "ask for a turn", &attempts, func(c *Client) (err error) {
		reply, err = c.Chat(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	reply.Attempts += attempts
	return reply, nil
}

// Cut shortens text to at most limit tokens; see Client.Cut.
func (s *Session) Cut(ctx context.Context, text string, limit int) (out string, err error) {
	if limit <= 0 || len(text) <= limit {
		return text, nil
	}
	err = s.do(ctx, "count tokens", new(int), func(c *Client) (err error) {
		out, err = c.Cut(ctx, text, limit)
		return err
	})
	return out, err
}

// do makes one call to the servers in turn until one succeeds; failed counts the
// calls that did not.
func (s *Session) do(ctx context.Context, op string, failed *int, call func(*Client) error) error {
	p := s.pool
	if p.line == nil {
		srv, err := p.take(ctx, s, nil)
		if err == nil {
			defer p.give(srv)
			err = call(srv.Client)
		}
		return err
	}
	var hard error // no failure of a service: our own mistake, or a server that lacks something
	f := p.line.Do(ctx, func(ctx context.Context) *retry.Fault {
		var tried []*server
		worst := &retry.Fault{Verdict: retry.Again, Class: Transport, Down: true, Err: errors.New("no server is well")}
		for {
			srv, err := p.take(ctx, s, tried)
			if err != nil {
				return &retry.Fault{Verdict: retry.Caller, Class: "cancelled", Err: context.Cause(ctx)}
			}
			if srv == nil {
				return worst
			}
			err = call(srv.Client)
			p.give(srv)
			f := FaultOf(err)
			switch {
			case err == nil:
				p.settle(s, srv)
				return nil
			case f == nil:
				hard = err
				return &retry.Fault{Verdict: retry.Never, Class: "request", Err: err}
			case f.Verdict == retry.Never || f.Verdict == retry.Caller || f.Class == Unauthorised:
				return f
			}
			*failed += f.Attempts
			tried = append(tried, srv)
			p.note(srv, srv.line.Well())
			if all := p.ended(); all != nil {
				return all
			}
			again := *f
			if again.Verdict == retry.Stop { // of this server; there are others
				again.Verdict = retry.Again
			}
			worst = &again
		}
	})
	if f == nil || hard != nil {
		return hard
	}
	f.Attempts = max(f.Attempts, *failed)
	return p.first().failure(op, "", f)
}

// ended is why no server can be asked any more; nil while one can.
func (p *Pool) ended() (f *retry.Fault) {
	for _, s := range p.servers {
		if f = s.line.Ended(); f == nil {
			return nil
		}
	}
	return f
}

// settle remembers who has the conversation in its cache.
func (p *Pool) settle(s *Session, srv *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.home = srv
	if s.group.home == nil {
		s.group.home = srv
	}
}

// take chooses a server for a call and counts it there; nil when none that has not
// been tried is well. It waits while all of those are full; the error is ctx's.
func (p *Pool) take(ctx context.Context, s *Session, tried []*server) (*server, error) {
	for {
		p.mu.Lock()
		srv, full := p.choose(s, tried)
		if srv != nil {
			srv.load++
			if s.group.home == nil {
				s.group.home = srv // the group's next conversation need not wait for an answer
			}
		}
		if srv != nil || !full {
			p.mu.Unlock()
			return srv, nil
		}
		turn := make(chan struct{}, 1)
		place := p.waiting.PushBack(turn)
		p.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			p.mu.Lock()
			p.waiting.Remove(place)
			select {
			case <-turn: // it was ours to take: the next one's now
				p.wake(1)
			default:
			}
			p.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
}

// slack is how many calls a server may have beyond twice those of the least loaded
// one before its conversations go elsewhere: a cached beginning is worth a short
// queue, not a long one.
const slack = 8

// choose picks the server of the conversation, else that of its group, else the
// least loaded. full: there would be one, but for the number of its calls.
func (p *Pool) choose(s *Session, tried []*server) (best *server, full bool) {
	usable := func(srv *server) bool {
		return (p.line == nil || srv.line.Well()) && !slices.Contains(tried, srv)
	}
	// A call that goes elsewhere after a failure has waited enough.
	room := func(srv *server) bool { return p.most <= 0 || srv.load < p.most || len(tried) > 0 }
	for _, srv := range p.servers {
		switch {
		case !usable(srv):
		case !room(srv):
			full = true
		case best == nil || srv.load < best.load:
			best = srv
		}
	}
	if best == nil {
		return nil, full
	}
	for _, home := range []*server{s.home, s.group.home} {
		if home != nil && usable(home) && room(home) && home.load <= 2*best.load+slack {
			return home, false
		}
	}
	return best, false
}

// give counts a call as ended.
func (p *Pool) give(srv *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	srv.load--
	p.wake(1)
}

// wake lets the first n of those who wait look again.
func (p *Pool) wake(n int) {
	for ; n > 0 && p.waiting.Len() > 0; n-- {
		p.waiting.Remove(p.waiting.Front()).(chan struct{}) <- struct{}{}
	}
}
