//go:build fault

package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/manifest"
)

// points runs the job once and counts how often each point is reached.
func points(t *testing.T, args ...string) map[string]int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "points")
	if p := start(t, []string{"SEARCHLOOP_POINTS=" + file}, args...); p.code() != 0 {
		t.Fatal(p.stderr.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, name := range strings.Fields(string(text)) {
		count[name]++
	}
	return count
}

// The process is killed at every step there is; the next run ends as a quiet one.
func TestKillAtEveryPoint(t *testing.T) {
	in, quiet := world(t)
	all := points(t, "--in", in, "--out", quiet, "--shards=2")
	want := tree(t, quiet)
	kills := 0
	for name, n := range all {
		for i := 1; i <= n; i++ {
			_, out := world(t)
			p := start(t, []string{fmt.Sprintf("SEARCHLOOP_KILL_AT=%s:%d", name, i)}, "--in", in, "--out", out, "--shards=2")
			if code := p.code(); code != -1 {
				t.Fatalf("%s:%d: exit %d\n%s", name, i, code, p.stderr.String())
			}
			kills++
			mustRun(t, "--in", in, "--out", out, "--shards=2")
			sameTree(t, want, tree(t, out))
		}
	}
	t.Logf("%d points, %d kills", len(all), kills)
}

// Every call that can fail does, once: exit 74, nothing half is visible, and a
// rerun completes.
func TestFailAtEveryPoint(t *testing.T) {
	in, quiet := world(t)
	all := points(t, "--in", in, "--out", quiet, "--shards=2")
	want := tree(t, quiet)
	for name, n := range all {
		for i := 1; i <= n; i++ {
			for _, errno := range []string{"ENOSPC", []string{"EIO", "EACCES", "EDQUOT"}[i%3]} {
				_, out := world(t)
				p := start(t, []string{fmt.Sprintf("SEARCHLOOP_FAIL_AT=%s:%d:%s", name, i, errno)}, "--in", in, "--out", out, "--shards=2")
				code := p.code()
				if code != 74 {
					t.Fatalf("%s:%d %s: exit %d\n%s", name, i, errno, code, p.stderr.String())
				}
				if m, err := manifest.Open(out); err == nil && m.Verify(out) != nil {
					t.Fatalf("%s:%d %s: a manifest over half parts", name, i, errno)
				}
				mustRun(t, "--in", in, "--out", out, "--shards=2")
				sameTree(t, want, tree(t, out))
			}
		}
	}
}
