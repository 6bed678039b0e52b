package eval

import (
	"slices"

	"searchloop/eval/benchmark"
	"searchloop/eval/score"
	"searchloop/internal/stat"
	"searchloop/rollout/judge"
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
	Accuracy  Interval `json:"accuracy"`  // mean over questions of the samples' score by the metric
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

	Metric    string                `json:"metric"`          // that accuracy is the mean of
	Score     stat.Interval         `json:"wilson"`          // of the samples that are correct; meaningful with one sample a question
	Count     int                   `json:"count,omitempty"` // questions of the whole benchmark
	Scores    map[string]float64    `json:"scores"`          // of other metrics, over all samples: exact_match, sub_em, f1, judge
	Samples   int                   `json:"samples_per_question"`
	PassAt    map[string]float64    `json:"pass_at"` // by k, the unbiased estimate, up to the least number of samples of a question
	Health    HealthMeans           `json:"health"`
	Search    Confusion             `json:"search_need"`
	Paired    *PairedScore          `json:"paired,omitempty"` // of MME
	Agreement []judge.Agreement     `json:"judge_agreement,omitempty"`
	Published []benchmark.Published `json:"published,omitempty"`
}

// HealthMeans are the means of the samples' health.
type HealthMeans struct {
	Repetition     float64 `json:"repetition"`
	QueryDiversity float64 `json:"query_diversity"` // different queries of a sample among its queries; 1 when nobody asked
	BadTurns       float64 `json:"bad_turns"`       // share of turns
	OpenTags       float64 `json:"open_tags"`       // share of turns
}

// Confusion counts samples by whether they had to search and whether they did.
// Need is what the category says: search_required and search_free as FVQA names
// them, or the categories that a benchmark declares to be search_free.
type Confusion struct {
	NeededUsed   int `json:"needed_used"`
	NeededUnused int `json:"needed_unused"`
	FreeUsed     int `json:"free_used"`
	FreeUnused   int `json:"free_unused"`
	Unknown      int `json:"unknown"`
}

// PairedScore is MME's: of every category the accuracy plus the share of images of
// which both questions are right, in per cent, and their sum.
type PairedScore struct {
	Total      float64            `json:"total"`
	ByCategory map[string]float64 `json:"by_category"`
}

// Group is the result on one category.
type Group struct {
	N           int     `json:"n"`
	Accuracy    float64 `json:"accuracy"`
	SearchRatio float64 `json:"search_ratio"`
}

// Interval is a mean with its 95 % percentile bootstrap interval, resampled over
// questions.
type Interval = stat.Interval

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

	Samples int               `json:"samples"` // a question
	Metric  string            `json:"metric"`
	Inputs  map[string]string `json:"inputs,omitempty"` // digests of what was searched, by role: text_index, image_index, lens, gallery, pages
}

// Measure computes metrics of samples that are sorted by id. resamples and seed
// belong to the bootstrap.
func Measure(samples []Sample, metric string, resamples int, seed uint64) Metrics {
	m := Metrics{Schema: 1, Metric: metric, N: len(samples), ByTool: map[string]float64{}, ByCategory: map[string]Group{}}
	if m.N == 0 {
		return m
	}
	n := float64(m.N)
	var calls, errors, scored, valid float64
	perQuestion := map[string][]float64{}
	type sum struct {
		n, searched int
		score       float64
	}
	categories := map[string]*sum{}
	for i := range samples {
		s := &samples[i]
		c := categories[s.Category]
		if c == nil {
			c = new(sum)
			categories[s.Category] = c
		}
		c.n++
		c.score += s.Score
		perQuestion[s.Question] = append(perQuestion[s.Question], s.Score)
		switch {
		case s.Status == trajectory.Failed:
			m.Failed++
		case !s.Scored && metric == score.Judge:
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
	m.Accuracy = stat.Bootstrap(inOrder(byQuestion(samples)), resamples, seed)
	m.more(samples, perQuestion)
	for name, c := range categories {
		m.ByCategory[name] = Group{c.n, c.score / float64(c.n), float64(c.searched) / float64(c.n)}
	}
	return m
}
