package judge

import (
	"fmt"

	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
)

// estimate prints for a dry run what judging can cost at most: two requests a
// row, since a reply that is no verdict is asked for once more.
func estimate(r *job.Run, o Options, j recipe.Judge) error {
	if o.URL == "" {
		fmt.Fprintln(r.Out, "  no requests: exact match alone")
		return nil
	}
	m, err := manifest.Open(o.Rollouts)
	if err != nil {
		return err
	}
	rows := int(m.Rows())
	fmt.Fprintf(r.Out, "  at most %d rows, %d requests, %d sampled tokens%s; rows that match exactly need none\n",
		rows, 2*rows, 2*rows*j.MaxTokens, recipe.Dollars(2*rows*j.MaxTokens, j.Price))
	return nil
}
