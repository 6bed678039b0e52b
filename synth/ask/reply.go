package ask

import (
	"encoding/json"
	"regexp"
	"strings"

	"searchloop/rollout/judge"
)

// Reasons for which a reply cannot be used.
const (
	Empty     = "empty reply"
	Refusal   = "refusal"
	Prose     = "JSON in prose"
	NotJSON   = "not JSON"
	NoVerdict = "no verdict"
)

// refusals are how models say that they will not.
var refusals = regexp.MustCompile(`(?i)^\W*(i['’]?m (very |so |really )?sorry|sorry,|i (can(no|['’])?t|cannot|am (not able|unable)|won['’]t|will not|must decline)|as an? (ai|language model|assistant)|unfortunately,? i)\b`)

// body takes a closed thought and white space off a reply.
func body(reply string) string {
	s := strings.TrimSpace(reply)
	if strings.HasPrefix(s, "<think>") {
		if _, after, ok := strings.Cut(s, "</think>"); ok {
			s = strings.TrimSpace(after)
		}
	}
	return s
}

// Text reads a plain reply.
func Text(reply string) (string, error) {
	s := body(reply)
	switch {
	case s == "":
		return "", &Bad{Reason: Empty}
	case refusals.MatchString(s):
		return "", &Bad{Refusal, short(s)}
	}
	return s, nil
}

// JSON reads a reply that is one JSON object, alone or in a code fence, into v.
// Fields that v does not know are passed over.
func JSON(reply string, v any) error {
	s, err := Text(reply)
	if err != nil {
		return err
	}
	if in, fenced := strings.CutPrefix(s, "```"); fenced {
		in = strings.TrimPrefix(in, "json")
		if in, rest, closed := strings.Cut(in, "```"); closed && strings.TrimSpace(rest) == "" {
			s = strings.TrimSpace(in)
		}
	}
	if err := json.Unmarshal([]byte(s), v); err == nil {
		return nil
	} else if at := strings.IndexByte(s, '{'); at < 0 {
		return &Bad{NotJSON, short(s)}
	} else if d := json.NewDecoder(strings.NewReader(s[at:])); d.Decode(new(map[string]json.RawMessage)) == nil && (at > 0 || strings.TrimSpace(s[at:][d.InputOffset():]) != "") {
		return &Bad{Prose, short(s)}
	} else {
		return &Bad{NotJSON, err.Error()}
	}
}

// Verdict reads yes or no, as the judge's replies are read.
func Verdict(reply string) (bool, error) {
	if _, err := Text(reply); err != nil {
		return false, err
	}
	yes, ok := judge.ParseVerdict(reply)
	if !ok {
		return false, &Bad{NoVerdict, short(body(reply))}
	}
	return yes, nil
}

func short(s string) string {
	if r := []rune(s); len(r) > 120 {
		return string(r[:120]) + "…"
	}
	return s
}
