package plainhttp

import (
	"context"
	"sync"
)

// watch ends the call of the moment when a context ends.
type watch struct {
	done <-chan struct{} // of the context

	mu   sync.Mutex
	conn *conn // of the call; nil between calls
	over bool
}

type watchKey struct{}

// Watched prepares a context for many calls of Post one after the other: what ends
// them with it is set up once, not once a call. end must be called when they are over.
func Watched(ctx context.Context) (watched context.Context, end func()) {
	w := &watch{done: ctx.Done()}
	stop := context.AfterFunc(ctx, w.end)
	return context.WithValue(ctx, watchKey{}, w), func() { stop() }
}

// watching is the watch that ends with ctx, and not earlier or later; nil: there is none.
func watching(ctx context.Context) *watch {
	if w, ok := ctx.Value(watchKey{}).(*watch); ok && w.done == ctx.Done() {
		return w
	}
	return nil
}

// take begins to watch a call; false: the watch has another one, or is none.
func (w *watch) take(c *conn) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil || w.over {
		return false
	}
	w.conn = c
	return true
}

// leave ends the watching of a call, and says whether the context has ended meanwhile.
func (w *watch) leave() (over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
	return w.over
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.conn != nil {
		_ = w.conn.SetDeadline(past)
	}
}
