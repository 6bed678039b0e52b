package judge

import (
	"encoding/json"
	"strings"
	"unicode"
)

// ParseVerdict reads a judge's reply. ok is false for everything that is no clear
// verdict; such a reply is never counted as a wrong answer.
//
// A reply is clear when, after white space, a closed <think> block and Markdown
// emphasis, it
//   - is a JSON object whose "verdict" is "yes" or "no", alone or in a code fence, or
//   - begins with the word yes or no, and does not go on to offer the other one
//     ("Yes or No", "Yes/No").
//
// When later lines consist of nothing but a verdict, the last of them counts.
func ParseVerdict(reply string) (correct, ok bool) {
	s := strings.TrimSpace(reply)
	if strings.HasPrefix(s, "<think>") {
		_, after, closed := strings.Cut(s, "</think>")
		if !closed {
			return false, false
		}
		s = strings.TrimSpace(after)
	}
	if body, fenced := strings.CutPrefix(s, "```"); fenced {
		body = strings.TrimPrefix(body, "json")
		body, _, _ = strings.Cut(body, "```")
		s = strings.TrimSpace(body)
	}
	if strings.HasPrefix(s, "{") {
		return jsonVerdict(s)
	}
	correct, rest, ok := firstWord(s)
	if !ok || offersOther(rest) {
		return false, false
	}
	for line := range strings.Lines(rest) {
		if c, after, alone := firstWord(line); alone && strings.TrimFunc(after, notWord) == "" {
			correct = c
		}
	}
	return correct, true
}

// jsonVerdict reads {"verdict": "yes"} with whatever other members.
func jsonVerdict(s string) (correct, ok bool) {
	var o map[string]json.RawMessage
	var v string
	if json.Unmarshal([]byte(s), &o) != nil || json.Unmarshal(o["verdict"], &v) != nil {
		return false, false
	}
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "yes":
		return true, true
	case "no":
		return false, true
	}
	return false, false
}

// firstWord takes a yes or no off the front of s.
func firstWord(s string) (correct bool, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t\r\n*_`\"'“”‘’")
	n := strings.IndexFunc(s, notWord)
	if n < 0 {
		n = len(s)
	}
	switch strings.ToLower(s[:n]) {
	case "yes":
		return true, s[n:], true
	case "no":
		return false, s[n:], true
	}
	return false, s, false
}

// offersOther says whether what follows a verdict takes it back at once: a slash,
// a hyphenated or apostrophised word, or the word or.
func offersOther(rest string) bool {
	rest = strings.TrimLeft(rest, " \t*_`\"“”")
	if rest == "" {
		return false
	}
	if strings.ContainsRune("/|-'’", rune(rest[0])) || strings.HasPrefix(rest, "’") {
		return true
	}
	word, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(strings.TrimFunc(word, notWord), "or")
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
