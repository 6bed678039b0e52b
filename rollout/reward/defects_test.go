package reward

import (
	"slices"
	"testing"

	"searchloop/corpus"
	"searchloop/corpus/record"
)

// Accepted answers as published tables print them, in whichever of their forms, are
// what an answer is held against: each by itself, none glued to the next, and a
// text that is no list is one answer and no failure.
func TestG33CandidatesAsPrinted(t *testing.T) {
	for printed, want := range map[string][]string{
		"['Spain' 'ESP']":           {"Spain", "ESP"}, // numpy: no commas
		"['Spain', 'ESP']":          {"Spain", "ESP"}, // Python
		`["Spain", "ESP"]`:          {"Spain", "ESP"}, // JSON
		"None":                      nil,
		"['Spain' 'ESP":             {"['Spain' 'ESP"}, // broken: one odd answer
		"array(['Spain', 'ESP'])":   {"Spain", "ESP"},
		`["Espa\u00f1a", "\u897f"]`: {"España", "西"},
	} {
		accepted, err := corpus.ParseCandidates(record.TextOf(printed))
		if err != nil && len(want) > 1 {
			t.Errorf("%s: %v", printed, err)
			continue
		}
		if len(want) != 1 && !slices.Equal(accepted, want) {
			t.Errorf("%s gives %q, want %q", printed, accepted, want)
		}
		for _, w := range want {
			if len(want) > 1 && !Match(w, accepted) {
				t.Errorf("%s: %q is not accepted", printed, w)
			}
		}
		if Match("SpainESP", accepted) || Match("Spain ESP", accepted) || Match("", accepted) {
			t.Errorf("%s: glued answers, or none, are accepted", printed)
		}
	}
}
