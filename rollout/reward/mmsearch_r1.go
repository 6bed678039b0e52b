package reward

import (
	"strings"

	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// mmSearchR1 is (1−α)·accuracy·(1−penalty) + α·format: a right answer is worth less
// when it was searched for, once or (per_search) for every search. α is the
// recipe's weight format, 1−α its weight accuracy. A turn counts as a search when
// it asks for one, whether the search found something or not; the last turn never.
func mmSearchR1(in Input) Result {
	turns := said(in.Row.Turns)
	searches := 0
	for i, t := range turns {
		if i+1 < len(turns) && searchTag(t) {
			searches++
		}
	}
	acc := bit(in.Correct && in.Row.HasAnswer && in.Row.Answer != "") * searchCost(in.Rule, searches)
	parts := []trajectory.Component{
		{Name: FormatPart, Value: bit(mmSearchR1Format(turns)), Weight: in.Rule.Format},
		{Name: AccuracyPart, Value: acc, Weight: in.Rule.Accuracy},
		{Name: SearchesPart, Value: float64(searches)},
	}
	return Result{parts, parts[0].Weight*parts[0].Value + parts[1].Weight*parts[1].Value, true}
}

// said are the policy's turns.
func said(turns []trajectory.Turn) (out []string) {
	for _, t := range turns {
		if t.Role == "assistant" {
			out = append(out, t.Text)
		}
	}
	return out
}

func searchTag(turn string) bool {
	open := false
	for _, t := range protocol.TagsOf(turn, []string{protocol.Search, protocol.TextSearch}) {
		if open = open || !t.Close; open && t.Close {
			return true
		}
	}
	return false
}

// mmSearchR1Format says whether every turn is one thought and one action, the last
// one an answer, every other one a search: the image at most once and before any
// text, text at most twice. Nothing but white space stands outside of the tags, and
// each tag stands there once.
func mmSearchR1Format(turns []string) bool {
	images, texts := 0, 0
	for i, t := range turns {
		last := i+1 == len(turns)
		switch a := action(strings.TrimSpace(t)); {
		case a == protocol.Answer:
			return last
		case last:
			return false
		case a == protocol.Search && images == 0 && texts == 0:
			images++
		case a == protocol.TextSearch && texts < 2:
			texts++
		default:
			return false
		}
	}
	return false
}

// action is the action of a turn in good form, "" for any other turn.
func action(turn string) string {
	tags := protocol.TagsOf(turn, []string{protocol.Reason, protocol.Search, protocol.TextSearch, protocol.Answer})
	if len(tags) != 4 || tags[0].From != 0 || tags[3].To != len(turn) {
		return ""
	}
	a := tags[2].Name
	for i, name := range []string{protocol.Reason, protocol.Reason, a, a} {
		if tags[i].Name != name || tags[i].Close != (i%2 == 1) {
			return ""
		}
	}
	if a == protocol.Reason || strings.TrimSpace(turn[tags[1].To:tags[2].From]) != "" {
		return ""
	}
	if body := strings.TrimSpace(turn[tags[2].To:tags[3].From]); a == protocol.Search && body != "<img>" || body == "" && a == protocol.TextSearch {
		return ""
	}
	return a
}
