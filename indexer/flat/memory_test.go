//go:build linux

package flat

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	allowed  = 64 << 20 // bytes of memory, page cache included
	largeDim = 256
	largeN   = 192 << 10 // rows: 192 MB
	planted  = 150_001   // this row is the query
)

// An index three times as large as the memory that the process may use is
// searched like any other: pages are read as they are needed and given back.
func TestG6LargerThanMemory(t *testing.T) {
	if dir := os.Getenv("LARGER_THAN_MEMORY"); dir != "" {
		searchLarge(t, dir)
		return
	}
	if testing.Short() {
		t.Skip("writes 192 MB")
	}
	group := limitedGroup(t)
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"), os.Args[0], "-test.run=^TestG6LargerThanMemory$", "-test.v")
	cmd.Env = append(os.Environ(), "LARGER_THAN_MEMORY="+t.TempDir())
	text, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(text, []byte("found it")) {
		t.Fatalf("under %d MB of memory: %v\n%s", allowed>>20, err, text)
	}
	for _, peak := range []string{"memory.max_usage_in_bytes", "memory.peak"} {
		if b, err := os.ReadFile(filepath.Join(group, peak)); err == nil {
			n, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil || n > allowed+allowed/100 { // it counts by more than a page
				t.Errorf("%d bytes of memory were used (%v)", n, err)
			}
			t.Logf("%d MB searched in %d MB of memory", largeN*largeDim*4>>20, n>>20)
		}
	}
}

// limitedGroup is a control group, of either version, with little memory.
func limitedGroup(t *testing.T) string {
	for root, limit := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		group := filepath.Join(root, "searchloop-test-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(group) })
		if os.WriteFile(filepath.Join(group, limit), []byte(strconv.Itoa(allowed)), 0o644) == nil {
			return group
		}
		os.Remove(group)
	}
	t.Skip("memory control groups cannot be made here: that needs root and a writable /sys/fs/cgroup")
	return ""
}

func searchLarge(t *testing.T, dir string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "large.index")
	f, err := os.Create(path)
	must(err)
	w, err := NewWriter(f, largeDim, largeN)
	must(err)
	rng := rand.New(rand.NewPCG(1, 2))
	row, query := make([]float32, largeDim), make([]float32, largeDim)
	for r := range largeN {
		for i := range row {
			row[i] = rng.Float32() - 0.5
		}
		if r == planted {
			copy(query, row)
		}
		must(w.Write(row))
	}
	must(w.Close())
	must(f.Sync())
	must(f.Close())
	s, err := OpenSet([]string{path})
	must(err)
	defer s.Close()
	for range 2 {
		hits, err := s.Search(context.Background(), query, 3)
		must(err)
		if hits[0][0].Row != planted {
			t.Fatalf("%v", hits[0])
		}
	}
	t.Log("found it")
}
