package rollout

import (
	"fmt"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
)

// estimate prints for a dry run what a rollout can cost at most.
func estimate(r *job.Run, rec *recipe.Recipe, o Options, p plan) error {
	questions := 0
	for _, err := range table.ReadDataset[corpus.Question](o.Questions) {
		if err != nil {
			return err
		}
		questions++
	}
	for _, most := range []int{p.Questions, p.Limit} {
		if most > 0 {
			questions = min(questions, most)
		}
	}
	n := questions * p.Sampling.N
	if r.JSON { // then nothing but the plan is printed
		return nil
	}
	fmt.Fprintf(r.Out, "  at most %d trajectories, %d requests, %d sampled tokens%s\n",
		n, n*(rec.Protocol.MaxToolCalls+1), n*rec.Protocol.ResponseTokens, recipe.Dollars(n*rec.Protocol.ResponseTokens, rec.Rollout.Price))
	return nil
}
