package train

import (
	"math"

	"searchloop/internal/fail"
)

// Names of the advantage estimators, as recipes write them. R is the final
// scalar reward of a row, mean and std are over its group.
const (
	AdvantageGRPO   = "grpo"    // (R-mean)/(std+eps), std unbiased (n-1): DeepSeekMath, arXiv 2402.03300, as verl computes it
	AdvantageDrGRPO = "dr_grpo" // R-mean: arXiv 2503.20783
	AdvantageNone   = "none"    // the same by its other name (TRL's scale_rewards)
	AdvantageRLOO   = "rloo"    // R minus the mean of the others: arXiv 2402.14740
	AdvantageBatch  = "batch"   // (R-mean)/(std+eps), mean of the group, std over all rows (TRL's scale_rewards)
	AdvantageMaxRL  = "max_rl"  // (R-mean)/mean, 0 unless the mean is positive
)

// Treatment is what becomes of a row in its group. It is chosen by status
// before any number is formed, so that a broken row is never a silent zero.
type Treatment uint8

const (
	Keep      Treatment = iota // in the statistics and in the loss
	Mask                       // in the statistics, not in the loss
	Zero                       // as Keep, with reward 0
	Exclude                    // neither: as if it had never been sampled
	DropGroup                  // neither, and the whole group leaves with it
)

// Outcome is what the estimators see of a row.
type Outcome struct {
	Group  string // rows of one group need not stand together, and groups may differ in size
	Reward float64
	Treat  Treatment
	// Rollout, when it is said, is shared by rows that are parts of one rollout: it
	// counts once in its group, and all of them get the advantage of the first.
	Rollout string
}

// Group is one group's statistics over the rows that count.
type Group struct {
	Key     string
	Rows    int     // rows in the statistics
	Mean    float64 // of their rewards
	Std     float64 // unbiased; 0 for fewer than two rows
	Equal   bool    // all rewards are equal: every advantage is exactly 0
	Single  bool    // one row only: advantage 0, worth a warning
	Dropped bool    // left with a row of treatment DropGroup, or no row counts
}

// Advantages are the results of Estimate, parallel to its input.
type Advantages struct {
	Values  []float64 // 0 where Trained is false
	Trained []bool    // the row enters the loss
	Group   []int     // index into Groups
	Groups  []Group   // by first appearance
}

// Estimate forms one advantage a row. All sums are in float64 and equality of
// rewards is decided by comparison: eight rewards of 0.1 have, summed in
// float32, a deviation of 8e-9 and would get advantages near -0.8 with a small
// eps instead of 0. A group of one gets 0, not its raw reward.
func Estimate(rows []Outcome, method string, eps float64) (*Advantages, error) {
	switch method {
	case AdvantageGRPO, AdvantageDrGRPO, AdvantageNone, AdvantageRLOO, AdvantageBatch, AdvantageMaxRL:
	default:
		return nil, fail.New(fail.Usage, "grpo.advantage", "", "unknown estimator %q: want %s, %s, %s, %s, %s or %s", method,
			AdvantageGRPO, AdvantageDrGRPO, AdvantageNone, AdvantageRLOO, AdvantageBatch, AdvantageMaxRL)
	}
	a := &Advantages{Values: make([]float64, len(rows)), Trained: make([]bool, len(rows)), Group: make([]int, len(rows))}
	members, follows := gather(rows, a)
	spread := 0.0
	if method == AdvantageBatch {
		spread = a.spread(rows, members)
	}
	for g := range a.Groups {
		a.group(rows, g, members[g], method, eps, spread)
	}
	for i, first := range follows {
		a.Values[i], a.Trained[i] = a.Values[first], a.Trained[first]
	}
	return a, nil
}

// gather fills Group and Groups and returns each group's rows, and for the further
// rows of a rollout its first one.
func gather(rows []Outcome, a *Advantages) (members [][]int, follows map[int]int) {
	index, firsts := map[string]int{}, map[string]int{}
	follows = map[int]int{}
	for i, r := range rows {
		g, ok := index[r.Group]
		if !ok {
			g = len(a.Groups)
			index[r.Group] = g
			a.Groups = append(a.Groups, Group{Key: r.Group})
			members = append(members, nil)
		}
		a.Group[i] = g
		if r.Treat == DropGroup {
			a.Groups[g].Dropped = true
		}
		if r.Treat != Keep && r.Treat != Mask && r.Treat != Zero {
			continue
		}
		if first, ok := firsts[r.Rollout]; ok && r.Rollout != "" {
			follows[i] = first
			continue
		}
		firsts[r.Rollout] = i
		members[g] = append(members[g], i)
	}
	return members, follows
}

// spread is the unbiased standard deviation of all rewards that count.
func (a *Advantages) spread(rows []Outcome, members [][]int) float64 {
	var m moments
	each := func(f func(r float64)) {
		for g := range members {
			if !a.Groups[g].Dropped {
				for _, i := range members[g] {
					f(rows[i].reward())
				}
			}
		}
	}
	each(m.add)
	if m.n < 2 {
		return 0
	}
	mean, squares := m.mean(), 0.0
	each(func(r float64) { squares += (r - mean) * (r - mean) })
	return math.Sqrt(squares / (m.n - 1))
}

// reward as the statistics take it.
func (o *Outcome) reward() float64 {
	if o.Treat == Zero {
		return 0
	}
	return o.Reward
}

func (a *Advantages) group(rows []Outcome, g int, members []int, method string, eps, spread float64) {
	s := &a.Groups[g]
	if s.Dropped || len(members) == 0 {
		s.Dropped = true
		return
	}
	reward := func(i int) float64 { return rows[i].reward() }
	n := float64(len(members))
	lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
	for _, i := range members {
		r := reward(i)
		lo, hi, sum = min(lo, r), max(hi, r), sum+r
	}
	s.Rows, s.Mean, s.Single = len(members), sum/n, len(members) == 1
	s.Equal = lo == hi
	if s.Equal {
		s.Mean = lo
	} else {
		squares := 0.0
		for _, i := range members {
			d := reward(i) - s.Mean
			squares += d * d
		}
		s.Std = math.Sqrt(squares / (n - 1))
	}
	for _, i := range members {
		a.Trained[i] = rows[i].Treat != Mask
		if s.Equal || !a.Trained[i] {
			continue
		}
		d := reward(i) - s.Mean
		switch method {
		case AdvantageGRPO:
			d /= s.Std + eps
		case AdvantageBatch:
			d /= spread + eps
		case AdvantageMaxRL:
			if s.Mean > 0 {
				d /= s.Mean
			} else {
				d = 0
			}
		case AdvantageRLOO:
			d *= n / (n - 1)
		}
		a.Values[i] = d
	}
}
