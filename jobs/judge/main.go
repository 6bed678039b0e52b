// Command judge decides which answers are right and gives rewards; see
// docs/judged.md.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/rollout/judge"
)

type command struct {
	job.Flags
	Rollouts   string `placeholder:"DIR" help:"Rollouts dataset."`
	Out        string `placeholder:"DIR" help:"Folder of the judged dataset."`
	JudgeURL   string `placeholder:"URL" help:"OpenAI-compatible server of the judge (key: JUDGE_API_KEY); without one only exact matches are correct."`
	JudgeModel string `placeholder:"NAME" help:"Model of that server (default: by recipe)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return judge.Run(ctx, r, judge.Options{Rollouts: c.Rollouts, Out: c.Out, URL: c.JudgeURL, Model: c.JudgeModel})
}

func main() {
	job.Main("judge", "Judge the answers of rollouts and give rewards.", &command{})
}
