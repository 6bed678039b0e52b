package ask

import (
	"errors"
	"testing"
)

func TestJSON(t *testing.T) {
	for reply, want := range map[string]string{
		`{"a": "b"}`:                          "",
		"```json\n{\"a\": \"b\"}\n```":        "",
		"```\n{\"a\": \"b\"}\n```\n":          "",
		"<think>hm {</think>\n{\"a\": \"b\"}": "",
		"":                                    Empty,
		" \n":                                 Empty,
		"<think>hm</think>":                   Empty,
		"I'm sorry, but I cannot do that.":    Refusal,
		"I can't assist with that request.":   Refusal,
		"As an AI language model, I do not know.": Refusal,
		"Unfortunately, I am not able to.":        Refusal,
		`Here it is: {"a": "b"}`:                  Prose,
		`{"a": "b"} Is that what you wanted?`:     Prose,
		"Sure!\n```json\n{\"a\": \"b\"}\n```":     Prose,
		`{"a": "b`:                                NotJSON,
		"The answer is b.":                        NotJSON,
		`["a", "b"]`:                              NotJSON,
		`{"a": 7}`:                                NotJSON,
	} {
		var v struct{ A string }
		err := JSON(reply, &v)
		var b *Bad
		switch {
		case want == "" && (err != nil || v.A != "b"):
			t.Errorf("%q: %v %v", reply, err, v)
		case want != "" && (!errors.As(err, &b) || b.Reason != want):
			t.Errorf("%q: %v, want %s", reply, err, want)
		}
	}
}
