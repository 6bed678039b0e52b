// Command rollout lets a policy answer questions with tools and records every
// turn and token; see docs/rollouts.md.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/rollout"
)

type command struct {
	job.Flags
	Questions   string   `placeholder:"DIR" help:"Questions dataset."`
	Images      []string `sep:"none" placeholder:"DIR" help:"Folder of images, beside those in the datasets (repeatable)."`
	Lens        string   `placeholder:"DIR" help:"Lens dataset, for image_search_by_lens."`
	TextIndex   string   `placeholder:"DIR" help:"Index of passages, for text_search."`
	ImageIndex  string   `placeholder:"DIR" help:"Index of an image corpus, for image_search_by_text_query."`
	Gallery     string   `placeholder:"DIR" help:"Passages with images, for crop_and_search."`
	Pages       []string `sep:"none" placeholder:"DIR" help:"Passages whose ids are addresses, for visit (repeatable)."`
	Policy      string   `placeholder:"DIR" help:"Folder of the policy; it is served in this process."`
	PolicyURL   string   `placeholder:"URL" help:"OpenAI-compatible server of the policy, instead of a folder (key: POLICY_API_KEY)."`
	PolicyModel string   `placeholder:"NAME" help:"Model of that server (default: its only one)."`
	Script      string   `name:"policy-script" placeholder:"NAME" help:"Script that plays the policy, instead of a model: teacher, oracle."`
	Out         string   `placeholder:"DIR" help:"Folder of the rollouts dataset."`
	RunName     string   `name:"run" placeholder:"NAME" help:"Name of the run."`
	Epoch       int      `help:"Epoch; it decides which questions are drawn, and the seeds."`
	Mode        string   `enum:"train,eval" default:"train" help:"train: the epoch's questions, exact tokens. eval: every question."`
	Limit       int      `placeholder:"N" help:"At most N questions."`
	Samples     int      `placeholder:"N" help:"Trajectories a question (default: by recipe)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return rollout.Run(ctx, r, rollout.Options{
		Questions: c.Questions, Images: c.Images, Lens: c.Lens, TextIndex: c.TextIndex, ImageIndex: c.ImageIndex, Gallery: c.Gallery, Pages: c.Pages,
		Policy: c.Policy, PolicyURL: c.PolicyURL, PolicyModel: c.PolicyModel, Script: c.Script,
		Out: c.Out, Run: c.RunName, Epoch: c.Epoch, Mode: c.Mode, Limit: c.Limit, Samples: c.Samples,
	})
}

func main() {
	job.Main("rollout", "Let a policy answer questions with search tools.", &command{})
}
