package world

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Passage is one text of the corpus.
type Passage struct{ ID, Contents string }

// Passages gives two passages a place: each with three facts in an order of its
// own and one sentence about trade that names another place.
func (w *World) Passages() []Passage {
	var out []Passage
	for i, p := range w.Places {
		rng := rand.New(rand.NewPCG(w.Seed^p.mark, 1))
		order := rng.Perm(len(Attributes))
		for half := range 2 {
			var b strings.Builder
			fmt.Fprintf(&b, "%q\nFacts on %s:", p.Name, p.Name)
			for _, a := range order[3*half : 3*half+3] {
				b.WriteString(" " + Fact(Attributes[a], p.Facts[Attributes[a]]))
			}
			fmt.Fprintf(&b, " Trade goes to %s.", p.Trades)
			out = append(out, Passage{ID: fmt.Sprintf("p%04d-%d", i, half), Contents: b.String()})
		}
	}
	return out
}

// Fact is the phrase in which a fact stands, in the manner of an infobox.
func Fact(attr, value string) string { return attr + " " + value + "." }

// EmblemTitle and MapTitle are the titles of a place's two images.
func EmblemTitle(name string) string { return "Emblem of " + name }

// MapTitle is the title of a place's map, the distractor among the images.
func MapTitle(name string) string { return "Map of " + name }

// Question is one question with its truth.
type Question struct {
	Kind, Attr string
	Place      int // index of the place in the world
	Text       string
	Answer     string
	ShowsImage bool // the place's emblem goes with the question
}

// Questions gives every question that can be asked about the places of a split,
// in a fixed order.
func (w *World) Questions(split string) []Question {
	var out []Question
	for i, p := range w.Places {
		if p.Split != split {
			continue
		}
		for _, a := range Attributes {
			out = append(out,
				Question{LensText, a, i, fmt.Sprintf("What is the %s of the place with this emblem?", a), p.Facts[a], true},
				Question{Text, a, i, fmt.Sprintf("What is the %s of %s?", a, p.Name), p.Facts[a], false})
		}
		for _, ask := range []string{"Which place has this emblem?", "What is the name of the place with this emblem?"} {
			out = append(out, Question{Lens, "name", i, ask, p.Name, true})
		}
		for _, ask := range []string{"What colour is %s?", "What is the colour of %s?"} {
			out = append(out,
				Question{None, "colour", i, fmt.Sprintf(ask, "this emblem"), p.Colour, true},
				Question{Image, "colour", i, fmt.Sprintf(ask, "the emblem of "+p.Name), p.Colour, false})
		}
	}
	return out
}

// freeShare is the share of None.
const freeShare = 0.15

// mix is the share of each kind in a drawn split.
var mix = []struct {
	kind  string
	share float64
}{{LensText, 0.40}, {Text, 0.20}, {Lens, 0.15}, {None, freeShare}, {Image, 0.10}}

// shareOf is the share of a kind when those that need no search have the share free.
func shareOf(kind string, share, free float64) float64 {
	switch {
	case free == 0:
		return share
	case kind == None:
		return free
	}
	return share * (1 - free) / (1 - freeShare)
}

// Draw picks n questions of a split, in the shares of the mix, without
// repetition, in an order that follows from the seed. With free > 0 those that need
// no search have that share, and the others keep their proportions in the rest.
func (w *World) Draw(split string, n int, free float64) []Question {
	rng := rand.New(rand.NewPCG(w.Seed, uint64(len(split))))
	byKind := map[string][]Question{}
	for _, q := range w.Questions(split) {
		byKind[q.Kind] = append(byKind[q.Kind], q)
	}
	var out []Question
	for _, m := range mix {
		qs := byKind[m.kind]
		rng.Shuffle(len(qs), func(i, j int) { qs[i], qs[j] = qs[j], qs[i] })
		out = append(out, qs[:min(len(qs), int(shareOf(m.kind, m.share, free)*float64(n)+0.5))]...)
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
