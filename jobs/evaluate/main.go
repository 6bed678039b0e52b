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
	Bench       string `help:"Name of the benchmark."`
	Rollouts    string `help:"Rollouts dataset."`
	Judged      string `help:"Judged dataset of the rollouts."`
	Questions   string `help:"Questions dataset that was played."`
	Out         string `help:"Folder for samples and metrics.json."`
	TensorBoard string `name:"tensorboard" placeholder:"DIR" help:"Also write the metrics to event files in this folder."`
	Show        string `placeholder:"DIR" help:"Print the metrics of a finished evaluation folder; with --baseline, --export."`

	Baseline string   `placeholder:"DIR" help:"With --show: an older evaluation to compare with: interval of the difference, flipped questions, McNemar's test."`
	MaxDrop  *float64 `placeholder:"SHARE" help:"With --baseline: exit 3 when accuracy fell by more than this share (0.01 is a point)."`
	MinFewer *float64 `placeholder:"SHARE" help:"With --baseline: exit 3 when fewer than this share of its searches are saved."`
	Export   string   `placeholder:"FORM" help:"With --show: write csv, or lm-eval (lm-evaluation-harness's layout), into --to."`
	To       string   `placeholder:"DIR" help:"Folder of the export."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if c.Show != "" {
		return eval.Show(r, eval.ShowOptions{Dir: c.Show, Baseline: c.Baseline, MaxDrop: c.MaxDrop, MinFewer: c.MinFewer, Export: c.Export, To: c.To})
	}
	if c.Rollouts == "" || c.Judged == "" || c.Questions == "" || c.Out == "" {
		return fail.New(fail.Usage, "evaluate", "", "--rollouts, --judged, --questions and --out are needed (or --show)")
	}
	return eval.Evaluate(ctx, r, eval.Options{Bench: c.Bench, Rollouts: c.Rollouts, Judged: c.Judged, Questions: c.Questions, Out: c.Out, TensorBoard: c.TensorBoard})
}

func main() { job.Main("evaluate", "Compute metrics of judged rollouts.", new(command)) }
