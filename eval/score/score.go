// Package score says how right an answer is, by the published rule of its
// benchmark. Every metric is a pure function of one answer, the accepted ones and
// what the benchmark says of the question; the value is in [0, 1]. It asks no
// judge: the metric judge takes a verdict that is there already.
package score

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"searchloop/rollout/reward"
)

// Judge is the metric that takes the judge's verdict.
const Judge = "judge"

// Item is what a metric looks at.
type Item struct {
	Answer   string
	Accepted []string // accepted answers, the official one first
	Category string
	Meta     string // JSON object of what else the benchmark says of the question, or ""
	Verdict  bool   // of the judge: correct
}

// Metric is one way of scoring. An empty answer scores 0 whatever it says.
type Metric struct {
	Name string
	Doc  string // the rule in a line
	rule func(Item) float64
}

var metrics = map[string]Metric{
	Judge:         {Doc: "exact match, else the verdict of a judge", rule: func(i Item) float64 { return bit(i.Verdict) }},
	"exact_match": {Doc: "equal in normal form (SQuAD)", rule: func(i Item) float64 { return bit(reward.Match(i.Answer, i.Accepted)) }},
	"sub_em":      {Doc: "an accepted answer stands in it as whole words, in normal form", rule: func(i Item) float64 { return bit(reward.SubMatch(i.Answer, i.Accepted)) }},
	"f1":          {Doc: "F1 of the words in normal form (SQuAD)", rule: func(i Item) float64 { return reward.F1(i.Answer, i.Accepted) }},
	"infoseek":    {Doc: "InfoSeek: texts and times equal in normal form, numbers within their range", rule: infoSeek},
	"chartqa":     {Doc: "ChartQA's relaxed accuracy: numbers within 5 %, texts equal but for case", rule: func(i Item) float64 { return bit(Relaxed(i.Answer, i.Accepted)) }},
	"choice":      {Doc: "the letter or the text of the right option", rule: func(i Item) float64 { return bit(Choice(i.Answer, i.Accepted)) }},
	"ocrbench":    {Doc: "OCRBench: an accepted text stands in the answer", rule: ocrBench},
	"mme":         {Doc: "MME: yes or no; paired over the two questions of an image", rule: func(i Item) float64 { return bit(YesNo(i.Answer, i.Accepted)) }},
	"mathvista":   {Doc: "MathVista: options, whole numbers, numbers of a stated precision, or texts", rule: mathVista},
}

// Named finds a metric.
func Named(name string) (Metric, error) {
	m, ok := metrics[name]
	if !ok {
		return m, fmt.Errorf("no metric is named %q; metrics: %s", name, strings.Join(Names(), ", "))
	}
	m.Name = name
	return m, nil
}

// Names lists the metrics.
func Names() []string { return slices.Sorted(maps.Keys(metrics)) }

// Score applies the metric.
func (m Metric) Score(i Item) float64 {
	if strings.TrimSpace(i.Answer) == "" {
		return 0
	}
	return m.rule(i)
}

// meta reads a field of an item's meta as text; "" when there is none.
func (i Item) meta(name string) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(i.Meta), &fields) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(fields[name], &text) == nil {
		return text
	}
	if s := string(fields[name]); s != "null" {
		return s
	}
	return ""
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
