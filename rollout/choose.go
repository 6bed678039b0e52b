package rollout

import (
	"cmp"
	"errors"
	"slices"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// trial is what choosing needs of a curated question.
type trial struct {
	ID    string        `parquet:"id"`
	Trial *corpus.Trial `parquet:"trial,optional"`
}

// choose gives the questions of an epoch: those that the recipe's filter takes, n of
// them (0: all) drawn by seed and epoch, or, in a curriculum, the next n of a list
// sorted by pass rate. Epoch 1 begins it; after its end it begins anew.
func choose(dir string, all []corpus.Question, p plan, epoch, n int) ([]corpus.Question, error) {
	if p.Filter.IsZero() && p.Order == "" {
		return Draw(all, p.Seed, epoch, n), nil
	}
	trials := map[string]*corpus.Trial{}
	for t, err := range rows[trial](dir, corpus.Questions, corpus.QuestionsVersion) {
		if err != nil {
			return nil, err
		}
		if t.Trial == nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "choose questions", Path: dir, Sample: t.ID, Err: errors.New("the question was never tried: rollout.filter and rollout.order have nothing to go by"),
				Hint: "give questions that curate drew, or leave filter and order out"}
		}
		trials[t.ID] = t.Trial
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(q corpus.Question) bool { return !takes(p.Filter, trials[q.ID]) })
	if len(kept) == 0 {
		return nil, fail.New(fail.Usage, "choose questions", dir, "rollout.filter takes none of %d questions", len(all))
	}
	if p.Order == "" {
		return Draw(kept, p.Seed, epoch, n), nil
	}
	list := Draw(kept, p.Seed, 0, 0)
	slices.SortStableFunc(list, func(a, b corpus.Question) int {
		c := cmp.Compare(trials[b.ID].PassRate, trials[a.ID].PassRate)
		if p.Order == "hard_first" {
			return -c
		}
		return c
	})
	if n == 0 || n >= len(list) {
		return list, nil
	}
	from := max(epoch-1, 0) * n % len(list)
	return slices.Concat(list[from:], list[:from])[:n], nil
}

func takes(f recipe.Filter, t *corpus.Trial) bool {
	return (len(f.Needs) == 0 || slices.Contains(f.Needs, t.Need)) && t.PassRate >= f.MinPass && (f.MaxPass == 0 || t.PassRate <= f.MaxPass)
}
