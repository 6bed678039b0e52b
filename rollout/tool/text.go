package tool

import (
	"context"
	"strconv"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
)

// NoResult is what the policy reads for a query without hits.
const NoResult = "No result."

// divider stands on a line of its own between the results of several queries.
const divider = "\n---\n"

// textSearch answers each query with its passages, in the tool's format.
type textSearch struct {
	tool recipe.Tool
	in   Searcher
}

func (t textSearch) run(ctx context.Context, _ *corpus.Question, c protocol.Call) (Result, error) {
	hits, err := search(ctx, t.in, c.Queries, t.tool)
	if err != nil {
		return Result{}, err
	}
	var parts []string
	for _, list := range hits {
		if len(list) == 0 {
			parts = append(parts, NoResult)
			continue
		}
		parts = append(parts, writers[t.tool.Format](list, t.tool))
	}
	return Result{Text: strings.Join(parts, dividerOf(t.tool))}, nil
}

// passage is one line. The body's own line ends become spaces; limit bounds its
// runes, 0 = no limit.
func passage(n int, contents string, limit int) string {
	title, body := split(contents)
	return strings.TrimRight("Doc "+strconv.Itoa(n)+": (Title: "+title+") "+limited(body, limit), " ")
}

// split takes a passage apart into its title, which is its first line, and body.
func split(contents string) (title, body string) {
	title, body, _ = strings.Cut(strings.TrimSpace(contents), "\n")
	return strings.TrimSpace(title), body
}

// search asks for the tool's number of hits and drops those below its threshold;
// a threshold of 0 drops none.
func search(ctx context.Context, in Searcher, queries []string, t recipe.Tool) ([][]Hit, error) {
	all, err := in.Search(ctx, queries, t.TopK)
	if err != nil {
		return nil, err
	}
	out := make([][]Hit, len(queries))
	for i, list := range all[:min(len(all), len(queries))] {
		if len(list) > 0 {
			out[i] = make([]Hit, 0, min(len(list), t.TopK))
		}
		for _, h := range list[:min(len(list), t.TopK)] {
			if t.Threshold == 0 || h.Score >= t.Threshold {
				out[i] = append(out[i], h)
			}
		}
	}
	return out, nil
}
