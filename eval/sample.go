package eval

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"searchloop/eval/score"
	"searchloop/internal/fail"
	"searchloop/internal/table"
	"searchloop/rollout/reward"
	"searchloop/rollout/trajectory"
)

// Sample is one row of samples.parquet: one trajectory of a benchmark with what
// explains its score. See docs/evals.md.
type Sample struct {
	ID         string   `parquet:"id"`
	Question   string   `parquet:"question"`
	Category   string   `parquet:"category,dict"`
	Text       string   `parquet:"text"`
	Truth      []string `parquet:"truth,list"`
	Answer     string   `parquet:"answer"`
	Status     string   `parquet:"status,dict"`
	Why        string   `parquet:"why"`
	Verdict    string   `parquet:"verdict,dict"`
	By         string   `parquet:"by,dict"`
	Correct    bool     `parquet:"correct"`
	Scored     bool     `parquet:"scored"`
	Reward     float64  `parquet:"reward"`
	Format     float64  `parquet:"format"` // the reward's format component, -1 when it has none
	Turns      int32    `parquet:"turns"`  // of the policy
	Tokens     int32    `parquet:"tokens"` // sampled by the policy
	Calls      []string `parquet:"calls,list"`
	ToolErrors int32    `parquet:"tool_errors"`

	Score      float64 `parquet:"score"`  // by the benchmark's metric, in [0, 1]; 0 of failed trajectories
	Judged     bool    `parquet:"judged"` // the verdict is correct, whatever the metric says
	ExactMatch bool    `parquet:"exact_match"`
	SubEM      bool    `parquet:"sub_em"`
	F1         float64 `parquet:"f1"`
	Meta       string  `parquet:"meta"` // of the question
	Health
}

// Unknown stands for calls that name no tool of the recipe or cannot be parsed.
const Unknown = "unknown"

// Searched says whether the policy called any tool.
func (s *Sample) Searched() bool { return len(s.Calls) > 0 }

// Origin is where samples come from, as their rows say it.
type Origin struct {
	Run   string
	Epoch int32
	Provenance
}

// Samples joins a rollouts dataset with its judged dataset by trajectory id, and
// with the questions, and scores every row by the metric. A row of one without its
// partner in the other is bad input: the folders do not belong together.
//
// tools are the names of the recipe's tools; a call of any other counts as Unknown.
func Samples(rollouts, judged, questions string, tools []string, metric score.Metric) ([]Sample, Origin, error) {
	var from Origin
	verdicts := map[string]trajectory.Judged{}
	for j, err := range table.ReadDataset[trajectory.Judged](judged) {
		if err != nil {
			return nil, from, err
		}
		verdicts[j.ID] = j
		if from.JudgeModel == "" { // rows that matched exactly have none
			from.JudgeModel, from.JudgePrompt = j.JudgeModel, j.PromptHash
		}
	}
	meta, err := metas(questions)
	if err != nil {
		return nil, from, err
	}
	var out []Sample
	for row, err := range table.ReadDataset[trajectory.Row](rollouts) {
		if err != nil {
			return nil, from, err
		}
		if len(out) == 0 {
			from.Run, from.Epoch = row.Run, row.Epoch
			from.Policy, from.Recipe = row.Policy, row.Recipe
			from.Temperature, from.TopP, from.TopK = row.Temperature, row.TopP, row.TopK
		}
		j, ok := verdicts[row.ID]
		if !ok {
			return nil, from, &fail.Error{Kind: fail.BadInput, Op: "join rollouts and verdicts", Path: judged, Sample: row.ID,
				Err: fmt.Errorf("no verdict for this trajectory"), Hint: "judge the rollouts in " + rollouts + " again"}
		}
		about, ok := meta[row.Question]
		if !ok && questions != "" {
			return nil, from, &fail.Error{Kind: fail.BadInput, Op: "join rollouts and questions", Path: questions, Sample: row.ID,
				Err: fmt.Errorf("no question %s", row.Question), Hint: "the rollouts are of other questions"}
		}
		delete(verdicts, row.ID)
		s := sample(&row, &j, tools)
		s.Meta = about
		s.rate(metric)
		out = append(out, s)
	}
	if len(verdicts) > 0 {
		return nil, from, &fail.Error{Kind: fail.BadInput, Op: "join rollouts and verdicts", Path: rollouts, Sample: slices.Min(slices.Collect(maps.Keys(verdicts))),
			Err: fmt.Errorf("%d verdicts have no trajectory", len(verdicts)), Hint: "the judged folder belongs to other rollouts"}
	}
	slices.SortFunc(out, func(a, b Sample) int { return cmp.Compare(a.ID, b.ID) })
	return out, from, nil
}

// metas reads what the questions dataset says beside the questions; none for "".
func metas(questions string) (map[string]string, error) {
	out := map[string]string{}
	if questions == "" {
		return out, nil
	}
	type about struct {
		ID   string `parquet:"id"`
		Meta string `parquet:"meta"`
	}
	for q, err := range table.ReadDataset[about](questions) {
		if err != nil {
			return nil, err
		}
		out[q.ID] = q.Meta
	}
	return out, nil
}

// rate scores a sample by the benchmark's metric and by the simple ones.
func (s *Sample) rate(metric score.Metric) {
	s.Judged, s.Correct = s.Correct, false
	if s.Status == trajectory.Failed {
		s.Judged = false
		return
	}
	s.Score = metric.Score(score.Item{Answer: s.Answer, Accepted: s.Truth, Category: s.Category, Meta: s.Meta, Verdict: s.Judged})
	s.Correct = s.Score >= reward.F1Right // all metrics but F1 give 0 or 1
	if strings.TrimSpace(s.Answer) != "" {
		s.ExactMatch, s.SubEM, s.F1 = reward.Match(s.Answer, s.Truth), reward.SubMatch(s.Answer, s.Truth), reward.F1(s.Answer, s.Truth)
	}
}

func sample(row *trajectory.Row, j *trajectory.Judged, tools []string) Sample {
	s := Sample{
		ID: row.ID, Question: row.Question, Category: row.Category, Text: row.Text, Truth: row.Answers,
		Answer: row.Answer, Status: row.Status, Why: row.Why,
		Verdict: j.Verdict, By: j.By, Correct: j.Correct, Scored: j.Scored, Reward: j.Reward, Format: -1,
	}
	for _, c := range j.Components {
		if c.Name == "format" {
			s.Format = c.Value
		}
	}
	s.Health = healthOf(row.Turns)
	for _, t := range row.Turns {
		switch {
		case t.Role == "assistant":
			s.Turns++
			s.Tokens += t.Tokens
		case t.Role == "tool" || t.Called(): // some protocols tell results in other roles
			name := t.Call
			if !slices.Contains(tools, name) {
				name = Unknown
			}
			s.Calls = append(s.Calls, name)
			if t.Error != "" {
				s.ToolErrors++
			}
		}
	}
	return s
}
