package scripted

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"searchloop/rollout/fence"
)

func init() {
	Register("writer", Func(write))
	Register("checker", Func(check))
}

// Facts of a page that the scripted writer can make a question of: lines "Q: …" and
// "A: …". A line "Script: …" says in which way it fails at the page instead; see
// the cases below.
type facts struct{ question, answer, evidence, script string }

func factsOf(page string) (f facts) {
	for _, l := range lines(page) {
		if v, ok := strings.CutPrefix(l, "Q: "); ok {
			f.question = v
		}
		if v, ok := strings.CutPrefix(l, "A: "); ok {
			f.answer = v
		}
		if v, ok := strings.CutPrefix(l, "Script: "); ok {
			f.script = v
		}
	}
	if _, rest, ok := strings.Cut(page, "Facts on "); ok && f.question == "" { // of the demo world
		name, list, _ := strings.Cut(rest, ": ")
		fact, _, _ := strings.Cut(list, ".")
		attr, value, _ := strings.Cut(fact, " ")
		f.question, f.answer, f.evidence = "What is the "+attr+" of "+name+"?", value, fact
	}
	return f
}

// write makes a question of the fenced PAGE, as a model that keeps to the facts and
// to the form, or fails as the page tells it to.
func write(c Conversation) (string, error) {
	page, ok := "", false
	again := false
	if i := slices.IndexFunc(c.Messages, func(m Message) bool { return m.Role == "user" }); i >= 0 {
		text := c.Messages[i].Text
		hit, found := fence.Find(text, "HIT")
		description, folding := fence.Find(text, "DESCRIPTION")
		from, linking := fence.Find(text, "ENTITY")
		switch _, about := fence.Find(text, "PAGE"); {
		case found:
			return nameOf(hit), nil
		case folding:
			return replace(text, description), nil
		case linking:
			page, _ := fence.Find(text, "PAGE")
			return lead(page, from)
		case !about && strings.Contains(text, "box"):
			return propose(text), nil
		}
	}
	for _, m := range c.Messages {
		if p, found := fence.Find(m.Text, "PAGE"); m.Role == "user" && found {
			page, ok = p, true
		}
		again = again || m.Role == "assistant"
	}
	f := factsOf(page)
	if !ok || f.question == "" || f.answer == "" {
		return "", errors.New("the prompt quotes no PAGE with a line Q: and a line A: of its facts")
	}
	object := func(question, answer, kind, evidence string) string {
		return object("question", question, "answer", answer, "type", kind, "evidence", evidence)
	}
	good := object(f.question, f.answer, "fact", cmp.Or(f.evidence, "A: "+f.answer))
	concept, _ := fence.Find(c.Messages[len(c.Messages)-1].Text, "CONCEPT")
	switch f.script {
	case "refuse":
		return "I'm sorry, but I can't help with that.", nil
	case "empty":
		return "  ", nil
	case "prose":
		return "Here is your question: " + good + " I hope that it helps!", nil
	case "prose once":
		if !again {
			return "Here is your question: " + good, nil
		}
	case "no json":
		return "The question is: " + f.question, nil
	case "fenced":
		return "```json\n" + good + "\n```", nil
	case "foreign":
		return object("¿Cuál es la respuesta a la pregunta que se hace sobre esta imagen?", f.answer, "fact", ""), nil
	case "chinese":
		return object("这张图片里的东西叫什么名字？", f.answer, "fact", ""), nil
	case "skip":
		return `{"skip": "the page holds no fact"}`, nil
	case "invent":
		return object(f.question, "an answer from nowhere", "fact", ""), nil
	case "leak":
		return object("Is it "+f.answer+" that one sees in the image?", f.answer, "fact", ""), nil
	case "name":
		return object("What about "+concept+" is asked here?", f.answer, "fact", ""), nil
	case "type":
		return object(f.question, f.answer, "gossip", ""), nil
	case "statement":
		return object("It is what the image shows.", f.answer, "fact", ""), nil
	case "long":
		return object(f.question, strings.Repeat(f.answer+" ", 20), "fact", ""), nil
	case "blind", "ambiguous", "wrong":
		if strings.Contains(f.question, concept) && strings.HasPrefix(f.question, "What does ") { // of a chain: the name is needed
			return good, nil
		}
		return object(fmt.Sprintf("What, among what is %s, does the image tell of?", f.script), f.answer, "fact", ""), nil
	}
	return good, nil
}

// check plays the second model: it knows nothing without a page, unless the question
// says that it is answered blindly; it finds every answer unique and right, unless
// the page says otherwise.
func check(c Conversation) (string, error) {
	i := slices.IndexFunc(c.Messages, func(m Message) bool { return m.Role == "user" })
	if i < 0 {
		return "", errors.New("nothing is asked")
	}
	text := c.Messages[i].Text
	if hit, ok := fence.Find(text, "HIT"); ok {
		what, _ := fence.Find(text, "WHAT")
		return same(what, hit), nil
	}
	question, ok := fence.Find(text, "QUESTION")
	if !ok {
		return "", errors.New("the prompt quotes no QUESTION")
	}
	page, shown := fence.Find(text, "PAGE")
	f := factsOf(page)
	unique := strings.Contains(text, "more than one")
	switch {
	case !shown && strings.Contains(question, "seen plainly") && len(c.Messages[i].Images) > 0:
		return "everything", nil
	case !shown && strings.Contains(question, "is blind"):
		return "everything", nil // a page of script blind has this answer
	case !shown:
		return "unknown", nil
	case f.script == "mumble" && unique:
		return "It depends.", nil
	case f.script == "ambiguous" && unique, f.script == "wrong" && !unique:
		return "No", nil
	}
	return "Yes", nil
}
