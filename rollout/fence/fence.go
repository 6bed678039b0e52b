// Package fence puts text that nobody vouches for between marks before a model
// reads it, so that nothing in the text can end the quotation or pass for part
// of the instructions around it. It is used for what a judge is shown, and by
// the scripted judge to find it again.
package fence

import (
	"strings"
	"unicode"
)

// maxRunes bounds a fenced text; the middle of a longer one is taken out.
const maxRunes = 4000

// Wrap quotes text under a name of capital letters:
//
//	<<<ANSWER
//	text
//	ANSWER>>>
//
// Marks inside the text are broken up, and characters that show nothing or turn
// the writing direction are removed.
func Wrap(name, text string) string { return Within(name, text, maxRunes) }

// Within is Wrap with another bound.
func Within(name, text string, maxRunes int) string {
	return "<<<" + name + "\n" + clean(text, maxRunes) + "\n" + name + ">>>"
}

func clean(text string, maxRunes int) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	if r := []rune(text); len(r) > maxRunes {
		text = string(r[:maxRunes/2]) + " […] " + string(r[len(r)-maxRunes/2:])
	}
	for _, mark := range []string{"<<", ">>", "<<", ">>"} {
		// Pairs, and twice, so that no run of any length is left.
		text = strings.ReplaceAll(text, mark, mark[:1]+" "+mark[1:])
	}
	return strings.TrimSpace(text)
}

// Find gives the last text quoted under name, with its marks still broken up.
func Find(prompt, name string) (string, bool) {
	i := strings.LastIndex(prompt, "<<<"+name+"\n")
	if i < 0 {
		return "", false
	}
	rest := prompt[i+len(name)+4:]
	j := strings.Index(rest, "\n"+name+">>>")
	if j < 0 {
		return "", false
	}
	return rest[:j], true
}
