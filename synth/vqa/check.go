package vqa

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/abadojack/whatlanggo"

	"searchloop/corpus/near"
	"searchloop/internal/recipe"
	"searchloop/synth/leak"
)

// written is what a writer replies.
type written struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Type     string `json:"type"`
	Evidence string `json:"evidence"`
	Skip     string `json:"skip"` // why the page makes no question
}

// form says what is wrong with the form of a question; "" when nothing is.
func form(s *recipe.Synth, w *written) (reason, detail string) {
	q, a := strings.TrimSpace(w.Question), strings.TrimSpace(w.Answer)
	switch {
	case q == "":
		return "no question", ""
	case a == "":
		return "no answer", ""
	case !strings.HasSuffix(q, "?") && !strings.HasSuffix(q, "？") && !strings.HasSuffix(q, "؟"):
		return "not a question", q
	case strings.Contains(q, "<image>") || strings.ContainsAny(q, "\n\r"):
		return "not one line", q
	case len(strings.Fields(q)) > cmp.Or(s.QuestionWords, 40):
		return "question too long", fmt.Sprint(len(strings.Fields(q)), " words")
	case len(strings.Fields(a)) > cmp.Or(s.AnswerWords, 8) || strings.ContainsAny(a, "\n\r"):
		return "answer too long", fmt.Sprint(len(strings.Fields(a)), " words")
	case !slices.ContainsFunc(s.Types, func(t recipe.Named) bool { return t.Name == w.Type }):
		return "type not in the taxonomy", w.Type
	case near.Plain(a) == "":
		return "no answer", a
	}
	if lang := foreign(q, s.Language); lang != "" {
		return "wrong language", lang
	}
	return "", ""
}

// foreign names the language of a text that is not the wanted one (ISO 639-1), as
// far as can be said of a few words: by its script, else by its letters when they
// leave little doubt. "" when it may well be the wanted one.
func foreign(text, want string) string {
	if want == "" {
		return ""
	}
	expected := alphabets[want]
	if expected == nil {
		expected = unicode.Latin
	}
	info := whatlanggo.Detect(text)
	switch {
	case info.Script == nil || info.Lang.Iso6391() == want: // no letters, or what is wanted
		return ""
	case want == "ja" && (info.Script == unicode.Han || info.Script == unicode.Katakana):
		return ""
	case info.Script != expected:
		return info.Lang.String()
	case info.Confidence >= 0.5 && len([]rune(text)) >= 20 && !common(text, want):
		return info.Lang.String()
	}
	return ""
}

// function words that a question of a language can hardly do without.
var words = map[string][]string{
	"en": strings.Fields("what which who whom whose when where why how is are was were the of in did does do has have had can many much name"),
}

// common says whether a text has a fifth of its words, at least two, from the words
// that every question of the language is made of.
func common(text, lang string) bool {
	list := words[lang]
	if list == nil {
		return false
	}
	n, all := 0, strings.Fields(near.Plain(text))
	for _, w := range all {
		if slices.Contains(list, w) {
			n++
		}
	}
	return n >= 2 && 5*n >= len(all)
}

// alphabets of languages that are written in another than the Latin.
var alphabets = map[string]*unicode.RangeTable{
	"zh": unicode.Han, "ru": unicode.Cyrillic, "uk": unicode.Cyrillic, "bg": unicode.Cyrillic, "ar": unicode.Arabic, "fa": unicode.Arabic,
	"he": unicode.Hebrew, "el": unicode.Greek, "hi": unicode.Devanagari, "ko": unicode.Hangul, "th": unicode.Thai, "ja": unicode.Hiragana,
}

// grounded says whether the answer stands in the page as whole words, and the
// evidence, if there is any, word for word.
func grounded(w *written, page string) (reason, detail string) {
	if !leak.Mentions(page, w.Answer) {
		return "answer not in the page", w.Answer
	}
	if w.Evidence != "" {
		if !leak.Mentions(page, w.Evidence) {
			return "evidence not in the page", w.Evidence
		}
		if !leak.Mentions(w.Evidence, w.Answer) {
			return "answer not in the evidence", w.Evidence
		}
	}
	return "", ""
}
