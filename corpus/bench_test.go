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

// BenchmarkLens repairs the paths of a cache with ten hits an entry.
func BenchmarkLens(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.png", i)), pngOf(uint8(i)), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var text bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&text, `{"data_id": "q%d", "query": "what is it", "cached_data": [`, i)
		for h := range 10 {
			if h > 0 {
				text.WriteString(", ")
			}
			fmt.Fprintf(&text, `{"cached_title": "A title of a page as such titles are %d", "cached_images_path": "%d.png"}`, h, (i*7+h*13)%105)
		}
		text.WriteString("]}\n")
	}
	cache := filepath.Join(b.TempDir(), "cache.jsonl")
	if err := os.WriteFile(cache, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		r := job.NewRun("lens", job.Flags{ProgressMode: "none"}, os.Stdout, &bytes.Buffer{})
		if err := Lens(context.Background(), r, LensOptions{Cache: []string{cache}, Roots: []string{dir}, Out: b.TempDir(), MaxMissing: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
