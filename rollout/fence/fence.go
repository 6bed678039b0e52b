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
	text = Visible(text)
	if r := []rune(text); len(r) > maxRunes {
		text = string(r[:maxRunes/2]) + " […] " + string(r[len(r)-maxRunes/2:])
	}
	return strings.TrimSpace(apart(text))
}

// Characters that look like the brackets of a mark, and two that look like all three.
const (
	opening = "<＜﹤‹«〈〈⟨❮❬˂ᐸ≪《⟪"
	closing = ">＞﹥›»〉〉⟩❯❭˃ᐳ≫》⟫"
	triple  = "⋘⋙"
)

// apart puts a space between brackets that follow each other, whatever they are
// written with and whatever marks stand on them, so that no run of them is left.
func apart(text string) string {
	var b strings.Builder
	last := 0 // 1: an opening bracket was the last character, 2: a closing one
	for _, r := range text {
		kind := 0
		switch {
		case strings.ContainsRune(triple, r):
			r = '\uFFFD'
		case strings.ContainsRune(opening, r):
			kind = 1
		case strings.ContainsRune(closing, r):
			kind = 2
		case unicode.Is(unicode.M, r):
			kind = last
		}
		if kind != 0 && kind == last && !unicode.Is(unicode.M, r) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		last = kind
	}
	return b.String()
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
