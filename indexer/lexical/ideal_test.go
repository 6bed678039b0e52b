package lexical

import (
	"math"

	"searchloop/internal/safetensors"
	"searchloop/internal/token"
)

// ideal is the sum of the text's word vectors without the last two coordinates,
// of length 1: what the encoder's arithmetic comes to when its layer does nothing.
func ideal(dir string, words *token.WordPiece, text string, dim int) ([]float64, error) {
	m, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	e, err := m.Float32("embeddings.word_embeddings.weight")
	if err != nil {
		return nil, err
	}
	sum := make([]float64, dim)
	var sq float64
	for _, id := range words.Encode(text, maxTokens) {
		for j := range dim - 2 {
			sum[j] += float64(e[int(id)*dim+j])
		}
	}
	for _, x := range sum {
		sq += x * x
	}
	for j := range sum {
		sum[j] /= math.Sqrt(sq)
	}
	return sum, nil
}
