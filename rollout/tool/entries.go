package tool

import (
	"context"
	"strings"

	"searchloop/corpus"
)

// Entries are lens entries by question id: what a reverse search once gave.
type Entries map[string]corpus.LensEntry

// Reverse gives the hits of the question's entry that have a title or an image.
func (e Entries) Reverse(_ context.Context, q *corpus.Question, k int) ([]Hit, error) {
	var out []Hit
	for _, h := range e[q.ID].Hits {
		if title := strings.TrimSpace(h.Title); len(out) < k && (title != "" || h.ImageID != "") {
			out = append(out, Hit{Contents: title, ImageID: h.ImageID})
		}
	}
	return out, nil
}
