package job

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"searchloop/internal/fail"
)

// repeat is how long after the first signal another one is taken for the same:
// timeout(1), schedulers and shells signal a process and then its group.
const repeat = 250 * time.Millisecond

// reserve is the end of the grace time that is kept for writing down what ended.
func reserve(grace time.Duration) time.Duration { return min(10*time.Second, grace/3) }

// handleSignals returns the command's context. The first SIGTERM or SIGINT closes
// Stopping; after the grace time, less a reserve, the context ends; at the end of
// the grace time the process exits with 75 whatever it does. A second signal exits
// with 130 at once. SIGUSR1 prints the progress.
func (r *Run) handleSignals(errs io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	done := make(chan struct{})
	go func() {
		var first time.Time
		var soft, hard <-chan time.Time
		for {
			select {
			case <-done:
				return
			case s := <-ch:
				switch {
				case s == syscall.SIGUSR1:
					r.printProgress()
				case first.IsZero():
					first = time.Now()
					r.Stop()
					fmt.Fprintf(errs, "%s: %v: ending what is in flight, at most %v; a second signal exits at once\n", r.Name, s, r.Grace)
					soft, hard = time.After(r.Grace-reserve(r.Grace)), time.After(r.Grace)
				case time.Since(first) > repeat:
					r.exit(errs, fail.Killed, "second signal")
				}
			case <-soft:
				cancel()
			case <-hard:
				r.exit(errs, fail.Interrupted, "the grace time is over")
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel()
	}
}

// exit ends the process now. What is finished is safe on disk at any moment, so
// nothing waits for the command. The summary gets a moment; a full or dead disk
// must not hold the exit up.
func (r *Run) exit(errs io.Writer, k fail.Kind, why string) {
	err := &fail.Error{Kind: k, Op: r.Name, Err: fmt.Errorf("%s", why), Hint: "what is finished is kept; run the same command again to continue"}
	fmt.Fprintln(errs, err)
	wrote := make(chan struct{})
	go func() {
		r.summarise(err)
		close(wrote)
	}()
	select {
	case <-wrote:
	case <-time.After(time.Second):
	}
	os.Exit(k.ExitCode())
}
