package corpus

// behind writes rows in a goroutine of its own, in the order in which they were
// given, so that reading goes on while rows are encoded and compressed. What is
// written does not depend on it.
type behind[R any] struct {
	out   rowWriter[R]
	ahead chan []R
	free  chan []R // batches that were written
	done  chan error
	// broken is closed when writing failed: nothing more need be read.
	broken chan struct{}
	ended  bool
	err    error
}

// writeBatch is how many rows are handed over at a time; writers look at their
// size every so many rows.
const writeBatch = 64

func newBehind[R any](out rowWriter[R]) *behind[R] {
	b := &behind[R]{out: out, ahead: make(chan []R, 2), free: make(chan []R, 4), done: make(chan error, 1), broken: make(chan struct{})}
	go func() {
		var err error
		for rows := range b.ahead {
			if err != nil {
				continue
			}
			if err = out.Write(rows...); err != nil {
				close(b.broken)
				continue
			}
			clear(rows)
			select {
			case b.free <- rows[:0]:
			default:
			}
		}
		b.done <- err
	}()
	return b
}

// batch gives an empty batch to fill.
func (b *behind[R]) batch() []R {
	select {
	case rows := <-b.free:
		return rows
	default:
		return make([]R, 0, writeBatch)
	}
}

// send hands a batch over; it belongs to the writer from now on. An error is one
// of writing an earlier batch.
func (b *behind[R]) send(rows []R) error {
	select {
	case <-b.broken:
		return b.end()
	case b.ahead <- rows:
		return nil
	}
}

// end waits until everything is written and gives the first error. Further calls
// do nothing.
func (b *behind[R]) end() error {
	if !b.ended {
		b.ended = true
		close(b.ahead)
		b.err = <-b.done
	}
	return b.err
}
