package eval

import (
	"errors"
	"fmt"

	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// ShowOptions say what is shown of a finished evaluation.
type ShowOptions struct {
	Dir      string
	Baseline string   // an older evaluation, "" for none
	MaxDrop  *float64 // share by which accuracy may be below the baseline's; nil: any
	MinFewer *float64 // share of the baseline's searches that must be saved; nil: any
	Export   string   // ExportCSV, ExportLMEval, or ""
	To       string
}

// resamples and seed of comparisons that no recipe says otherwise of.
const (
	resamples = 2000
	seed      = 1
)

// Show prints metrics, compares with a baseline and exports. A drop beyond the bound
// is the error that it returns, after everything else was done.
func Show(r *job.Run, o ShowOptions) error {
	switch {
	case (o.MaxDrop != nil || o.MinFewer != nil) && o.Baseline == "":
		return fail.New(fail.Usage, "evaluate", "", "--max-drop and --min-fewer need --baseline")
	case (o.Export == "") != (o.To == ""):
		return fail.New(fail.Usage, "evaluate", "", "--export and --to go together")
	}
	m, err := ReadMetrics(o.Dir)
	if err != nil {
		return err
	}
	result := struct {
		Metrics    *Metrics    `json:"metrics"`
		Comparison *Comparison `json:"comparison,omitempty"`
		Files      []string    `json:"files,omitempty"`
	}{Metrics: m}
	if !r.JSON {
		m.Print(r.Out)
	}
	if o.Export != "" {
		if result.Files, err = Export(o.Dir, o.Export, o.To); err != nil {
			return err
		}
		if !r.JSON {
			for _, f := range result.Files {
				fmt.Fprintln(r.Out, f)
			}
		}
	}
	r.Result(result)
	if o.Baseline == "" {
		return nil
	}
	c, err := CompareFolders(o.Baseline, o.Dir, resamples, seed)
	if err != nil {
		return err
	}
	result.Comparison = &c
	r.Result(result)
	if !r.JSON {
		fmt.Fprintln(r.Out)
		c.Print(r.Out)
	}
	if o.MaxDrop != nil {
		err = c.Bound(*o.MaxDrop)
	}
	if o.MinFewer != nil {
		err = errors.Join(err, c.SearchBound(*o.MinFewer))
	}
	return err
}
