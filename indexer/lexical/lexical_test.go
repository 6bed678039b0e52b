package lexical

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/indexer/encoder"
	"searchloop/internal/fail"
	"searchloop/internal/token"
)

var texts = []string{
	"The founder of Vorna is Kelmar.", "The river of Vorna is the Tis.", "The founder of Mundo is Lenqui.", "The river of Mundo is the Qui.",
	"Ünïcode Wörter, numbers 1847 and 東京; \"quotes\" too.", "", "a a a b",
}

func TestBasisIsOrthonormal(t *testing.T) {
	counts := []map[int32]int{{5: 1, 6: 2}, {6: 1, 7: 1, 8: 3}, {5: 2, 9: 1}, {10: 1, 11: 1}, {}}
	weight := make([]float64, 12)
	for i := 5; i < 12; i++ {
		weight[i] = 1 + float64(i)/10
	}
	m := newMatrix(counts, weight)
	y := m.basis(7, 3) // the matrix has rank 4: three directions must come out zero
	zero := 0
	for i := range y {
		if dot(y[i], y[i]) == 0 {
			zero++
			continue
		}
		for j := range y {
			want := 0.0
			if i == j {
				want = 1
			}
			if got := dot(y[i], y[j]); math.Abs(got-want) > 1e-12 {
				t.Errorf("directions %d and %d: product %g", i, j, got)
			}
		}
	}
	if zero != 3 {
		t.Errorf("%d zero directions of 7, the matrix has rank 4", zero)
	}
	// A basis of full rank keeps every row whole.
	for r := range len(m.start) - 1 {
		var row, kept float64
		for i := m.start[r]; i < m.start[r+1]; i++ {
			row += m.val[i] * m.val[i]
		}
		for _, dir := range y {
			var d float64
			for i := m.start[r]; i < m.start[r+1]; i++ {
				d += m.val[i] * dir[m.col[i]]
			}
			kept += d * d
		}
		if math.Abs(row-kept) > 1e-9 {
			t.Errorf("row %d: %g of %g kept", r, kept, row)
		}
	}
}

// What makes LayerNorm the identity: every word vector has mean 0 and length √d.
func TestEmbeddingsHaveOneLength(t *testing.T) {
	vocab := Vocabulary(texts)
	index := map[string]int32{}
	for i, w := range vocab {
		index[w] = int32(i)
	}
	encode := func(s string) (ids []int32) {
		for _, w := range split(s) {
			ids = append(ids, index[w])
		}
		return ids
	}
	const dim = 32
	e, err := Embeddings(texts, encode, len(vocab), dim, 1)
	if err != nil {
		t.Fatal(err)
	}
	for w := range vocab {
		var sum, sq float64
		for _, x := range e[w*dim : (w+1)*dim] {
			sum, sq = sum+float64(x), sq+float64(x)*float64(x)
		}
		if math.Abs(sum) > 1e-4 || math.Abs(sq-dim) > 1e-3 {
			t.Errorf("%q: sum %g, square %g, want 0 and %d", vocab[w], sum, sq, dim)
		}
	}
	for _, d := range []int{0, 15, 18, 2000} {
		if _, err := Embeddings(texts, encode, len(vocab), d, 1); fail.KindOf(err) != fail.Usage {
			t.Errorf("dimension %d: %v", d, err)
		}
	}
}

func TestVocabulary(t *testing.T) {
	v := Vocabulary(texts)
	if !slices.Equal(v[:len(special)], special) {
		t.Errorf("begins with %q", v[:len(special)])
	}
	seen := map[string]bool{}
	for _, w := range v {
		if seen[w] || w == "" || strings.ContainsAny(w, " \n\r\t") {
			t.Errorf("bad entry %q", w)
		}
		seen[w] = true
	}
	for _, w := range []string{"founder", "vorna", "unicode", "worter", "1847", "東", "京", "a", "##a", ",", "\"", "##京"} {
		if !seen[w] {
			t.Errorf("lacks %q", w)
		}
	}
	if !slices.Equal(v, Vocabulary(texts)) {
		t.Error("differs from run to run")
	}
}

// The folder loads as an encoder whose vectors are the tf-idf sums it was made of,
// up to the small bend of the layer.
func TestWrittenFolder(t *testing.T) {
	dir := t.TempDir()
	const dim = 32
	if err := Write(dir, texts, dim, 1); err != nil {
		t.Fatal(err)
	}
	words, err := token.LoadWordPiece(dir)
	if err != nil {
		t.Fatal(err)
	}
	vocab := Vocabulary(append(slices.Clone(texts), "query: passage: "))
	if words.Size() != len(vocab) {
		t.Errorf("the tokenizer has %d entries, the vocabulary %d", words.Size(), len(vocab))
	}
	for _, text := range texts {
		for _, id := range words.Encode(text, 0) {
			if id == 1 {
				t.Errorf("%q has an unknown word", text)
			}
		}
	}
	e, err := encoder.Load(dir, encoder.Override{})
	if err != nil {
		t.Fatal(err)
	}
	s := e.Space()
	if s.Dim != dim || s.QueryPrefix != "query: " || s.PassagePrefix != "passage: " || s.MaxTokens != maxTokens || s.Pooling != "mean" || !s.Normalized {
		t.Errorf("space %+v", s)
	}
	ctx := context.Background()
	got, err := e.Passages(ctx, texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if text == "" {
			continue // only marks: nothing but the layer's bend
		}
		want, err := ideal(dir, words, settings.PassagePrefix+text, dim)
		if err != nil {
			t.Fatal(err)
		}
		var product, length float64
		for j, x := range got[i*dim : (i+1)*dim] {
			product, length = product+float64(x)*want[j], length+float64(x)*float64(x)
		}
		if product < 0.999 || math.Abs(length-1) > 1e-5 {
			t.Errorf("%q: cosine to the tf-idf sum %g, length %g", text, product, length)
		}
	}
	q, err := e.Queries(ctx, []string{"founder of vorna", "zzz unheard-of"})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range q {
		if x-x != 0 {
			t.Fatalf("number %d of the query vectors is %v", i, x)
		}
	}
}

// Equal texts, dimension and seed give equal files; another seed does not.
func TestSameTextsSameBytes(t *testing.T) {
	var dirs []string
	for _, seed := range []uint64{1, 1, 2} {
		dir := t.TempDir()
		if err := Write(dir, texts, 32, seed); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	for _, name := range Files {
		var data [3][]byte
		for i, dir := range dirs {
			var err error
			if data[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(data[0], data[1]) {
			t.Errorf("%s differs from run to run", name)
		}
		if name == "model.safetensors" && bytes.Equal(data[0], data[2]) {
			t.Error("the seed changes nothing")
		}
	}
}

func BenchmarkEmbeddings(b *testing.B) {
	var many []string
	for i := range 640 {
		many = append(many, fmt.Sprintf("place%d founder name%d river stream%d bird b%d", i/2, i, i*7%500, i%16))
	}
	dir := b.TempDir()
	for b.Loop() {
		if err := Write(dir, many, 256, 1); err != nil {
			b.Fatal(err)
		}
	}
}
