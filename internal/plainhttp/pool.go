package plainhttp

import (
	"sync"
	"syscall"
	"time"
)

// pool keeps the connections to one host, the one used last on top.
type pool struct {
	keep int
	idle time.Duration

	mu    sync.Mutex
	kept  []*conn
	sweep *time.Timer // nil while nothing is kept
}

func (t *Transport) pool(host string) *pool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.hosts[host]
	if p == nil {
		p = &pool{keep: t.keep, idle: t.idle}
		t.hosts[host] = p
	}
	return p
}

// take gives a kept connection that the server has not closed; nil when there is none.
func (p *pool) take() *conn {
	for {
		c := p.pop()
		if c == nil || c.quiet() {
			return c
		}
		c.Close()
	}
}

// pop gives a kept connection that the server may have closed; nil when there is none.
func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.kept)
	if n == 0 {
		return nil
	}
	c := p.kept[n-1]
	p.kept[n-1] = nil
	p.kept = p.kept[:n-1]
	return c
}

// put keeps a connection for the next call; false when there are enough.
func (p *pool) put(c *conn) bool {
	c.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) >= p.keep {
		return false
	}
	p.kept = append(p.kept, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.idle, p.swept)
	}
	return true
}

// swept closes what was not used for the idle time, and looks again later.
func (p *pool) swept() {
	p.drop(time.Now().Add(-p.idle))
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) == 0 {
		p.sweep = nil
		return
	}
	p.sweep = time.AfterFunc(p.idle, p.swept)
}

// drop closes the kept connections that were put back until then.
func (p *pool) drop(until time.Time) {
	p.mu.Lock()
	n := 0
	for n < len(p.kept) && !p.kept[n].since.After(until) {
		n++
	}
	old := append([]*conn(nil), p.kept[:n]...)
	p.kept = append(p.kept[:0], p.kept[n:]...)
	p.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}

// quiet says whether a kept connection can be used: the server has neither closed
// it nor said anything. Nobody reads a connection that is kept, so that this is
// asked when it is taken.
func (c *conn) quiet() bool {
	sys, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) { quiet = silent(fd) })
	return quiet && err == nil
}
