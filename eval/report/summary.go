package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"text/tabwriter"
)

// Summary is summary.json of a run. Its keys are a contract.
type Summary struct {
	AccuracyWarm  float64            `json:"accuracy_warm"`  // of the warm start on the benchmark
	AccuracyFinal float64            `json:"accuracy_final"` // of the last evaluated policy
	N             int                `json:"n"`              // samples of the benchmark
	Reward        []float64          `json:"reward"`         // mean of the training rollouts, by epoch from 1
	SearchRatio   float64            `json:"search_ratio"`   // of the last evaluated policy
	ByTool        map[string]float64 `json:"search_ratio_by_tool"`
	Seconds       float64            `json:"seconds"`
	Report        string             `json:"report"`
}

func summarize(o Options, epochs []Epoch) Summary {
	s := Summary{Seconds: o.Seconds, Report: o.Out, Reward: []float64{}}
	first := true
	for _, e := range epochs {
		if e.Scored > 0 {
			s.Reward = append(s.Reward, e.Reward)
		}
		if e.Eval == nil {
			continue
		}
		if first {
			s.AccuracyWarm, first = e.Eval.Accuracy.Mean, false
		}
		s.AccuracyFinal, s.N, s.SearchRatio, s.ByTool = e.Eval.Accuracy.Mean, e.Eval.N, e.Eval.SearchRatio, e.Eval.ByTool
	}
	return s
}

// keepSeconds is what the loop took when the summary in path says the same of it
// otherwise: a second run that finds everything done took no time, the loop did.
func keepSeconds(path string, s Summary) float64 {
	var old Summary
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &old) != nil {
		return s.Seconds
	}
	seconds := old.Seconds
	old.Seconds = s.Seconds
	if !reflect.DeepEqual(old, s) {
		return s.Seconds
	}
	return max(seconds, s.Seconds)
}

func printTable(to io.Writer, epochs []Epoch, o Options) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "epoch\taccuracy\t95 % interval\treward\tsearched\tturns\ttokens\tformat\t")
	for _, e := range epochs {
		reward := "–"
		if e.Scored > 0 {
			reward = fmt.Sprintf("%.3f", e.Reward)
		}
		if m := e.Eval; m != nil {
			fmt.Fprintf(w, "%d\t%.1f %%\t%.1f to %.1f\t%s\t%.1f %%\t%.2f\t%.1f\t%.1f %%\t\n", e.N, 100*m.Accuracy.Mean, 100*m.Accuracy.Low, 100*m.Accuracy.High,
				reward, 100*m.SearchRatio, m.Turns, m.Tokens, 100*m.FormatValid)
		} else {
			fmt.Fprintf(w, "%d\t–\t–\t%s\t–\t–\t–\t–\t\n", e.N, reward)
		}
	}
	w.Flush()
	fmt.Fprintf(to, "\nreport: %s\n", o.Out)
}
