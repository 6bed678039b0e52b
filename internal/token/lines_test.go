package token

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTenThousandLines: ids of lines as testdata/lines.py draws them equal the
// reference's, by the digest of each thousand. SEARCHLOOP_LINES names a folder with
// another tokenizer and its digests.
func TestTenThousandLines(t *testing.T) {
	folder := cmp.Or(os.Getenv("SEARCHLOOP_LINES"), "testdata/qwen")
	at := cmp.Or(os.Getenv("SEARCHLOOP_LINES"), "testdata")
	data, err := os.ReadFile(filepath.Join(at, "lines.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		By     string
		Tokens int
		Hashes []string
	}
	if err := json.Unmarshal(data, &want); err != nil || len(want.Hashes) != 10 {
		t.Fatal(err, len(want.Hashes))
	}
	tok, err := LoadBPE(folder)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	seen := map[string]bool{"": true}
	for _, text := range golden().Texts {
		for _, w := range strings.Split(text, " ") {
			if !seen[w] {
				seen[w], words = true, append(words, w)
			}
		}
	}
	gaps := []string{" ", " ", " ", "", "  ", "\n", " \n\n", "\t", "'s ", ", "}
	state := uint64(1)
	draw := func(n int) int {
		state = state*6364136223846793005 + 1442695040888963407
		return int((state >> 33) % uint64(n))
	}
	tokens := 0
	for k, digest := range want.Hashes {
		h := sha256.New()
		for range 1000 {
			var line strings.Builder
			for range 1 + draw(16) {
				line.WriteString(words[draw(len(words))])
				line.WriteString(gaps[draw(len(gaps))])
			}
			ids := tok.Encode(line.String())
			tokens += len(ids)
			binary.Write(h, binary.LittleEndian, int32(len(ids)))
			binary.Write(h, binary.LittleEndian, ids)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != digest {
			t.Errorf("lines %d to %d are not those of %s", 1000*k+1, 1000*k+1000, want.By)
		}
	}
	if tokens != want.Tokens {
		t.Errorf("%d tokens, want %d", tokens, want.Tokens)
	}
}
