package tool

import (
	"context"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/tape"
)

// Taped is a Searcher whose results are recorded or replayed.
type Taped struct {
	Searcher
	Name string // short and stable; part of the request
	Tape *tape.Tape
}

// Search answers from the tape, or else by the Searcher.
func (t Taped) Search(ctx context.Context, queries []string, k int) ([][]Hit, error) {
	if t.Tape == nil {
		return t.Searcher.Search(ctx, queries, k)
	}
	request := map[string]any{"to": t.Name, "queries": queries, "topk": k}
	failed := func(f *retry.Fault) error { return &fail.Error{Kind: fail.Service, Op: "search", Err: f} }
	return tape.Through(t.Tape, "retrieve", request, failed, func() ([][]Hit, error) { return t.Searcher.Search(ctx, queries, k) })
}
