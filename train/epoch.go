package train

import (
	"fmt"
	"log/slog"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// epoch is a judged rollouts dataset as GRPO sees it.
type epoch struct {
	rows    []*Sequence // trained on, in the file's order; Group is set
	groups  int         // that these rows are of, and the idle ones
	idle    []idleRow   // counted in the divisor, never run
	stats   *Stats
	refused []refusedRow
}

// idleRow has an advantage of 0 and nothing else that acts on it. Rows of one
// rollout are one.
type idleRow struct {
	group, trained int
	rollout        string
}

// refusedRow is one line of the rejects.
type refusedRow struct {
	row    int64 // 1-based
	id     string
	reason *Refusal
	path   string // where it stands, when that is not the job's dataset
}

// epochReader is what decides over rows.
type epochReader struct {
	rollouts, judged string
	check            Checker
	images           *Pictures
	settings         recipe.GRPO
	names            []string // identities of the policy; empty when unknown
	log              *slog.Logger
}

// judgement is what is kept of a trajectory.Judged.
type judgement struct {
	reward float64
	scored bool
	used   bool
}

// read joins the datasets, refuses rows by name, and forms the advantages.
func (e *epochReader) read() (*epoch, error) {
	out := &epoch{stats: newStats()}
	judgements, err := e.judgements(out.stats)
	if err != nil {
		return nil, err
	}
	var rows []*Sequence // parallel to outcomes; nil for rows that cannot be trained on
	var outcomes []Outcome
	seen := map[string]bool{}
	policies := map[string]bool{}
	n := int64(0)
	for row, err := range trajectory.Rollouts(e.rollouts) {
		if err != nil {
			return nil, err
		}
		n++
		policies[row.Policy] = true
		s, o, refusal := e.one(&row, judgements, seen, out.stats)
		if refusal != nil {
			out.refused = append(out.refused, refusedRow{row: n, id: row.ID, reason: refusal})
			out.stats.Refused[refusal.Reason]++
		}
		rows, outcomes = append(rows, s), append(outcomes, o)
	}
	if err := e.warn(out.stats, judgements, policies); err != nil {
		return nil, err
	}
	a, err := Estimate(outcomes, e.settings.Advantage, e.settings.AdvantageEps)
	if err != nil {
		return nil, err
	}
	out.choose(rows, outcomes, a, e.settings)
	return out, nil
}

func (e *epochReader) judgements(stats *Stats) (map[string]*judgement, error) {
	judgements := map[string]*judgement{}
	for j, err := range trajectory.Judgements(e.judged) {
		if err != nil {
			return nil, err
		}
		if judgements[j.ID] != nil {
			return nil, fail.New(fail.BadInput, "read judgements", e.judged, "id %s is given twice", j.ID)
		}
		judgements[j.ID] = &judgement{reward: j.Reward, scored: j.Scored}
		stats.judged(&j)
	}
	return judgements, nil
}

// one decides what becomes of a row.
func (e *epochReader) one(row *trajectory.Row, judgements map[string]*judgement, seen map[string]bool, stats *Stats) (*Sequence, Outcome, *Refusal) {
	stats.row(row)
	stats.size(len(row.TokenIDs), len(row.Images))
	o := Outcome{Group: row.Group, Treat: Exclude}
	if e.settings.Aggregation == RolloutMeanTokenMean {
		o.Rollout = fmt.Sprintf("%s#%d", row.Group, row.Sample)
	}
	if seen[row.ID] {
		return nil, o, refuse(Duplicate, "")
	}
	seen[row.ID] = true
	j := judgements[row.ID]
	if j == nil {
		return nil, o, refuse(NoJudgement, "")
	}
	j.used = true
	switch row.Status {
	case trajectory.OK:
	case trajectory.Failed: // counted by status
		return e.failed(row, o)
	case trajectory.Truncated:
		switch e.settings.Truncated {
		case "drop":
			stats.TruncatedDropped++
			return nil, o, nil
		case "mask":
			o.Treat = Mask
		}
	default:
		return nil, o, refuse(BadStatus, "%q", row.Status)
	}
	if !j.scored {
		stats.Unscored++
		return nil, o, nil
	}
	switch {
	case row.Group == "":
		return nil, o, refuse(NoGroup, "")
	case j.reward-j.reward != 0:
		return nil, o, refuse(BadReward, "%g", j.reward)
	}
	s, refusal := e.check.Row(row)
	if refusal != nil {
		return nil, o, refusal
	}
	for k, im := range s.Images {
		if err := e.images.check(im, e.check.PatchDim); err != nil {
			return nil, o, refuse(NoImage, "image %d: %v", k, err)
		}
	}
	s.Rollout = o.Rollout
	s.Reward = j.reward + e.overlong(s, stats)
	o.Reward = s.Reward
	if o.Treat == Mask {
		stats.TruncatedMasked++
	} else {
		o.Treat = Keep
	}
	return s, o, nil
}

// failed applies the recipe's policy for rows that ended in an error of the
// machinery. With zero such a row is a reward of 0, and is trained on when it
// holds up as one.
func (e *epochReader) failed(row *trajectory.Row, o Outcome) (*Sequence, Outcome, *Refusal) {
	if row.Group == "" {
		return nil, o, nil
	}
	switch e.settings.Failed {
	case "drop_group":
		o.Treat = DropGroup
	case "zero":
		o.Treat = Zero
		if s, refusal := e.check.Row(row); refusal == nil {
			s.Rollout = o.Rollout
			for _, im := range s.Images {
				if e.images.check(im, e.check.PatchDim) != nil {
					return nil, o, nil
				}
			}
			return s, o, nil
		}
	}
	return nil, o, nil
}

// overlong is what a row's reward changes by for its length (DAPO).
func (e *epochReader) overlong(s *Sequence, stats *Stats) float64 {
	p := overlongPenalty(len(s.Tokens)-int(s.Spans[0].From), e.settings.Overlong)
	if p != 0 {
		stats.Overlong++
	}
	return p
}

// overlongPenalty is 0 up to max-buffer tokens and falls linearly to -penalty at
// max. There is no row beyond it that was not cut.
func overlongPenalty(tokens int, o recipe.Overlong) float64 {
	over := tokens - (o.MaxTokens - o.Buffer)
	if o.MaxTokens == 0 || over <= 0 {
		return 0
	}
	most := o.Penalty
	if most == 0 {
		most = 1
	}
	return -most * min(1, float64(over)/float64(max(o.Buffer, 1)))
}

func (e *epochReader) warn(stats *Stats, judgements map[string]*judgement, policies map[string]bool) error {
	for _, j := range judgements {
		if !j.used {
			stats.JudgedOnly++
		}
	}
	if stats.Rows == 0 {
		return fail.New(fail.BadInput, "read rollouts", e.rollouts, "the dataset has no rows")
	}
	if stats.Refused[NoJudgement] == stats.Rows {
		return fail.WithHint(fail.New(fail.BadInput, "join judgements", e.judged, "none of its rows belongs to a row of %s", e.rollouts), "run judge on these rollouts")
	}
	if stats.JudgedOnly > 0 {
		e.log.Warn("judgements without a rollout", "judged", e.judged, "rows", stats.JudgedOnly)
	}
	if len(policies) > 1 {
		e.log.Warn("the rollouts are of several policies; ratios are formed with the log-probs each of them gave", "policies", len(policies))
	}
	if len(e.names) > 0 {
		for p := range policies {
			// Other servers call their policy what they like.
			if len(p) == len(e.names[0]) && !slices.Contains(e.names, p) {
				e.log.Warn("rollouts say that another policy made them; the comparison of log-probs will tell", "they_say", p)
			}
		}
	}
	return nil
}

// choose keeps the rows that have something to teach. A group of equal rewards
// has advantages of exactly 0: unless KL or entropy act on it, its gradient is 0
// and it is left out, of the denominators too unless these are asked to count it
// (DAPO's filter).
func (e *epoch) choose(rows []*Sequence, outcomes []Outcome, a *Advantages, g recipe.GRPO) {
	st := e.stats
	keepEqual, count := g.KL != 0 || g.Entropy != 0, g.ZeroAdvInDenominator
	switch g.ZeroVariance {
	case "keep":
		keepEqual = true
	case "drop":
		keepEqual = false
	}
	number := make([]int, len(a.Groups)) // 1 + index among the groups trained on
	for i, s := range rows {
		if t := outcomes[i].Treat; t == Keep || t == Mask || t == Zero {
			st.Reward.add(outcomes[i].reward())
		}
		if s == nil || !a.Trained[i] {
			continue
		}
		g := a.Group[i]
		equal := a.Groups[g].Equal && !keepEqual
		if equal {
			st.EqualDropped++
			if !count {
				continue
			}
		}
		if number[g] == 0 {
			e.groups++
			number[g] = e.groups
		}
		if equal {
			e.rest(idleRow{number[g] - 1, s.Trained, s.Rollout})
			continue
		}
		s.Advantage, s.Group = a.Values[i], number[g]-1
		st.Advantage.add(s.Advantage)
		st.TrainedTokens.add(float64(s.Trained))
		e.rows = append(e.rows, s)
	}
	st.TrainedRows = int64(len(e.rows))
	for _, g := range a.Groups {
		if g.Dropped {
			continue
		}
		st.Groups++
		if g.Single {
			st.SingleGroups++
		}
		if g.Equal {
			st.EqualGroups++
		}
	}
}

// rest adds an idle row.
func (e *epoch) rest(r idleRow) {
	for i := range e.idle {
		if r.rollout != "" && e.idle[i].rollout == r.rollout {
			e.idle[i].trained += r.trained
			return
		}
	}
	e.idle = append(e.idle, r)
}

// plan distributes the groups over updates, anew in every pass, and packs each.
// Groups stay whole, so that the advantages of an update sum to about 0. With
// fewer groups than updates there are as many updates as groups.
func (e *epoch) plan(seed uint64, g recipe.GRPO) []Step {
	members := make([][]int, e.groups)
	for i, s := range e.rows {
		members[s.Group] = append(members[s.Group], i)
	}
	idle := make([][]int, e.groups)
	for _, r := range e.idle {
		idle[r.group] = append(idle[r.group], r.trained)
	}
	updates := min(max(g.Updates, 1), e.groups)
	var steps []Step
	for pass := range max(g.Passes, 1) {
		order := shuffled(e.groups, seed, pass)
		for u := range updates {
			var rows, still []int
			for _, k := range order[u*e.groups/updates : (u+1)*e.groups/updates] {
				rows = append(rows, members[k]...)
				still = append(still, idle[k]...)
			}
			slices.Sort(rows)
			steps = append(steps, Step{Pass: pass, Packs: pack(e.rows, rows, g.PackTokens), Idle: still})
		}
	}
	return steps
}
