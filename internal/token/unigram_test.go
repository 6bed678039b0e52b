package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

type unigramGolden struct {
	More    []string `json:"more"`
	Unigram map[string]struct {
		Size   int       `json:"size"`
		IDs    [][]int32 `json:"ids"`
		Planes []string  `json:"planes"`
	} `json:"unigram"`
}

func goldenUnigram(t testing.TB) (g unigramGolden) {
	t.Helper()
	data, err := os.ReadFile("testdata/unigram.json")
	if err == nil {
		err = json.Unmarshal(data, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGoldenUnigram(t *testing.T) {
	g := goldenUnigram(t)
	texts := append(slices.Clone(golden().Texts), g.More...)
	for name, want := range g.Unigram {
		u, err := LoadUnigram(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if u.Size() != want.Size {
			t.Errorf("%s: size %d, want %d", name, u.Size(), want.Size)
		}
		for i, s := range texts {
			if got := u.Encode(s, 0); !slices.Equal(got, want.IDs[i]) {
				t.Errorf("%s: Encode(%q)\n got %v\nwant %v", name, s, got, want.IDs[i])
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sha256.New()
			for c := range rune(0x30000) {
				if c < 0xd800 || c >= 0xe000 {
					x := string(c)
					if c%4096 != 0 && c != 0xe000 {
						h.Write([]byte("\n"))
					}
					var line []byte
					for i, id := range u.Encode(fmt.Sprintf("a%sb %s%s1%s\n%s' %s's", x, x, x, x, x, x), 0) {
						if i > 0 {
							line = append(line, ' ')
						}
						line = strconv.AppendInt(line, int64(id), 10)
					}
					h.Write(line)
				}
				if c%4096 == 4095 {
					if got := hex.EncodeToString(h.Sum(nil))[:16]; got != want.Planes[c/4096] {
						t.Errorf("U+%04X to U+%04X get other ids", c-4095, c)
					}
					h.Reset()
				}
			}
		})
	}
}

func TestUnigramLimit(t *testing.T) {
	for _, name := range []string{"xlmr", "plain"} {
		u, err := LoadUnigram(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		s := strings.Repeat("the quick <mask> brown fox ", 20)
		all := u.Encode(s, 0)
		text := all
		marks := 0
		if u.bos >= 0 {
			text, marks = all[1:len(all)-1], 2
		}
		for n := range len(all) + 3 {
			keep := len(text)
			if n > 0 {
				keep = min(keep, max(n-marks, 0))
			}
			want := slices.Clone(text[:keep])
			if marks > 0 {
				want = append(append([]int32{u.bos}, want...), u.eos)
			}
			if got := u.Encode(s, n); !slices.Equal(got, want) {
				t.Fatalf("%s, limit %d: %d tokens, want %d", name, n, len(got), len(want))
			}
		}
	}
}

func TestMalformedUnigram(t *testing.T) {
	good := `"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1.5]]}`
	for what, text := range map[string]string{
		"nothing":       `{}`,
		"other model":   `{"model":{"type":"BPE","vocab":[]}}`,
		"no unk":        `{"model":{"type":"Unigram","vocab":[["a",0]]}}`,
		"unk too large": `{"model":{"type":"Unigram","unk_id":1,"vocab":[["a",0]]}}`,
		"no score":      `{"model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]}}`,
		"normalizer":    `{"normalizer":{"type":"NFKC"},` + good + `}`,
		"pattern":       `{"normalizer":{"type":"Replace","pattern":{"Regex":"a+"}},` + good + `}`,
		"charsmap":      `{"normalizer":{"type":"Precompiled","precompiled_charsmap":"////"},` + good + `}`,
		"not base64":    `{"normalizer":{"type":"Precompiled","precompiled_charsmap":"?"},` + good + `}`,
		"short array":   `{"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="},` + good + `}`,
		"pre_tokenizer": `{"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"Unigram","unk_id":0,"vocab":[["a",0]]}}`,
		"mark":          `{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]},` + good + `}`,
		"template":      `{"post_processor":{"type":"TemplateProcessing","single":[]},` + good + `}`,
		"id":            `{"added_tokens":[{"id":-1,"content":"x"}],` + good + `}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadUnigram(dir); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), []byte("{"+good+"}"), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := LoadMarked(dir)
	if _, ok := m.(*Unigram); err != nil || !ok {
		t.Errorf("LoadMarked: %T, %v", m, err)
	}
	if m, err = LoadMarked("testdata/uncased"); err != nil || m.(*WordPiece) == nil {
		t.Errorf("LoadMarked of WordPiece: %T, %v", m, err)
	}
}

// No bytes for a charsmap, and no text, may do worse than be refused.
func FuzzCharsmap(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 1, 4, 0, 0, 97, 1, 0, 128, 'x', 0}, "aé\u0301\r\n")
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		if c, err := readCharsmap(b); err == nil {
			c.apply(Text([]byte(s)))
		}
	})
}

func BenchmarkUnigram(b *testing.B) {
	u, err := LoadUnigram("testdata/xlmr")
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"multilingual": strings.Join(golden().Texts[:9], "\n"), "english": golden().Texts[0] + golden().Texts[1]} {
		text := strings.Repeat(text, 20)
		n := len(u.Encode(text, 0))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				u.Encode(text, 0)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
		})
	}
}
