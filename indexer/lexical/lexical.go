// Package lexical fits a small text encoder to a corpus: latent semantic
// analysis, written down as a BERT. Passages go in; a folder comes out that
// loads like any E5 or MiniLM folder (config.json, model.safetensors, vocab.txt,
// tokenizer.json, 1_Pooling). It makes a demo and a baseline that need no
// download; it is not a trained model and knows no word that the corpus lacks.
//
// How a sum of word vectors becomes a BERT. Word w gets the vector
//
//	e(w) = √d · (a(w)·B y(w) + √(1 − |a(w) y(w)|²)·c),
//
// where y(w) is the word's row in a basis of the corpus' leading directions, a(w)
// the square root of its inverse document frequency (scaled so that no vector
// exceeds √d), B an isometry into the first d−2 coordinates that leaves each
// image with mean zero, and c the unit vector (…, 0, 1, −1)/√2. All word vectors
// thus have mean zero and length √d, which makes LayerNorm the identity on them.
// The last LayerNorm's gain is zero in the two coordinates of c. So the masked
// mean that BERT encoders pool with is, up to a factor that the normalisation
// removes, the sum of a(w)·y(w) over the text's words: its tf-idf vector in the
// basis. Query and passage each carry √idf, so that their product carries idf once.
// The transformer layer between has small seeded weights and bends the sum by
// about a thousandth: attention and the feed-forward net are run, not skipped.
//
// The basis is a randomised range finder with power iterations on the matrix of
// tf-idf rows (Halko, Martinsson, Tropp 2011, algorithm 4.4), in float64 and from
// a seed: equal input gives equal bytes.
package lexical

import (
	"math"
	"slices"

	"searchloop/internal/fail"
)

// Limits of a fit. Larger corpora are fitted to an even sample of their passages.
const (
	MinDim      = 16
	MaxDim      = 1024
	maxWords    = 30000
	maxChars    = 4000
	maxPassages = 50000
)

// Tokenizer turns a text into ids of the vocabulary, [CLS] and [SEP] included.
type Tokenizer func(text string) []int32

// Embeddings computes the word embedding matrix [vocab, dim] from the texts as
// the tokenizer sees them.
func Embeddings(texts []string, encode Tokenizer, vocab, dim int, seed uint64) ([]float32, error) {
	if dim < MinDim || dim > MaxDim || dim%4 != 0 {
		return nil, fail.New(fail.Usage, "fit encoder", "", "dimension %d: it must be a multiple of 4 from %d to %d", dim, MinDim, MaxDim)
	}
	counts := make([]map[int32]int, len(texts))
	df := make([]int, vocab)
	for i, t := range texts {
		counts[i] = map[int32]int{}
		for _, id := range encode(t) {
			if int(id) >= len(special) {
				counts[i][id]++
			}
		}
		for id := range counts[i] {
			df[id]++
		}
	}
	weight := make([]float64, vocab)
	for id, n := range df {
		if n > 0 {
			weight[id] = math.Sqrt(max(0, math.Log((float64(len(texts))+1)/(float64(n)+0.5))))
		}
	}
	m := newMatrix(counts, weight)
	rank := dim - 3 // two coordinates for c, one for the mean
	y := m.basis(rank, seed)
	return place(y, weight, vocab, rank, dim), nil
}

// place turns the basis' rows into word embeddings as the package comment says.
// y holds rank rows of vocab numbers.
func place(y [][]float64, weight []float64, vocab, rank, dim int) []float32 {
	lengths := make([]float64, vocab)
	for _, dir := range y {
		for w := range dir {
			dir[w] *= weight[w]
			lengths[w] += float64(dir[w] * dir[w])
		}
	}
	longest := slices.Max(append(lengths, 1e-12))
	b := isometry(rank, dim-2)
	root := math.Sqrt(float64(dim))
	scale := root / math.Sqrt(longest)
	out := make([]float32, vocab*dim)
	row := make([]float64, dim)
	for w := range vocab {
		clear(row)
		for k, dir := range y {
			if v := dir[w]; v != 0 {
				for j, h := range b[k] {
					row[j] += float64(v * h * scale)
				}
			}
		}
		rest := root * math.Sqrt(max(0, 1-lengths[w]/longest)) / math.Sqrt2
		row[dim-2], row[dim-1] = rest, -rest
		for j, v := range row {
			out[w*dim+j] = float32(v)
		}
	}
	return out
}

// isometry gives rank orthonormal rows of n numbers, each of mean zero: the
// cosines of the discrete cosine transform without the constant. rank < n.
func isometry(rank, n int) [][]float64 {
	b := make([][]float64, rank)
	for k := range b {
		b[k] = make([]float64, n)
		for j := range b[k] {
			b[k][j] = math.Sqrt(2/float64(n)) * math.Cos(math.Pi*(float64(j)+0.5)*float64(k+1)/float64(n))
		}
	}
	return b
}
