// Command inspect prints rows of a judged rollouts dataset as grpo sees them.
package main

import (
	"context"
	"os"

	"searchloop/internal/job"
	"searchloop/train"
)

type command struct {
	job.Flags
	Policy   string   `required:"" placeholder:"DIR" help:"Policy that made the rollouts."`
	Rollouts string   `required:"" placeholder:"DIR" help:"Rollouts dataset."`
	Judged   string   `required:"" placeholder:"DIR" help:"Judged dataset of the rollouts."`
	Images   []string `placeholder:"DIR" sep:"none" help:"Image store (repeatable)."`
	ID       []string `placeholder:"ROW" sep:"none" help:"Row to show (repeatable)."`
	Rows     int      `default:"3" placeholder:"N" help:"Rows to show when none is named."`
}

func (c *command) Run(_ context.Context, r *job.Run) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	info, err := os.Stdout.Stat()
	colour := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
	return train.Inspect(r.Out, r.Log, rec, train.InspectOptions{
		Policy: c.Policy, Rollouts: c.Rollouts, Judged: c.Judged, Images: c.Images, IDs: c.ID, Rows: c.Rows, Colour: colour,
	})
}

func main() { job.Main("inspect", "Print rows as the trainer sees them.", new(command)) }
