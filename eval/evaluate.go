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
	"strings"
	"text/tabwriter"

	"searchloop/eval/benchmark"
	"searchloop/eval/score"
	"searchloop/internal/board"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
	"searchloop/rollout/judge"
)

// MetricsFile is the name of the metrics beside samples of an evaluation.
const MetricsFile = "metrics.json"

// TimingsFile says what an evaluation took: the only file of it that depends on the
// clock.
const TimingsFile = "timings.json"

// Version of the schema of samples.
const Version = 2

// Options of Evaluate.
type Options struct {
	Bench                            string // a name in pipelines/benchmarks, a path, or the name of another question set
	Rollouts, Judged, Questions, Out string // dataset folders
	TensorBoard                      string // folder for event files; empty: none are written
}

// Evaluate joins rollouts and verdicts, writes one row a sample and metrics.json,
// and prints a table of the metrics.
func Evaluate(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	bench, err := benchmark.Of(o.Bench)
	if err != nil {
		return err
	}
	metric, err := score.Named(bench.Metric)
	if err != nil {
		return fail.Wrap(fail.Usage, "evaluate", o.Bench, err)
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: "searchloop/samples", Version: Version, Ext: "parquet", Single: true,
		Inputs: map[string]string{"rollouts": o.Rollouts, "judged": o.Judged, "questions": o.Questions},
		Params: struct {
			Bench     string
			Seed      uint64
			Bootstrap int
			Benchmark benchmark.Benchmark
		}{bench.Name, rec.Seed, rec.Eval.Bootstrap, *bench}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	var tools []string
	for _, t := range rec.Tools {
		tools = append(tools, t.Name)
	}
	samples, from, err := Samples(o.Rollouts, o.Judged, o.Questions, tools, metric)
	if err != nil {
		return err
	}
	m := Measure(samples, metric.Name, rec.Eval.Bootstrap, rec.Seed)
	m.Bench, m.Run, m.Epoch, m.Provenance = bench.Name, from.Run, from.Epoch, from.Provenance
	m.Count, m.Published = bench.Count, bench.Published
	if bench.SearchFree != nil {
		m.Search = confusion(samples, bench.SearchFree)
	}
	if m.Agreement, err = judge.Agree(o.Judged, ""); err != nil {
		return err
	}
	m.Provenance.Metric, m.Provenance.Samples = metric.Name, m.Samples
	if m.Provenance.Inputs, err = searched(o.Rollouts); err != nil {
		return err
	}
	if m.Count > 0 && m.Questions != m.Count {
		r.Log.Warn("not the whole benchmark", "questions", m.Questions, "of", m.Count, "remedy", "evaluate without LIMIT before comparing with published figures")
	}
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
		took, err := s.Extra(TimingsFile)
		if err != nil {
			return err
		}
		if err := writeTimings(took, o.Rollouts, o.Judged); err != nil {
			return err
		}
		if err := s.Commit(int64(len(samples)), manifest.Counts{OK: int64(m.N - m.Failed - m.Unjudged), Failed: int64(m.Failed + m.Unjudged)}); err != nil {
			return err
		}
	}
	r.Result(m)
	if err := d.Seal(nil); err != nil {
		return err
	}
	if board.Wanted(o.TensorBoard) {
		board.Show(board.Options{Job: "evaluate", Dataset: o.Out, ID: d.Digest(), Dir: o.TensorBoard, Step: int64(m.Epoch), Log: r.Log}, m)
	}
	return nil
}

// searched gives the digests of what a rollout searched, by role.
func searched(rollouts string) (map[string]string, error) {
	m, err := manifest.Open(rollouts)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, in := range m.Inputs {
		if in.Name != "questions" && in.Name != "policy" && !strings.HasPrefix(in.Name, "policy/") {
			out[in.Name] = in.SHA256
		}
	}
	return out, nil
}

// ReadSamples reads the samples of an evaluation folder, by id.
func ReadSamples(dir string) ([]Sample, error) {
	m, err := manifest.Open(dir)
	if err == nil {
		err = m.Require(dir, "searchloop/samples", Version)
	}
	if err != nil {
		return nil, err
	}
	var out []Sample
	for s, err := range table.ReadDataset[Sample](dir) {
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
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
	fmt.Fprintf(w, "metric\t%s\texact match %.1f %%, sub-EM %.1f %%, F1 %.1f, judge %.1f %%; Wilson interval %.1f to %.1f\n", m.Metric,
		100*m.Scores["exact_match"], 100*m.Scores["sub_em"], 100*m.Scores["f1"], 100*m.Scores[score.Judge], 100*m.Score.Low, 100*m.Score.High)
	if m.Count > 0 && m.Count != m.Questions {
		fmt.Fprintf(w, "not whole\t%d of %d\tquestions of the benchmark: no figure to compare with published ones\n", m.Questions, m.Count)
	}
	if m.Samples > 1 {
		fmt.Fprintf(w, "pass@%d\t%.1f %%\tof %d samples a question\n", m.Samples, 100*m.PassAt[fmt.Sprint(m.Samples)], m.Samples)
	}
	if m.Paired != nil {
		fmt.Fprintf(w, "paired score\t%.1f\tof %d categories\n", m.Paired.Total, len(m.Paired.ByCategory))
	}
	fmt.Fprintf(w, "failed, unjudged\t%d, %d\tcounted as wrong\n", m.Failed, m.Unjudged)
	fmt.Fprintf(w, "searched\t%.1f %%\t%.2f calls a sample, %.1f %% of calls failed\n", 100*m.SearchRatio, m.Calls, 100*m.ToolErrors)
	for _, tool := range slices.Sorted(maps.Keys(m.ByTool)) {
		fmt.Fprintf(w, "  %s\t%.1f %%\n", tool, 100*m.ByTool[tool])
	}
	fmt.Fprintf(w, "turns, tokens\t%.2f, %.1f\n", m.Turns, m.Tokens)
	fmt.Fprintf(w, "format valid\t%.1f %%\ttruncated %.1f %%, without answer %.1f %%\n", 100*m.FormatValid, 100*m.Truncated, 100*m.NoAnswer)
	fmt.Fprintf(w, "reasoning\t%.1f %%\trepeated, different queries %.1f %%, unreadable turns %.1f %%, open tags %.1f %%\n", 100*m.Health.Repetition, 100*m.Health.QueryDiversity,
		100*m.Health.BadTurns, 100*m.Health.OpenTags)
	for _, c := range slices.Sorted(maps.Keys(m.ByCategory)) {
		g := m.ByCategory[c]
		fmt.Fprintf(w, "  %s\t%.1f %%\t%d samples, searched %.1f %%\n", c, 100*g.Accuracy, g.N, 100*g.SearchRatio)
	}
	for _, p := range m.Published {
		fmt.Fprintf(w, "published\t%.1f %%\t%s (%s; %s)\n", p.Value, p.System, p.From, p.Said())
	}
	w.Flush()
}
