package judge

import (
	"path/filepath"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/rollout/fence"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// TestRecordedVerdicts holds that verdicts, and that there was none, are replayed
// without a request.
func TestRecordedVerdicts(t *testing.T) {
	judge := scripted.Func(func(c scripted.Conversation) (string, error) {
		answer, _ := fence.Find(c.Messages[1].Text, "ANSWER")
		return map[string]string{"a": "Yes", "b": "No"}[answer], nil
	})
	var rows []trajectory.Row
	for _, id := range []string{"a", "b", "c"} { // to c the judge says nothing
		rows = append(rows, said(id, id, "Paris"))
	}
	b := newBench(t, scripted.Options{Script: judge}, rows)
	record, cache := filepath.Join(b.dir, "record"), filepath.Join(b.dir, "cache")
	recorded := b.run(t, func(_ *job.Run, o *Options) { o.Record, o.Cache = record, cache })
	want := b.outline(t)
	m, err := manifest.Open(b.opt.Out)
	if err != nil {
		t.Fatal(recorded, err)
	}
	asked := b.server.Requests()
	b.opt.Out += "-replayed"
	replayed := b.run(t, func(_ *job.Run, o *Options) { o.Replay = record })
	again, err := manifest.Open(b.opt.Out)
	if err != nil || fail.ExitCode(replayed) != fail.ExitCode(recorded) || b.outline(t) != want || again.Digest() != m.Digest() {
		t.Errorf("%v, %v, %v\n got %s\nwant %s", recorded, replayed, err, b.outline(t), want)
	}
	if n := b.server.Requests() - asked; n != 0 || asked < 3 {
		t.Errorf("%d requests after %d", n, asked)
	}
}
