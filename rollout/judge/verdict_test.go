package judge

import "testing"

func TestParseVerdict(t *testing.T) {
	for reply, want := range map[string]string{
		"Yes": "yes", "no": "no", "YES.": "yes", " \n**No**\n": "no", "\"Yes\"": "yes", "Yes, it matches.": "yes",
		"No, yesterday the other one was right: yes.": "no",
		"No. Yes would need the year.":                "no",
		"Yes!":                                        "yes", "Yes: the same place": "yes", "Yes\nThe names match.": "yes", "Yes – same": "yes",
		"Yes or No":                            "?",
		"yes/no":                               "?",
		"No|Yes":                               "?",
		"No-one knows":                         "?",
		"No’one":                               "?",
		"":                                     "?",
		"   ":                                  "?",
		"Maybe":                                "?",
		"The answer is yes.":                   "?",
		"It is correct.":                       "?",
		"Yesterday":                            "?",
		"Nobody":                               "?",
		"yes1":                                 "?",
		"1. Yes":                               "?",
		"Yes\nNo":                              "no",
		"Yes\nbecause\n**No.**\n":              "no",
		"No\nYes":                              "yes",
		"<think>No, hmm: yes?</think>\nNo":     "no",
		"<think>yes":                           "?",
		`{"verdict": "yes"}`:                   "yes",
		`{"reason": "yes", "verdict": "No"}`:   "no",
		"```json\n{\"verdict\": \"yes\"}\n```": "yes",
		`{"verdict": "maybe"}`:                 "?",
		`{"verdict": true}`:                    "?",
		`{"Verdict": "yes"}`:                   "?",
		`{"verdict": "yes"`:                    "?",
		`{"verdict": "yes"} No`:                "?",
		"\x00\xff":                             "?",
		"```\nYes\n```":                        "yes",
		"Ответ: да":                            "?",
		"I would say the response is equivalent, so the verdict is: Yes": "?",
	} {
		correct, ok := ParseVerdict(reply)
		got := map[bool]string{true: "yes", false: "no"}[correct]
		if !ok {
			got = "?"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", reply, got, want)
		}
	}
}

func FuzzParseVerdict(f *testing.F) {
	f.Add("Yes")
	f.Fuzz(func(t *testing.T, s string) {
		if correct, ok := ParseVerdict(s); correct && !ok {
			t.Fatal("correct, but not clear")
		}
	})
}
