package job

import (
	"strings"
	"testing"
)

// F13: the lock of a process that was killed stands in nobody's way, and the next one
// says whose shard it takes over.
func TestF13DeadHolder(t *testing.T) {
	in, out := world(t)
	gate := out + ".gate"
	first := start(t, nil, "--in", in, "--out", out, "--gate", gate)
	journaled(t, out, 50)
	first.Process.Kill()
	first.code()
	second := start(t, nil, "--in", in, "--out", out)
	if code := second.code(); code != 0 || !strings.Contains(second.stderr.String(), "taking over from a process that ended") {
		t.Fatalf("exit %d\n%s", code, second.stderr.String())
	}
	_, quiet := world(t)
	mustRun(t, "--in", in, "--out", quiet)
	sameTree(t, tree(t, quiet), tree(t, out))
}
