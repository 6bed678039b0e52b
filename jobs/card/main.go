// Command card makes the data card of a questions dataset, and the page on which a
// person looks a sample of it through; see docs/card.md.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/synth/card"
)

type command struct {
	job.Flags
	In       string   `placeholder:"DIR" help:"Questions dataset."`
	Images   []string `sep:"none" placeholder:"DIR" help:"Folder of its images, when they are not in the dataset (repeatable)."`
	Out      string   `placeholder:"FILE" help:"Page of the card; the figures go beside it as .json."`
	Page     string   `placeholder:"FILE" help:"Labelling page to make of a sample."`
	Labels   string   `placeholder:"FILE" help:"What that page saved: acceptance goes onto the card."`
	Lessons  string   `placeholder:"DIR" help:"Trajectories chosen from rollouts of the questions (lessons): how many, and why not the others."`
	Rollouts string   `placeholder:"DIR" help:"With --judged and --page: label the answers of these rollouts; judge --labels reads what is saved."`
	Judged   string   `placeholder:"DIR" help:"Their judgements."`
	N        int      `name:"sample" default:"24" help:"Questions of the sample."`
	Seed     uint64   `default:"1" help:"Seed of the sample."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return card.Write(ctx, r, card.Options{In: c.In, Images: c.Images, Out: c.Out, Page: c.Page, Labels: c.Labels, Lessons: c.Lessons, Rollouts: c.Rollouts, Judged: c.Judged, N: c.N, Seed: c.Seed})
}

func main() {
	job.Main("card", "Describe a questions dataset on a page; have people label a sample.", &command{})
}
