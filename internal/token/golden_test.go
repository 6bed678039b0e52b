package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

type goldenFile struct {
	By    string   `json:"by"`
	Texts []string `json:"texts"`
	BPE   map[string]struct {
		Size     int       `json:"size"`
		IDs      [][]int32 `json:"ids"`
		Ordinary [][]int32 `json:"ordinary"`
		Decode   [][2]any  `json:"decode"`
		Planes   []string  `json:"planes"`
	} `json:"bpe"`
	WordPiece map[string]struct {
		Size   int       `json:"size"`
		IDs    [][]int32 `json:"ids"`
		Planes []string  `json:"planes"`
	} `json:"wordpiece"`
}

var golden = sync.OnceValue(func() *goldenFile {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		panic(err)
	}
	g := new(goldenFile)
	if err := json.Unmarshal(data, g); err != nil {
		panic(err)
	}
	return g
})

// TestGoldenBPE: ids, special tokens as text, and decoding of random ids equal
// the reference's, for each pattern.
func TestGoldenBPE(t *testing.T) {
	g := golden()
	for name, want := range g.BPE {
		tok, err := LoadBPE(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if tok.Size() != want.Size {
			t.Errorf("%s: size %d, want %d", name, tok.Size(), want.Size)
		}
		for i, s := range g.Texts {
			if got := tok.Encode(s); !slices.Equal(got, want.IDs[i]) {
				t.Errorf("%s: Encode(%q)\n got %v\nwant %v", name, s, got, want.IDs[i])
			}
			if got := tok.EncodeOrdinary(s); !slices.Equal(got, want.Ordinary[i]) {
				t.Errorf("%s: EncodeOrdinary(%q)\n got %v\nwant %v", name, s, got, want.Ordinary[i])
			}
		}
		for _, d := range want.Decode {
			var ids []int32
			for _, x := range d[0].([]any) {
				ids = append(ids, int32(x.(float64)))
			}
			if got := tok.Decode(ids); got != d[1].(string) {
				t.Errorf("%s: Decode(%v) = %q, want %q", name, ids, got, d[1])
			}
		}
	}
}

func TestGoldenWordPiece(t *testing.T) {
	g := golden()
	for name, want := range g.WordPiece {
		w, err := LoadWordPiece(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if w.Size() != want.Size {
			t.Errorf("%s: size %d, want %d", name, w.Size(), want.Size)
		}
		for i, s := range g.Texts {
			if got := w.Encode(s, 0); !slices.Equal(got, want.IDs[i]) {
				t.Errorf("%s: Encode(%q)\n got %v\nwant %v", name, s, got, want.IDs[i])
			}
		}
	}
}

// TestPlanes cuts a text around every code point of the first three planes.
func TestPlanes(t *testing.T) {
	g := golden()
	check := func(name string, want []string, cut func(string) []string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sha256.New()
			for c := range rune(0x30000) {
				if c < 0xd800 || c >= 0xe000 {
					x := string(c)
					if c%4096 != 0 && c != 0xe000 {
						h.Write([]byte("\n"))
					}
					h.Write([]byte(strings.Join(cut(fmt.Sprintf("a%sb %s%s1%s\n%s' %s's", x, x, x, x, x, x)), "|")))
				}
				if c%4096 == 4095 {
					if got := hex.EncodeToString(h.Sum(nil))[:16]; got != want[c/4096] {
						t.Errorf("U+%04X to U+%04X are cut differently", c-4095, c)
					}
					h.Reset()
				}
			}
		})
	}
	for name, want := range g.BPE {
		if want.Planes == nil {
			continue
		}
		tok, err := LoadBPE(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		check(name, want.Planes, func(s string) (out []string) {
			if tok.nfc {
				s = nfc(s)
			}
			for s != "" {
				n := tok.pattern.next(s)
				out = append(out, s[:n])
				s = s[n:]
			}
			return
		})
	}
	for name, want := range g.WordPiece {
		w, err := LoadWordPiece(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		check(name, want.Planes, func(s string) (out []string) {
			bertWords(w.norm.apply(s), func(word string) bool { out = append(out, word); return true })
			return
		})
	}
}
