package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/rollout/trajectory"
)

// look is the time between two looks at a rollout that goes on; tests shorten it.
var look = 500 * time.Millisecond

// verdicts is where a judge that follows a rollout keeps what it has found, unless
// there is a store for all runs: a folder that goes when the dataset is finished.
func verdicts(out string) string { return filepath.Join(out, ".work", "verdicts") }

// followed is a rollout in the making, as its journals show it.
type followed struct {
	dir   string
	tails map[string]*journal.Tail
	seen  map[string]bool // ids of rows that were given out
}

// sealed says whether the rollouts dataset is finished.
func (f *followed) sealed() (bool, error) {
	m, err := manifest.Read(manifest.Path(f.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = m.Require(f.dir, trajectory.RolloutsSchema, trajectory.Version)
	}
	return err == nil, err
}

// news gives the rows that ended since the last call to do, and says how many there
// were. It ends early when do says false. A trajectory that failed may be played
// again, so it is left for later.
func (f *followed) news(do func(trajectory.Row) bool) (n int, err error) {
	paths, err := filepath.Glob(filepath.Join(f.dir, ".work", "part-*.journal"))
	if err != nil {
		return 0, fail.Wrap(fail.Bug, "follow rollout", f.dir, err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		tail := f.tails[path]
		if tail == nil {
			tail = journal.NewTail(path)
			f.tails[path] = tail
		}
		for {
			_, payload, ok, err := tail.Next()
			if err != nil {
				return n, err
			}
			if !ok {
				break
			}
			row, err := trajectory.Journaled(payload)
			if err != nil {
				return n, &fail.Error{Kind: fail.BadInput, Op: "follow rollout", Path: path, Err: err, Hint: "it was written by another version of rollout; judge when it has ended"}
			}
			n++
			if row.Status == trajectory.Failed || f.seen[row.ID] {
				continue
			}
			f.seen[row.ID] = true
			if !do(row) {
				return n, nil
			}
		}
	}
	return n, nil
}

func (f *followed) close() {
	for _, t := range f.tails {
		t.Close()
	}
}

// keepUp follows the rollout when it is not finished yet. Without judges to ask it only
// waits.
func (w *work) keepUp(ctx context.Context, asked bool) error {
	switch done, err := (&followed{dir: w.o.Rollouts}).sealed(); {
	case err != nil || done:
		return err
	case w.o.Out == "" || w.o.Rollouts == "":
		return fail.WithHint(fail.New(fail.Usage, "judge", "", "no rollouts or no output folder"), "add --rollouts DIR and --out DIR")
	}
	if w.r.Fresh && asked {
		if err := os.RemoveAll(verdicts(w.o.Out)); err != nil {
			return fail.Wrap(fail.Disk, "remove", verdicts(w.o.Out), err)
		}
	}
	if asked {
		if err := w.seat(ctx); err != nil {
			return err
		}
	}
	return w.follow(ctx)
}

// follow asks the judges about every row of a rollout as soon as it has ended, until
// the dataset is sealed. Their verdicts are kept by what was judged; the dataset is
// made of them afterwards, as if all had been asked then.
func (w *work) follow(ctx context.Context) error {
	mine, err := w.r.Owner()
	if err != nil {
		return err
	}
	f := &followed{dir: w.o.Rollouts, tails: map[string]*journal.Tail{}, seen: map[string]bool{}}
	defer f.close()
	progress := w.r.Progress("verdicts ahead", 0)
	defer progress.Done()
	samples := w.r.Samples(ctx, w.rec.Judge.Concurrency)
	for heard := time.Now(); !samples.Over(); {
		done, err := f.sealed()
		if err != nil {
			samples.Fail(err)
			break
		}
		if done {
			break
		}
		n, err := f.news(func(row trajectory.Row) bool {
			if w.panel == nil || !mine(row.Question) {
				return true
			}
			row.TokenIDs, row.LossMask, row.Logprobs = nil, nil, nil // judges read no tokens
			return samples.Go(func(ctx context.Context) error { return w.ahead(ctx, progress, &row) })
		})
		if err != nil {
			samples.Fail(err)
			break
		}
		if n > 0 {
			heard = time.Now()
		} else if quiet := time.Since(heard); quiet > cmp.Or(w.o.Patience, time.Hour) {
			samples.Fail(&fail.Error{Kind: fail.Interrupted, Op: "follow rollout", Path: w.o.Rollouts, Err: fmt.Errorf("no trajectory has ended for %s, and it is not finished", quiet.Round(time.Second)),
				Hint: "see whether the rollout still runs; the verdicts are kept, run this again"})
			break
		}
		select {
		case <-w.r.Stopping():
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
	return samples.Wait("judge")
}

// ahead asks the judges about one row, if they will be asked about it.
func (w *work) ahead(ctx context.Context, progress *job.Progress, t *trajectory.Row) error {
	v, _ := w.exact(t)
	if v != "" && (v != trajectory.Correct || !w.panel.check) {
		return nil
	}
	r, _, err := w.panel.decide(ctx, t)
	if err != nil {
		return err
	}
	if decided(r.Verdict) {
		progress.Add(1, 0)
	} else {
		progress.Add(0, 1) // asked again in the end
	}
	return nil
}
