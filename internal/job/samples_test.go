package job

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"searchloop/internal/fail"
)

func TestSamplesRunSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Testing(t).Samples(t.Context(), 3)
		var now, most, done atomic.Int32
		for range 10 {
			s.Go(func(context.Context) error {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				done.Add(1)
				return nil
			})
		}
		if err := s.Wait("test"); err != nil || most.Load() != 3 || done.Load() != 10 {
			t.Error(err, most.Load(), done.Load())
		}
	})
}

func TestSamplesEndAtTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Testing(t).Samples(t.Context(), 2)
		why := fail.New(fail.Disk, "write", "", "no space")
		s.Go(func(ctx context.Context) error { // sees the cancellation first
			<-ctx.Done()
			return fail.Wrap(fail.Interrupted, "wait", "", context.Cause(ctx))
		})
		s.Go(func(context.Context) error { return why })
		synctest.Wait()
		if s.Go(func(context.Context) error { t.Error("began after the failure"); return nil }) {
			t.Error("not over")
		}
		if err := s.Wait("test"); !errors.Is(err, why) || fail.KindOf(err) != fail.Disk {
			t.Error(err)
		}
	})
}

func TestSamplesInFlightMayEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Testing(t)
		s := r.Samples(t.Context(), 1)
		ended := false
		s.Go(func(ctx context.Context) error {
			time.Sleep(time.Second)
			ended = ctx.Err() == nil
			return nil
		})
		r.Stop()
		if s.Go(func(context.Context) error { return nil }) {
			t.Error("began after the stop")
		}
		if err := s.Wait("test"); fail.KindOf(err) != fail.Interrupted || !ended {
			t.Error(err, ended)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Testing(t).Samples(ctx, 1).Wait("test"); fail.KindOf(err) != fail.Interrupted {
			t.Error(err)
		}
	})
}
