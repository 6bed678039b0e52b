// Command evaluate computes the metrics of a policy on a benchmark from its
// judged rollouts.
package main

import (
	"context"

	"searchloop/eval"
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Bench     string `help:"Name of the benchmark."`
	Rollouts  string `help:"Rollouts dataset."`
	Judged    string `help:"Judged dataset of the rollouts."`
	Questions string `help:"Questions dataset that was played."`
	Out       string `help:"Folder for samples and metrics.json."`
	Show      string `help:"Print the metrics of a finished evaluation folder and do nothing else."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if c.Show != "" {
		m, err := eval.ReadMetrics(c.Show)
		if err != nil {
			return err
		}
		m.Print(r.Out)
		return nil
	}
	if c.Rollouts == "" || c.Judged == "" || c.Questions == "" || c.Out == "" {
		return fail.New(fail.Usage, "evaluate", "", "--rollouts, --judged, --questions and --out are needed (or --show)")
	}
	return eval.Evaluate(ctx, r, eval.Options{Bench: c.Bench, Rollouts: c.Rollouts, Judged: c.Judged, Questions: c.Questions, Out: c.Out})
}

func main() { job.Main("evaluate", "Compute metrics of judged rollouts.", new(command)) }
