package world

import (
	"bytes"
	"image/png"
	"maps"
	"strings"
	"testing"
)

func TestSplitsShareNothing(t *testing.T) {
	w := New(7, 240, 80)
	seen := map[string]string{}
	marks := map[string]bool{}
	for _, p := range w.Places {
		if was, ok := seen[p.Name]; ok {
			t.Fatalf("%s is in %s and %s", p.Name, was, p.Split)
		}
		seen[p.Name] = p.Split
		e := string(Emblem(p))
		if marks[e] {
			t.Fatalf("two places have the emblem of %s", p.Name)
		}
		marks[e] = true
		if p.Trades == p.Name {
			t.Fatalf("%s trades with itself", p.Name)
		}
	}
	for _, q := range w.Questions(Test) {
		if w.Places[q.Place].Split != Test {
			t.Fatalf("a test question is about a training place: %+v", q)
		}
	}
}

func TestEveryFactStandsInAPassage(t *testing.T) {
	w := New(3, 20, 5)
	byPlace := map[string]string{}
	for _, p := range w.Passages() {
		name := strings.Trim(strings.SplitN(p.Contents, "\n", 2)[0], `"`)
		byPlace[name] += p.Contents
	}
	for _, split := range []string{Train, Test} {
		for _, q := range w.Questions(split) {
			if q.Kind == Text && !strings.Contains(byPlace[w.Places[q.Place].Name], " "+Fact(q.Attr, q.Answer)) {
				t.Errorf("no passage answers %q", q.Text)
			}
		}
	}
}

func TestDrawKeepsTheMixAndRepeatsNothing(t *testing.T) {
	w := New(7, 240, 80)
	for _, c := range []struct {
		n    int
		free float64
		want map[string]int
	}{
		{200, 0, map[string]int{LensText: 80, Text: 40, Lens: 30, None: 30, Image: 20}},
		{500, 0.32, map[string]int{LensText: 160, Text: 80, Lens: 60, None: 160, Image: 40}},
	} {
		count := map[string]int{}
		seen := map[Question]bool{}
		for _, q := range w.Draw(Test, c.n, c.free) {
			count[q.Kind]++
			if seen[q] {
				t.Fatalf("drawn twice: %+v", q)
			}
			seen[q] = true
		}
		if !maps.Equal(count, c.want) {
			t.Errorf("%d with a share of %v: %v, want %v", c.n, c.free, count, c.want)
		}
	}
}

func TestSameSeedSameWorld(t *testing.T) {
	a, b := New(5, 30, 10), New(5, 30, 10)
	for i := range a.Places {
		if !bytes.Equal(Emblem(a.Places[i]), Emblem(b.Places[i])) || !bytes.Equal(Map(a.Places[i]), Map(b.Places[i])) {
			t.Fatal("images differ")
		}
	}
	for i, p := range a.Passages() {
		if p != b.Passages()[i] {
			t.Fatal("passages differ")
		}
	}
	img, err := png.Decode(bytes.NewReader(Emblem(a.Places[0])))
	if err != nil || img.Bounds().Dx() != Side {
		t.Fatalf("emblem is not a %d pixel PNG: %v", Side, err)
	}
}
