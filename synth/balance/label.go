package balance

import (
	"searchloop/corpus"
	"searchloop/internal/recipe"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// search is what a trajectory searched: texts, images, both or nothing.
type search uint8

const (
	images search = 1 << iota
	texts
)

// kinds says of every tool of a recipe what calling it searches. Tools that compute
// search nothing.
func kinds(tools []recipe.Tool) map[string]search {
	out := map[string]search{}
	for _, t := range tools {
		switch tool.KindOf(t) {
		case tool.ImageByText, tool.ImageByLens, tool.CropAndSearch:
			out[t.Name] = images
		case tool.TextSearch, tool.Visit, tool.ModelSearch:
			out[t.Name] = texts
		}
	}
	return out
}

// searched is what the observations of a trajectory came from. A call that was
// not answered brought nothing, and does not count; asked counts those too.
func searched(turns []trajectory.Turn, of map[string]search) (found search, asked bool) {
	for i := range turns {
		t := &turns[i]
		if !t.Called() {
			continue
		}
		asked = true
		if t.Error == "" {
			found |= of[t.Call]
		}
	}
	return found, asked
}

// count is a trial while its rollouts come in.
type count struct {
	trial corpus.Trial
	by    [4]int32 // right ones, by what they searched
}

func (c *count) add(correct bool, found search, asked bool) {
	c.trial.Rollouts++
	if asked {
		c.trial.Searched++
	}
	if correct {
		c.trial.Correct++
		c.by[found]++
	}
}

// label gives the finished trial. A question is free when at least free right
// rollouts searched nothing. Otherwise most of the right ones that searched decide
// what it needs; of two kinds that are equally many, the one that searches less.
func (c *count) label(free int) corpus.Trial {
	t := c.trial
	t.Free, t.Image, t.Text, t.Mixed = c.by[0], c.by[images], c.by[texts], c.by[images|texts]
	if t.Rollouts > 0 {
		t.PassRate = float64(t.Correct) / float64(t.Rollouts)
	}
	t.Need = need(&t, free)
	return t
}

// need is the label that a trial's counts give.
func need(t *corpus.Trial, free int) string {
	switch {
	case t.Correct == 0:
		return corpus.NeedUnknown
	case t.Free >= int32(max(free, 1)):
		return corpus.NeedNone
	case t.Free == t.Correct: // too few to be free, and nothing else was right
		return corpus.NeedUnknown
	case t.Image >= t.Text && t.Image >= t.Mixed:
		return corpus.NeedImage
	case t.Text >= t.Mixed:
		return corpus.NeedText
	}
	return corpus.NeedMixed
}
