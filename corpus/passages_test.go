package corpus

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// TestPassagesInParallel makes a corpus of several blocks of lines and row groups,
// with faults all over it: rows and rejects keep the order and the line numbers of
// the file, and the bytes do not depend on the number of cores.
func TestPassagesInParallel(t *testing.T) {
	var text bytes.Buffer
	var want []Passage
	var faults []string
	for i := range 30000 {
		line := i + 1
		contents := fmt.Sprintf("\"T %d\"\n%s – é", i, strings.Repeat("word ", i%150))
		switch {
		case i == 15000:
			contents = strings.Repeat("long ", 2<<20)
		case i%997 == 5:
			text.WriteString("{\"id\": \"x\", \"contents\": \"cut\n")
			faults = append(faults, fmt.Sprintf(`"row":%d,`, line))
			continue
		case i%997 == 6:
			fmt.Fprintf(&text, "{\"id\": \"%d\", \"contents\": \"again\"}\n", i-2)
			faults = append(faults, fmt.Sprintf(`"row":%d,"sample":"%d"`, line, i-2))
			continue
		case i%997 == 7:
			fmt.Fprintf(&text, "{\"id\": \"%d\", \"contents\": \" \"}\n", i)
			faults = append(faults, fmt.Sprintf(`"row":%d,"sample":"%d"`, line, i))
			continue
		}
		end := []string{"\n", "\r\n"}[i%2]
		fmt.Fprintf(&text, "{\"id\": \"%d\", \"contents\": %s}%s", i, strings.ReplaceAll(fmt.Sprintf("%q", contents), `\u2013`, "–"), end)
		want = append(want, Passage{ID: fmt.Sprint(i), Contents: contents})
	}
	in := filepath.Join(t.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(in, bytes.TrimRight(text.Bytes(), "\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var sum string
	for _, cores := range []int{3, 1} {
		runtime.GOMAXPROCS(cores)
		out := t.TempDir()
		if err := prep(t, job.Flags{}, PrepOptions{Format: "passages", In: []string{in}, Out: out, MaxRejects: 1}); err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		if s := m.Data()[0].SHA256; sum == "" {
			sum = s
		} else if s != sum {
			t.Error("other bytes with one core")
		}
		got := rowsOfDataset[Passage](t, out)
		if len(got) != len(want) {
			t.Fatalf("%d passages, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("passage %d: %.80q, want %.80q", i, got[i], want[i])
			}
		}
		rejects, err := os.ReadFile(filepath.Join(out, "rejects-00000-of-00001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(rejects)), "\n")
		if len(lines) != len(faults) {
			t.Fatalf("%d rejects, want %d", len(lines), len(faults))
		}
		for i, f := range faults {
			if !strings.Contains(lines[i], f) {
				t.Errorf("reject %d: %s, want %s", i, lines[i], f)
			}
		}
	}
}

// TestPassagesOnBothWays makes files with every fault in whole blocks and, for the
// sake of a limit, row by row: rows and rejects are the same.
func TestPassagesOnBothWays(t *testing.T) {
	var text strings.Builder
	for i := range 3000 {
		switch i % 100 {
		case 3:
			text.WriteString("{\"id\": \"bad\x01\", \"contents\": \"x\"}\n{\"contents\": \"no id\"}\n[1]\n\n")
		case 4:
			fmt.Fprintf(&text, "{\"_id\": %d, \"title\": \"a  \\\"title\\\"\", \"text\": \"body\\ud83d\\ude00 \\ud83d\"}\n", i)
		case 5: // its id is taken although it is rejected
			fmt.Fprintf(&text, "{\"id\": \"%d\", \"contents\": \"bad \\x\"}\n{\"id\": \"%d\", \"contents\": \"again\"}\n", i, i)
		case 6:
			fmt.Fprintf(&text, "{\"docid\": \"%d\", \"contents\": [1]}\n{\"id\": \"%d\", \"contents\": \"again\"}\n{\"id\": \"d%d\", \"contents\": \"\", \"text\": \"\"}\n", i, i-100, i)
		case 7:
			fmt.Fprintf(&text, "{\"id\": \"n%d\", \"contents\": \"%s\"}\n", i, strings.Repeat("long ", i))
		case 8:
			text.WriteString("{\"id\": \"9\", \"contents\": \"\xff\"}\n{\"id\": \"" + strings.Repeat("9", 600) + "\", \"contents\": \"x\"}\n")
		default:
			fmt.Fprintf(&text, "{\"id\": \"%d\", \"contents\": \"%d\"}\n", i, i)
		}
	}
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "1.jsonl"), filepath.Join(dir, "2.jsonl"), filepath.Join(dir, "3.jsonl")}
	for i, data := range []string{text.String(), `{"id": "9", "contents": "of an earlier file"}`, strings.ReplaceAll(text.String(), `d": "`, `d": "x`)} {
		if err := os.WriteFile(files[i], []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var both [2]string
	for i, limit := range []int64{0, 1 << 40} {
		out := t.TempDir()
		if err := prep(t, job.Flags{}, PrepOptions{Format: "passages", In: files, Out: out, MaxRejects: 1, Limit: limit}); err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		rejects, err := os.ReadFile(filepath.Join(out, "rejects-00000-of-00001.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		both[i] = fmt.Sprintf("%+v\n%q\n%s", m.Counts, rowsOfDataset[Passage](t, out), rejects)
	}
	if both[0] != both[1] {
		t.Errorf("whole blocks:\n%.2000s\nrow by row:\n%.2000s", both[0], both[1])
	}
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte("no\nrow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 9} {
		if err := prep(t, job.Flags{}, PrepOptions{Format: "passages", In: []string{bad}, Out: t.TempDir(), Limit: limit}); err == nil || !strings.Contains(err.Error(), "none of 2 rows can be used") {
			t.Error(limit, err)
		}
	}
}
