// Command scripted serves turns from a script in place of a model: an oracle, a
// judge, a teacher. It can fail on demand.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/rollout/scripted"
)

type command struct {
	job.Serving
	Script    string   `default:"oracle" help:"oracle, judge or another script by name."`
	Questions string   `placeholder:"DIR" help:"Questions dataset, for scripts that know the answers."`
	Right     float64  `default:"1" help:"Share of the questions that the oracle answers rightly."`
	Addr      string   `default:"127.0.0.1:8001" help:"Address to listen on; port 0 takes a free one."`
	Model     string   `placeholder:"NAME" help:"Name of the model (default: judge_model for the judge, else scripted)."`
	Fault     []string `sep:"none" placeholder:"KIND[:N][@FIRST]" help:"Fail N requests from the FIRST on, for example 500:20, hang:1@5, slow=3s, html, garbage (repeatable)."`
	AddrFile  string   `placeholder:"FILE" help:"Write the server's address here once it listens."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return scripted.Serve(ctx, r, scripted.ServeOptions{Script: c.Script, Questions: c.Questions, Right: c.Right,
		Addr: c.Addr, AddrFile: c.AddrFile, Model: c.Model, Faults: c.Fault})
}

func main() {
	job.Main("scripted", "Serve turns from a script in place of a model.", &command{})
}
