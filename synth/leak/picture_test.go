package leak

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/picture"
)

const photographs = "../../../shared/data/livevqa-news/News_imgs"

// photos reads the 96 photographs of LiveVQA once, made smaller where they are large.
func photos(t testing.TB) map[string]*picture.Picture {
	t.Helper()
	once.photos.Do(func() { once.all = readPhotos(t) })
	if len(once.all) == 0 {
		t.Skip("the shared data folder is not here")
	}
	return once.all
}

// once holds what all tests look at and none changes.
var once struct {
	photos, prints sync.Once
	all            map[string]*picture.Picture
	names          []string
	of             map[string]*Print
}

func readPhotos(t testing.TB) map[string]*picture.Picture {
	t.Helper()
	dir := photographs
	if s := os.Getenv("SHARED"); s != "" {
		dir = filepath.Join(s, "livevqa-news/News_imgs")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	out := map[string]*picture.Picture{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		p, err := picture.Decode(data)
		if err != nil {
			t.Log(f, err)
			continue
		}
		if long := max(p.W, p.H); long > 800 {
			p = p.Resize(p.H*800/long, p.W*800/long)
		}
		out[filepath.Base(f)] = p
	}
	return out
}

func cut(p *picture.Picture, b box) *picture.Picture {
	x0, y0, x1, y1 := int(b.x0*float64(p.W)), int(b.y0*float64(p.H)), int(b.x1*float64(p.W)), int(b.y1*float64(p.H))
	out := &picture.Picture{W: x1 - x0, H: y1 - y0}
	for y := y0; y < y1; y++ {
		out.Pix = append(out.Pix, p.Pix[3*(y*p.W+x0):3*(y*p.W+x1)]...)
	}
	return out
}

func reencode(t testing.TB, p *picture.Picture, quality int) *picture.Picture {
	t.Helper()
	data, err := p.JPEG(quality)
	if err == nil {
		p, err = picture.Decode(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Among 96 photographs of different things none is taken for another, and the
// figures say how far from it they are.
func TestPhotographs(t *testing.T) {
	names, prints := printed(t)
	nearest, candidates := 0.0, 0
	for i, n := range names {
		for _, m := range names[:i] {
			same, s := Same(prints[n], prints[m])
			if same {
				t.Errorf("%s and %s are taken for the same: %.2f", n, m, s)
			}
			if s > 0 {
				candidates++
			}
			nearest = max(nearest, s)
		}
	}
	t.Logf("%d photographs, %d pairs near by their hashes, greatest correlation %.3f (the same from %.2f on)", len(names), candidates, nearest, least)
}

// printed makes the prints of the photographs, on all cores.
func printed(t testing.TB) ([]string, map[string]*Print) {
	all := photos(t)
	once.prints.Do(func() {
		once.names = slices.Sorted(maps.Keys(all))
		list := make([]*Print, len(once.names))
		var wg sync.WaitGroup
		for i, n := range once.names {
			wg.Go(func() { list[i] = Of(all[n]) })
		}
		wg.Wait()
		once.of = map[string]*Print{}
		for i, n := range once.names {
			once.of[n] = list[i]
		}
	})
	return once.names, once.of
}

// Fifty duplicates are planted among the photographs: crops of 60 to 95 % of either
// side, encodings in other sizes and qualities, and questions in other words. All
// are found, and none of the originals is taken for one.
func TestPlanted(t *testing.T) {
	all := photos(t)
	names, prints := printed(t)
	texts := questions(t)
	rng := rand.New(rand.NewPCG(5, 6))
	held := New(Rule{Picture: true})
	for i, n := range names[:50] {
		held.Add(Question{ID: n, Text: texts[i].text, Answer: texts[i].answer, Pictures: []*Print{prints[n]}})
	}
	worst := 1.0
	for i, n := range names[:50] {
		p := all[n]
		q := Question{ID: "planted", Text: "What is this?", Answer: "it"}
		kind := []string{"crop", "encoding", "words"}[i%3]
		switch kind {
		case "crop":
			sx := 0.6 + 0.35*rng.Float64()
			sy := min(max(sx+0.1*(rng.Float64()-0.5), 0.6), 0.95)
			x, y := rng.Float64()*(1-sx), rng.Float64()*(1-sy)
			c := cut(p, box{x, y, x + sx, y + sy})
			q.Pictures = []*Print{Of(reencode(t, c, 75))}
		case "encoding":
			f := 0.3 + 0.6*rng.Float64()
			q.Pictures = []*Print{Of(reencode(t, p.Resize(max(int(float64(p.H)*f), 32), max(int(float64(p.W)*f), 32)), 30+rng.IntN(50)))}
		default: // the same words but for an edit, without the picture
			q.Text, q.Answer = edited(texts[i].text, rng), texts[i].answer
		}
		f, ok := held.Look(q)
		if !ok || f.ID != n {
			s := 0.0
			if q.Pictures != nil {
				_, s = Same(q.Pictures[0], prints[n])
			}
			t.Errorf("%s of %s: %+v %v, correlation %.3f, %q", kind, n, f, ok, s, q.Text)
		}
		worst = min(worst, f.Score)
	}
	// The 46 other photographs, with their own questions, are none of them.
	for i, n := range names[50:] {
		if f, ok := held.Look(Question{ID: n, Text: texts[50+i].text, Answer: texts[50+i].answer, Pictures: []*Print{prints[n]}}); ok {
			t.Errorf("false alarm: %s is %+v", n, f)
		}
	}
	t.Logf("lowest score of a find: %.3f", worst)
}

type asked struct{ text, answer string }

// questions are those of level 2 of LiveVQA.
func questions(t testing.TB) (out []asked) {
	t.Helper()
	dir := filepath.Dir(photographs)
	if s := os.Getenv("SHARED"); s != "" {
		dir = filepath.Join(s, "livevqa-news")
	}
	data, err := os.ReadFile(filepath.Join(dir, "benchmark.json"))
	if err != nil {
		t.Skip(err)
	}
	var all []struct {
		Two struct {
			Question string   `json:"question"`
			Truths   []string `json:"Ground_Truth_List"`
		} `json:"level2_qa"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		out = append(out, asked{e.Two.Question, e.Two.Truths[0]})
	}
	return out
}

// edited says the same with a word left out, two words put in, and another case.
func edited(text string, rng *rand.Rand) string {
	w := strings.Fields(text)
	k := 1 + rng.IntN(len(w)-2)
	w = slices.Delete(w, k, k+1)
	w = slices.Insert(w, rng.IntN(len(w)), "exactly")
	return "Tell me: " + strings.ToUpper(strings.Join(w, " "))
}

// One answer and words in common do not make two questions about different pictures
// the same; one picture and other words do not either, within a set.
func TestLook(t *testing.T) {
	names, prints := printed(t)
	a, b := []*Print{prints[names[0]]}, []*Print{prints[names[1]]}
	own, held := New(Rule{}), New(Rule{Picture: true})
	for _, x := range []*Index{own, held} {
		x.Add(Question{"1", "Who built the tower in this image?", "Ann", a})
		x.Add(Question{"2", "What is the capital of Fenland?", "Mora", nil})
	}
	for _, c := range []struct {
		q         Question
		own, held string
	}{
		{Question{"x", "Who built the tower in this image?", "Ann", b}, "", ""},
		{Question{"x", "In which year was it opened?", "1990", a}, "", SamePicture},
		{Question{"x", "Who has built the tower in this image?", "Ann", a}, SameText, SamePicture},
		{Question{"x", "Who built that tower in the image?", "Ann", nil}, SameText, SameText},
		{Question{"x", "What is the capital of Fenland", "mora", nil}, SameText, SameText},
		{Question{"x", "What is the capital of Benland?", "Tora", nil}, "", ""},
		{Question{"x", "Which city is the seat of its government?", "Mora", nil}, "", ""},
	} {
		if f, _ := own.Look(c.q); f.Kind != c.own {
			t.Errorf("%q in the set: %+v, want %q", c.q.Text, f, c.own)
		}
		if f, _ := held.Look(c.q); f.Kind != c.held {
			t.Errorf("%q held out: %+v, want %q", c.q.Text, f, c.held)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	all := photos(b)
	p := all[slices.Min(slices.Collect(maps.Keys(all)))]
	for b.Loop() {
		Of(p)
	}
}
