// Command sft teaches a policy to play as given trajectories play: the warm start
// before GRPO.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/rollout/tool"
	"searchloop/train"
)

type command struct {
	job.Flags
	Policy   string   `required:"" placeholder:"DIR" help:"Policy to start from: a Hugging Face folder or a checkpoint."`
	Rollouts string   `placeholder:"DIR" help:"Trajectories to imitate."`
	Examples []string `placeholder:"FILE" sep:"none" help:"Conversations to imitate: ShareGPT or messages, JSON or JSON lines (repeatable)."`
	Judged   string   `placeholder:"DIR" help:"Judgements of them; needed by sft.only_correct."`
	Images   []string `placeholder:"DIR" sep:"none" help:"Image store (repeatable)."`
	Out      string   `required:"" placeholder:"DIR" help:"Folder of the new checkpoint."`

	TensorBoard string `name:"tensorboard" placeholder:"DIR" help:"Also write the metrics to event files in this folder."`
	Device      string `default:"cpu" placeholder:"DEVICE" help:"Where it is computed: cpu, cuda, cuda:N, or auto (a GPU if there is one)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	tools, err := tool.Functions(rec)
	if err != nil {
		return err
	}
	return train.SFT(ctx, r, train.SFTOptions{
		Policy: c.Policy, Rollouts: c.Rollouts, Examples: c.Examples, Judged: c.Judged, Images: c.Images, Out: c.Out, Tools: tools,
		TensorBoard: c.TensorBoard, Device: c.Device,
	})
}

func main() { job.Main("sft", "Teach a policy to play as trajectories play.", new(command)) }
