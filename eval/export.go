package eval

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// Export forms.
const (
	ExportCSV    = "csv"
	ExportLMEval = "lm-eval"
)

// Export writes an evaluation folder in another form into the folder to: csv gives
// samples.csv and metrics.csv; lm-eval the layout of lm-evaluation-harness,
// results_….json and samples_<task>_….jsonl in a folder named after the model. File
// names hold run and epoch where the harness puts the time, so that equal inputs
// give equal files.
func Export(dir, form, to string) ([]string, error) {
	m, err := ReadMetrics(dir)
	if err != nil {
		return nil, err
	}
	samples, err := ReadSamples(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	switch form {
	case ExportCSV:
		files["samples.csv"], err = samplesCSV(samples)
		if err == nil {
			files["metrics.csv"], err = metricsCSV(m)
		}
	case ExportLMEval:
		files, err = harness(m, samples)
	default:
		return nil, fail.WithHint(fail.New(fail.Usage, "export", dir, "no form is named %q", form), "forms: csv, lm-eval")
	}
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "export", dir, err)
	}
	var names []string
	for name, text := range files {
		path := filepath.Join(to, name)
		if err := atomicfile.WriteFile(path, text); err != nil {
			return nil, err
		}
		names = append(names, path)
	}
	slices.Sort(names)
	return names, nil
}

func samplesCSV(samples []Sample) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"id", "question", "category", "text", "truth", "answer", "status", "why", "verdict", "by", "score", "correct", "exact_match", "sub_em", "f1", "judged", "reward", "turns", "tokens", "calls", "tool_errors"}}
	float := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, s := range samples {
		truth, err := json.Marshal(s.Truth)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []string{s.ID, s.Question, s.Category, s.Text, string(truth), s.Answer, s.Status, s.Why, s.Verdict, s.By, float(s.Score), fmt.Sprint(s.Correct), fmt.Sprint(s.ExactMatch),
			fmt.Sprint(s.SubEM), float(s.F1), fmt.Sprint(s.Judged), float(s.Reward), fmt.Sprint(s.Turns), fmt.Sprint(s.Tokens), strings.Join(s.Calls, " "), fmt.Sprint(s.ToolErrors)})
	}
	for _, row := range rows[1:] { // a spreadsheet takes a text that begins so for a formula
		for i, cell := range row {
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				if _, err := strconv.ParseFloat(cell, 64); err != nil {
					row[i] = "'" + cell
				}
			}
		}
	}
	if err := w.WriteAll(rows); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// metricsCSV has a line a number; names are the paths into metrics.json.
func metricsCSV(m *Metrics) ([]byte, error) {
	numbers, err := flat(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.Write([]string{"metric", "value"}); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if err := w.Write([]string{name, strconv.FormatFloat(numbers[name], 'g', -1, 64)}); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// flat gives every number of the metrics by its path, with points.
func flat(m *Metrics) (map[string]float64, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case float64:
			out[path] = v
		case map[string]any:
			for name, x := range v {
				walk(strings.TrimPrefix(path+"."+name, "."), x)
			}
		}
	}
	walk("", tree)
	return out, nil
}

// harness lays results out as lm-evaluation-harness 0.4 does.
func harness(m *Metrics, samples []Sample) (map[string][]byte, error) {
	task, stamp := m.Bench, fmt.Sprintf("%s-epoch-%d", m.Run, m.Epoch)
	model := strings.Map(func(r rune) rune {
		if strings.ContainsRune("/\\:#? ", r) {
			return '_'
		}
		return r
	}, m.Provenance.Policy)
	if model == "" {
		model = m.Run
	}
	n := float64(max(1, m.Questions))
	var variance float64
	for _, v := range byQuestion(samples) {
		variance += (v - m.Accuracy.Mean) * (v - m.Accuracy.Mean)
	}
	metric := "acc"
	if m.Metric == "exact_match" || m.Metric == "f1" {
		metric = m.Metric
	}
	stderr := math.Sqrt(variance / max(1, n-1) / n)
	results := map[string]any{
		"results": map[string]any{task: map[string]any{"alias": task, metric + ",none": m.Accuracy.Mean, metric + "_stderr,none": stderr,
			"search_ratio,none": m.SearchRatio, "format_valid,none": m.FormatValid}},
		"group_subtasks":   map[string]any{task: []string{}},
		"configs":          map[string]any{task: map[string]any{"task": task, "output_type": "generate_until", "repeats": m.Samples, "metric_list": []any{map[string]any{"metric": metric, "aggregation": "mean", "higher_is_better": true}}, "metadata": map[string]any{"version": float64(m.Schema), "scored_by": m.Metric, "recipe": m.Provenance.Recipe}}},
		"versions":         map[string]any{task: m.Schema},
		"n-shot":           map[string]any{task: 0},
		"higher_is_better": map[string]any{task: map[string]any{metric: true}},
		"n-samples":        map[string]any{task: map[string]any{"original": max(m.Count, m.Questions), "effective": m.Questions}},
		"config":           map[string]any{"model": "searchloop", "model_args": m.Provenance.Policy, "gen_kwargs": map[string]any{"temperature": m.Provenance.Temperature, "top_p": m.Provenance.TopP, "top_k": m.Provenance.TopK}},
		"model_source":     "searchloop", "model_name": m.Provenance.Policy, "model_name_sanitized": model,
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	e := json.NewEncoder(&lines)
	for i, s := range samples {
		truth := ""
		if len(s.Truth) > 0 {
			truth = s.Truth[0]
		}
		err := e.Encode(map[string]any{"doc_id": i, "doc": map[string]any{"id": s.ID, "question": s.Text, "answers": s.Truth, "category": s.Category}, "target": truth,
			"arguments": map[string]any{"gen_args_0": map[string]any{"arg_0": s.Text}}, "resps": [][]string{{s.Answer}}, "filtered_resps": []string{s.Answer}, "filter": "none",
			"metrics": []string{metric}, metric: s.Score, "doc_hash": "", "status": s.Status, "verdict": s.Verdict})
		if err != nil {
			return nil, err
		}
	}
	return map[string][]byte{
		filepath.Join(model, "results_"+stamp+".json"):           append(text, '\n'),
		filepath.Join(model, "samples_"+task+"_"+stamp+".jsonl"): lines.Bytes(),
	}, nil
}
