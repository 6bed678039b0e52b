// Package reward turns a trajectory and the verdict on its answer into a number
// and the parts that it is made of; one pure function a file for each rule and for
// each way in which an answer can equal a known one. It asks no judge and reads
// only what the model wrote.
package reward

import (
	"maps"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// Names of components. A component of weight 0 explains; it adds nothing.
const (
	FormatPart    = "format"
	AccuracyPart  = "accuracy"
	ScalePart     = "scale"     // factor on the sum; weight 0, present only when it is not 1
	SearchesPart  = "searches"  // how many there were; weight 0
	RetrievalPart = "retrieval" // a result held the answer
	TagPart       = "tag"       // there is an answer tag
	MaskedPart    = "masked"    // the trajectory has no reward; weight 0
)

// Input is what a rule looks at.
type Input struct {
	Rule    recipe.Reward
	Row     *trajectory.Row
	Correct bool // the verdict
}

// Result is a rule's outcome.
type Result struct {
	Parts  []trajectory.Component
	Reward float64
	Scored bool // false: the rule gives this trajectory no reward, which is not a reward of 0
}

var rules = map[string]func(Input) Result{
	"mm-deepresearch":     mmDeepResearch,
	"search-r1":           plain,
	"search-r1-format":    searchR1Format,
	"mmsearch-r1":         mmSearchR1,
	"vision-deepresearch": visionDeepResearch,
	"exact":               plain,
	"sub_exact":           plain,
	"f1":                  f1,
	"numeric":             plain,
	"date":                plain,
}

// Score gives the reward of a trajectory by the rule that r names.
func Score(r recipe.Reward, row *trajectory.Row, correct bool) (Result, error) {
	rule := rules[r.Name]
	if rule == nil {
		return Result{}, fail.WithHint(fail.New(fail.Usage, "score", "", "no reward is named %q", r.Name),
			"rewards: "+strings.Join(slices.Sorted(maps.Keys(rules)), ", "))
	}
	return rule(Input{r, row, correct}), nil
}

// plain is accuracy·correct and nothing else: Search-R1's exact match, and every
// other rule that has one question.
func plain(in Input) Result {
	v := bit(in.Correct && in.Row.HasAnswer && in.Row.Answer != "")
	return Result{[]trajectory.Component{{Name: AccuracyPart, Value: v, Weight: in.Rule.Accuracy}}, in.Rule.Accuracy * v, true}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// MatchBy says whether an answer equals one of the accepted ones in the way that a
// reward asks for: exact (the default), sub_exact, f1, numeric or date. A way that
// needs a number or a date falls back on exact when there is none to compare.
func MatchBy(r recipe.Reward, answer string, accepted []string) bool {
	way := r.Match
	if way == "" {
		way = r.Name
	}
	switch way {
	case "sub_exact":
		return SubMatch(answer, accepted)
	case "f1":
		return F1(answer, accepted) >= F1Right
	case "numeric":
		if _, _, ok := oneNumber(answer); ok { // 42 and 42 % have one normal form, and are not the same
			return SameNumber(answer, accepted, tolerance)
		}
	case "date":
		return Match(answer, accepted) || SameDate(answer, accepted)
	}
	return Match(answer, accepted)
}
