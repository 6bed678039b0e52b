// Command verify holds every file of a run, or of any folder of datasets, against
// its manifest, and says what is damaged and how it is made again.
package main

import (
	"context"
	"fmt"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/survey"
)

type command struct {
	job.Flags
	Folder []string `arg:"" optional:"" placeholder:"DIR" help:"Folders to look through (default: data and runs)."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if len(c.Folder) == 0 {
		c.Folder = []string{"data", "runs"}
	}
	all := []*survey.Report{}
	damaged := 0
	for _, dir := range c.Folder {
		rep, err := survey.Verify(ctx, dir, func(dir string) { r.Log.Debug("reading", "dataset", dir) })
		if err != nil {
			return err
		}
		all = append(all, rep)
		damaged += len(rep.Damaged)
		if !r.JSON {
			print(r, dir, rep)
		}
	}
	if damaged > 0 {
		if r.JSON { // results are printed of complete jobs only
			if err := r.Print(all); err != nil {
				return err
			}
		}
		return fail.WithHint(fail.New(fail.BadInput, "verify", strings.Join(c.Folder, " "), "%d datasets are damaged", damaged), "the lines above say how each is made again")
	}
	r.Result(all)
	return nil
}

func print(r *job.Run, dir string, rep *survey.Report) {
	for _, f := range rep.Damaged {
		fmt.Fprintf(r.Out, "damaged     %s", f.Path)
		if f.Shards != "" {
			fmt.Fprintf(r.Out, ", shards %s", f.Shards)
		}
		fmt.Fprintln(r.Out)
		for _, b := range f.Bad {
			fmt.Fprintln(r.Out, "            "+b)
		}
		fmt.Fprintln(r.Out, "            "+f.Redo)
	}
	for _, f := range rep.Stale {
		fmt.Fprintf(r.Out, "stale       %s\n", f.Path)
		for _, in := range f.Inputs {
			fmt.Fprintln(r.Out, "            "+in)
		}
		fmt.Fprintln(r.Out, "            "+f.Redo)
	}
	for _, d := range rep.Unfinished {
		fmt.Fprintf(r.Out, "%-11s %s %s\n", d.State, d.Path, d.Shards)
	}
	fmt.Fprintf(r.Out, "%s: %d datasets, %d files, %d bytes read; %d damaged, %d stale, %d unfinished\n", dir, rep.Datasets, rep.Files, rep.Bytes, len(rep.Damaged), len(rep.Stale), len(rep.Unfinished))
}

func main() {
	job.Main("verify", "Check every file of a run against its manifests.", &command{})
}
