// Command ls lists the datasets of runs with their state, also while jobs are at
// work.
package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"searchloop/internal/job"
	"searchloop/internal/survey"
)

type command struct {
	job.Flags
	Folder []string `arg:"" optional:"" placeholder:"DIR" help:"Folders to look through (default: runs)."`
}

func (c *command) Run(_ context.Context, r *job.Run) error {
	if len(c.Folder) == 0 {
		c.Folder = []string{"runs"}
	}
	all := []survey.Dataset{}
	for _, dir := range c.Folder {
		list, err := survey.Look(dir)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	r.Result(all)
	if r.JSON {
		return nil
	}
	group := ""
	for _, d := range all {
		dir, name := filepath.Split(d.Path)
		if dir != group {
			group = dir
			fmt.Fprintln(r.Out, strings.TrimSuffix(dir, "/"))
		}
		fmt.Fprintf(r.Out, "  %-14s %-10s %s\n", name, d.State, details(d))
	}
	return nil
}

// details are what is worth knowing of a dataset in its state.
func details(d survey.Dataset) string {
	var f []string
	add := func(format string, args ...any) { f = append(f, fmt.Sprintf(format, args...)) }
	if d.Rows > 0 {
		add("%d rows", d.Rows)
	}
	if d.Counts.Failed > 0 {
		add("%d failed", d.Counts.Failed)
	}
	if d.Counts.Rejected > 0 {
		add("%d rejected", d.Counts.Rejected)
	}
	if d.Shards != "" {
		add("shards %s", d.Shards)
	}
	if d.Begun > 0 {
		add("%d samples in journals", d.Begun)
	}
	if d.By != "" {
		add("by %s", d.By)
	}
	if d.Usage != nil && d.Usage.Cost > 0 {
		add("$%.2f", d.Usage.Cost)
	}
	switch d.State {
	case survey.Unfinished, survey.Damaged:
		if d.Last != "" && d.Last != "complete" {
			add("last run: %s", d.Last)
		}
		if d.Error != "" {
			add("%s", d.Error)
		}
	case survey.Done:
		if !d.Ended.IsZero() {
			add("%s", d.Ended.Local().Format("2006-01-02 15:04"))
		}
	}
	return strings.Join(f, ", ")
}

func main() { job.Main("ls", "List the datasets of runs and how far each is.", &command{}) }
