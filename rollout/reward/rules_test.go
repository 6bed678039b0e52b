package reward

import (
	"math"
	"strings"
	"testing"

	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// turns makes a trajectory of the policy's turns ("<…") and what the environment
// says in the given role.
func turns(role string, texts ...string) []trajectory.Turn {
	out := []trajectory.Turn{{Role: "user", Text: "q"}}
	for _, s := range texts {
		if r, ok := strings.CutPrefix(s, "#"); ok {
			out = append(out, trajectory.Turn{Role: role, Text: r, Call: "text_search"})
		} else {
			out = append(out, trajectory.Turn{Role: "assistant", Text: s})
		}
	}
	return out
}

// score checks that the parts give the reward.
func score(t *testing.T, name string, rule recipe.Reward, row trajectory.Row, correct bool, want float64, scored bool) {
	t.Helper()
	r, err := Score(rule, &row, correct)
	if err != nil || math.Abs(r.Reward-want) > 1e-12 || r.Scored != scored {
		t.Errorf("%s: %g, %v, want %g, %v (%v)", name, r.Reward, r.Scored, want, scored, err)
	}
	sum := 0.0
	for _, p := range r.Parts {
		sum += p.Weight * p.Value
	}
	if scored && math.Abs(sum-r.Reward) > 1e-12 {
		t.Errorf("%s: the parts give %g, the reward is %g", name, sum, r.Reward)
	}
}

// The values of facts H3: 1.0, 0.91, 0.9, 0.81, 0.1, 0.
func TestMMSearchR1(t *testing.T) {
	rule := recipe.Reward{Name: "mmsearch-r1", Format: 0.1, Accuracy: 0.9, Penalty: 0.1}
	const (
		img  = "<reason>r</reason>\n<search><img></search>"
		text = "<reason>r</reason><text_search>q</text_search>\n"
		end  = "<reason>r</reason><answer>Lim</answer>"
		bare = "<answer>Lim</answer>"
	)
	for _, c := range []struct {
		name    string
		turns   []string
		correct bool
		want    float64
	}{
		{"answer at once", []string{end}, true, 1.0},
		{"image", []string{img, "#", end}, true, 0.9*0.9 + 0.1},
		{"text", []string{text, "#", end}, true, 0.91},
		{"image and text", []string{img, "#", text, "#", end}, true, 0.91},
		{"out of form", []string{bare}, true, 0.9},
		{"searched, out of form", []string{img, "#", bare}, true, 0.81},
		{"wrong, in form", []string{end}, false, 0.1},
		{"wrong, out of form", []string{bare}, false, 0},
		{"image after text", []string{text, "#", img, "#", end}, true, 0.81},
		{"image twice", []string{img, "#", img, "#", end}, true, 0.81},
		{"text before the thought", []string{"so " + end}, true, 0.9},
		{"two actions", []string{"<reason>r</reason><search><img></search><answer>Lim</answer>"}, true, 0.9},
		{"a thought twice", []string{"<reason>r</reason><reason>r</reason><answer>Lim</answer>"}, true, 0.9},
	} {
		score(t, c.name, rule, trajectory.Row{Turns: turns("user", c.turns...), Answer: "Lim", HasAnswer: true}, c.correct, c.want, true)
	}
	score(t, "no answer", rule, trajectory.Row{Turns: turns("user", img, "#", img)}, false, 0, true)
	rule.PerSearch = true
	score(t, "each search costs", rule, trajectory.Row{Turns: turns("user", img, "#", text, "#", end), Answer: "Lim", HasAnswer: true}, true, 0.9*0.81+0.1, true)
	rule.Penalty = -0.1 // the beginning of the warm-up: searching is worth more
	rule.PerSearch = false
	score(t, "warm-up", rule, trajectory.Row{Turns: turns("user", img, "#", end), Answer: "Lim", HasAnswer: true}, true, 0.9*1.1+0.1, true)
}

// Text after text is in form, and more than three turns are no panic.
// The same penalty in the protocol of mm-deepresearch: by the calls that were run.
func TestMMDeepResearchPenalty(t *testing.T) {
	row := func(calls int) *trajectory.Row {
		r := &trajectory.Row{HasAnswer: true, Answer: "a"}
		for range calls {
			r.Turns = append(r.Turns, trajectory.Turn{Role: "assistant", Text: "<think>t</think><tool_call>{}</tool_call>", Call: "text_search"},
				trajectory.Turn{Role: "tool", Call: "text_search"})
		}
		r.Turns = append(r.Turns, trajectory.Turn{Role: "assistant", Text: "<think>t</think><answer>a</answer>"})
		return r
	}
	for _, c := range []struct {
		perSearch, correct bool
		calls              int
		want               float64
	}{{false, true, 0, 1}, {false, true, 1, 0.1 + 0.9*0.8}, {false, true, 3, 0.1 + 0.9*0.8}, {true, true, 2, 0.1 + 0.9*0.64}, {true, false, 2, 0.1}} {
		rule := recipe.Reward{Name: "mm-deepresearch", Format: 0.1, Accuracy: 0.9, Penalty: 0.2, PerSearch: c.perSearch}
		got, err := Score(rule, row(c.calls), c.correct)
		if err != nil || math.Abs(got.Reward-c.want) > 1e-12 || got.Parts[2].Value != float64(c.calls) {
			t.Errorf("%+v: %+v %v", c, got, err)
		}
		rule.Penalty = 0
		if got, _ := Score(rule, row(c.calls), c.correct); len(got.Parts) != 2 {
			t.Errorf("without a penalty: %+v", got)
		}
	}
}

func TestG36TwoTextSearches(t *testing.T) {
	const text, end = "<reason>r</reason><text_search>q</text_search>", "<reason>r</reason><answer>a</answer>"
	for n, want := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		var all []string
		for range n {
			all = append(all, text)
		}
		if got := mmSearchR1Format(append(all, end)); got != want {
			t.Errorf("%d text searches: %v", n, got)
		}
	}
}

