package scripted

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"searchloop/corpus/world"
)

// A teacher plays the demo world for the warm start. It knows every tool and
// reads observations rightly, but chooses badly on purpose: it often guesses
// instead of searching, asks for the wrong fact, or searches needlessly. What a
// policy learns from it is the language and the tools; which of them to use when
// is left for reinforcement learning to find.
type teacher struct {
	careful float64 // share of decisions taken rightly
}

// play gives the teacher's next turn. observations are the tool replies so far.
func (t teacher) play(kind, text, truth string, observations []string, rng *rand.Rand) string {
	attr := attribute(text)
	careful := rng.Float64() < t.careful
	switch step := len(observations); {
	case step == 0:
		return t.open(kind, attr, text, truth, careful, rng)
	case step == 1 && kind == world.LensText:
		name, ok := after(observations[0], "Emblem of ")
		if !ok {
			return guess(attr, rng)
		}
		if !careful && rng.IntN(3) == 0 {
			return final("The place is "+name+".", name)
		}
		ask := attr
		if !careful && rng.IntN(2) == 0 {
			ask = world.Attributes[rng.IntN(len(world.Attributes))]
		}
		return call("The place is "+name+".", "text_search", ask+" of "+name)
	default:
		return t.read(kind, attr, truth, observations[step-1], rng)
	}
}

// open is the first turn.
func (t teacher) open(kind, attr, text, truth string, careful bool, rng *rand.Rand) string {
	name, named := after(text, " of ")
	if careful {
		switch kind {
		case world.LensText, world.Lens:
			return call("Which place has this emblem?", "image_search_by_lens", "emblem")
		case world.Text:
			return call("I look up "+name+".", "text_search", attr+" of "+name)
		case world.Image:
			name, _ = after(text, "emblem of ")
			return call("I look at the emblem of "+name+".", "image_search_by_text_query", "Emblem of "+name)
		default:
			return look(attr, truth)
		}
	}
	switch {
	case kind == world.None && rng.IntN(2) == 0:
		return call("Which place has this emblem?", "image_search_by_lens", "emblem")
	case kind == world.Text && rng.IntN(3) == 0:
		return call("I look at the emblem of "+name+".", "image_search_by_text_query", "Emblem of "+name)
	case kind == world.LensText && !named && rng.IntN(3) == 0:
		return call("I look up the emblem.", "text_search", attr+" of emblem")
	}
	return guess(attr, rng)
}

// read ends the trajectory with what the last observation says.
func (t teacher) read(kind, attr, truth, seen string, rng *rand.Rand) string {
	switch kind {
	case world.Image:
		return look(attr, truth)
	case world.Lens, world.None:
		if name, ok := after(seen, "Emblem of "); ok {
			return final("The place is "+name+".", name)
		}
	}
	if value, ok := after(seen, attr+" "); ok {
		return final("I read: "+world.Fact(attr, value), value)
	}
	if m := fact.FindStringSubmatch(seen); m != nil { // another fact than the one asked for
		return final("I read: "+world.Fact(m[1], m[2]), m[2])
	}
	return guess(attr, rng)
}

var (
	fact  = regexp.MustCompile(`(founder|river|bird|metal|fruit|dance) (\w+)\.`)
	which = regexp.MustCompile(`(colour)|the (name|founder|river|bird|metal|fruit|dance) of`)
)

// attribute reads what a question asks for.
func attribute(text string) string {
	if m := which.FindStringSubmatch(text); m != nil {
		return m[1] + m[2]
	}
	return "name"
}

// after gives the word that follows mark in s.
func after(s, mark string) (string, bool) {
	_, rest, ok := strings.Cut(s, mark)
	if !ok {
		return "", false
	}
	word := strings.FieldsFunc(rest, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') })
	if len(word) == 0 || !strings.HasPrefix(rest, word[0]) {
		return "", false
	}
	return word[0], true
}

func call(think, tool, query string) string {
	args, _ := json.Marshal(map[string]any{"query_list": []string{query}})
	return fmt.Sprintf("<think>%s</think>\n<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", think, tool, args)
}

func final(think, answer string) string {
	return fmt.Sprintf("<think>%s</think>\n<answer> %s</answer>", think, answer)
}

func look(attr, value string) string {
	return final(fmt.Sprintf("I see that the %s is %s.", attr, value), value)
}

func guess(attr string, rng *rand.Rand) string {
	vs := world.Values(attr)
	v := vs[rng.IntN(len(vs))]
	return final("I think it is "+v+".", v)
}
