package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// MetricsFile is the name of the metrics beside samples of an evaluation.
const MetricsFile = "metrics.json"

// Options of Evaluate.
type Options struct {
	Bench                            string
	Rollouts, Judged, Questions, Out string // dataset folders
}

// Evaluate joins rollouts and verdicts, writes one row a sample and metrics.json,
// and prints a table of the metrics.
func Evaluate(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: "searchloop/samples", Version: 1, Ext: "parquet", Single: true,
		Inputs: map[string]string{"rollouts": o.Rollouts, "judged": o.Judged, "questions": o.Questions},
		Params: struct {
			Bench     string
			Seed      uint64
			Bootstrap int
		}{o.Bench, rec.Seed, rec.Eval.Bootstrap}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	var tools []string
	for _, t := range rec.Tools {
		tools = append(tools, t.Name)
	}
	samples, from, err := Samples(o.Rollouts, o.Judged, tools)
	if err != nil {
		return err
	}
	m := Measure(samples, rec.Eval.Bootstrap, rec.Seed)
	m.Bench, m.Run, m.Epoch, m.Provenance = o.Bench, from.Run, from.Epoch, from.Provenance
	questions, err := manifest.InputOf("questions", o.Questions)
	if err != nil {
		return err
	}
	m.Provenance.Questions = questions.SHA256
	for _, shard := range d.Todo() {
		s, err := d.Begin(shard)
		if err != nil {
			return err
		}
		if s == nil {
			continue
		}
		defer s.Discard()
		// Samples are few: the whole evaluation is one part, whatever the shards of the rollouts.
		part, err := s.Part()
		if err != nil {
			return err
		}
		w := table.NewWriter[Sample](part)
		if err := w.Write(samples...); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		extra, err := s.Extra(MetricsFile)
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(m, "", "  ")
		if err != nil {
			return err
		}
		if _, err := extra.Write(append(text, '\n')); err != nil {
			return fail.Wrap(fail.Disk, "write metrics", o.Out, err)
		}
		if err := s.Commit(int64(len(samples)), manifest.Counts{OK: int64(m.N - m.Failed - m.Unjudged), Failed: int64(m.Failed + m.Unjudged)}); err != nil {
			return err
		}
	}
	r.Result(m)
	return d.Seal(nil)
}

// ReadMetrics reads the metrics of an evaluation folder.
func ReadMetrics(dir string) (*Metrics, error) {
	path := filepath.Join(dir, MetricsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "read metrics", path, err), "run evaluate first")
	}
	m := new(Metrics)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fail.Wrap(fail.BadInput, "read metrics", path, err)
	}
	if m.Schema != 1 {
		return nil, fail.New(fail.BadInput, "read metrics", path, "schema %d, this program reads 1", m.Schema)
	}
	return m, nil
}

// Print writes the metrics as a table for people.
func (m *Metrics) Print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\trun %s, epoch %d\n", m.Bench, m.Run, m.Epoch)
	fmt.Fprintf(w, "accuracy\t%.1f %%\t95 %% interval %.1f to %.1f, %d samples of %d questions\n", 100*m.Accuracy.Mean, 100*m.Accuracy.Low, 100*m.Accuracy.High, m.N, m.Questions)
	fmt.Fprintf(w, "failed, unjudged\t%d, %d\tcounted as wrong\n", m.Failed, m.Unjudged)
	fmt.Fprintf(w, "searched\t%.1f %%\t%.2f calls a sample, %.1f %% of calls failed\n", 100*m.SearchRatio, m.Calls, 100*m.ToolErrors)
	for _, tool := range slices.Sorted(maps.Keys(m.ByTool)) {
		fmt.Fprintf(w, "  %s\t%.1f %%\n", tool, 100*m.ByTool[tool])
	}
	fmt.Fprintf(w, "turns, tokens\t%.2f, %.1f\n", m.Turns, m.Tokens)
	fmt.Fprintf(w, "format valid\t%.1f %%\ttruncated %.1f %%, without answer %.1f %%\n", 100*m.FormatValid, 100*m.Truncated, 100*m.NoAnswer)
	for _, c := range slices.Sorted(maps.Keys(m.ByCategory)) {
		g := m.ByCategory[c]
		fmt.Fprintf(w, "  %s\t%.1f %%\t%d samples, searched %.1f %%\n", c, 100*g.Accuracy, g.N, 100*g.SearchRatio)
	}
	w.Flush()
}
