package qwenvl

import (
	"searchloop/internal/tensor"
)

// Cache holds the keys and values of one sequence. Memory is taken in pages of
// tensor.PageTokens tokens as the sequence grows, and shared between forks.
type Cache struct {
	m        *Model
	pages    []*page
	n        int
	capacity int
}

// page is shared by refs caches; who writes to a shared one copies it first.
type page struct {
	t    *tensor.Tensor
	refs int
}

// NewCache returns an empty cache for at most capacity tokens. It is safe to
// call at any time, as are the Cache's methods; two Extends do not overlap.
func (m *Model) NewCache(capacity int) *Cache { return &Cache{m: m, capacity: capacity} }

// Len is the number of tokens held.
func (c *Cache) Len() int { return c.n }

// Capacity is the greatest number of tokens.
func (c *Cache) Capacity() int { return c.capacity }

// Truncate forgets all tokens from n on.
func (c *Cache) Truncate(n int) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	n = max(0, min(n, c.n))
	keep := (n + tensor.PageTokens - 1) / tensor.PageTokens
	c.m.dropPages(c.pages[keep:])
	c.pages, c.n = c.pages[:keep], n
}

// Release gives the memory back to the model. The cache is empty afterwards and
// may be used again.
func (c *Cache) Release() { c.Truncate(0) }

// Fork returns a second cache with the same tokens. The pages stay shared until
// one of the two writes to them: the samples of a group cost one prompt.
func (c *Cache) Fork() *Cache {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	f := &Cache{m: c.m, pages: append([]*page(nil), c.pages...), n: c.n, capacity: c.capacity}
	for _, p := range f.pages {
		p.refs++
	}
	return f
}

// generator is the memory of generation.
type generator struct {
	ws    workspace
	free  []*tensor.Tensor // pages in no cache
	runs  []tensor.Run
	pages []*tensor.Tensor // of all runs
}

// The rest is called with mu held.

func (m *Model) generator() *generator {
	if m.gen == nil {
		m.gen = &generator{ws: workspace{arena: tensor.NewArena(m.be)}}
	}
	return m.gen
}

func (m *Model) newPage() *page {
	g := m.generator()
	if n := len(g.free); n > 0 {
		t := g.free[n-1]
		g.free = g.free[:n-1]
		return &page{t: t, refs: 1}
	}
	return &page{t: m.be.Alloc(m.be.PageFloats(m.cfg.Layers, m.textHeads())), refs: 1}
}

func (m *Model) dropPages(pages []*page) {
	for _, p := range pages {
		if p.refs--; p.refs == 0 {
			g := m.generator()
			g.free = append(g.free, p.t)
		}
	}
}

// makeRoom gives c pages of its own for tokens [c.n, c.n+n).
func (m *Model) makeRoom(c *Cache, n int) {
	for i := c.n / tensor.PageTokens; i*tensor.PageTokens < c.n+n; i++ {
		if i == len(c.pages) {
			c.pages = append(c.pages, m.newPage())
		} else if p := c.pages[i]; p.refs > 1 {
			own := m.newPage()
			m.be.Copy(own.t, p.t)
			p.refs--
			c.pages[i] = own
		}
	}
}
