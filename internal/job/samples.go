package job

import (
	"context"
	"sync"

	"searchloop/internal/fail"
)

// Each makes the shards that this process should make, in order; make may not be
// called for one that another process holds. It commits what it makes.
func (d *Dataset) Each(make func(*Shard) error) error {
	for _, s := range d.Todo() {
		sh, err := d.Begin(s)
		if err != nil {
			return err
		}
		if sh == nil {
			continue
		}
		err = make(sh)
		sh.Discard()
		if err != nil {
			return err
		}
	}
	return nil
}

// Samples runs work on samples side by side, one goroutine each; one that has ended its
// sample takes the next, with the stack that it has by then. The first error
// cancels the others. When the job is asked to stop no further sample begins, and
// those in flight may end within the grace time.
type Samples struct {
	run    *Run
	ctx    context.Context
	cancel context.CancelCauseFunc
	slots  chan struct{}
	wg     sync.WaitGroup // of goroutines
	tasks  chan func()    // for those that wait
	begun  int            // goroutines, of which there are as many as slots at most

	flight  *flight // of the samples of a shard
	closing func()

	mu    sync.Mutex
	first error
}

// Samples begins work on samples, at most n at once. Wait must be called.
func (r *Run) Samples(ctx context.Context, n int) *Samples {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Samples{run: r, ctx: ctx, cancel: cancel, slots: make(chan struct{}, max(1, n)), tasks: make(chan func())}
}

// Go waits for a place and calls work in a goroutine of its own. It is false when
// no sample should begin any more. It must not be called by two goroutines at once, nor
// after Wait.
func (s *Samples) Go(work func(context.Context) error) bool { return s.begin(1, work) }

// begin is Go for work that takes so many places.
func (s *Samples) begin(places int, work func(context.Context) error) bool {
	if s.Over() {
		return false
	}
	for i := range places {
		select {
		case s.slots <- struct{}{}:
			continue
		case <-s.run.Stopping():
		case <-s.ctx.Done():
		}
		s.free(i)
		return false
	}
	task := func() {
		if err := work(s.ctx); err != nil {
			s.Fail(err)
		}
		s.free(places) // not after a panic: nothing more is to begin while the process dies
	}
	if s.begun == cap(s.slots) { // there is a place, so that one of them waits or is about to
		s.tasks <- task
		return true
	}
	s.begun++
	s.wg.Go(func() {
		for ; task != nil; task = <-s.tasks {
			task()
		}
	})
	return true
}

func (s *Samples) free(places int) {
	for range places {
		<-s.slots
	}
}

// Over says whether no sample should begin any more.
func (s *Samples) Over() bool { return s.run.Stopped() || s.ctx.Err() != nil }

// Fail ends the work because of err. Of a failure and of the interruptions that it
// causes, the failure is told.
func (s *Samples) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil || fail.KindOf(s.first) == fail.Interrupted && fail.KindOf(err) != fail.Interrupted {
		s.first = err
	}
	s.cancel(err)
}

// Wait waits for the samples in flight. Its error says why not all were done; op
// is what was being done.
func (s *Samples) Wait(op string) error {
	close(s.tasks)
	s.wg.Wait()
	if s.closing != nil {
		s.closing()
	}
	defer s.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		return s.first
	}
	if s.ctx.Err() != nil {
		return fail.Wrap(fail.Interrupted, op, "", context.Cause(s.ctx))
	}
	return s.run.Interrupted()
}
