// Package par runs loops on all cores. A loop over n items goes in, the same
// items come out done; which worker did which range is not observable. It has
// no queue and no futures: a call returns when its whole loop is done.
//
// One loop is spread over the workers at a time. A loop started from inside
// another, or while another goroutine's loop is running, runs on its own
// goroutine alone: nesting never deadlocks and never asks for more threads than
// there are cores.
package par

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Task is a loop body. Do is called with disjoint ranges, from several
// goroutines at once. Passing a pooled pointer as a Task avoids the allocation
// that a closure costs.
type Task interface {
	Do(lo, hi int)
}

type funcTask func(lo, hi int)

func (f funcTask) Do(lo, hi int) { f(lo, hi) }

// Panic is what a panic inside the body of a spread loop becomes in the
// goroutine that started the loop. The other ranges may or may not have been
// done. A loop that ran inline panics with the bare value.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string {
	return fmt.Sprintf("%v\n\nin a parallel loop:\n%s", p.Value, p.Stack)
}

// Unwrap gives the cause when the panic value was an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// For calls fn with ranges [lo, hi) that together cover [0, n) exactly once.
// Every lo is a multiple of grain (or 0). With n <= grain, or one core, or
// inside another loop, fn(0, n) is called once on this goroutine. Where the
// ranges are cut depends on the number of cores: a body whose result depends on
// that belongs in Chunks.
func For(n, grain int, fn func(lo, hi int)) {
	Run(n, grain, funcTask(fn))
}

// Run is For with a Task.
func Run(n, grain int, t Task) {
	if n <= 0 {
		return
	}
	grain = max(grain, 1)
	if n <= grain {
		t.Do(0, n)
		return
	}
	workers := runtime.GOMAXPROCS(0)
	if workers == 1 || !region.TryLock() {
		t.Do(0, n)
		return
	}
	defer region.Unlock()
	// About four pieces a worker: small enough to even out slow ones.
	pieces := min((n+grain-1)/grain, 4*workers)
	step := (n + pieces - 1) / pieces
	step = (step + grain - 1) / grain * grain
	spread(t, n, step, workers)
}

// Chunks calls fn(c, lo, hi) for every chunk c = [c*size, min(n, (c+1)*size)),
// each exactly once, in parallel. The cuts depend on n and size alone, so a sum
// per chunk, added up in the order of c, is the same on any machine.
func Chunks(n, size int, fn func(c, lo, hi int)) {
	size = max(size, 1)
	count := (n + size - 1) / size
	For(count, 1, func(first, last int) {
		for c := first; c < last; c++ {
			fn(c, c*size, min(n, (c+1)*size))
		}
	})
}

// region is held while a loop is spread over the workers.
var region sync.Mutex

// loop is one spread loop. Workers that wake late may still hold it after it is
// done, hence the reference count before it is used again.
type loop struct {
	task     Task
	n, step  int
	next     atomic.Int64 // first item nobody has taken
	left     atomic.Int64 // items not yet done
	refs     atomic.Int32
	panicked atomic.Pointer[Panic]
	done     chan struct{} // capacity 1
}

var loops = sync.Pool{New: func() any { return &loop{done: make(chan struct{}, 1)} }}

func (l *loop) release() {
	if l.refs.Add(-1) == 0 {
		l.task = nil
		l.panicked.Store(nil)
		loops.Put(l)
	}
}

// work takes ranges until none is left. Whoever does the last one says so.
func (l *loop) work() {
	for {
		hi := l.next.Add(int64(l.step))
		lo := hi - int64(l.step)
		if lo >= int64(l.n) {
			return
		}
		l.guarded(int(lo), int(min(hi, int64(l.n))))
	}
}

func (l *loop) guarded(lo, hi int) {
	whole := false
	defer func() {
		if !whole {
			v := recover()
			if v == nil {
				v = "runtime.Goexit in a loop body"
			}
			l.panicked.CompareAndSwap(nil, &Panic{Value: v, Stack: debug.Stack()})
		}
		if l.left.Add(int64(lo-hi)) == 0 {
			l.done <- struct{}{}
		}
	}()
	if l.panicked.Load() == nil {
		l.task.Do(lo, hi)
	}
	whole = true
}

// spread shares the loop with up to workers-1 others and waits for its end.
func spread(t Task, n, step, workers int) {
	l := loops.Get().(*loop)
	l.task, l.n, l.step = t, n, step
	l.next.Store(0)
	l.left.Store(int64(n))
	l.refs.Store(1)
	pool.call(l, min(workers-1, (n+step-1)/step-1))
	l.work()
	l.wait()
	p := l.panicked.Load()
	l.release()
	if p != nil {
		panic(p)
	}
}

// Workers is the number of goroutines that a loop started now is spread over.
func Workers() int { return runtime.GOMAXPROCS(0) }
