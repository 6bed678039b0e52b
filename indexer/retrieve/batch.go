package retrieve

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"searchloop/indexer"
	"searchloop/indexer/faiss"
	"searchloop/internal/fail"
)

var errBusy = errors.New("too many requests are waiting")

// batcher joins the queries of requests that wait at the same time: they are
// encoded in one forward pass and searched in one pass over the index, one batch
// after the other. A request that comes alone never waits. Hits are those of a
// search of the request's own, because no query's hits depend on its company and
// the best k of more than k are the best k.
type batcher struct {
	index    Searcher
	most     int           // queries of a batch, unless one request has more
	patience time.Duration // how long a batch waits for as many requests as the last had
	room     int           // requests that may wait
	served   *metrics

	mu      sync.Mutex
	queue   []*pending
	last    int           // requests of the last batch
	leading bool          // somebody is searching, and will see the queue
	arrived chan struct{} // told, if anybody listens, of each arrival
}

// pending is a request that waits for its hits.
type pending struct {
	ctx     context.Context
	queries []indexer.Query
	k       int
	effort  faiss.Effort
	hits    [][]indexer.Hit
	err     error
	done    chan struct{}
}

// search returns the hits of a request, when its batch is done.
func (b *batcher) search(ctx context.Context, queries []indexer.Query, k int, e faiss.Effort) ([][]indexer.Hit, error) {
	p := &pending{ctx: ctx, queries: queries, k: k, effort: e, done: make(chan struct{})}
	b.mu.Lock()
	if len(b.queue) >= b.room {
		b.mu.Unlock()
		return nil, errBusy
	}
	b.queue = append(b.queue, p)
	if !b.leading {
		b.leading = true
		go b.lead()
	}
	b.mu.Unlock()
	select {
	case b.arrived <- struct{}{}:
	default:
	}
	select {
	case <-p.done:
		return p.hits, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

func (b *batcher) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leading
}

// lead searches batch after batch until nobody waits.
func (b *batcher) lead() {
	for {
		b.gather()
		batch := b.take()
		if batch == nil {
			return
		}
		b.run(batch)
	}
}

// gather waits for as many requests as the last batch had: the clients that were
// just answered are about to ask again.
func (b *batcher) gather() {
	b.mu.Lock()
	have, want := len(b.queue), b.last
	b.mu.Unlock()
	if have == 0 || want < 2 || have >= want {
		return
	}
	limit := time.NewTimer(b.patience)
	defer limit.Stop()
	for have < want {
		select {
		case <-b.arrived:
		case <-limit.C:
			return
		}
		have = b.waiting()
	}
}

// take removes a batch from the queue; nil, and the lead is over, when it is empty.
func (b *batcher) take() []*pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*pending
	queries, n := 0, 0
	for _, p := range b.queue {
		if len(batch) > 0 && (queries+len(p.queries) > b.most || p.effort != batch[0].effort) {
			break
		}
		if n++; p.ctx.Err() != nil { // its client has left
			continue
		}
		batch, queries = append(batch, p), queries+len(p.queries)
	}
	b.queue = b.queue[n:]
	if len(batch) == 0 {
		b.queue, b.leading = nil, false
		return nil
	}
	b.last = len(batch)
	return batch
}

// run searches for a batch. When that fails each request is tried alone, so that
// nobody fails for another's query.
func (b *batcher) run(batch []*pending) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(batch)))
	var all []indexer.Query
	k := 0
	for _, p := range batch {
		stop := context.AfterFunc(p.ctx, func() { // the last client to leave ends the search
			if left.Add(-1) == 0 {
				cancel()
			}
		})
		defer stop()
		all, k = append(all, p.queries...), max(k, p.k)
	}
	b.served.batch(len(batch), len(all))
	hits, err := b.guarded(ctx, all, k, batch[0].effort)
	if err != nil && len(batch) > 1 && ctx.Err() == nil {
		for _, p := range batch {
			p.hits, p.err = b.guarded(p.ctx, p.queries, p.k, p.effort)
			close(p.done)
		}
		return
	}
	for _, p := range batch {
		if p.err = err; err == nil {
			p.hits, hits = hits[:len(p.queries):len(p.queries)], hits[len(p.queries):]
			for i, h := range p.hits {
				p.hits[i] = h[:min(p.k, len(h))]
			}
		}
		close(p.done)
	}
}

// guarded turns a panic into an error: a batch is not searched on any request's goroutine.
func (b *batcher) guarded(ctx context.Context, queries []indexer.Query, k int, e faiss.Effort) (hits [][]indexer.Hit, err error) {
	defer func() {
		if v := recover(); v != nil {
			hits, err = nil, &panicked{value: v, stack: debug.Stack()}
		}
	}()
	hits, err = b.index.SearchQueries(ctx, queries, k, e)
	if err == nil && len(hits) != len(queries) {
		err = fail.New(fail.Bug, "retrieve", "", "%d lists of hits for %d queries", len(hits), len(queries))
	}
	return hits, err
}

type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint(p.value) }
