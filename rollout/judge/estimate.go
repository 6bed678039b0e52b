package judge

import (
	"fmt"

	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
)

// estimate prints for a dry run what judging can cost at most: two requests a
// verdict, since a reply that is no verdict is asked for once more.
func estimate(r *job.Run, o Options, j recipe.Judge) error {
	judges := max(1, len(j.Panel))
	if o.URL == "" && len(j.Panel) == 0 {
		if !r.JSON {
			fmt.Fprintln(r.Out, "  no requests: exact match alone")
		}
		return nil
	}
	m, err := manifest.Open(o.Rollouts)
	if err != nil {
		return err
	}
	rows := int(m.Rows())
	requests := 2 * rows * judges * max(1, j.Votes)
	if r.JSON { // then nothing but the plan is printed
		return nil
	}
	fmt.Fprintf(r.Out, "  at most %d rows, %d requests, %d sampled tokens%s; rows that match exactly need none\n",
		rows, requests, requests*j.MaxTokens, recipe.Dollars(requests*j.MaxTokens, j.Price))
	return nil
}
