// Command report makes one self-contained HTML page of a run.
package main

import (
	"context"
	"path/filepath"

	"searchloop/eval/report"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Folders []string `name:"run" required:"" help:"Folder of the run; further ones are shown beside it (repeatable)."`
	Bench   string   `default:"demo" help:"Benchmark whose evaluations are shown."`
	Out     string   `help:"The page (default RUN/report.html)."`
	Images  []string `help:"Further image stores."`
	Summary string   `help:"Also write the summary to this JSON file."`
	Seconds float64  `help:"What the loop took, for the summary."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if c.Out == "" {
		c.Out = filepath.Join(c.Folders[0], "report.html")
	}
	return report.Write(ctx, r, report.Options{Run: c.Folders[0], Also: c.Folders[1:], Bench: c.Bench, Out: c.Out, Images: c.Images, Summary: c.Summary, Seconds: c.Seconds})
}

func main() { job.Main("report", "Make one HTML page of a run.", new(command)) }
