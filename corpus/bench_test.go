package corpus

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/job"
)

// BenchmarkPassages prepares a text corpus; bytes are those of the JSON lines.
func BenchmarkPassages(b *testing.B) {
	words := strings.Fields("the wing of a river was in music and history from city to boundary layer pressure 1923 university film born")
	var text bytes.Buffer
	for i := range 50000 {
		fmt.Fprintf(&text, `{"id": "%d", "contents": "\"Title %d\"\n`, i, i)
		for w := range 95 {
			text.WriteString(words[(i*31+w*w*7+w*i)%len(words)] + " ")
		}
		text.WriteString("\u2013.\"}\n")
	}
	in := filepath.Join(b.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(in, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		r := job.NewRun("prep", job.Flags{ProgressMode: "none"}, os.Stdout, &bytes.Buffer{})
		if err := Prep(context.Background(), r, PrepOptions{Format: "passages", In: []string{in}, Out: b.TempDir(), MaxRejects: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
