//go:build cuda

package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"searchloop/indexer/flat"
	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/shard"
)

// Set searches a flat.Set on GPUs. Search is safe for concurrent use: searches
// that wait at the same time are done as one. Close must wait for them.
type Set struct {
	host  *flat.Set
	o     Options
	auto  bool
	parts []*part

	mu      sync.Mutex
	queue   []*call
	leading bool
	broken  bool // the CPU searches from now on
}

// small is the size of an index that auto leaves to the CPU.
const small = 64 << 20

// Open prepares the search of host, which stays open and is not closed by Close.
// It logs what memory it will take, and takes it. The result is nil where the
// index is to be searched on the CPU: for cpu, and for auto where there is no GPU
// or the index is small or does not fit; the log says why. Where a GPU was asked
// for by name that is an error.
func Open(host *flat.Set, o Options) (*Set, error) {
	which, auto, none, err := ordinals(o.Device)
	if err != nil || none {
		return nil, err
	}
	s := &Set{host: host, o: o, auto: auto}
	if auto {
		var bytes int64
		for _, f := range host.Files() {
			bytes += f.Size()
		}
		if bytes < small {
			return nil, nil
		}
	}
	if err = s.open(which); err == nil {
		return s, nil
	}
	err = errors.Join(err, s.Close())
	if auto && fail.KindOf(err) != fail.BadInput {
		o.Log.Info("searching on the CPU", "because", err)
		return nil, nil
	}
	return nil, err
}

func (s *Set) open(which []int) (err error) {
	files := s.host.Files()
	stored := [...]kind{f32, f16, u8}[files[0].Format]
	scan, err := scanKind(s.o.Scan, stored)
	if err != nil {
		return err
	}
	if files[0].Metric != flat.InnerProduct {
		return fail.New(fail.Usage, "open index on GPU", files[0].Path, "the GPU searches inner products, not %v: use the CPU", files[0].Metric)
	}
	if which == nil {
		n, err := cuda.Count()
		if err != nil {
			return err
		}
		for i := range max(1, n) {
			which = append(which, i)
		}
	}
	if s.host.Rows() >= 1<<32 || s.host.Dim() > 1<<16 {
		return fail.New(fail.Usage, "open index on GPU", files[0].Path, "%d rows of dimension %d: at most 2^32 rows and dimension 65536", s.host.Rows(), s.host.Dim())
	}
	for i, n := range which {
		p, err := newPart(n, stored, scan)
		if err != nil {
			return err
		}
		s.parts = append(s.parts, p)
		p.dim, p.stored, p.scan = s.host.Dim(), stored, scan
		p.source = s.host
		p.first, p.end = shard.Spec{I: i, N: len(which)}.Range(s.host.Rows())
		free, total := p.d.Memory()
		memory := max(0, free-reserve)
		if s.o.Memory > 0 {
			memory = min(memory, s.o.Memory)
		}
		p.plan, err = planFor(p.end-p.first, p.dim, stored, scan, scan != stored, memory)
		if err != nil {
			return err
		}
		s.o.Log.Info("memory plan", "device", fmt.Sprintf("cuda:%d (%s)", n, p.d.Name), "rows", p.end-p.first, "held", p.plan.resident, "stored as", stored.String(), "bytes", size(p.plan.rows),
			"scanned as", p.scanned().String(), "copy", size(p.plan.copy), "queries", size(p.plan.work), "passing", size(p.plan.buffer), "sum", size(p.plan.bytes()), "free before", size(free), "of", size(total),
			"locked", size(2*p.staging()))
		if s.auto && p.plan.passing > 0 {
			return fail.New(fail.Usage, "open index on GPU", files[0].Path, "%d rows of dimension %d do not fit into %s of free memory (cuda instead of auto lets them pass through)", p.end-p.first, p.dim, size(free))
		}
	}
	return s.each(func(_ int, p *part) error { return p.load() })
}

