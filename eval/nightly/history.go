package nightly

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"searchloop/eval"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// HistoryFile is the history's name in RUN/nights.
const HistoryFile = "history.parquet"

// Row is one line of the history: one evaluation of one night. See docs/nightly.md.
type Row struct {
	Key   string    `parquet:"key"` // identity of the evaluation: no two rows have the same
	Night string    `parquet:"night,dict"`
	Begun time.Time `parquet:"begun,timestamp(millisecond)"`
	Run   string    `parquet:"run,dict"`
	Epoch int32     `parquet:"epoch"`
	Bench string    `parquet:"bench,dict"`

	Metric     string  `parquet:"metric,dict"`
	N          int32   `parquet:"n"`
	Questions  int32   `parquet:"questions"`
	Failed     int32   `parquet:"failed"`
	Unjudged   int32   `parquet:"unjudged"`
	Accuracy   float64 `parquet:"accuracy"`
	Low        float64 `parquet:"low"`
	High       float64 `parquet:"high"`
	ExactMatch float64 `parquet:"exact_match"`
	SubEM      float64 `parquet:"sub_em"`
	F1         float64 `parquet:"f1"`
	Judged     float64 `parquet:"judge"`
	Reward     float64 `parquet:"reward"`
	Searched   float64 `parquet:"search_ratio"`
	Calls      float64 `parquet:"calls_mean"`
	ToolErrors float64 `parquet:"tool_error_ratio"`
	Turns      float64 `parquet:"turns_mean"`
	Tokens     float64 `parquet:"tokens_mean"`
	Valid      float64 `parquet:"format_valid"`
	Truncated  float64 `parquet:"truncated"`
	NoAnswer   float64 `parquet:"no_answer"`
	Seconds    float64 `parquet:"seconds_mean"` // of a trajectory
	Dollars    float64 `parquet:"dollars"`      // providers and judge

	Search    string `parquet:"search,dict"` // frozen or live
	Policy    string `parquet:"policy,dict"`
	Recipe    string `parquet:"recipe,dict"`
	Digest    string `parquet:"questions_digest,dict"`
	Program   string `parquet:"program,dict"`
	Evaluated string `parquet:"evaluation"` // its folder, relative to the run's

	Against    string   `parquet:"against,dict"` // night of the comparison; "" for none
	Comparable bool     `parquet:"comparable"`
	Difference float64  `parquet:"difference"` // accuracy less that of the other night, over the questions of both
	P          float64  `parquet:"p"`          // of the paired bootstrap
	McNemar    float64  `parquet:"mcnemar_p"`
	Lost       []string `parquet:"lost,list"`
	Gained     []string `parquet:"gained,list"`
	Broke      bool     `parquet:"broke"` // a regression beyond the bound
}

// rowOf is the row of a finished evaluation, without its comparison.
func rowOf(n *night, bench string, epoch int) (*Row, error) {
	dir := n.eval(bench, epoch)
	made, err := manifest.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := eval.ReadMetrics(dir)
	if err != nil {
		return nil, err
	}
	took, err := eval.ReadTimings(dir)
	if err != nil {
		return nil, err
	}
	r := &Row{
		// The digest of an evaluation covers its rollouts, verdicts and questions.
		Key:   manifest.Hash(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n%s", n.Run, n.Night, bench, epoch, made.Spec))[:32],
		Night: n.Night, Begun: n.Begun, Run: n.Run, Epoch: int32(epoch), Bench: bench,
		Metric: m.Metric, N: int32(m.N), Questions: int32(m.Questions), Failed: int32(m.Failed), Unjudged: int32(m.Unjudged),
		Accuracy: m.Accuracy.Mean, Low: m.Accuracy.Low, High: m.Accuracy.High,
		ExactMatch: m.Scores["exact_match"], SubEM: m.Scores["sub_em"], F1: m.Scores["f1"], Judged: m.Scores["judge"],
		Reward: m.Reward, Searched: m.SearchRatio, Calls: m.Calls, ToolErrors: m.ToolErrors, Turns: m.Turns, Tokens: m.Tokens,
		Valid: m.FormatValid, Truncated: m.Truncated, NoAnswer: m.NoAnswer,
		Search: n.Search, Policy: m.Provenance.Policy, Recipe: m.Provenance.Recipe, Digest: m.Provenance.Questions, Program: made.Program,
		Evaluated: filepath.Join("nights", n.Night, "evals", bench, fmt.Sprint("epoch-", epoch)),
	}
	if took != nil {
		r.Seconds, r.Dollars = took.Seconds.Mean, took.Rollouts.Cost+took.Judge.Cost
	}
	return r, nil
}

// ReadHistory reads the history of a run's nights, in the order of its rows; none
// when there is no file.
func ReadHistory(dir string) ([]Row, error) {
	path := filepath.Join(dir, HistoryFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	rows, err := table.ReadAll[Row](path)
	return rows, fail.WithHint(fail.Wrap(fail.BadInput, "read the history", path, err), "move the file away: the next night writes it anew from the nights whose folders are there")
}

// add puts a row into the history and publishes the whole file anew. A night has one
// row for an epoch and a benchmark: the same evaluation changes nothing, another one,
// made since with other settings, takes the place of the one that is no more.
func add(dir string, rows []Row, r *Row) ([]Row, error) {
	i := slices.IndexFunc(rows, func(o Row) bool {
		return o.Run == r.Run && o.Night == r.Night && o.Bench == r.Bench && o.Epoch == r.Epoch
	})
	switch {
	case i < 0:
		rows = append(rows, *r)
	case rows[i].Key == r.Key:
		return rows, nil
	default:
		rows[i] = *r
	}
	f, err := atomicfile.Create(filepath.Join(dir, HistoryFile))
	if err != nil {
		return nil, err
	}
	defer f.Discard()
	w := table.NewWriter[Row](f)
	if err := w.Write(rows...); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return rows, f.Commit()
}
