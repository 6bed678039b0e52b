// Command curate labels questions by what a policy had to search to answer them,
// and draws a balanced set; see docs/curate.md.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/synth/balance"
)

type command struct {
	job.Flags
	Questions string   `placeholder:"DIR" help:"Questions dataset that was played."`
	Images    []string `sep:"none" placeholder:"DIR" help:"Folder of its images, when they are not in the dataset (repeatable)."`
	Rollouts  string   `placeholder:"DIR" help:"Rollouts of the questions: several a question, with tools."`
	Judged    string   `placeholder:"DIR" help:"Judgements of them."`
	Out       string   `placeholder:"DIR" help:"Folder of the drawn questions."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return balance.Run(ctx, r, balance.Options{Questions: c.Questions, Images: c.Images, Rollouts: c.Rollouts, Judged: c.Judged, Out: c.Out})
}

func main() {
	job.Main("curate", "Draw questions balanced by whether they need a search.", &command{})
}
