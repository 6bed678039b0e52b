package token

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
)

var chatSpecials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"}

// corpus is about n bytes of text in which words have a long tail.
func corpus(n int) []string {
	r := rand.New(rand.NewPCG(5, 6))
	syllables := strings.Fields("ka lo mi ren tor vel ish an ber du ess fa gri hol jun kel é 日本 17")
	var out []string
	for size := 0; size < n; {
		var b strings.Builder
		for range 20 {
			for range 1 + r.IntN(4) {
				b.WriteString(syllables[int(float64(len(syllables))*r.Float64()*r.Float64())])
			}
			b.WriteString(" ")
		}
		b.WriteString("<think>x</think>.\n")
		out = append(out, b.String())
		size += b.Len()
	}
	return out
}

func TestTrainBPE(t *testing.T) {
	texts := corpus(1 << 20)
	start := time.Now()
	a, err := TrainBPE(slices.Values(texts), 640, chatSpecials)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("1 MiB to %d tokens in %v", a.Size(), time.Since(start))
	if a.Size() != 640 {
		t.Errorf("size %d", a.Size())
	}
	for i, s := range chatSpecials {
		id, ok := a.ID(s)
		if !ok || int(id) != 640-len(chatSpecials)+i || a.Special(id) != strings.HasPrefix(s, "<|") {
			t.Errorf("%s is %d, special %v", s, id, a.Special(id))
		}
	}
	// The order of the texts does not matter.
	slices.Reverse(texts)
	b, err := TrainBPE(slices.Values(texts), 640, chatSpecials)
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest() != b.Digest() {
		t.Error("training is not deterministic")
	}
	for id := range int32(a.Size()) {
		if s := a.tokens[id]; strings.Contains(s, "think") && id < 635 {
			t.Errorf("token %q was learnt from a special", s)
		}
	}
	long := strings.Repeat("ka", 50)
	if n := len(a.Encode(long)); n > 80 {
		t.Errorf("%d tokens for a common word of 100 bytes", n)
	}
}

func TestTrainLimits(t *testing.T) {
	one := slices.Values([]string{"abc"})
	for _, c := range []struct {
		vocab    int
		specials []string
	}{{200, nil}, {256, []string{"x"}}, {300, []string{"x", "x"}}, {300, []string{""}}, {300, []string{"\xff"}}} {
		if _, err := TrainBPE(one, c.vocab, c.specials); err == nil || fail.KindOf(err) != fail.Usage {
			t.Errorf("%v: %v", c, err)
		}
	}
	tok, err := TrainBPE(one, 300, nil)
	if err != nil || tok.Size() != 256 {
		t.Errorf("a text without repetition: %d tokens, %v", tok.Size(), err)
	}
}

// python returns an interpreter that has the named modules, or skips.
func python(t *testing.T, modules string) string {
	t.Helper()
	py := os.Getenv("SEARCHLOOP_PYTHON")
	if py == "" {
		py = "python3"
	}
	if err := exec.Command(py, "-c", "import "+modules).Run(); err != nil {
		t.Skipf("needs Python with %s (SEARCHLOOP_PYTHON names the interpreter): %v", modules, err)
	}
	return py
}

// TestPeer: the reference library loads what Save writes, encodes equally, and
// learns the same merges from the same texts.
func TestPeer(t *testing.T) {
	py := python(t, "tokenizers")
	dir := t.TempDir()
	texts := corpus(1 << 17)
	tok, err := TrainBPE(slices.Values(texts), 640, chatSpecials)
	if err != nil {
		t.Fatal(err)
	}
	if err := tok.Save(dir); err != nil {
		t.Fatal(err)
	}
	all := append(slices.Clone(golden().Texts), texts[:50]...)
	want, _ := encodeJSON(map[string]any{"texts": all, "ids": encodeAll(tok, all), "corpus": texts, "merges": mergeNames(tok)}, "")
	if err := os.WriteFile(filepath.Join(dir, "want.json"), want, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(py, "testdata/peer.py", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func encodeAll(t *BPE, texts []string) (ids [][]int32) {
	for _, s := range texts {
		ids = append(ids, append([]int32{}, t.Encode(s)...))
	}
	return
}

func mergeNames(t *BPE) (names [][2]string) {
	for _, p := range t.merges {
		names = append(names, [2]string{t.tokens[p.a], t.tokens[p.b]})
	}
	return
}

// TestRealTokenizers runs over the folders named in SEARCHLOOP_TOKENIZERS (real
// tokenizer.json files are too big to keep here) against the reference library.
func TestRealTokenizers(t *testing.T) {
	dirs := filepath.SplitList(os.Getenv("SEARCHLOOP_TOKENIZERS"))
	if len(dirs) == 0 {
		t.Skip("SEARCHLOOP_TOKENIZERS names no folders with tokenizer.json")
	}
	py := python(t, "tokenizers")
	texts := append(slices.Clone(golden().Texts), corpus(1<<16)...)
	for _, pattern := range []string{"text-corpus/*.jsonl", "cranfield/*", "livevqa-news/benchmark.json"} {
		files, _ := filepath.Glob(filepath.Join("../../../shared/data", pattern))
		for _, f := range files {
			if data, err := os.ReadFile(f); err == nil {
				texts = append(texts, strings.ToValidUTF8(string(data), "?"))
			}
		}
	}
	for _, dir := range dirs {
		var ids [][]int32
		if tok, err := LoadBPE(dir); err == nil {
			start, n := time.Now(), 0
			ids = encodeAll(tok, texts)
			for _, x := range ids {
				n += len(x)
			}
			t.Logf("%s: BPE of %d, %d tokens in %v", dir, tok.Size(), n, time.Since(start))
		} else if w, errW := LoadWordPiece(dir); errW == nil {
			start, n := time.Now(), 0
			for _, s := range texts {
				x := w.Encode(s, 0)
				n += len(x)
				ids = append(ids, x[1:len(x)-1])
			}
			t.Logf("%s: WordPiece of %d, %d tokens in %v", dir, w.Size(), n, time.Since(start))
		} else {
			t.Errorf("%v; %v", err, errW)
			continue
		}
		tmp := t.TempDir()
		want, _ := encodeJSON(map[string]any{"texts": texts, "ids": ids}, "")
		if err := os.WriteFile(filepath.Join(tmp, "want.json"), want, 0o666); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(py, "testdata/peer.py", tmp, dir).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	}
}
