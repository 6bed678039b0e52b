// Package world invents the demo world: a few hundred places, each with a name,
// an emblem (a drawn image) and facts that stand in passages among distractors,
// and questions about them. Everything follows from one seed. Files are written
// in the shapes in which real data sets arrive, so that prep and lens have their
// usual work to do. It answers no question and knows no model.
package world

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Kinds of questions: which searches answer them.
const (
	LensText = "lens+text" // shows an emblem, asks for a fact: image search by lens, then text search
	Lens     = "lens"      // shows an emblem, asks for the name: image search by lens
	Text     = "text"      // names a place, asks for a fact: text search
	Image    = "image"     // names a place, asks what its emblem looks like: image search by text
	None     = "none"      // shows an emblem, asks what it looks like: no search
)

// Splits.
const (
	Train = "train"
	Test  = "test"
)

// Attributes are the facts of a place that stand in passages, and the values
// they can take. Founders and rivers have invented names of their own.
var Attributes = []string{"founder", "river", "bird", "metal", "fruit", "dance"}

var values = map[string][]string{
	"bird":  strings.Fields("heron falcon swan raven finch crane stork eagle owl gull robin wren ibis hawk lark dove"),
	"metal": strings.Fields("copper silver iron tin gold zinc lead nickel cobalt chrome bronze steel"),
	"fruit": strings.Fields("plum apple fig pear grape lemon cherry peach melon mango olive quince"),
	"dance": strings.Fields("waltz polka tango jig reel samba rumba minuet bolero gavotte mazurka salsa"),
}

// Colours of emblems.
var Colours = strings.Fields("red green blue yellow purple orange white black")

// shapes on emblems: no question is about them.
var shapes = strings.Fields("circle square diamond cross stripe triangle")

var (
	heads = strings.Fields("vor kel mun tas bel rin gor dal fen lum nar pol sar tor wen zan bram cor hal jor mir dun sel gar kos vel tam nev bor lin")
	tails = strings.Fields("na du li mo ra te vi so ka pe lo ni fa go be")
)

// Place is one invented place.
type Place struct {
	Name   string
	Split  string
	Facts  map[string]string // by attribute
	Colour string            // of the emblem's field
	Trades string            // name of another place, a distractor in its passages
	shape  string            // on the emblem
	mark   uint64            // what makes the drawing of its emblem and map its own
}

// World is the whole invention.
type World struct {
	Seed   uint64
	Places []Place
}

// New invents train+test places. The two splits share no place. There are at most
// MaxPlaces names; more is an error of the caller and panics.
func New(seed uint64, train, test int) *World {
	if train+test > MaxPlaces {
		panic(fmt.Sprintf("world: %d places asked, there are names for %d", train+test, MaxPlaces))
	}
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	names := combine(heads, tails)
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	w := &World{Seed: seed, Places: make([]Place, train+test)}
	for i := range w.Places {
		p := Place{Name: names[i], Split: Train, Facts: map[string]string{}, mark: rng.Uint64()}
		if i >= train {
			p.Split = Test
		}
		p.Facts["founder"] = title(pick(rng, tails) + pick(rng, heads))
		p.Facts["river"] = title(pick(rng, heads) + pick(rng, heads))
		for _, a := range Attributes {
			if v := values[a]; v != nil {
				p.Facts[a] = pick(rng, v)
			}
		}
		p.Colour = pick(rng, Colours)
		p.shape = pick(rng, shapes)
		w.Places[i] = p
	}
	for i := range w.Places {
		w.Places[i].Trades = w.Places[(i+1+rng.IntN(len(w.Places)-1))%len(w.Places)].Name
	}
	return w
}

// MaxPlaces is how many different names the syllables give.
var MaxPlaces = len(heads) * len(tails)

// Values lists every value that attr can take, for guesses.
func Values(attr string) []string {
	switch attr {
	case "founder":
		return combine(tails, heads)
	case "river":
		return combine(heads, heads)
	case "name":
		return combine(heads, tails)
	case "colour":
		return Colours
	}
	return values[attr]
}

func combine(a, b []string) []string {
	var out []string
	for _, x := range a {
		for _, y := range b {
			out = append(out, title(x+strings.ToLower(y)))
		}
	}
	return out
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func pick(rng *rand.Rand, from []string) string { return from[rng.IntN(len(from))] }
