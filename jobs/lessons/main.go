// Command lessons chooses trajectories to learn from; see docs/curate.md.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/synth/lesson"
)

type command struct {
	job.Flags
	Rollouts string   `placeholder:"DIR" help:"Rollouts to choose from."`
	Judged   string   `placeholder:"DIR" help:"Judgements of them."`
	Images   []string `sep:"none" placeholder:"DIR" help:"Folder of the questions' images (repeatable)."`
	Out      string   `placeholder:"DIR" help:"Folder of the chosen ones, also as ShareGPT and ms-swift JSON lines."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return lesson.Run(ctx, r, lesson.Options{Rollouts: c.Rollouts, Judged: c.Judged, Images: c.Images, Out: c.Out})
}

func main() {
	job.Main("lessons", "Choose right trajectories to learn from.", &command{})
}
