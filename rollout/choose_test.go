package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/job/jobtest"
	"searchloop/internal/recipe"
)

// curated are eight questions with trials: pass rates 0.1 to 0.8, every second of
// them search-free.
func curated(t *testing.T) (string, []corpus.Question) {
	t.Helper()
	var rows []corpus.Tried
	var all []corpus.Question
	for i := range 8 {
		q := corpus.Tried{Question: corpus.Question{ID: fmt.Sprint("q", i+1)}, Trial: &corpus.Trial{Need: []string{corpus.NeedNone, corpus.NeedText}[i%2], PassRate: float64(i+1) / 10}}
		rows, all = append(rows, q), append(all, q.Question)
	}
	return jobtest.Dataset(t, t.TempDir(), corpus.Questions, corpus.QuestionsVersion, rows...), all
}

func TestChoose(t *testing.T) {
	dir, all := curated(t)
	for _, c := range []struct {
		name     string
		p        plan
		epoch, n int
		want     string // ids; sorted where the order is drawn
	}{
		{"needs", plan{Filter: recipe.Filter{Needs: []string{"text"}}}, 1, 0, "q2 q4 q6 q8"},
		{"rates", plan{Filter: recipe.Filter{MinPass: 0.25, MaxPass: 0.6}}, 1, 0, "q3 q4 q5 q6"},
		{"both", plan{Filter: recipe.Filter{Needs: []string{"free"}, MaxPass: 0.4}}, 1, 1, ""},
		{"first lesson", plan{Order: "easy_first"}, 1, 3, "q8 q7 q6"},
		{"second lesson", plan{Order: "easy_first"}, 2, 3, "q5 q4 q3"},
		{"around", plan{Order: "easy_first"}, 3, 3, "q2 q1 q8"},
		{"hard first", plan{Order: "hard_first", Filter: recipe.Filter{MinPass: 0.3}}, 1, 2, "q3 q4"},
		{"all in order", plan{Order: "hard_first"}, 5, 0, "q1 q2 q3 q4 q5 q6 q7 q8"},
	} {
		got, err := choose(dir, all, c.p, c.epoch, c.n)
		if err != nil {
			t.Fatal(c.name, err)
		}
		var ids []string
		for _, q := range got {
			ids = append(ids, q.ID)
		}
		if c.p.Order == "" {
			slices.Sort(ids)
		}
		if list := strings.Join(ids, " "); c.want != "" && list != c.want || c.want == "" && len(ids) != 1 {
			t.Errorf("%s: %s, want %s", c.name, list, c.want)
		}
	}
	if _, err := choose(dir, all, plan{Filter: recipe.Filter{MinPass: 0.9}}, 1, 0); err == nil || !strings.Contains(err.Error(), "takes none of 8") {
		t.Error(err)
	}
	if _, err := choose(dir, all, plan{}, 1, 3); err != nil {
		t.Error(err)
	}
}
