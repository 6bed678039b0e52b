package reward

import "strings"

// Normal is the normal form in which answers are compared: lower case, without
// ASCII punctuation, without the words a, an and the, white space collapsed.
// Accents and other punctuation stay, as in the published normaliser.
func Normal(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && strings.ContainsRune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", r) {
			return -1
		}
		return r
	}, strings.ToLower(s))
	words := strings.Fields(s)
	kept := words[:0]
	for _, w := range words {
		if w != "a" && w != "an" && w != "the" {
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " ")
}

// Match says whether answer equals one of the accepted answers in normal form.
// The answers "A" and "The" have an empty normal form; these are compared as
// they are, so that an empty answer never matches.
func Match(answer string, accepted []string) bool {
	plain, normal := strings.ToLower(strings.TrimSpace(answer)), Normal(answer)
	for _, a := range accepted {
		if n := Normal(a); normal != "" && n == normal {
			return true
		}
		if p := strings.ToLower(strings.TrimSpace(a)); normal == "" && plain != "" && p == plain {
			return true
		}
	}
	return false
}
