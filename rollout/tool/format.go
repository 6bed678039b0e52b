package tool

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"searchloop/internal/recipe"
)

// writer puts the hits of one query into the form of a system. Hits are in order;
// there is at least one.
type writer func(hits []Hit, t recipe.Tool) string

// writers by recipe.Tool.Format.
var writers = map[string]writer{
	"": docs, "doc": docs, "doc_tight": tightDocs, "numbered": numbered, "links": links,
}

// dividers stand between the results of several queries.
var dividers = map[string]string{"links": "\n=======\n"}

func dividerOf(t recipe.Tool) string {
	if d := dividers[t.Format]; d != "" {
		return d
	}
	return divider
}

// docs is mm-deepresearch's form, a passage a line:
//
//	Doc 1: (Title: first line) the rest
func docs(hits []Hit, t recipe.Tool) string {
	lines := make([]string, len(hits))
	for i, h := range hits {
		lines[i] = passage(i+1, h.Contents, t.PassageChars)
	}
	return strings.Join(lines, "\n")
}

// tightDocs is search-r1's form:
//
//	Doc 1(Title: first line) the rest
func tightDocs(hits []Hit, t recipe.Tool) string {
	lines := make([]string, len(hits))
	for i, h := range hits {
		title, body := split(h.Contents)
		lines[i] = strings.TrimRight(fmt.Sprintf("Doc %d(Title: %s) %s", i+1, title, limited(body, t.PassageChars)), " ")
	}
	return strings.Join(lines, "\n")
}

// numbered is mmsearch-r1's form: the address, or else the title, and the rest.
//
//  1. (address) the rest
func numbered(hits []Hit, t recipe.Tool) string {
	lines := make([]string, len(hits))
	for i, h := range hits {
		title, body := split(h.Contents)
		at := h.Link
		if at == "" {
			at = title
		}
		lines[i] = strings.TrimRight(fmt.Sprintf("%d. (%s) %s", i+1, at, limited(body, t.PassageChars)), " ")
	}
	return strings.Join(lines, "\n")
}

// links is vision-deepresearch's form: a link that visit can open, and a snippet.
//
//  1. [title](address)
//     the rest
func links(hits []Hit, t recipe.Tool) string {
	parts := make([]string, len(hits))
	for i, h := range hits {
		title, body := split(h.Contents)
		parts[i] = strings.TrimRight(fmt.Sprintf("%d. [%s](%s)\n%s", i+1, title, h.Link, limited(body, t.PassageChars)), "\n")
	}
	return strings.Join(parts, "\n\n")
}

// limited is a body on one line, of at most limit runes; 0 = no limit.
func limited(body string, limit int) string {
	if !oneLine(body) {
		body = strings.Join(strings.Fields(body), " ")
	}
	if limit > 0 && len(body) > limit {
		if r := []rune(body); len(r) > limit {
			body = string(r[:limit]) + "…"
		}
	}
	return body
}

// oneLine says whether single spaces are all the white space of a text, between words.
func oneLine(s string) bool {
	space := true
	for i := range len(s) {
		switch c := s[i]; {
		case c == ' ' && space || c < ' ' || c >= utf8.RuneSelf:
			return false // or perhaps not: white space beyond ASCII is not looked for here
		default:
			space = c == ' '
		}
	}
	return !space || s == ""
}
