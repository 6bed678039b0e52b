package token

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

func TestWordPieceLimit(t *testing.T) {
	w, err := LoadWordPiece("testdata/uncased")
	if err != nil {
		t.Fatal(err)
	}
	s := strings.Repeat("the quick [MASK] brown fox ", 20)
	all := w.Encode(s, 0)
	for n := range len(all) + 3 {
		got := w.Encode(s, n)
		keep := len(all) - 2
		if n > 0 {
			keep = min(keep, max(n-2, 0))
		}
		want := append(slices.Clone(all[:1+keep]), w.sep)
		if !slices.Equal(got, want) {
			t.Fatalf("limit %d: %d tokens, want %d", n, len(got), len(want))
		}
	}
}

// TestVocabFile: vocab.txt and its settings mean the same as tokenizer.json.
func TestVocabFile(t *testing.T) {
	for name, config := range map[string]string{"uncased": "", "cased": `{"do_lower_case": false}`} {
		a, err := LoadWordPiece(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var f struct {
			Model struct {
				Vocab map[string]int
			}
		}
		data, _ := os.ReadFile(filepath.Join("testdata", name, File))
		if err := json.Unmarshal(data, &f); err != nil {
			t.Fatal(err)
		}
		lines := make([]string, len(f.Model.Vocab))
		for s, id := range f.Model.Vocab {
			lines[id] = s
		}
		dir := t.TempDir()
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		write("vocab.txt", strings.Join(lines, "\n")+"\n")
		if config != "" {
			write("tokenizer_config.json", config)
		}
		b, err := LoadWordPiece(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range golden().Texts {
			if !slices.Equal(a.Encode(s, 0), b.Encode(s, 0)) {
				t.Errorf("%s: %q differs", name, s)
			}
		}
	}
}

func TestMalformedWordPiece(t *testing.T) {
	files := map[string]map[string]string{
		"nothing":        {},
		"BPE":            {File: `{"model":{"type":"BPE","vocab":{}}}`},
		"no mark":        {File: `{"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0}}}`},
		"normalizer":     {File: `{"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2}}}`},
		"pre_tokenizer":  {File: `{"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2}}}`},
		"negative id":    {File: `{"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":-1,"[CLS]":1,"[SEP]":2}}}`},
		"vocab no marks": {"vocab.txt": "a\nb\n"},
		"bad config":     {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\n", "tokenizer_config.json": "{"},
	}
	for what, names := range files {
		dir := t.TempDir()
		for name, text := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := LoadWordPiece(dir); err == nil || fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func BenchmarkWordPiece(b *testing.B) {
	w, err := LoadWordPiece("testdata/uncased")
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat(strings.Join(golden().Texts[:5], "\n"), 20)
	n := len(w.Encode(text, 0))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		w.Encode(text, 0)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}
