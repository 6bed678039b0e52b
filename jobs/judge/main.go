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
	Labels     string `placeholder:"FILE" help:"Verdicts by people, JSON lines {id, correct}: how far the judge agrees with them is logged."`
	JudgeURL   string `placeholder:"URL" help:"OpenAI-compatible server of the judge (key: JUDGE_API_KEY); without one only exact matches are correct."`
	JudgeModel string `placeholder:"NAME" help:"Model of that server (default: by recipe)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if err := judge.Run(ctx, r, judge.Options{Rollouts: c.Rollouts, Out: c.Out, URL: c.JudgeURL, Model: c.JudgeModel}); err != nil || c.Labels == "" || r.DryRunFlag {
		return err
	}
	a, err := judge.Agree(c.Out, c.Labels)
	if err == nil {
		r.Log.Info("agreement with the labels", "counted", a.Counted, "agree", a.Agree, "kappa", a.Kappa)
	}
	return err
}

func main() {
	job.Main("judge", "Judge the answers of rollouts and give rewards.", &command{})
}
