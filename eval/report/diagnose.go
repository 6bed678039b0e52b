package report

import (
	"fmt"
	"strings"

	"searchloop/rollout/reward"
	"searchloop/rollout/trajectory"
)

// Flags of a sample, as the page filters by them.
const (
	truncated = 1 << iota
	failed
	unjudged
	searched
	needless // searched although its category needs no search
	toolError
	truthSeen // an observation holds an accepted answer
	noAnswer
)

// flagsOf looks a sample over. free says whether its category needs no search, seen
// is what truthIn gives.
func flagsOf(p *played, free bool, seen int) (flags int) {
	set := func(f int, is bool) {
		if is {
			flags |= f
		}
	}
	s := &p.sample
	set(truncated, s.Status == trajectory.Truncated)
	set(failed, s.Status == trajectory.Failed)
	set(unjudged, s.Status != trajectory.Failed && !s.Scored)
	set(searched, s.Searched())
	set(needless, s.Searched() && free)
	set(toolError, s.ToolErrors > 0)
	set(truthSeen, seen > 0)
	set(noAnswer, strings.TrimSpace(s.Answer) == "")
	return flags
}

// truthIn is the number of the first observation that holds an accepted answer as
// whole words, counted from 1; 0 for none.
func truthIn(p *played) int {
	n := 0
	for _, t := range p.row.Turns {
		if !t.Observation() {
			continue
		}
		n++
		if reward.SubMatch(t.Text, p.sample.Truth) {
			return n
		}
	}
	return 0
}

// diagnose says in a sentence why a sample was right or wrong, as far as its record
// tells. free and seen are those of flagsOf.
func diagnose(p *played, free bool, seen int) string {
	s := &p.sample
	truth := ""
	if len(s.Truth) > 0 {
		truth = s.Truth[0]
	}
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case s.Status == trajectory.Failed:
		say("Broken, not answered: %s.", s.Why)
		return out[0]
	case s.Correct:
		say("Right.")
	case strings.TrimSpace(s.Answer) == "" && s.Status == trajectory.Truncated:
		say("No answer: ended by a limit (%s).", s.Why)
	case strings.TrimSpace(s.Answer) == "":
		say("No answer: the last turn has none.")
	case !s.Scored && s.Verdict != "":
		say("No verdict (%s) on the answer “%s”; the truth is “%s”.", s.Verdict, clip(s.Answer, 80), clip(truth, 80))
	default:
		say("Answered “%s”, the truth is “%s”.", clip(s.Answer, 80), clip(truth, 80))
	}
	switch {
	case !s.Searched() && free:
		say("Needed no search and made none.")
	case !s.Searched():
		say("Never searched.")
	case free:
		say("Searched although the question needs no search.")
	case s.Correct:
	case seen > 0:
		say("Search result %d holds the truth: it was found and not used.", seen)
	default:
		say("No search result holds the truth.")
	}
	if s.ToolErrors > 0 {
		say("%d of %d calls failed.", s.ToolErrors, len(s.Calls))
	}
	if s.BadTurns > 0 && !s.Correct {
		say("%d turns could not be read.", s.BadTurns)
	}
	return strings.Join(out, " ")
}

// clip cuts a text for a line.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
