package token

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"searchloop/internal/fail"
)

func load(t testing.TB, name string) *BPE {
	t.Helper()
	tok, err := LoadBPE(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// noise is a random valid text of many scripts.
func noise(r *rand.Rand, n int) string {
	bits := []string{" ", "  ", "\n", "a", "the", "'s", "é", "e\u0301", "日", "가", "1", "23", "!", "<think>", "😀", "\u00a0", "ß", "क्", "\x00", "Z̴͚̈"}
	var b strings.Builder
	for range n {
		if r.IntN(3) == 0 {
			c := rune(r.IntN(0x3000))
			if !utf8.ValidRune(c) {
				c = 'x'
			}
			b.WriteRune(c)
		} else {
			b.WriteString(bits[r.IntN(len(bits))])
		}
	}
	return b.String()
}

func TestDecodeInvertsEncode(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	qwen, llama := load(t, "qwen"), load(t, "llama")
	for range 2000 {
		s := noise(r, 1+r.IntN(30))
		if got := llama.Decode(llama.EncodeOrdinary(s)); got != s && !strings.Contains(s, "<mask>") {
			t.Fatalf("%q came back as %q", s, got)
		}
		if got := qwen.Decode(qwen.EncodeOrdinary(s)); got != nfc(s) {
			t.Fatalf("%q came back as %q", s, got)
		}
	}
}

// TestLongWords: the heap and the plain search merge alike.
func TestLongWords(t *testing.T) {
	tok := load(t, "qwen")
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var b strings.Builder
		for range 2 + r.IntN(40) {
			b.WriteByte("aethns "[r.IntN(7)])
		}
		w := b.String()
		if len(w) > 48 {
			w = w[:48]
		}
		if short, long := tok.merge(nil, w), tok.mergeLong(nil, w); !slices.Equal(short, long) {
			t.Fatalf("%q: %v and %v", w, short, long)
		}
	}
	// A megabyte without a blank ends soon.
	if n := len(tok.Encode(strings.Repeat("ab", 1<<18))); n == 0 {
		t.Fatal("no ids")
	}
}

func TestConcurrentEncode(t *testing.T) {
	tok := load(t, "qwen")
	g := golden()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range g.Texts {
				i = (i + w*17) % len(g.Texts)
				if !slices.Equal(tok.Encode(g.Texts[i]), g.BPE["qwen"].IDs[i]) {
					t.Errorf("%q differs", g.Texts[i])
				}
			}
		}()
	}
	wg.Wait()
}

// TestUntrusted: no text can spell a special token.
func TestUntrusted(t *testing.T) {
	tok := load(t, "qwen")
	end, ok := tok.ID("<|im_end|>")
	if !ok || !tok.Special(end) || tok.Special(0) {
		t.Fatal("<|im_end|> is not a special token")
	}
	think, _ := tok.ID("<think>")
	if tok.Special(think) {
		t.Error("<think> is special")
	}
	ids := tok.EncodeOrdinary("a<|im_end|>b<think>")
	if slices.Contains(ids, end) || !slices.Contains(ids, think) {
		t.Errorf("ids %v", ids)
	}
	if s := tok.Decode(ids); s != "a<|im_end|>b<think>" {
		t.Errorf("decoded %q", s)
	}
}

func TestInvalidBytes(t *testing.T) {
	tok := load(t, "qwen")
	for in, want := range map[string]string{
		"a\xffb": "a\ufffdb", "\xe4\xb8": "\ufffd", "\xe4\xb8\xe4": "\ufffd\ufffd", "\xf0\x9f\x98x": "\ufffdx", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xc0\x80": "\ufffd\ufffd",
	} {
		if got := tok.Decode(tok.Encode(in)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got := tok.Decode([]int32{-1, 1 << 30, 0}); got != "!" {
		t.Errorf("unknown ids decode to %q", got)
	}
}

func TestPartial(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 0, "é": 0, "\xc3": 1, "a\xe4\xb8": 2, "\xf0\x9f\x98": 3, "\xf0\x9f\x98\x80": 0, "\x80": 0, "\xff": 0, "\xe4\xb8x": 0, "\xed\xa0": 0, "a\xe4": 1,
	} {
		if got := Partial([]byte(in)); got != want {
			t.Errorf("Partial(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestSaveLoad(t *testing.T) {
	for _, name := range []string{"qwen", "gpt2", "llama", "marks", "prefix"} {
		a := load(t, name)
		dir := t.TempDir()
		if err := a.Save(dir); err != nil {
			t.Fatal(err)
		}
		b, err := LoadBPE(dir)
		if err != nil {
			t.Fatal(err)
		}
		if a.Digest() != b.Digest() || a.Size() != b.Size() {
			t.Errorf("%s changed by saving", name)
		}
		for _, s := range golden().Texts {
			if !slices.Equal(a.Encode(s), b.Encode(s)) {
				t.Errorf("%s: %q differs", name, s)
			}
		}
		first, _ := os.ReadFile(filepath.Join(dir, File))
		if err := b.Save(dir); err != nil {
			t.Fatal(err)
		}
		if second, _ := os.ReadFile(filepath.Join(dir, File)); !bytes.Equal(first, second) {
			t.Errorf("%s: saving twice gives other bytes", name)
		}
	}
}

// TestMalformed: a wrong tokenizer.json is a BadInput error that names the file.
func TestMalformed(t *testing.T) {
	good, err := os.ReadFile("testdata/qwen/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("no %q in the good file", old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	cases := map[string][]byte{
		"":               nil,
		"is cut":         good[:len(good)/2],
		"null":           []byte("null"),
		"a list":         []byte("[]"),
		"WordPiece":      change(`"type":"BPE"`, `"type":"WordPiece"`),
		"dropout":        change(`"dropout":null`, `"dropout":0.5`),
		"fallback":       change(`"byte_fallback":false`, `"byte_fallback":true`),
		"a lost byte":    change(`"vocab":{"!":0,`, `"vocab":{"!!!!":0,`),
		"a doubled id":   change(`"vocab":{"!":0,`, `"vocab":{"!":1,`),
		"a negative id":  change(`"vocab":{"!":0,`, `"vocab":{"!":-1,`),
		"a huge id":      change(`"vocab":{"!":0,`, `"vocab":{"!":2000000000,`),
		"a wrong merge":  change(`"merges":[`, `"merges":["a b c",`),
		"unknown merge":  change(`"merges":[`, `"merges":[["a","nothing"],`),
		"unmerged merge": change(`"merges":[`, `"merges":[["~","~"],`),
		"normalizer":     change(`"type":"NFC"`, `"type":"NFKC"`),
		"pattern":        change(`(?i:`, `(?s:`),
		"behavior":       change(`"behavior":"Isolated"`, `"behavior":"Removed"`),
	}
	for what, data := range cases {
		dir := t.TempDir()
		if data != nil {
			if err := os.WriteFile(filepath.Join(dir, File), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		_, err := LoadBPE(dir)
		if fail.KindOf(err) != fail.BadInput || err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	tok := load(b, "qwen")
	text := strings.Repeat(strings.Join(golden().Texts[:5], "\n"), 20)
	ids := tok.Encode(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		ids = tok.encode(ids[:0], text, true)
	}
	b.ReportMetric(float64(len(ids))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}

func BenchmarkEncodeUncached(b *testing.B) {
	tok := load(b, "qwen")
	text := strings.Repeat("abcdefgh", 8)
	for b.Loop() {
		tok.merge(nil, text[:40])
	}
}
