// Package packs joins what many callers want computed into packs for a device: items
// go in, a vector each comes out. While one pack is computed the next is put together
// and the one before is handed out. It knows nothing of models; Begin computes.
package packs

import (
	"errors"
	"slices"
	"sync"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

// underWay is how many packs are begun before the first of them is done: one is
// computed, one waits.
const underWay = 2

// Work is what is done with items.
type Work[T any] struct {
	Dim  int // of a vector
	Room int // sum of the sizes of a pack's items, at most
	Most int // items of a pack, at most
	Size func(T) int
	// Begin gives a pack to the device; vecs [items, Dim] are there when wait returns.
	// It is called from one goroutine. A panic with a *cuda.Fault, here or in wait, is
	// the error of everyone whose items are in the pack.
	Begin func(items []T) (vecs []float32, wait func())
}

// Line is a running Work.
type Line[T any] struct {
	Work[T]
	in   chan *request[T]
	quit chan struct{}
	done chan struct{} // closed when everything has ended
	once sync.Once
}

// Start begins to wait for items.
func Start[T any](w Work[T]) *Line[T] {
	l := &Line[T]{Work: w, in: make(chan *request[T]), quit: make(chan struct{}), done: make(chan struct{})}
	go l.work()
	return l
}

// Do returns the vectors of items, [len(items), Dim]. It is safe for concurrent use, and
// many callers are what fills packs.
func (l *Line[T]) Do(items []T) ([]float32, error) {
	if len(items) == 0 {
		return nil, nil
	}
	r := &request[T]{items: items, out: make([]float32, len(items)*l.Dim), left: len(items), done: make(chan struct{})}
	select {
	case l.in <- r:
	case <-l.quit:
		return nil, fail.Wrap(fail.Bug, "encode", "", errors.New("the encoder is closed"))
	}
	<-r.done
	if r.err != nil {
		return nil, r.err
	}
	return r.out, nil
}

// Close returns when everything that was asked for is done.
func (l *Line[T]) Close() {
	l.once.Do(func() { close(l.quit) })
	<-l.done
}

// request is one call of Do.
type request[T any] struct {
	items []T
	out   []float32
	left  int // items without a vector
	err   error
	done  chan struct{}
}

// part is the i-th item of a request.
type part[T any] struct {
	of *request[T]
	i  int
}

type pack[T any] struct {
	parts []part[T]
	vecs  []float32
	wait  func()
	err   error
}

// work puts packs together and begins them, until quit is closed and everything that
// was asked for is begun. A pack that is not full is begun only when nothing else is
// being computed: more may come meanwhile.
func (l *Line[T]) work() {
	begun, ended := make(chan *pack[T], underWay), make(chan struct{}, underWay)
	go l.handOut(begun, ended)
	defer close(begun)
	var waiting []part[T]
	flying, in, quit := 0, l.in, l.quit
	add := func(r *request[T]) {
		for i := range r.items {
			waiting = append(waiting, part[T]{r, i})
		}
	}
	for in != nil || flying > 0 || len(waiting) > 0 {
		for more := in != nil; more; {
			select {
			case r := <-in:
				add(r)
			default:
				more = false
			}
		}
		if n, full := l.next(waiting); flying < underWay && n > 0 && (flying == 0 || full) {
			begun <- l.begin(slices.Clone(waiting[:n]))
			waiting = slices.Clone(waiting[n:])
			flying++
			continue
		}
		select {
		case r := <-in:
			add(r)
		case <-ended:
			flying--
		case <-quit:
			in, quit = nil, nil
		}
	}
}

// next is the number of items of the next pack, and whether more would not fit.
func (l *Line[T]) next(waiting []part[T]) (n int, full bool) {
	room := l.Room
	for _, p := range waiting {
		if room -= l.Size(p.of.items[p.i]); room < 0 && n > 0 || n == l.Most {
			return n, true
		}
		n++
	}
	return n, n == l.Most || room <= 0
}

func (l *Line[T]) begin(parts []part[T]) *pack[T] {
	p := &pack[T]{parts: parts}
	items := make([]T, len(parts))
	for i, w := range parts {
		items[i] = w.of.items[w.i]
	}
	p.err = guarded(func() { p.vecs, p.wait = l.Begin(items) })
	return p
}

func guarded(f func()) (err error) {
	defer cuda.Guard(&err)
	f()
	return nil
}

// handOut gives the vectors of packs to those who asked for them.
func (l *Line[T]) handOut(begun <-chan *pack[T], ended chan<- struct{}) {
	defer close(l.done)
	for p := range begun {
		if p.err == nil {
			p.err = guarded(p.wait)
		}
		for i, w := range p.parts {
			if p.err == nil {
				copy(w.of.out[w.i*l.Dim:(w.i+1)*l.Dim], p.vecs[i*l.Dim:])
			} else {
				w.of.err = p.err
			}
			if w.of.left--; w.of.left == 0 {
				close(w.of.done)
			}
		}
		ended <- struct{}{}
	}
}
