// Command judge decides which answers are right and gives rewards; see
// docs/judged.md.
package main

import (
	"context"
	"time"

	"searchloop/internal/job"
	"searchloop/rollout/judge"
)

type command struct {
	job.Flags
	Rollouts    string        `placeholder:"DIR" help:"Rollouts dataset."`
	Out         string        `placeholder:"DIR" help:"Folder of the judged dataset."`
	Labels      string        `placeholder:"FILE" help:"Verdicts by people, JSON lines {id, correct}: how far the judges agree with them is logged."`
	Images      []string      `sep:"none" placeholder:"DIR" help:"Folder of the questions' images, for judge.images (repeatable)."`
	Cache       string        `placeholder:"PLACE" help:"Folder or redis://host of verdicts given before, for all runs to share."`
	Record      string        `placeholder:"DIR" help:"Record what the judges say (docs/record.md); --cache is not used."`
	Replay      string        `placeholder:"DIR" help:"Take all verdicts from a record; no judge is asked."`
	Follow      bool          `help:"The rollout may still run: its rows are judged as they end, and the dataset is made when it is finished (docs/judged.md)."`
	Patience    time.Duration `default:"1h" help:"With --follow: how long no trajectory may end before the rollout is given up (exit 75)."`
	JudgeURL    string        `placeholder:"URL" help:"OpenAI-compatible server of the judge, or @FILE with its address (key: JUDGE_API_KEY); without one only exact matches are correct."`
	TensorBoard string        `name:"tensorboard" placeholder:"DIR" help:"Also write the metrics to event files in this folder."`
	JudgeModel  string        `placeholder:"NAME" help:"Model of that server (default: by recipe)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return judge.Run(ctx, r, judge.Options{Rollouts: c.Rollouts, Out: c.Out, URL: c.JudgeURL, Model: c.JudgeModel, Images: c.Images, Cache: c.Cache, Record: c.Record, Replay: c.Replay, Labels: c.Labels,
		TensorBoard: c.TensorBoard, Follow: c.Follow, Patience: c.Patience})
}

func main() {
	job.Main("judge", "Judge the answers of rollouts and give rewards.", &command{})
}
