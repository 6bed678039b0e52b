package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/table"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// making is a rollouts dataset in the making.
type making struct {
	d    *job.Dataset
	sh   *job.Shard
	rows []trajectory.Row
}

func (b *bench) begin(t *testing.T) *making {
	t.Helper()
	d, err := job.Testing(t).Dataset(job.Spec{Dir: b.opt.Rollouts, Schema: trajectory.RolloutsSchema, Version: 1, Ext: "parquet"})
	if err != nil {
		t.Fatal(err)
	}
	sh, err := d.Begin(shard.Spec{I: 0, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &making{d: d, sh: sh}
}

// end journals a trajectory, as package rollout does.
func (m *making) end(t *testing.T, row trajectory.Row) {
	t.Helper()
	j, err := m.sh.Journal()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(map[string]any{"Row": row, "Time": map[string]any{"id": row.ID}})
	if err == nil {
		err = j.Append(row.ID, payload)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.rows = append(m.rows, row)
}

func (m *making) seal(t *testing.T) {
	t.Helper()
	w, err := m.sh.Part()
	if err != nil {
		t.Fatal(err)
	}
	out := table.NewWriter[trajectory.Row](w)
	if err := errors.Join(out.Write(m.rows...), out.Close(), m.sh.Commit(int64(len(m.rows)), manifest.Counts{OK: int64(len(m.rows))}), m.d.Seal(nil)); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// A judge that follows a rollout asks about rows while it runs, ends when it is
// sealed, and leaves the bytes that judging afterwards leaves; what it asked is not
// asked again, also not after it was stopped in the middle.
func TestFollow(t *testing.T) {
	look = time.Millisecond
	b := newBench(t, scripted.Options{}, []trajectory.Row{said("x", "y", "z")})
	b.opt.Rollouts = filepath.Join(b.dir, "growing")
	m := b.begin(t)
	follow := func(change func(*job.Run)) (stop func(), ended chan error) {
		r, o := job.Testing(t), b.opt
		r.RecipePath, r.Set, o.Follow = b.recipe, []string{"judge.max_failed=0.5"}, true
		if change != nil {
			change(r)
		}
		ended = make(chan error, 1)
		go func() { ended <- Run(t.Context(), r, o) }()
		return r.Stop, ended
	}
	stop, ended := follow(nil)
	// Two rows that no judge is asked about, and one that failed and is played again.
	m.end(t, said("a", "Paris", "Paris"))
	failed := said("b", "", "Paris")
	failed.Status, failed.HasAnswer = trajectory.Failed, false
	m.end(t, failed)
	m.end(t, said("c", "Rome", "Paris"))
	until(t, "the first row is judged", func() bool { return b.server.Requests() == 1 })
	if _, err := manifest.Read(manifest.Path(b.opt.Out)); err == nil {
		t.Fatal("a dataset of a rollout that is not finished")
	}
	stop()
	if err := <-ended; fail.ExitCode(err) != 75 {
		t.Fatal(err)
	}
	_, ended = follow(nil)
	for i := range 20 {
		row := said(fmt.Sprintf("d%02d", i), fmt.Sprint("answer ", i), "Paris", "city of light")
		row.Turns[0].Images = []string{"ab"}
		m.end(t, row)
	}
	until(t, "all rows are judged", func() bool { return b.server.Requests() == 21 })
	m.rows[1] = said("b", "Lyon", "Paris") // at the second try
	m.seal(t)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := b.server.Requests(); n != 22 {
		t.Errorf("%d requests for 22 rows", n)
	}
	if _, err := os.Stat(filepath.Join(b.opt.Out, ".work")); err == nil {
		t.Error("the folder of verdicts is still there")
	}
	ahead := b.bytes(t)
	b.opt.Out += "-afterwards"
	if err := b.run(t, func(r *job.Run, _ *Options) { r.Set = []string{"judge.max_failed=0.5"} }); err != nil {
		t.Fatal(err)
	}
	if n := b.server.Requests(); n != 44 || !bytes.Equal(ahead, b.bytes(t)) {
		t.Errorf("judged afterwards, by %d requests: other bytes", n-22)
	}
	// Nothing to do: the judge is not even looked for.
	if err := b.run(t, func(r *job.Run, o *Options) {
		r.Set, o.Follow = []string{"judge.max_failed=0.5"}, true
	}); err != nil || b.server.Requests() != 44 {
		t.Error(err)
	}
}

// bytes are the data of the judged dataset.
func (b *bench) bytes(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.opt.Out, "part-00000-of-00001.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A rollout that does not go on is given up, with what to do; one of another form
// and a folder of something else are bad input.
func TestFollowEnds(t *testing.T) {
	look = time.Millisecond
	b := newBench(t, scripted.Options{}, []trajectory.Row{said("x", "y", "z")})
	finished := b.opt.Rollouts
	b.opt.Rollouts = filepath.Join(b.dir, "growing")
	err := b.run(t, func(_ *job.Run, o *Options) { o.Follow, o.Patience = true, 20*time.Millisecond })
	if fail.ExitCode(err) != 75 {
		t.Error(err)
	}
	m := b.begin(t)
	j, err := m.sh.Journal()
	if err == nil {
		err = j.Append("a", []byte(`{"Trajectory": 1}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := b.run(t, func(_ *job.Run, o *Options) { o.Follow = true }); fail.KindOf(err) != fail.BadInput {
		t.Error(err)
	}
	if err := b.run(t, func(_ *job.Run, o *Options) { o.Follow, o.Rollouts = true, finished }); err != nil {
		t.Error(err)
	}
}
