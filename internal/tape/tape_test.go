package tape

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
)

type ask struct {
	Query string `json:"query"`
	Top   int    `json:"top"`
}

func TestRecordAndReplay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tape")
	rec, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if ok, err := rec.Get("web", ask{"<a> & \u2028", 1}, &got); ok || err != nil {
		t.Fatalf("an empty tape gave %v, %v", ok, err)
	}
	if err := rec.Put("web", ask{"<a> & \u2028", 1}, "first"); err != nil {
		t.Fatal(err)
	}
	rep, err := Open("", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tape := range []*Tape{rec, rep} {
		// The same request with its fields in another order.
		if ok, err := tape.Get("web", map[string]any{"top": 1, "query": "<a> & \u2028"}, &got); !ok || err != nil || got != "first" {
			t.Errorf("got %q, %v, %v", got, ok, err)
		}
	}
	if err := rep.Put("web", ask{"b", 1}, "x"); err != nil {
		t.Fatal(err)
	}
	// Requests hold tags, which files have escaped.
	if err := rec.Put("web", ask{"<a> & b", 1}, "tags"); err != nil {
		t.Fatal(err)
	}
	if ok, err := rep.Get("web", ask{"<a> & b", 1}, &got); !ok || err != nil || got != "tags" {
		t.Errorf("got %q, %v, %v", got, ok, err)
	}
	for _, missing := range []struct {
		kind string
		ask  ask
	}{{"web", ask{"b", 1}}, {"page", ask{"<a> & \u2028", 1}}} {
		ok, err := rep.Get(missing.kind, missing.ask, &got)
		if ok || fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), missing.kind) || !strings.Contains(err.Error(), missing.ask.Query[:1]) {
			t.Errorf("%v: %v, %v", missing, ok, err)
		}
	}
}

func TestNoTape(t *testing.T) {
	none, err := Open("", "")
	if err != nil || none != nil || none.Replays() {
		t.Fatal(none, err)
	}
	if ok, err := none.Get("web", 1, nil); ok || err != nil {
		t.Error(ok, err)
	}
	if err := none.Put("web", 1, 2); err != nil {
		t.Error(err)
	}
	if _, err := Open("a", "b"); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
	if _, err := Open("", filepath.Join(t.TempDir(), "absent")); fail.KindOf(err) != fail.BadInput {
		t.Error(err)
	}
}

func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	rec, _ := Open(dir, "")
	if err := rec.Put("web", 1, "x"); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*.zst"))
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		os.WriteFile(files[0], whole[:i], 0o600)
		var got string
		if ok, err := rec.Get("web", 1, &got); ok || fail.KindOf(err) != fail.BadInput {
			t.Errorf("cut at %d: %v, %v", i, ok, err)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, f := range []*retry.Fault{nil, {Verdict: retry.Never, Class: "http 400", Err: errors.New("bad")}, {Verdict: retry.Again, Class: "timeout"}} {
		got := FaultOf(f).Retry()
		if (got == nil) != (f == nil) || f != nil && (got.Verdict != f.Verdict || got.Error() != f.Error()) {
			t.Errorf("%v became %v", f, got)
		}
	}
	for _, v := range []retry.Verdict{retry.Busy, retry.Stop, retry.Caller} {
		if FaultOf(&retry.Fault{Verdict: v}) != nil {
			t.Errorf("verdict %d is recorded", v)
		}
	}
}
