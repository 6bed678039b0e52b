package ranks

import (
	"fmt"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// Local is n ranks in one process, which share a back end; each is used by a
// goroutine of its own. Local(1) is a training without others: nothing waits and
// nothing is copied.
func Local(n int) []Group {
	h := &hub{brought: make([]any, n)}
	h.turned.L = &h.mu
	out := make([]Group, n)
	for r := range out {
		out[r] = local{h, r}
	}
	return out
}

// hub is where the ranks of a process meet.
type hub struct {
	mu      sync.Mutex
	turned  sync.Cond
	turn    int // meetings so far
	here    int // ranks that came to the present one
	brought []any
	result  any
	err     error
}

type local struct {
	hub  *hub
	rank int
}

func (l local) Rank() int { return l.rank }
func (l local) Size() int { return len(l.hub.brought) }

// meet waits for all ranks; the last one to come does what is to be done.
func (l local) meet(x any, do func(brought []any) any) any {
	h := l.hub
	if len(h.brought) == 1 {
		return do([]any{x})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		panic(&Fault{h.err})
	}
	h.brought[l.rank] = x
	if h.here++; h.here < len(h.brought) {
		turn := h.turn
		for turn == h.turn && h.err == nil {
			h.turned.Wait()
		}
		if turn == h.turn { // a rank that failed afterwards does not undo the meeting
			panic(&Fault{h.err})
		}
		return h.result
	}
	func() {
		defer func() {
			switch x := recover().(type) {
			case nil:
			case *Fault:
				h.err = x.Err
			default: // let nobody wait for it
				h.err = fail.New(fail.Bug, "exchange tensors", "", "%v", x)
				h.turned.Broadcast()
				panic(x)
			}
		}()
		h.result = do(h.brought)
	}()
	defer h.turned.Broadcast()
	if h.err != nil {
		panic(&Fault{h.err})
	}
	h.here = 0
	h.turn++
	return h.result
}

func (l local) Gather(x []byte) [][]byte {
	return l.meet(x, func(brought []any) any {
		out := make([][]byte, len(brought))
		for r, b := range brought {
			out[r] = b.([]byte)
		}
		return out
	}).([][]byte)
}

func (l local) Reduce(be tensor.Backend, parts []Part) {
	l.meet(parts, func(brought []any) any {
		first := brought[0].([]Part)
		for r, b := range brought[1:] {
			theirs := b.([]Part)
			mustMatch(r+1, first, theirs)
			for i := range first {
				be.Add(first[i].T, theirs[i].T)
			}
		}
		for i, p := range first {
			if p.Owner != 0 {
				be.Copy(brought[p.Owner].([]Part)[i].T, p.T)
			}
		}
		return nil
	})
}

func (l local) Broadcast(be tensor.Backend, parts []Part) {
	l.meet(parts, func(brought []any) any {
		for r, b := range brought {
			theirs := b.([]Part)
			mustMatch(r, brought[0].([]Part), theirs)
			for i, p := range theirs {
				if p.Owner != r {
					be.Copy(p.T, brought[p.Owner].([]Part)[i].T)
				}
			}
		}
		return nil
	})
}

func (l local) Abort(err error) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = fail.Wrap(fail.KindOf(err), "train with other ranks", "", fmt.Errorf("another rank failed: %w", err))
	}
	h.turned.Broadcast()
}
