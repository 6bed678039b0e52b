package eval

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"searchloop/rollout/trajectory"
)

// Metrics is metrics.json: the result of one policy on one benchmark. Its keys
// are a contract; see docs/evals.md. Shares are in [0, 1].
type Metrics struct {
	Schema int    `json:"schema"` // 1
	Bench  string `json:"bench"`
	Run    string `json:"run"`
	Epoch  int32  `json:"epoch"`

	N         int      `json:"n"`         // samples, failed ones included
	Questions int      `json:"questions"` // different questions among them
	Failed    int      `json:"failed"`    // broken by a server or tool; wrong in the accuracy
	Unjudged  int      `json:"unjudged"`  // ended, but without a verdict; wrong in the accuracy
	Accuracy  Interval `json:"accuracy"`  // mean over questions of the share of correct samples
	Reward    float64  `json:"reward"`    // mean over scored samples

	SearchRatio float64            `json:"search_ratio"` // share of samples that called a tool
	ByTool      map[string]float64 `json:"search_ratio_by_tool"`
	Calls       float64            `json:"calls_mean"`
	ToolErrors  float64            `json:"tool_error_ratio"` // of all calls
	Turns       float64            `json:"turns_mean"`
	Tokens      float64            `json:"tokens_mean"`
	FormatValid float64            `json:"format_valid"` // share of scored samples in valid format
	Truncated   float64            `json:"truncated"`
	NoAnswer    float64            `json:"no_answer"`

	ByCategory map[string]Group `json:"by_category"`
	Provenance Provenance       `json:"provenance"`
}

// Group is the result on one category.
type Group struct {
	N           int     `json:"n"`
	Accuracy    float64 `json:"accuracy"`
	SearchRatio float64 `json:"search_ratio"`
}

// Interval is a mean with its 95 % percentile bootstrap interval, resampled over
// questions (Efron 1979).
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Provenance is what a number depends on: two metrics compare only if these agree.
type Provenance struct {
	Policy      string  `json:"policy"`
	Recipe      string  `json:"recipe"`
	Questions   string  `json:"questions"` // digest of the questions dataset
	JudgeModel  string  `json:"judge_model,omitempty"`
	JudgePrompt string  `json:"judge_prompt,omitempty"`
	Temperature float32 `json:"temperature"`
	TopP        float32 `json:"top_p"`
	TopK        int32   `json:"top_k"`
}

// Measure computes metrics of samples that are sorted by id. resamples and seed
// belong to the bootstrap.
func Measure(samples []Sample, resamples int, seed uint64) Metrics {
	m := Metrics{Schema: 1, N: len(samples), ByTool: map[string]float64{}, ByCategory: map[string]Group{}}
	if m.N == 0 {
		return m
	}
	n := float64(m.N)
	var calls, errors, scored, valid float64
	perQuestion := map[string][]float64{}
	type sum struct{ n, correct, searched int }
	categories := map[string]*sum{}
	for i := range samples {
		s := &samples[i]
		c := categories[s.Category]
		if c == nil {
			c = new(sum)
			categories[s.Category] = c
		}
		c.n++
		hit := 0.0
		if s.Correct {
			hit = 1
			c.correct++
		}
		perQuestion[s.Question] = append(perQuestion[s.Question], hit)
		switch {
		case s.Status == trajectory.Failed:
			m.Failed++
		case !s.Scored:
			m.Unjudged++
		}
		if s.Scored {
			scored++
			m.Reward += s.Reward
			if s.Format > 0 {
				valid++
			}
		}
		if s.Searched() {
			m.SearchRatio += 1 / n
			c.searched++
		}
		used := slices.Compact(slices.Sorted(slices.Values(s.Calls)))
		for _, tool := range used {
			m.ByTool[tool] += 1 / n
		}
		calls += float64(len(s.Calls))
		errors += float64(s.ToolErrors)
		m.Turns += float64(s.Turns) / n
		m.Tokens += float64(s.Tokens) / n
		if s.Status == trajectory.Truncated {
			m.Truncated += 1 / n
		}
		if s.Verdict == trajectory.NoAnswer {
			m.NoAnswer += 1 / n
		}
	}
	m.Questions = len(perQuestion)
	m.Calls = calls / n
	m.ToolErrors = errors / max(calls, 1)
	m.Reward /= max(scored, 1)
	m.FormatValid = valid / max(scored, 1)
	m.Accuracy = bootstrap(means(perQuestion), resamples, seed)
	for name, c := range categories {
		m.ByCategory[name] = Group{c.n, float64(c.correct) / float64(c.n), float64(c.searched) / float64(c.n)}
	}
	return m
}

// means gives the mean of each question, in the order of their ids.
func means(per map[string][]float64) []float64 {
	type entry struct {
		id   string
		mean float64
	}
	var es []entry
	for id, vs := range per {
		sum := 0.0
		for _, v := range vs {
			sum += v
		}
		es = append(es, entry{id, sum / float64(len(vs))})
	}
	slices.SortFunc(es, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	out := make([]float64, len(es))
	for i, e := range es {
		out[i] = e.mean
	}
	return out
}

// bootstrap is the mean of values with the 2.5 % and 97.5 % percentiles of the
// means of resamples drawn with replacement.
func bootstrap(values []float64, resamples int, seed uint64) Interval {
	mean := func(pick func(i int) float64) float64 {
		sum := 0.0
		for i := range values {
			sum += pick(i)
		}
		return sum / float64(len(values))
	}
	out := Interval{Mean: mean(func(i int) float64 { return values[i] })}
	out.Low, out.High = out.Mean, out.Mean
	if resamples < 1 {
		return out
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	draws := make([]float64, resamples)
	for r := range draws {
		draws[r] = mean(func(int) float64 { return values[rng.IntN(len(values))] })
	}
	slices.Sort(draws)
	out.Low, out.High = percentile(draws, 0.025), percentile(draws, 0.975)
	return out
}

// percentile interpolates linearly between the order statistics of sorted xs.
func percentile(xs []float64, p float64) float64 {
	at := p * float64(len(xs)-1)
	i := int(at)
	if i+1 >= len(xs) {
		return xs[len(xs)-1]
	}
	return xs[i] + (at-float64(i))*(xs[i+1]-xs[i])
}