// each does the same on all GPUs.
func (s *Set) each(do func(int, *part) error) error {
	errs := make([]error, len(s.parts))
	var wait sync.WaitGroup
	for i, p := range s.parts {
		wait.Go(func() {
			defer caught(&errs[i])
			errs[i] = do(i, p)
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// caught, deferred, makes an error of a panic: nobody above could, since searches
// run on goroutines of their own.
func caught(err *error) {
	switch v := recover().(type) {
	case nil:
	case *cuda.Fault:
		*err = v.Err
	default:
		*err = fail.New(fail.Bug, "search on GPU", "", "panic: %v\n%s", v, debug.Stack())
	}
}

// Close gives the GPUs' memory back.
func (s *Set) Close() error { return s.each(func(_ int, p *part) error { return p.close() }) }

// call is a search that waits.
type call struct {
	ctx     context.Context
	queries []float32
	k       int
	among   flat.Range
	hits    [][]flat.Hit
	err     error
	done    chan struct{}
}

// SearchRange is flat.Set's.
func (s *Set) SearchRange(ctx context.Context, queries []float32, k int, among flat.Range) ([][]flat.Hit, error) {
	k, among, err := s.host.Admit(queries, k, among)
	if err != nil {
		return nil, err
	}
	if k > maxK || k == 0 || len(queries) == 0 {
		return s.host.SearchRange(ctx, queries, k, among)
	}
	c := &call{ctx: ctx, queries: queries, k: k, among: among, done: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	if !s.leading {
		s.leading = true
		go s.lead()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.hits, c.err
	case <-ctx.Done():
		return nil, fail.Wrap(fail.Interrupted, "search", "", ctx.Err())
	}
}

// lead searches until nobody waits.
func (s *Set) lead() {
	for {
		batch := s.take()
		if batch == nil {
			return
		}
		s.answer(batch)
	}
}

// take removes from the queue what is searched together.
func (s *Set) take() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []*call
	n := 0
	for len(s.queue) > 0 {
		c := s.queue[0]
		if len(batch) > 0 && (n+len(c.queries)/s.host.Dim() > group || c.among != batch[0].among) {
			break
		}
		s.queue = s.queue[1:]
		if c.ctx.Err() == nil { // its caller has not left
			batch, n = append(batch, c), n+len(c.queries)/s.host.Dim()
		}
	}
	s.leading = batch != nil
	return batch
}

// errUnfit: these numbers are not for the GPU.
var errUnfit = errors.New("out of range for the GPU")

func (s *Set) answer(batch []*call) {
	ctx, queries, k := context.Background(), []float32(nil), 0
	if len(batch) == 1 {
		ctx = batch[0].ctx
	}
	for _, c := range batch {
		queries, k = append(queries, c.queries...), max(k, c.k)
	}
	var hits [][]flat.Hit
	err := errUnfit
	if !s.broken {
		hits, err = s.search(ctx, queries, k, batch[0].among)
	}
	if kind := fail.KindOf(err); err != nil && err != errUnfit && s.auto && kind != fail.BadInput && kind != fail.Interrupted {
		s.o.Log.Warn("the GPU failed; searching on the CPU from now on", "err", err)
		s.broken = true
	}
	for _, c := range batch {
		switch {
		case err == nil:
			n := len(c.queries) / s.host.Dim()
			c.hits, hits = hits[:n:n], hits[n:]
			for i, h := range c.hits {
				c.hits[i] = h[:min(c.k, len(h))]
			}
		case err == errUnfit || s.broken:
			c.hits, c.err = s.host.SearchRange(c.ctx, c.queries, c.k, c.among)
		default:
			c.err = err
		}
		close(c.done)
	}
}

// search is SearchRange for one caller.
func (s *Set) search(ctx context.Context, queries []float32, k int, among flat.Range) ([][]flat.Hit, error) {
	dim := s.parts[0].dim
	var out [][]flat.Hit
	for lo := 0; lo < len(queries); lo += group * dim {
		some := queries[lo:min(lo+group*dim, len(queries))]
		found := make([][][]flat.Hit, len(s.parts))
		err := s.each(func(i int, p *part) (err error) {
			found[i], err = p.search(ctx, some, k, among)
			return err
		})
		if err != nil {
			return nil, err
		}
		for q := range len(some) / dim {
			var all []flat.Hit
			for _, hits := range found {
				all = append(all, hits[q]...)
			}
			out = append(out, flat.Best(all, k))
		}
	}
	return out, nil
}
