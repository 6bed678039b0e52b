package corpus

import (
	"runtime"
)

// draft is a row of a source as far as the source's reader brings it: its value,
// or why it is unusable.
type draft[T any] struct {
	path  string
	n     int64
	id    string
	value T
	err   error
}

// batch is some rows on their way from the reader to the writer.
type batch[T, R any] struct {
	drafts []draft[T]
	rows   []R // of the drafts without err, once they are made
	weight int
}

// A batch goes on its way when it has so many rows, or images of so many bytes:
// writers look at their size every so many rows, and several batches are in
// memory at once.
const (
	batchRows  = 64
	batchBytes = 1 << 20
	maxBatches = 16 // in work at most, however many cores there are
)

// behind makes rows of drafts on all cores, and writes them in a goroutine of its
// own in the order in which they came, so that reading goes on meanwhile. What is
// written does not depend on it.
type behind[T, R any] struct {
	canon func(draft[T]) (R, error)
	weigh func(T) int // bytes of images

	now   *batch[T, R] // being filled
	queue chan chan *batch[T, R]
	free  chan *batch[T, R] // written
	done  chan error
	// broken is closed when writing failed: nothing more need be read.
	broken chan struct{}
	ended  bool
	err    error
}

// newBehind calls write with made batches, one at a time, in order.
func newBehind[T, R any](canon func(draft[T]) (R, error), weigh func(T) int, write func(*batch[T, R]) error) *behind[T, R] {
	n := min(runtime.GOMAXPROCS(0), maxBatches)
	b := &behind[T, R]{canon: canon, weigh: weigh, now: &batch[T, R]{}, queue: make(chan chan *batch[T, R], n),
		free: make(chan *batch[T, R], n), done: make(chan error, 1), broken: make(chan struct{})}
	go func() {
		var err error
		for out := range b.queue {
			made := <-out
			if err != nil {
				continue
			}
			if err = write(made); err != nil {
				close(b.broken)
				continue
			}
			clear(made.drafts)
			clear(made.rows)
			made.drafts, made.rows, made.weight = made.drafts[:0], made.rows[:0], 0
			select {
			case b.free <- made:
			default:
			}
		}
		b.done <- err
	}()
	return b
}

// add takes a draft. An error is one of making or writing an earlier row.
func (b *behind[T, R]) add(d draft[T]) error {
	b.now.drafts = append(b.now.drafts, d)
	if d.err == nil {
		b.now.weight += b.weigh(d.value)
	}
	if len(b.now.drafts) < batchRows && b.now.weight < batchBytes {
		return nil
	}
	return b.send()
}

func (b *behind[T, R]) send() error {
	made, out := b.now, make(chan *batch[T, R], 1)
	select {
	case <-b.broken:
		return b.end()
	case b.queue <- out:
	}
	go func() {
		b.build(made)
		out <- made
	}()
	select {
	case b.now = <-b.free:
	default:
		b.now = &batch[T, R]{drafts: make([]draft[T], 0, batchRows), rows: make([]R, 0, batchRows)}
	}
	return nil
}

func (b *behind[T, R]) build(made *batch[T, R]) {
	for i := range made.drafts {
		d := &made.drafts[i]
		if d.err != nil {
			continue
		}
		var row R
		if row, d.err = b.canon(*d); d.err == nil {
			made.rows = append(made.rows, row)
		}
	}
}

// flush sends what was not sent yet, waits until everything is written and gives
// the first error.
func (b *behind[T, R]) flush() error {
	if err := b.send(); err != nil {
		return err
	}
	return b.end()
}

// end gives up what was not sent and waits for the rest. Further calls do nothing.
func (b *behind[T, R]) end() error {
	if !b.ended {
		b.ended = true
		close(b.queue)
		b.err = <-b.done
	}
	return b.err
}
