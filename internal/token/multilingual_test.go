package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// linesGolden is what testdata/multilingual.py writes.
type linesGolden struct {
	By      string
	Text    []string
	Tokens  map[string][]string
	Words   []string          // vocabulary of "words", by id
	Pieces  []json.RawMessage // vocabulary of "pieces"
	Digests []string          // for a folder that was named
}

const (
	lineCount = 10000
	lineBlock = 1000
)

// splitmix is the generator of multilingual.py.
type splitmix uint64

func (r *splitmix) below(n int) int {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int((z ^ z>>31) % uint64(n))
}

// lines generates the lines of multilingual.py.
func lines(t testing.TB) []string {
	t.Helper()
	var p struct {
		Words      [][]string
		Odd, Marks []string
		Ranges     [][2]int
	}
	readJSON(t, "testdata/pieces.json", &p)
	out := make([]string, lineCount)
	for n := range out {
		r := splitmix(n)
		word := func() string {
			l := p.Words[r.below(len(p.Words))]
			return l[r.below(len(l))]
		}
		odd := func() string { return p.Odd[r.below(len(p.Odd))] }
		var b strings.Builder
		for range 1 + r.below(20) {
			switch r.below(16) {
			case 9:
				x := p.Ranges[r.below(len(p.Ranges))]
				b.WriteRune(rune(x[0] + r.below(x[1]-x[0])))
			case 10:
				w := word()
				b.WriteString(strings.Repeat(w, 1+r.below(40)))
			case 11:
				b.WriteString(odd())
			case 12:
				b.WriteString(strconv.Itoa(r.below(1000000)))
			case 13:
				b.WriteString(p.Marks[r.below(len(p.Marks))])
			case 14:
				b.WriteString(odd())
				b.WriteString(odd())
			default:
				b.WriteString(word())
			}
			if r.below(4) > 0 {
				b.WriteByte(' ')
			}
		}
		out[n] = b.String()
	}
	return out
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// digests are those of the ids of the lines; count is the number of ids.
func digests(m Marked, all []string) (sums []string, count int) {
	for at := 0; at < len(all); at += lineBlock {
		h := sha256.New()
		var text []byte
		for _, s := range all[at : at+lineBlock] {
			text = text[:0]
			for i, id := range m.Encode(s, 0) {
				if i > 0 {
					text = append(text, ' ')
				}
				text = strconv.AppendInt(text, int64(id), 10)
				count++
			}
			h.Write(append(text, '\n'))
		}
		sums = append(sums, hex.EncodeToString(h.Sum(nil))[:16])
	}
	return sums, count
}

// withVocab is a tokenizer of testdata with another vocabulary.
func withVocab(t testing.TB, name string, vocab any, keep func(added map[string]any) bool) string {
	t.Helper()
	var f map[string]any
	readJSON(t, filepath.Join("testdata", name, File), &f)
	f["model"].(map[string]any)["vocab"] = vocab
	var kept []any
	for _, a := range f["added_tokens"].([]any) {
		if keep(a.(map[string]any)) {
			kept = append(kept, a)
		}
	}
	f["added_tokens"] = kept
	data, err := json.Marshal(f)
	dir := t.TempDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, File), data, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestMultilingualLines: 10,000 lines in many scripts, with accents, emoji, control characters
// and long words, get the ids that Hugging Face's tokenizers give them.
func TestMultilingualLines(t *testing.T) {
	var golden linesGolden
	readJSON(t, "testdata/multilingual.json", &golden)
	all := lines(t)
	for i, want := range golden.Text {
		sum := sha256.Sum256([]byte(strings.Join(all[i*lineBlock:(i+1)*lineBlock], "\n")))
		if got := hex.EncodeToString(sum[:])[:16]; got != want {
			t.Fatalf("lines from %d on are not those of multilingual.py", i*lineBlock)
		}
	}
	vocab := map[string]int{}
	for i, w := range golden.Words {
		vocab[w] = i
	}
	own := map[any]bool{}
	for _, p := range golden.Pieces[:4] {
		var piece [2]any
		if err := json.Unmarshal(p, &piece); err != nil {
			t.Fatal(err)
		}
		own[piece[0]] = true
	}
	dirs := map[string]string{
		"words":  withVocab(t, "uncased", vocab, func(map[string]any) bool { return true }),
		"pieces": withVocab(t, "xlmr", golden.Pieces, func(a map[string]any) bool { return own[a["content"]] }),
	}
	if len(golden.Tokens) != 6 || len(golden.Text) != lineCount/lineBlock {
		t.Fatalf("golden values of %d tokenizers, %d blocks", len(golden.Tokens), len(golden.Text))
	}
	for name, want := range golden.Tokens {
		dir := dirs[name]
		if dir == "" {
			dir = filepath.Join("testdata", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareLines(t, dir, all, want)
		})
	}
}

// TestRealTokenizer does the same with a real model's tokenizer.json.
func TestRealTokenizer(t *testing.T) {
	dir := os.Getenv("SEARCHLOOP_TOKENIZER")
	if dir == "" {
		t.Skip("SEARCHLOOP_TOKENIZER does not name a folder with tokenizer.json and what testdata/multilingual.py made of it")
	}
	var golden linesGolden
	readJSON(t, filepath.Join(dir, "multilingual.json"), &golden)
	compareLines(t, dir, lines(t), golden.Digests)
}

func compareLines(t *testing.T, dir string, all, want []string) {
	m, err := LoadMarked(dir)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, count := digests(m, all)
	t.Logf("%d ids of %d lines in %v", count, len(all), time.Since(began).Round(time.Millisecond))
	if len(want) != len(got) {
		t.Fatalf("%d digests, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i] != w {
			t.Errorf("lines %d to %d get other ids", i*lineBlock, (i+1)*lineBlock-1)
		}
	}
}
