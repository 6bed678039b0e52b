package rollout

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/rollout/scripted"
)

// TestRecordedRun holds that a run is made again from its record alone: the same
// bytes, and not one request. A run that asks for something else is told what.
func TestRecordedRun(t *testing.T) {
	b := newBench(t, 4, scripted.Options{Tokens: true, Faults: []scripted.Fault{{Kind: "503", From: 4, Num: 2}}})
	record := filepath.Join(b.dir, "record")
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Record = record }); err != nil {
		t.Fatal(err)
	}
	asked := b.server.Requests()
	if _, err := b.run(t, func(_ *job.Run, o *Options) { o.Out += "-replayed"; o.Replay = record }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(parts(t, b.opt.Out), parts(t, b.opt.Out+"-replayed")) {
		t.Error("the replay differs")
	}
	_, err := b.run(t, func(r *job.Run, o *Options) {
		o.Out, o.Replay, r.Set = o.Out+"-other", record, []string{"seed=77"}
	})
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "not recorded: chat") {
		t.Error(err)
	}
	if n := b.server.Requests() - asked; n != 0 {
		t.Errorf("%d requests to the policy during replays", n)
	}
}
