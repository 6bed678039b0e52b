// Command grpo makes the next policy from one judged rollouts dataset.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/train"
)

type command struct {
	job.Flags
	Policy    string   `required:"" placeholder:"DIR" help:"Policy that made the rollouts."`
	Reference string   `placeholder:"DIR" help:"Policy that KL is measured to; not read when grpo.kl is 0."`
	Rollouts  string   `required:"" placeholder:"DIR" help:"Rollouts dataset."`
	Judged    string   `required:"" placeholder:"DIR" help:"Judged dataset of the rollouts."`
	Images    []string `placeholder:"DIR" sep:"none" help:"Image store (repeatable)."`
	Out       string   `required:"" placeholder:"DIR" help:"Folder of the new checkpoint."`

	TensorBoard string `name:"tensorboard" placeholder:"DIR" help:"Also write the metrics to event files in this folder."`
	Device      string `default:"cpu" placeholder:"DEVICE" help:"Where it is computed: cpu, cuda, cuda:N, or auto (a GPU if there is one)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return train.GRPO(ctx, r, train.GRPOOptions{
		Policy: c.Policy, Reference: c.Reference, Rollouts: c.Rollouts, Judged: c.Judged, Images: c.Images, Out: c.Out,
		TensorBoard: c.TensorBoard, Device: c.Device,
	})
}

func main() { job.Main("grpo", "Make the next policy from judged rollouts.", new(command)) }
