package corpus

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/token"
)

// TestChunks holds for both kinds of tokenizer that pieces fit, that nothing is
// lost or changes its order, and that neighbours overlap by what was asked for.
func TestChunks(t *testing.T) {
	const qwen, lower = "../internal/token/testdata/qwen", "../internal/token/testdata/lower"
	bpe, err := token.LoadBPE(qwen)
	if err != nil {
		t.Fatal(err)
	}
	wp, err := token.LoadWordPiece(lower)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for dir, count := range map[string]func(string) int{
		qwen:  func(s string) int { return len(bpe.EncodeOrdinary(s)) },
		lower: func(s string) int { return len(wp.Encode(s, 1<<20)) - 2 },
	} {
		k, err := newChunker(Chunking{Tokens: 40, Overlap: 10, Tokenizer: dir})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			words := make([]string, random.IntN(150))
			for w := range words {
				words[w] = fmt.Sprintf("w%d", w)
			}
			body := strings.Join(words, []string{" ", "\n", " \t "}[i%3])
			title := ""
			if i%2 == 0 {
				title = "\"Title of it\"\n"
			}
			pieces := k.cut(title + body)
			if len(pieces) == 1 {
				if pieces[0] != title+body {
					t.Fatalf("a short passage was changed: %q", pieces[0])
				}
				continue
			}
			next := 0
			for p, piece := range pieces {
				rest, ok := strings.CutPrefix(piece, title)
				if !ok || count(piece) > 40+2 { // the BPE may tell a line end from a space
					t.Fatalf("piece %d has %d tokens, or no title: %q", p, count(piece), piece)
				}
				got := strings.Fields(rest)
				var first int
				fmt.Sscanf(got[0], "w%d", &first)
				if first > next || p > 0 && first == next {
					t.Fatalf("piece %d begins with %d after %d: no overlap, or a gap", p, first, next)
				}
				if p > 0 {
					if n := count(strings.Join(words[first:next], " ")); n < 5 || n > 20 {
						t.Fatalf("an overlap of %d tokens", n) // the white space between counts, too
					}
				}
				for j, w := range got {
					if w != words[first+j] {
						t.Fatalf("piece %d is not what was cut: %q", p, w)
					}
				}
				next = first + len(got)
			}
			if next != len(words) {
				t.Fatalf("the end is missing: %d of %d words", next, len(words))
			}
		}
		// A word that is longer than a piece.
		pieces := k.cut(strings.Repeat("äöü", 400))
		if dir == qwen && len(pieces) < 5 || // WordPiece has one token for words it does not know
			len(pieces) == 0 || strings.Join(pieces, "")[:6] != "äöü" {
			t.Errorf("%d pieces of one word", len(pieces))
		}
		for _, p := range pieces {
			if count(p) > 40 {
				t.Errorf("%d tokens of one word", count(p))
			}
		}
	}
}

// TestPassageRules prepares a corpus with everything that is wrong with corpora.
func TestPassageRules(t *testing.T) {
	var b strings.Builder
	line := func(id, contents string) {
		text, _ := json.Marshal(contents)
		fmt.Fprintf(&b, `{"id": %q, "contents": %s}`+"\n", id, text)
	}
	long := strings.Repeat("word ", 2<<20) // 10 MB
	line("0", "\"T\"\nfirst")
	line("0", "the same id")
	line("1", "")
	line("2", "  \n ")
	b.WriteString("{\"id\": \"3\", \"contents\": \"\xff\xfe not UTF-8\"}\n")
	line("4", long)
	line("5", "\"T\"\nfirst")
	b.WriteString("{\"id\": \"6\", \"contents\": \"cut\n")
	b.WriteString("\n{\"contents\": \"no id\"}\n{\"id\": null, \"contents\": \"no id\"}\n[]\n7\n")
	line("8", "last")
	in := filepath.Join(t.TempDir(), "corpus.jsonl")
	os.WriteFile(in, []byte(b.String()), 0o600)
	for _, unique := range []bool{false, true} {
		o := PrepOptions{Format: "passages", In: []string{in}, Out: t.TempDir(), MaxRejects: 1, Unique: unique}
		if err := prep(t, job.Flags{Shards: 2}, o); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, p := range rowsOfDataset[Passage](t, o.Out) {
			ids = append(ids, p.ID)
			if p.ID == "4" && p.Contents != long {
				t.Error("the long line was changed")
			}
		}
		want := "0 4 5 8"
		if unique {
			want = "0 4 8"
		}
		m, _ := manifest.Open(o.Out)
		if got := strings.Join(ids, " "); got != want || m.Counts.In != 13 || m.Counts.OK+m.Counts.Rejected != 13 {
			t.Errorf("unique %t: %s, %+v", unique, got, m.Counts)
		}
	}
}

func TestChunkedDataset(t *testing.T) {
	in := filepath.Join(t.TempDir(), "corpus.jsonl")
	os.WriteFile(in, []byte(`{"id":"a","contents":"\"A\"\n`+strings.Repeat("one two three ", 30)+`"}`+"\n"+`{"id":"b","contents":"short"}`+"\nbroken\n"), 0o600)
	o := PrepOptions{Format: "passages", In: []string{in}, Out: t.TempDir(), MaxRejects: 1, Chunk: Chunking{Tokens: 32, Overlap: 4, Tokenizer: "../internal/token/testdata/lower"}}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	rows := rowsOfDataset[Passage](t, o.Out)
	if len(rows) < 4 || rows[0].ID != "a#0" || rows[1].ID != "a#1" || rows[len(rows)-1].ID != "b" || !strings.HasPrefix(rows[1].Contents, "\"A\"\n") {
		t.Errorf("%+v", rows)
	}
	for name, o := range map[string]PrepOptions{
		"overlap":   {Format: "passages", Chunk: Chunking{Tokens: 32, Overlap: 20, Tokenizer: "x"}},
		"tokenizer": {Format: "passages", Chunk: Chunking{Tokens: 32}},
		"few":       {Format: "passages", Chunk: Chunking{Tokens: 3, Tokenizer: "x"}},
		"questions": {Format: "jsonl", Chunk: Chunking{Tokens: 32, Tokenizer: "x"}},
	} {
		o.In, o.Out = []string{in}, t.TempDir()
		if err := prep(t, job.Flags{}, o); fail.KindOf(err) != fail.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}
