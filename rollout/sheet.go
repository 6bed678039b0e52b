package rollout

import (
	"encoding/json"
	"io"
	"sync"
	"unicode/utf8"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// sheet writes a shard's rows into its part, in the order of their ids, and their
// timings beside it, while later trajectories are still being played. A row that ends
// before its turn is kept until then, or read back from the journal when too many are.
// Nothing of it is visible before commit.
type sheet struct {
	w     *work
	sh    *job.Shard
	j     *journal.Journal
	rows  []todo
	over  chan struct{} // closed when the goroutine has ended
	err   error         // of the goroutine, once it has
	out   *table.Writer[trajectory.Row]
	times *json.Encoder

	counts manifest.Counts
	used   manifest.Usage
	policy string

	mu   sync.Mutex
	wake sync.Cond
	kept map[int]*record // rows that have ended, by their place
	size int             // of kept, in bytes
	quit bool            // nothing more will end
}

// keptBytes bounds the rows that wait for their turn.
const keptBytes = 64 << 20

// sheet begins the part of a shard; those of rows that are done are in the journal.
func (w *work) sheet(sh *job.Shard, j *journal.Journal, rows []todo) (*sheet, error) {
	part, err := sh.Part()
	if err != nil {
		return nil, err
	}
	extra, err := sh.Extra(sh.Shard.Name("timings", "jsonl"))
	if err != nil {
		return nil, err
	}
	s := &sheet{w: w, sh: sh, j: j, rows: rows, over: make(chan struct{}), kept: map[int]*record{},
		out: table.NewWriter[trajectory.Row](part), times: json.NewEncoder(extra), counts: manifest.Counts{In: int64(len(rows))}}
	s.wake.L = &s.mu
	go func() {
		defer close(s.over)
		if s.err = s.write(); s.err == io.EOF {
			s.err = nil
		}
	}()
	return s, nil
}

// ended hands over a trajectory that is in the journal.
func (s *sheet) ended(at int, rec *record) {
	n, keep := rec.size(), rec.asJournalled()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[at].done = true
	if keep && s.size+n <= keptBytes {
		s.kept[at] = rec
		s.size += n
	}
	s.wake.Signal()
}

// size is about how much memory a record takes.
func (r *record) size() int {
	n := 1<<10 + 9*len(r.Row.TokenIDs)
	for _, t := range r.Row.Turns {
		n += 300 + len(t.Text) + len(t.Args)
	}
	return n
}

// asJournalled makes a record what the journal gives back; false: it is another there.
// A row must not depend on where it came from.
func (r *record) asJournalled() bool {
	row := &r.Row
	ok := valid(row.ID, row.Run, row.Question, row.Group, row.DataSource, row.Category, row.Text, row.Status, row.Why, row.Answer, row.LogprobMode, row.Policy, row.Recipe) &&
		valid(row.Answers...)
	for _, img := range row.Images {
		ok = ok && valid(img.ID)
	}
	for i := range row.Turns {
		t := &row.Turns[i]
		ok = ok && valid(t.Role, t.Text, t.Call, t.Args, t.Error, t.Finish) && valid(t.Images...)
		for _, s := range t.Sources {
			ok = ok && valid(s.Provider, s.URL, s.Time, s.SHA256)
		}
		if len(t.Sources) == 0 {
			t.Sources = nil
		}
	}
	return ok
}

func valid(texts ...string) bool {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// write writes rows until all are written or none will end any more.
func (s *sheet) write() error {
	for at := range s.rows {
		rec, err := s.next(at)
		if err != nil {
			return err
		}
		if err := s.enter(rec); err != nil {
			return err
		}
		// One by one: pages end where a batch does.
		if err := s.out.Write(rec.Row); err != nil {
			return fail.Wrap(fail.Disk, "write rollouts", s.w.o.Out, err)
		}
	}
	return nil
}

// next waits for the end of a trajectory; io.EOF: it was not played.
func (s *sheet) next(at int) (*record, error) {
	s.mu.Lock()
	for !s.rows[at].done && !s.quit {
		s.wake.Wait()
	}
	rec, done := s.kept[at], s.rows[at].done
	if rec != nil {
		delete(s.kept, at)
		s.size -= rec.size()
	}
	s.mu.Unlock()
	switch {
	case !done:
		return nil, io.EOF
	case rec != nil:
		return rec, nil
	}
	id := s.rows[at].id
	payload, ok := s.j.Get(id)
	rec = new(record)
	if err := json.Unmarshal(payload, rec); !ok || err != nil {
		return nil, fail.New(fail.BadInput, "read journal", s.j.Path(), "trajectory %s is missing or damaged", id)
	}
	return rec, nil
}

// enter checks and counts a row and writes its timing.
func (s *sheet) enter(rec *record) error {
	if err := rec.Row.Check(); err != nil {
		return &fail.Error{Kind: fail.Bug, Op: "check row", Sample: rec.Row.ID, Err: err}
	}
	if p := rec.Row.Policy; p != "" {
		if s.policy != "" && p != s.policy {
			return fail.WithHint(fail.New(fail.BadInput, "roll out", s.w.o.Out, "two policies answered: %.16s and %.16s", s.policy, p),
				"the server was given other weights during the run; use --fresh")
		}
		s.policy = p
	}
	if rec.Row.Status == trajectory.Failed {
		s.counts.Failed++
	} else {
		s.counts.OK++
	}
	s.w.sum.add(&rec.Row)
	s.used = s.used.Add(usage(&rec.Row, rec.Time))
	return fail.Wrap(fail.Disk, "write rollouts", s.w.o.Out, s.times.Encode(rec.Time))
}

// close ends the writing, whatever is written by then.
func (s *sheet) close() {
	s.mu.Lock()
	s.quit = true
	s.wake.Signal()
	s.mu.Unlock()
	<-s.over
}

// commit publishes the part when every trajectory has ended.
func (s *sheet) commit(reused int64) error {
	<-s.over
	if s.err != nil {
		return s.err
	}
	if err := s.out.Close(); err != nil {
		return fail.Wrap(fail.Disk, "write rollouts", s.w.o.Out, err)
	}
	s.counts.Reused = reused
	var err error
	if s.used.Providers, err = s.w.web.paid(); err != nil {
		return err
	}
	for _, p := range s.used.Providers {
		s.used.Cost += p.Dollars
	}
	s.sh.Use(s.used)
	return s.sh.Commit(s.out.Rows(), s.counts)
}
