package tool

import (
	"context"
	"fmt"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
)

// imageSearch answers each query with the titles of the images found, joined by
// "; ", and with the first images themselves.
type imageSearch struct {
	tool recipe.Tool
	in   Searcher
	pics *pictures
}

func (t imageSearch) run(ctx context.Context, _ *corpus.Question, c protocol.Call) (Result, error) {
	hits, err := search(ctx, t.in, c.Queries, t.tool)
	if err != nil {
		return Result{}, err
	}
	var out Result
	var parts []string
	for _, list := range hits {
		var titles []string
		for _, h := range list {
			title, _ := split(h.Contents)
			titles = append(titles, title)
			if len(out.Images) < t.tool.Images {
				if err := t.pics.add(&out, h); err != nil {
					return Result{}, err
				}
			}
		}
		if len(titles) == 0 {
			titles = []string{NoResult}
		}
		parts = append(parts, strings.Join(titles, "; "))
	}
	out.Text = strings.Join(parts, divider)
	return out, nil
}

// What the policy reads when a lens search has nothing to say.
const (
	NoImage = "Error: this question has no image."
	NoEntry = "Error: nothing is known about this image. Use another tool."
)

// lens answers with what a reverse search of the question's own image gives: the
// titles, joined by "; ", and the first images. Queries are ignored.
type lens struct {
	tool recipe.Tool
	in   Reverse
	pics *pictures
}

func (t lens) run(ctx context.Context, q *corpus.Question, _ protocol.Call) (Result, error) {
	if len(q.ImageIDs) == 0 {
		return refuse(NoImage), nil
	}
	hits, err := t.in.Reverse(ctx, q, t.tool.TopK)
	if err != nil {
		return Result{}, err
	}
	var out Result
	var titles []string
	for _, h := range hits[:min(len(hits), t.tool.TopK)] {
		title := strings.TrimSpace(h.Contents)
		if title == "" {
			title = "(no title)"
		}
		titles = append(titles, title)
		if len(out.Images) < t.tool.Images {
			if err := t.pics.add(&out, h); err != nil {
				return Result{}, err
			}
		}
	}
	if len(titles) == 0 {
		return refuse(NoEntry), nil
	}
	if t.tool.Format == "numbered" {
		for i := range titles {
			titles[i] = fmt.Sprintf("%d. %s", i+1, titles[i])
		}
		out.Text = strings.Join(titles, "\n")
		return out, nil
	}
	out.Text = strings.Join(titles, "; ")
	return out, nil
}
