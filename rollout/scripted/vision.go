package scripted

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"searchloop/rollout/fence"
)

// What the scripted writer and checker say in the steps of a chain that begins in an
// image. Pages tell the next entity of a chain in a line "L: entity | description", or
// are those of the demo world. How a step fails is said by a line "Script: …" of the
// page or hit, by the concept of the image, or by the description.

func object(fields ...any) string {
	out := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		out[fields[i].(string)] = fields[i+1]
	}
	text, _ := json.Marshal(out)
	return string(text)
}

// refused are the replies that are of no use in whatever step.
func refused(script, good string) (string, bool) {
	switch {
	case strings.HasSuffix(script, "refuse"):
		return "I'm sorry, but I can't help with that.", true
	case strings.HasSuffix(script, "empty"):
		return "", true
	case strings.HasSuffix(script, "prose"):
		return "Of course! " + good + " Is that what you need?", true
	case strings.HasSuffix(script, "skip"):
		return `{"skip": "there is nothing"}`, true
	}
	return "", false
}

// propose gives one box, in the middle, around a thing like the last word of the concept.
func propose(text string) string {
	hint, _ := fence.Find(text, "CONCEPT")
	words := strings.Fields(hint)
	box, what := []int{250, 250, 750, 750}, "the emblem"
	script := ""
	if len(words) > 0 {
		what = "the sight " + words[len(words)-1]
		script = strings.Join(words[:len(words)-1], " ")
	}
	switch script {
	case "outside":
		box = []int{250, 250, 1750, 750}
	case "chinese":
		what = "这张图片里的东西叫什么名字"
	}
	good := object("boxes", []any{map[string]any{"box": box, "what": what, "why": "I want to know where this was taken."}})
	if bad, ok := refused(script, good); ok {
		return bad
	}
	return good
}

// nameOf gives the name in a hit's title, its last word.
func nameOf(hit string) string {
	title, _, _ := strings.Cut(hit, "\n")
	words := strings.Fields(strings.Trim(title, `"`))
	if len(words) == 0 {
		return `{"skip": "it has no title"}`
	}
	f := factsOf(hit)
	good := object("entity", words[len(words)-1])
	if f.script == "entity invent" {
		return object("entity", "Nowhereland")
	}
	if bad, ok := refused(f.script, good); ok && strings.HasPrefix(f.script, "entity") {
		return bad
	}
	return good
}

// lead gives the next entity of a chain.
func lead(page, from string) (string, error) {
	entity, description, evidence := "", "", ""
	for _, l := range lines(page) {
		if v, ok := strings.CutPrefix(l, "L: "); ok {
			entity, description, _ = strings.Cut(v, " | ")
			evidence = v
		}
	}
	if _, rest, ok := strings.Cut(page, "Trade goes to "); ok && entity == "" {
		entity, _, _ = strings.Cut(rest, ".")
		description, evidence = "the place that "+from+" trades with", "Trade goes to "+entity+"."
	}
	if entity == "" {
		return "", fmt.Errorf("the page leads nowhere: %.80s", page)
	}
	good := object("entity", entity, "description", description, "evidence", evidence)
	switch f := factsOf(page); f.script {
	case "link invent":
		return object("entity", "Nowhereland", "description", description, "evidence", evidence), nil
	case "link names":
		return object("entity", entity, "description", entity+", the place near "+from, "evidence", evidence), nil
	case "link refuse", "link empty", "link prose", "link skip":
		bad, _ := refused(f.script, good)
		return bad, nil
	}
	return good, nil
}

// replace puts the description into the place of the name, unless it says that it
// cannot be, or that it is forgotten.
func replace(text, description string) string {
	question, _ := fence.Find(text, "QUESTION")
	name, _ := fence.Find(text, "ENTITY")
	switch {
	case strings.Contains(description, "stubborn"):
		return object("question", question)
	case strings.Contains(description, "forgetful"):
		description = "something else"
	}
	return object("question", strings.ReplaceAll(question, name, description))
}

// same says of a hit that it shows the same when it has the last word of what is seen.
func same(what, hit string) string {
	words := strings.Fields(what)
	switch f := factsOf(hit); {
	case f.script == "same mumble":
		return "Perhaps, perhaps not."
	case f.script == "same refuse":
		return "I can't help with identifying what is in photographs."
	case len(words) > 0 && slices.Contains(strings.FieldsFunc(strings.ToLower(hit), func(r rune) bool { return strings.ContainsRune(" \n\".,", r) }), strings.ToLower(words[len(words)-1])):
		return "Yes"
	}
	return "No"
}
