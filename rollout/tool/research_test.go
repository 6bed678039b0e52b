package tool

import (
	"context"
	"errors"
	"image/color"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/recipe"
	"searchloop/internal/sandbox"
	"searchloop/internal/shard"
	"searchloop/internal/table"
	"searchloop/rollout/protocol"
)

func passages(t *testing.T, dir string, rows ...corpus.Passage) string {
	t.Helper()
	d, err := job.Testing(t).Dataset(job.Spec{Dir: dir, Schema: "passages", Version: 1, Ext: "parquet", Params: rows})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Begin(shard.Spec{I: 0, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Part()
	if err != nil {
		t.Fatal(err)
	}
	out := table.NewWriter[corpus.Passage](w)
	if err := errors.Join(out.Write(rows...), out.Close(), s.Commit(int64(len(rows)), manifest.Counts{OK: int64(len(rows))}), d.Seal(nil)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// model answers with a fixed text.
type model string

func (m model) Chat(context.Context, llm.Request) (*llm.Reply, error) {
	return &llm.Reply{Text: string(m)}, nil
}

func TestCropAndSearch(t *testing.T) {
	dir := t.TempDir()
	store, err := corpus.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	// Two things side by side: stripes on the left, a diagonal on the right.
	stripes := func(x, y int) color.RGBA { return color.RGBA{uint8(x / 5 % 2 * 255), 30, 30, 255} }
	diagonal := func(x, y int) color.RGBA { return color.RGBA{20, uint8((x + y) * 3), 200, 255} }
	paint := func(w, h int, at func(x, y int) color.RGBA) *picture.Picture {
		p := &picture.Picture{W: w, H: h}
		for y := range h {
			for x := range w {
				c := at(x, y)
				p.Pix = append(p.Pix, c.R, c.G, c.B)
			}
		}
		return p
	}
	put := func(p *picture.Picture) string {
		data, err := p.PNG()
		if err != nil {
			t.Fatal(err)
		}
		id, err := store.Put(data)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	both := put(paint(80, 40, func(x, y int) color.RGBA {
		if x < 40 {
			return stripes(x, y)
		}
		return diagonal(x-40, y)
	}))
	g, left, err := OpenGallery(passages(t, filepath.Join(dir, "gallery"), corpus.Passage{ID: "s", Contents: "Stripes\nof Vorna", ImageID: put(paint(40, 40, stripes))},
		corpus.Passage{ID: "https://x.org/d", Contents: "Diagonal", ImageID: put(paint(40, 40, diagonal))}, corpus.Passage{ID: "gone", ImageID: strings.Repeat("0", 64)}, corpus.Passage{ID: "text"}), store)
	if err != nil || left != 1 {
		t.Fatal(left, err)
	}
	box, err := New([]recipe.Tool{{Name: CropAndSearch, TopK: 1, Enlarge: 2, Scales: []int{100, 50}}}, Sources{Crops: g, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	q := &corpus.Question{ID: "q", ImageIDs: []string{both}}
	for _, c := range []struct {
		image int
		boxes []protocol.Box
		want  string
		bad   bool
	}{
		{1, []protocol.Box{{0, 0, 500, 1000}, {500, 0, 1000, 1000}}, "Box [0, 0, 500, 1000]:\n1. [Stripes](passage:s)\nof Vorna\n=======\nBox [500, 0, 1000, 1000]:\n1. [Diagonal](https://x.org/d)", false},
		{2, []protocol.Box{{0, 0, 1, 1}}, NoSuchImage, true},
		{0, nil, NoSuchImage, true},
	} {
		r, err := box.Run(t.Context(), q, protocol.Call{Name: CropAndSearch, Image: c.image, Boxes: c.boxes, Goal: "g"})
		if err != nil || r.Text != c.want || (r.Problem != "") != c.bad || len(r.Images) != 0 {
			t.Errorf("%q %q %v", r.Text, r.Problem, err)
		}
	}
	whole := paint(10, 10, stripes)
	for b, want := range map[protocol.Box][2]int{{0, 0, 1000, 1000}: {10, 10}, {150, 0, 151, 100}: {1, 1}, {999, 999, 1000, 1000}: {1, 1}, {0, 0, 0, 0}: {0, 0}} {
		p := Cut(whole, b, 1)
		if p == nil && want[0] != 0 || p != nil && (p.W != want[0] || p.H != want[1]) {
			t.Errorf("%v: %+v", b, p)
		}
	}
	if b := Scale(protocol.Box{400, 400, 600, 600}, 2); b != (protocol.Box{300, 300, 700, 700}) || Scale(protocol.Box{0, 0, 100, 100}, 2) != (protocol.Box{0, 0, 150, 150}) {
		t.Error(b)
	}
}

func TestVisit(t *testing.T) {
	dir := t.TempDir()
	pages, err := OpenPages(filepath.Join(dir, "work"), passages(t, filepath.Join(dir, "pages"),
		corpus.Passage{ID: "HTTP://X.org:80/Lim/#top", Contents: "Lim\nA river."}, corpus.Passage{ID: "7", Contents: "Seven\n" + strings.Repeat("ä", 100)}))
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	for name, c := range map[string]struct {
		reader Chatter
		urls   []string
		want   string
		bad    bool
	}{
		"as it is":        {nil, []string{"https://x.org/Lim", "passage:7"}, "Page 1: https://x.org/Lim\nLim\nA river.\n=======\nPage 2: passage:7\nSeven\n" + strings.Repeat("ä", 14), false},
		"missing":         {nil, []string{"https://x.org/lim"}, "Page 1: https://x.org/lim\n" + NoPage, true},
		"summed up":       {model("```json\n{\"rationale\":\"r\",\"evidence\":\" e \",\"summary\":\"s\"}\n```"), []string{"7"}, "Page 1: 7\nEvidence: e\nSummary: s", false},
		"a silent reader": {model("I would rather not."), []string{"http://x.org/Lim/"}, "Page 1: http://x.org/Lim/\nLim\nA river.", false},
	} {
		box, err := New([]recipe.Tool{{Name: Visit, PassageChars: 20}}, Sources{Pages: pages, Reader: c.reader})
		if err != nil {
			t.Fatal(err)
		}
		r, err := box.Run(t.Context(), &corpus.Question{}, protocol.Call{Name: Visit, URLs: c.urls, Goal: "g"})
		if err != nil || r.Text != c.want || (r.Problem != "") != c.bad {
			t.Errorf("%s: %q %q %v", name, r.Text, r.Problem, err)
		}
	}
}

func TestModelSearch(t *testing.T) {
	for said, want := range map[string]string{"<think>hm</think>The Lim\nis a river.": "Doc 1 (The Lim is a river.)\nDoc 2 (The Lim is a river.)", "Unknown.": "Doc 1 (No result.)\nDoc 2 (No result.)"} {
		box, err := New([]recipe.Tool{{Name: ModelSearch}}, Sources{Model: model(said)})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := box.Run(t.Context(), &corpus.Question{}, protocol.Call{Name: ModelSearch, Queries: []string{"a", "b"}}); err != nil || r.Text != want {
			t.Errorf("%q %v", r.Text, err)
		}
	}
}

func TestFormats(t *testing.T) {
	hits := []Hit{{Contents: "\"T\"\nbody\nof it", Link: "https://x.org"}, {Contents: "U", Link: ""}}
	for format, want := range map[string]string{
		"":          "Doc 1: (Title: \"T\") body of it\nDoc 2: (Title: U)",
		"doc_tight": "Doc 1(Title: \"T\") body of it\nDoc 2(Title: U)",
		"numbered":  "1. (https://x.org) body of it\n2. (U)",
		"links":     "1. [\"T\"](https://x.org)\nbody of it\n\n2. [U]()",
	} {
		if got := writers[format](hits, recipe.Tool{}); got != want {
			t.Errorf("%s: %q", format, got)
		}
	}
}

// A program's output is the observation; a failure says so. Without a sandbox the
// tool is not there, and the policy is told.
func TestPython(t *testing.T) {
	box, err := New(nil, Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := box.Run(t.Context(), &corpus.Question{}, protocol.Call{Name: protocol.ToolPython, Code: "print(1)"}); err != nil || r.Text != protocol.NoPython {
		t.Errorf("%+v %v", r, err)
	}
	in, err := sandbox.OpenPython(t.Context())
	if err != nil {
		t.Skip("no sandbox here: ", err)
	}
	if box, err = New([]recipe.Tool{{Name: protocol.ToolPython, Kind: Python}}, Sources{Python: in}); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string][2]string{"print(6*7)": {"42", ""}, "x = 1": {NoOutput, ""}, "raise SystemExit(2)": {NoOutput, "the program ended with status 2"}} {
		r, err := box.Run(t.Context(), &corpus.Question{}, protocol.Call{Name: protocol.ToolPython, Code: code})
		if err != nil || r.Text != want[0] || r.Problem != want[1] {
			t.Errorf("%s: %+v %v", code, r, err)
		}
	}
}