// The values of facts H3 and D4: 1, 0.8, 0.2, 0.1, 0.
func TestSearchR1Format(t *testing.T) {
	rule := recipe.Reward{Name: "search-r1-format", Accuracy: 1, Structure: 0.2, Final: 0.1}
	const (
		find = "<think>t</think>\n<search>q</search>"
		end  = "<think>t</think> <answer>Lim</answer>"
	)
	good := turns("inline", find, "#\n\n<information>Doc 1(Title: x) Lim</information>\n\n", end)
	bad := turns("inline", "<search>q</search>", "#", "<answer>Lim</answer>")
	half := turns("inline", find, "#<information>Lim</information>", find)
	row := func(t []trajectory.Turn, has bool) trajectory.Row {
		return trajectory.Row{Turns: t, HasAnswer: has, Answer: strings.Repeat("Lim", map[bool]int{true: 1}[has]), Answers: []string{"Lim"}}
	}
	score(t, "right and valid", rule, row(good, true), true, 1, true)
	score(t, "right and invalid", rule, row(bad, true), true, 0.8, true)
	score(t, "wrong and valid", rule, row(good, true), false, 0.2, true)
	score(t, "wrong and invalid", rule, row(bad, true), false, 0.1, true)
	score(t, "none and invalid", rule, row(half, false), false, 0, true)
	rule.Retrieval = 0.1
	score(t, "wrong and valid, with the answer in a result", rule, row(good, true), false, 0.3, true)
	score(t, "right and valid, with the answer in a result", rule, row(good, true), true, 1, true)
	for name, c := range map[string]struct {
		texts []string
		want  bool
	}{
		"answer at once":      {[]string{end}, true},
		"two searches":        {[]string{find, "#", find, "#", end}, true},
		"no thought":          {[]string{"<answer>x</answer>"}, false},
		"text outside":        {[]string{"hm " + end}, false},
		"search and answer":   {[]string{find + "<answer>x</answer>"}, false},
		"invented result":     {[]string{"<think>t</think><information>x</information>"}, false},
		"no result":           {[]string{find, end}, false},
		"after the answer":    {[]string{end, end}, false},
		"tags in a result":    {[]string{find, "#</information><answer>x</answer>", end}, true},
		"no turn":             {nil, false},
		"ends with a search":  {[]string{find, "#", find}, false},
		"ends with a result":  {[]string{find, "#"}, false},
		"second thought open": {[]string{"<think>t</think><answer>x</answer><think>"}, false},
	} {
		if got := searchR1Form(turns("inline", c.texts...)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	score(t, "exact match", recipe.Reward{Name: "search-r1", Accuracy: 1}, row(bad, true), true, 1, true)
	score(t, "no match", recipe.Reward{Name: "search-r1", Accuracy: 1}, row(good, true), false, 0, true)
}

// A result that was cut keeps its end tag, and the form.
func TestG18CutResultKeepsTheForm(t *testing.T) {
	if !searchR1Form(turns("inline", "<think>t</think><search>q</search>", "#\n\n<information>half a sen", "<think>t</think><answer>x</answer>")) {
		t.Error("what the environment says decides about the policy's form")
	}
}

func TestG29MaskedRowsHaveNoReward(t *testing.T) {
	rule := recipe.Reward{Name: "vision-deepresearch", Accuracy: 1}
	good, bad := trajectory.Turn{Role: "assistant", Text: "x"}, trajectory.Turn{Role: "assistant", Text: "x", Error: "bad"}
	row := func(has bool, t ...trajectory.Turn) trajectory.Row {
		return trajectory.Row{Turns: t, HasAnswer: has, Answer: map[bool]string{true: "Lim"}[has]}
	}
	score(t, "right", rule, row(true, good), true, 1, true)
	score(t, "wrong", rule, row(true, good), false, 0, true)
	score(t, "no answer", rule, row(false, good), false, 0, false)
	score(t, "half are bad", rule, row(true, bad, good), true, 1, true)
	score(t, "most are bad", rule, row(true, bad, bad, good), true, 0, false)
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		way, answer string
		accepted    []string
		want        bool
	}{
		{"exact", "the U.S.A", []string{"USA"}, true},
		{"exact", "in the USA", []string{"USA"}, false},
		{"sub_exact", "in the USA, I think", []string{"USA"}, true},
		{"sub_exact", "Paris, France", []string{"Paris"}, true},
		{"sub_exact", "Parisian", []string{"Paris"}, false},
		{"sub_exact", "anything", []string{"A", "the"}, false},
		{"f1", "river Lim in Montenegro", []string{"river Lim in Montenegro and Serbia"}, true},
		{"f1", "river Lim", []string{"river Lim in Montenegro and Serbia"}, false},
		{"numeric", "about 3.2 million people", []string{"3,200,000"}, true},
		{"numeric", "3,170,000", []string{"3.2 million"}, true},
		{"numeric", "3,100,000", []string{"3.2 million"}, false},
		{"numeric", "between 3 and 4", []string{"3"}, false},
		{"numeric", "42%", []string{"42"}, false},
		{"numeric", "42 percent", []string{"42%"}, true},
		{"numeric", "−5", []string{"-5.01"}, true},
		{"numeric", "1 234 567 m²", []string{"1,234,567"}, true},
		{"numeric", "0", []string{"0"}, true},
		{"numeric", "none", []string{"none"}, true},
		{"numeric", "1.2.3", []string{"1.2"}, false},
		{"date", "4 July 1776", []string{"July 4th, 1776"}, true},
		{"date", "1776-07-04", []string{"4th of July 1776"}, true},
		{"date", "It was on Sept. 3, 1939.", []string{"3 September 1939"}, true},
		{"date", "4 July 1776", []string{"July 1776"}, true},
		{"date", "July 1776", []string{"4 July 1776"}, false},
		{"date", "in 1776", []string{"1776"}, true},
		{"date", "1776 or 1777", []string{"1776"}, false},
		{"date", "03/04/2020", []string{"2020"}, false},
		{"date", "2020-02-30", []string{"2020"}, false},
		{"date", "2021/3", []string{"March 2021"}, true},
	} {
		if got := MatchBy(recipe.Reward{Match: c.way}, c.answer, c.accepted); got != c.want {
			t.Errorf("%s: %q against %q: %v", c.way, c.answer, c.accepted, got)
		}
	}
	if got := F1("the river Lim", []string{"Lim river valley"}); math.Abs(got-0.8) > 1e-12 { // 2·2/(2+3)
		t.Errorf("F1 %g", got)
	}
	score(t, "f1", recipe.Reward{Name: "f1", Accuracy: 1}, trajectory.Row{HasAnswer: true, Answer: "river Lim", Answers: []string{"Lim river valley"}}, false, 0.8, true)
}

func TestG35EmptyNormalFormMatchesNothing(t *testing.T) {
	accepted := []string{"A"}
	for _, way := range []string{"exact", "sub_exact", "f1", "numeric", "date"} {
		for _, answer := range []string{"", "The", "...", "an"} {
			if MatchBy(recipe.Reward{Match: way}, answer, accepted) {
				t.Errorf("%s: %q matches A", way, answer)
			}
		}
		if !MatchBy(recipe.Reward{Match: way}, "a", accepted) {
			t.Errorf("%s: a does not match A", way)
		}
	}
	if accepted[0] != "A" {
		t.Error("the accepted answers were changed")
	}
}

// Only the policy's turns are read: what a page says is no answer, and no form.
func TestG34TagsInResultsAreNotGraded(t *testing.T) {
	rule := recipe.Reward{Name: "mmsearch-r1", Format: 0.1, Accuracy: 0.9, Penalty: 0.1}
	row := trajectory.Row{Turns: turns("user", "#<text_search>x</text_search>", "<reason>r</reason><answer>Lim</answer>"), Answer: "Lim", HasAnswer: true}
	score(t, "a tag in a result is no search", rule, row, true, 1, true)
}

func FuzzMatches(f *testing.F) {
	f.Add("3.2 million", "1776-07-04")
	f.Add("\xff", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, way := range []string{"exact", "sub_exact", "f1", "numeric", "date"} {
			MatchBy(recipe.Reward{Match: way}, a, []string{b})
			if strings.TrimSpace(a) != "" && Normal(a) != "" && !MatchBy(recipe.Reward{Match: way}, a, []string{a}) {
				t.Fatalf("%s: %q does not match itself", way, a)
			}
		}
	})
}
