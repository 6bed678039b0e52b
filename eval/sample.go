package eval

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/table"
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

// Samples joins a rollouts dataset with its judged dataset by trajectory id. A
// row of one without its partner in the other is bad input: the two folders do
// not belong together.
//
// tools are the names of the recipe's tools; a call of any other counts as Unknown.
func Samples(rollouts, judged string, tools []string) ([]Sample, Origin, error) {
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
		delete(verdicts, row.ID)
		out = append(out, sample(&row, &j, tools))
	}
	if len(verdicts) > 0 {
		return nil, from, &fail.Error{Kind: fail.BadInput, Op: "join rollouts and verdicts", Path: rollouts, Sample: slices.Min(slices.Collect(maps.Keys(verdicts))),
			Err: fmt.Errorf("%d verdicts have no trajectory", len(verdicts)), Hint: "the judged folder belongs to other rollouts"}
	}
	slices.SortFunc(out, func(a, b Sample) int { return cmp.Compare(a.ID, b.ID) })
	return out, from, nil
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
	for _, t := range row.Turns {
		switch t.Role {
		case "assistant":
			s.Turns++
			s.Tokens += t.Tokens
		case "tool":
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
