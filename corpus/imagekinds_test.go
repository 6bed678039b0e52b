package corpus

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/job"
)

// TestImageKinds prepares questions with pictures of every kind that is to be
// read, whole and cut: with --decode-images the cut ones are rejects that say
// why; without it those whose header is whole stay.
func TestImageKinds(t *testing.T) {
	files, _ := filepath.Glob("testdata/images/*")
	if len(files) < 10 {
		t.Fatal(files)
	}
	var b strings.Builder
	line := func(name string, data []byte) {
		url, _ := json.Marshal("data:image/x;base64," + base64.StdEncoding.EncodeToString(data))
		fmt.Fprintf(&b, `{"id":%q,"question":"?","answer":"a","image":%s}`+"\n", name, url)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		line(name, data)
		line(name+" cut", data[:len(data)/3])
	}
	in := filepath.Join(t.TempDir(), "rows.jsonl")
	os.WriteFile(in, []byte(b.String()), 0o600)
	o := PrepOptions{Format: "jsonl", In: []string{in}, Out: t.TempDir(), MaxRejects: 1, DecodeImages: true}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for _, q := range rowsOfDataset[Question](t, o.Out) {
		kept[q.ID] = true
	}
	rejects, err := os.ReadFile(filepath.Join(o.Out, "rejects-00000-of-00001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		bomb, avif := strings.HasPrefix(name, "bomb"), strings.HasSuffix(name, ".avif")
		if avif && strings.Contains(string(rejects), "not built in") {
			continue
		}
		if kept[name] == bomb {
			t.Errorf("%s: kept %t", name, kept[name])
		}
		if kept[name+" cut"] {
			t.Errorf("%s cut short was kept", name)
		}
	}
}
