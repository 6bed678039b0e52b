package train

import (
	"math"
	"testing"

	"searchloop/rollout/trajectory"
)

func estimate(t *testing.T, method string, eps float64, rewards ...float64) []float64 {
	t.Helper()
	rows := make([]Outcome, len(rewards))
	for i, r := range rewards {
		rows[i] = Outcome{Group: "q", Reward: r}
	}
	a, err := Estimate(rows, method, eps)
	if err != nil {
		t.Fatal(err)
	}
	return a.Values
}

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s = %.10g, want %.10g", what, got, want)
	}
}

func TestAdvantageValues(t *testing.T) {
	r := []float64{1, 0, 0, 1, .5, 0, 0, 0}
	for _, c := range []struct {
		method          string
		eps             float64
		zero, half, one float64
	}{
		{AdvantageGRPO, 1e-6, -.6822195, .4093317, 1.5008830},
		{AdvantageGRPO, 1e-4, -.6820721, .4092433, 1.5005587},
		{AdvantageDrGRPO, 1e-6, -.3125, .1875, .6875},
		{AdvantageRLOO, 1e-6, -.3571429, .2142857, .7857143},
	} {
		a := estimate(t, c.method, c.eps, r...)
		near(t, c.method+" of 1", a[0], c.one, 6e-8)
		near(t, c.method+" of 0", a[1], c.zero, 6e-8)
		near(t, c.method+" of .5", a[4], c.half, 6e-8)
	}
	a := estimate(t, AdvantageGRPO, 1e-6, 0, 0, 0, 0, 0, 1, 0, 0)
	near(t, "one success of 8", a[5], 2.4748667, 6e-8)
	near(t, "failures beside it", a[0], -.3535524, 6e-8)
	a = estimate(t, AdvantageGRPO, 1e-6, 1, 0)
	near(t, "pair", a[0], .7071058, 6e-8)
	near(t, "pair", a[1], -.7071058, 6e-8)
	// As MM-DeepResearch samples: five rollouts, one right.
	a = estimate(t, AdvantageGRPO, 1e-6, 1, 0, 0, 0, 0)
	near(t, "one of five", a[0], (1-.2)/(0.4472135955+1e-6), 1e-8)
	near(t, "one of five", a[1], -.4472, 1e-4)
	a = estimate(t, AdvantageRLOO, 0, 1, 0, 0, 0, 0, 0, 0, 0)
	near(t, "rloo", a[0], 1, 1e-12)
	near(t, "rloo", a[1], -.1429, 1e-4)
}

// Equal rewards give exactly 0 whatever rounding their sum has.
func TestAdvantageOfEqualRewards(t *testing.T) {
	r := float64(float32(.1))
	for _, method := range []string{AdvantageGRPO, AdvantageDrGRPO, AdvantageRLOO} {
		for _, eps := range []float64{1e-6, 1e-9, 0} {
			for i, v := range estimate(t, method, eps, r, r, r, r, r, r, r) {
				if v != 0 {
					t.Errorf("%s eps %g row %d: %g", method, eps, i, v)
				}
			}
		}
	}
}

// Groups of 1, 2 and 5 rows, interleaved: each stands alone.
func TestAdvantageOfRaggedGroups(t *testing.T) {
	rows := []Outcome{
		{Group: "a", Reward: 1}, {Group: "b", Reward: 1}, {Group: "c", Reward: .9}, {Group: "a", Reward: 0},
		{Group: "c"}, {Group: "c"}, {Group: "c"}, {Group: "c"},
	}
	a, err := Estimate(rows, AdvantageGRPO, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "a", a.Values[0], .7071058, 6e-8)
	near(t, "c", a.Values[2], 1.7888, 1e-4)
	if a.Values[1] != 0 || !a.Groups[1].Single || a.Groups[0].Single {
		t.Errorf("the single row has advantage %g, groups %+v", a.Values[1], a.Groups)
	}
	if a.Groups[2].Rows != 5 || a.Group[7] != 2 {
		t.Errorf("groups %+v", a.Groups)
	}
}

func TestAdvantageTreatments(t *testing.T) {
	rows := func(tr Treatment) []Outcome {
		return []Outcome{{"g", 1, Keep, ""}, {"g", 0, Keep, ""}, {"g", 0, Keep, ""}, {"g", 1, Keep, ""}, {"g", 5, tr, ""}, {"h", 1, Keep, ""}, {"h", 0, Keep, ""}}
	}
	get := func(tr Treatment) *Advantages {
		a, err := Estimate(rows(tr), AdvantageGRPO, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "other group", a.Values[5], .7071058, 6e-8)
		return a
	}
	a := get(Exclude)
	near(t, "excluded", a.Values[0], .8660239, 6e-8)
	near(t, "excluded", a.Values[1], -.8660239, 6e-8)
	if a.Trained[4] || a.Values[4] != 0 {
		t.Error("an excluded row is trained")
	}
	a = get(Zero)
	near(t, "as zero", a.Values[0], 1.0954431, 6e-8)
	near(t, "as zero", a.Values[1], -.7302954, 6e-8)
	near(t, "as zero itself", a.Values[4], -.7302954, 6e-8)
	a = get(Mask)
	if a.Trained[4] || a.Groups[0].Rows != 5 || !a.Trained[0] {
		t.Errorf("masked: %+v", a)
	}
	a = get(DropGroup)
	for i := range 5 {
		if a.Trained[i] || a.Values[i] != 0 {
			t.Errorf("row %d of a dropped group is trained", i)
		}
	}
}

func TestUnknownAdvantage(t *testing.T) {
	if _, err := Estimate(nil, "gpro", 0); err == nil {
		t.Fatal("no error")
	}
}

// Every protocol's failed calls are counted: results stand in turns of a tool, of
// the user, or inside the assistant's.
func TestCallErrorsOfEveryRole(t *testing.T) {
	s := newStats()
	s.row(&trajectory.Row{Turns: []trajectory.Turn{
		{Role: "user", Text: "question"}, {Role: "assistant", Call: "a"}, {Role: "tool", Call: "a", Error: "x"},
		{Role: "assistant", Call: "a", Error: "malformed"}, {Role: "inline", Error: "x"}, {Role: "user", Call: "a", Error: "x"}, {Role: "user", Call: "a"},
	}})
	if s.CallErrors != 3 {
		t.Errorf("%d errors", s.CallErrors)
	}
}
