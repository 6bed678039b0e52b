//go:build faiss && cgo

package faiss

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/indexer/flat"
)

// python is an interpreter that has faiss: FAISS_PYTHON, or the system's own,
// where Debian's python3-faiss lies.
func python(t *testing.T) string {
	for _, p := range []string{os.Getenv("FAISS_PYTHON"), "/usr/bin/python3", "python3"} {
		if p != "" && exec.Command(p, "-c", "import faiss, numpy").Run() == nil {
			return p
		}
	}
	t.Skip("no Python with faiss and numpy: install Debian's python3-faiss, or name one by FAISS_PYTHON")
	return ""
}

// Python's faiss and this package read each other's files and find the same rows
// with the same scores.
func TestPython(t *testing.T) {
	exe := python(t)
	const k = 10
	kinds := []string{"Flat", "SQfp16", "IVF16,Flat", "IVF16,PQ8np", "HNSW16,Flat", "IDMap2,Flat", "SQ8", "IDMap,IVF16,SQfp16", "IVF16,SQ8"}
	effort := Effort{NProbe: 5, EfSearch: 400} // fewer candidates of a graph, and versions of FAISS differ among themselves
	dir := t.TempDir()
	v, q := units(2000, 21), units(50, 22)
	for name, x := range map[string][]float32{"vectors.f32": v, "queries.f32": q} {
		var b bytes.Buffer
		must(t, binary.Write(&b, binary.LittleEndian, x))
		must(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644))
	}
	for i, kind := range kinds {
		_, paths := built(t, kind, v, 1, Effort{})
		if kind == "Flat" {
			sameFile(t, paths[0], v)
		}
		must(t, os.Rename(paths[0], filepath.Join(dir, fmt.Sprintf("go-%d.index", i))))
	}
	cmd := exec.Command(exe, "testdata/peer.py", dir, strings.Join(kinds, ";"), fmt.Sprint(effort.NProbe), fmt.Sprint(effort.EfSearch), fmt.Sprint(k))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", exe, err, stderr.String())
	}
	type hits [2][]float64 // ids, scores
	var peer struct {
		Version    string
		Go, Python [][]hits
	}
	must(t, json.Unmarshal(text, &peer))
	t.Logf("Python's faiss %s (%s), %d kinds, %d queries, k %d", peer.Version, exe, len(kinds), len(q)/dim, k)
	for by, theirs := range map[string][][]hits{"go": peer.Go, "python": peer.Python} {
		for i, kind := range kinds {
			path := filepath.Join(dir, fmt.Sprintf("%s-%d.index", by, i))
			for reader, got := range search(t, path, q, k, effort) {
				worst := 0.0
				for n, h := range got {
					want := make([]flat.Hit, 0, k)
					for j, id := range theirs[i][n][0] {
						if id >= 0 {
							want = append(want, flat.Hit{Row: int64(id), Score: float32(theirs[i][n][1][j])})
						}
					}
					slices.SortStableFunc(want, func(a, b flat.Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Row, b.Row)) })
					if len(h) != len(want) {
						t.Fatalf("%s, written by %s, read by %s: query %d has %d hits, Python finds %d", kind, by, reader, n, len(h), len(want))
					}
					for j := range h {
						worst = max(worst, float64(max(h[j].Score-want[j].Score, want[j].Score-h[j].Score)))
						if h[j].Row != want[j].Row {
							t.Errorf("%s, written by %s, read by %s: query %d hit %d is %v, Python finds %v", kind, by, reader, n, j, h[j], want[j])
						}
					}
				}
				if worst > 1e-5 {
					t.Errorf("%s, written by %s, read by %s: a score differs by %g", kind, by, reader, worst)
				}
				t.Logf("%-20s written by %-6s read by %-5s: scores within %.1g", kind, by, reader, worst)
			}
		}
	}
}

// sameFile: package flat writes a flat file to the byte as FAISS does. (Half
// floats it rounds; Debian's FAISS, built without F16C, cuts them off.)
func sameFile(t *testing.T, path string, v []float32) {
	t.Helper()
	var own bytes.Buffer
	w, err := flat.NewWriter(&own, dim, int64(len(v)/dim))
	must(t, err)
	must(t, w.Write(v))
	must(t, w.Close())
	if faiss, err := os.ReadFile(path); err != nil || !bytes.Equal(faiss, own.Bytes()) {
		t.Errorf("package flat writes other bytes than FAISS (%v)", err)
	}
}

// search finds the hits of a file by all readers that know its kind.
func search(t *testing.T, path string, q []float32, k int, e Effort) map[string][][]flat.Hit {
	t.Helper()
	s, err := OpenSet([]string{path}, Effort{})
	must(t, err)
	defer s.Close()
	for _, sh := range s.shards {
		if !sh.traits().nprobe {
			e.NProbe = 0
		}
		if !sh.traits().efSearch {
			e.EfSearch = 0
		}
	}
	out := map[string][][]flat.Hit{}
	out["faiss"], err = s.SearchRange(context.Background(), q, k, e, flat.All)
	must(t, err)
	if h, err := ReadHead(path); err == nil && h.Flat() {
		f, err := flat.OpenSet([]string{path})
		must(t, err)
		defer f.Close()
		out["flat"], err = f.Search(context.Background(), q, k)
		must(t, err)
	}
	return out
}
