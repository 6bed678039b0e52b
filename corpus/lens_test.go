package corpus

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

type tarEntry struct {
	name string
	data []byte
	kind byte
	link string
}

func tarGz(t *testing.T, entries ...tarEntry) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: int64(len(e.data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write(e.data)
	}
	w.Close()
	z.Close()
	return lensFile(t, "images.tar.gz", b.String())
}

func lensFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lensRun(t *testing.T, o LensOptions) error {
	t.Helper()
	return Lens(context.Background(), job.Testing(t), o)
}

func lensReport(t *testing.T, dir string) (r LensReport) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, LensReportOf))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const cacheLines = `{"data_id": "q2", "cached_data": [{"cached_title": "Two", "cached_images_path": "images/q2/0.png"}], "query": "kept", "big": 1.50}
{"data_id": "q1", "cached_data": [{"cached_title": "Zero", "cached_images_path": "./images/q1/0.png"}, {"cached_title": null, "cached_images_path": "images/q1/absent.png"}, {"cached_title": "Broken", "cached_images_path": "images/q1/broken.png"}, {"cached_title": "No image", "cached_images_path": null}]}
not json
{"data_id": "q3", "cached_data": "odd"}
{"cached_data": []}
{"data_id": "q4", "cached_data": null}
{"data_id": "q5", "cached_data": [{"cached_title": "Old machine", "cached_images_path": "/data/me/lens/images/q2/0.png"}, {"cached_title": "Only the name", "cached_images_path": "/data/0.png"}, {"cached_title": "Up", "cached_images_path": "../images/q1/0.png"}]}
`

func TestLens(t *testing.T) {
	archive := tarGz(t,
		tarEntry{name: "./images/", kind: tar.TypeDir},
		tarEntry{name: "./images/q1/0.png", data: pngOf(1)},
		tarEntry{name: "./images/q1/broken.png", data: pngOf(1)[:15]},
		tarEntry{name: "./images/q2/0.png", data: pngOf(2)},
		tarEntry{name: "./images/q2/0.png", data: pngOf(77)}, // the first of a name counts
		tarEntry{name: "./images/README.txt", data: []byte("hello")},
		tarEntry{name: "../evil.png", data: pngOf(3)},
		tarEntry{name: "/etc/evil.png", data: pngOf(3)},
		tarEntry{name: "images/link", kind: tar.TypeSymlink, link: "/etc"},
		tarEntry{name: "images/link/evil.png", data: pngOf(3)},
	)
	questions := t.TempDir()
	err := prep(t, job.Flags{}, PrepOptions{Format: "jsonl", In: []string{questionsFile(t, 4)}, Out: questions, MaxRejects: 1})
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	o := LensOptions{Cache: []string{lensFile(t, "lens.jsonl", cacheLines)}, Tar: []string{archive}, Questions: questions, Out: out, MaxMissing: 1}
	if err := lensRun(t, o); err != nil {
		t.Fatal(err)
	}
	one, two := manifest.Hash(pngOf(1)), manifest.Hash(pngOf(2))
	want := []LensEntry{
		{"q1", []LensHit{{"Zero", one, "./images/q1/0.png"}, {"", "", "images/q1/absent.png"}, {"Broken", "", "images/q1/broken.png"}, {"No image", "", ""}}},
		{"q2", []LensHit{{"Two", two, "images/q2/0.png"}}},
		{"q4", nil},
		{"q5", []LensHit{{"Old machine", two, "/data/me/lens/images/q2/0.png"}, {"Only the name", "", "/data/0.png"}, {"Up", one, "../images/q1/0.png"}}},
	}
	if got := rowsOfDataset[LensEntry](t, out); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	m, _ := manifest.Open(out)
	if m.Counts != (manifest.Counts{In: 7, OK: 4, Rejected: 3}) {
		t.Errorf("%+v", m.Counts)
	}
	r := lensReport(t, out)
	if r.Entries != 4 || r.Hits != 8 || r.HitsNoPath != 1 || r.ImagesFound != 4 || r.Superseded != 0 || r.Questions != 4 || r.EntriesWithoutQuestion != 2 ||
		!slices.Equal(r.QuestionsWithoutEntry, []string{"q0", "q3"}) || r.FoundBy[byName] != 3 || r.FoundBy[bySuffix] != 1 {
		t.Errorf("%+v", r)
	}
	var missing []string
	for _, x := range r.Missing {
		missing = append(missing, fmt.Sprintf("%s %d %s", x.DataID, x.Hit, x.Path))
	}
	if !slices.Equal(missing, []string{"q1 1 images/q1/absent.png", "q1 2 images/q1/broken.png", "q5 1 /data/0.png"}) || !strings.Contains(r.Missing[1].Reason, "damaged") {
		t.Errorf("%+v", r.Missing)
	}
	if r.Unpacked.Images != 3 || r.Unpacked.Skipped["duplicate name"] != 1 || r.Unpacked.Skipped["symlink"] != 1 || r.Unpacked.Skipped["name leads outside"] != 2 {
		t.Errorf("%+v", r.Unpacked)
	}
	checkPublished(t, out)
	s, _ := OpenStore(filepath.Join(out, "images"))
	if s.Has(manifest.Hash(pngOf(77))) || len(fileNames(t, out)) != 3 {
		t.Errorf("the store holds %q", fileNames(t, out))
	}
}

// fileNames lists the images of a dataset's store.
func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "images", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// checkPublished holds that the published form has the entries in order, with
// absolute paths to files that exist, nulls for the rest, and all else as it was.
func checkPublished(t *testing.T, out string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, LensPublished))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var ids []string
	for _, line := range lines {
		var e struct {
			DataID string `json:"data_id"`
			Hits   []struct {
				Title *string `json:"cached_title"`
				Path  *string `json:"cached_images_path"`
			} `json:"cached_data"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.DataID)
		for _, h := range e.Hits {
			if h.Path == nil {
				continue
			}
			if _, err := os.Stat(*h.Path); err != nil || !filepath.IsAbs(*h.Path) {
				t.Error(*h.Path, err)
			}
		}
	}
	if !slices.Equal(ids, []string{"q2", "q1", "q4", "q5"}) {
		t.Errorf("published in the order %v", ids)
	}
	if !strings.HasSuffix(lines[0], `}], "query": "kept", "big": 1.50}`) || !strings.Contains(lines[1], `{"cached_title": null, "cached_images_path": null}`) {
		t.Errorf("%s\n%s", lines[0], lines[1])
	}
}

// TestLensForms reads one cache in its three forms, and several caches.
// An id that comes again far behind gives what two files give, of which nobody
// expects ids once: the pass that took every entry for the one that counts leaves no
// line, no count and no reject behind.
func TestLensIDAgain(t *testing.T) {
	roots := t.TempDir()
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(roots, fmt.Sprint(i, ".png")), pngOf(uint8(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var head, tail bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&head, `{"data_id": "q%d", "cached_data": [{"cached_title": "Title \u00e9 %d", "cached_images_path": "%d.png"}, {"cached_title": "t", "cached_images_path": "absent/%d.png"}]}`+"\n", i, i, i%3, i)
		if i%5000 == 100 {
			fmt.Fprintln(&head, "not json")
		}
	}
	for _, i := range []int{7, 19000, 7} {
		fmt.Fprintf(&tail, `{"data_id": "q%d", "cached_data": [{"cached_title": "later", "cached_images_path": "1.png"}]}`+"\nnot json\n", i)
	}
	whole := lensFile(t, "lens.jsonl", head.String()+tail.String())
	files := map[string][]string{"one": {whole}, "two": {lensFile(t, "a.jsonl", head.String()), lensFile(t, "b.jsonl", tail.String())}}
	got := map[string][]string{}
	images := t.TempDir()
	for name, cache := range files {
		out := t.TempDir()
		if err := lensRun(t, LensOptions{Cache: cache, Roots: []string{roots}, Out: out, Images: images, MaxMissing: 1}); err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		if m.Counts != (manifest.Counts{In: 20007, OK: 20000, Rejected: 7}) {
			t.Errorf("%s: %+v", name, m.Counts)
		}
		if r := lensReport(t, out); r.Superseded != 3 || r.Hits != 39998 || r.ImagesFound != 20000 {
			t.Errorf("%s: %d superseded, %d hits, %d images", name, r.Superseded, r.Hits, r.ImagesFound)
		}
		for _, p := range m.Parts {
			if !strings.HasPrefix(p.Name, "rejects") {
				got[name] = append(got[name], p.Name+" "+p.SHA256)
			}
		}
		if err := m.Verify(out); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(got["one"], got["two"]) {
		t.Errorf("one file: %q\ntwo: %q", got["one"], got["two"])
	}
}

func TestLensForms(t *testing.T) {
	hits := `[{"cached_title": "T", "cached_images_path": null}]`
	for name, text := range map[string]string{
		"lines":          `{"cached_data": ` + hits + `, "data_id": "a"}` + "\n" + `{"data_id": "b", "cached_data": []}`,
		"list":           `[{"data_id": "a", "cached_data": ` + hits + `}, {"data_id": "b", "cached_data": []}]`,
		"object":         `{"a": {"data_id": "a", "cached_data": ` + hits + `}, "b": {"cached_data": []}}`,
		"object of hits": `{"a": ` + hits + `, "b": []}`,
	} {
		out := t.TempDir()
		if err := lensRun(t, LensOptions{Cache: []string{lensFile(t, "c.json", text)}, Out: out}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []LensEntry{{"a", []LensHit{{"T", "", ""}}}, {"b", nil}}
		if got := rowsOfDataset[LensEntry](t, out); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	out := t.TempDir()
	first := lensFile(t, "1.jsonl", `{"data_id": "a", "cached_data": []}`+"\n"+`{"data_id": "b", "cached_data": []}`+"\n"+`{"data_id": "a", "cached_data": [{"cached_title": "2", "cached_images_path": ""}]}`)
	second := lensFile(t, "2.json", `{"b": [{"cached_title": "3", "cached_images_path": null}]}`)
	if err := lensRun(t, LensOptions{Cache: []string{first, second}, Out: out}); err != nil {
		t.Fatal(err)
	}
	got := rowsOfDataset[LensEntry](t, out)
	if len(got) != 2 || got[0].Hits[0].Title != "2" || got[1].Hits[0].Title != "3" || lensReport(t, out).Superseded != 2 {
		t.Error(got, lensReport(t, out))
	}
	out = t.TempDir() // a cache that is named twice
	if err := lensRun(t, LensOptions{Cache: []string{second, first, second}, Out: out}); err != nil {
		t.Fatal(err)
	}
	got = rowsOfDataset[LensEntry](t, out)
	if len(got) != 2 || got[1].Hits[0].Title != "3" || lensReport(t, out).Superseded != 3 {
		t.Error(got, lensReport(t, out))
	}
}

func TestLensRoots(t *testing.T) {
	root := t.TempDir()
	os.MkdirAll(filepath.Join(root, "images"), 0o700)
	os.WriteFile(filepath.Join(root, "images", "x.png"), pngOf(5), 0o600)
	secret := lensFile(t, "secret.png", string(pngOf(6)))
	os.Symlink(secret, filepath.Join(root, "images", "link.png"))
	abs := filepath.Join(root, "images", "x.png")
	cache := fmt.Sprintf(`{"a": [{"cached_images_path": "images/x.png"}, {"cached_images_path": %q}, {"cached_images_path": "images/link.png"}, {"cached_images_path": %q}]}`, abs, secret)
	out := t.TempDir()
	if err := lensRun(t, LensOptions{Cache: []string{lensFile(t, "c.json", cache)}, Roots: []string{root}, Out: out, MaxMissing: 1}); err != nil {
		t.Fatal(err)
	}
	var found []bool
	for _, h := range rowsOfDataset[LensEntry](t, out)[0].Hits {
		found = append(found, h.ImageID != "")
	}
	if !slices.Equal(found, []bool{true, true, false, false}) {
		t.Error(found)
	}
}

func TestLensRefuses(t *testing.T) {
	cache := lensFile(t, "c.jsonl", `{"data_id": "a", "cached_data": [{"cached_images_path": "img/0.png"}]}`)
	whole, err := os.ReadFile(tarGz(t, tarEntry{name: "images/0.png", data: bytes.Repeat(pngOf(1), 3000)}, tarEntry{name: "images/1.png", data: pngOf(2)}))
	if err != nil {
		t.Fatal(err)
	}
	cut := lensFile(t, "cut.tar.gz", string(whole[:len(whole)-20]))
	for name, c := range map[string]struct {
		o    LensOptions
		kind fail.Kind
		says string
	}{
		"nothing":    {LensOptions{}, fail.Usage, "--cache"},
		"cut tar":    {LensOptions{Cache: []string{cache}, Tar: []string{cut}}, fail.BadInput, cut},
		"no tar":     {LensOptions{Cache: []string{cache}, Tar: []string{cache + ".absent"}}, fail.BadInput, "absent"},
		"text tar":   {LensOptions{Cache: []string{cache}, Tar: []string{cache}}, fail.BadInput, cache},
		"cut cache":  {LensOptions{Cache: []string{lensFile(t, "cut.json", `[{"data_id": "a"`)}}, fail.BadInput, "cut.json"},
		"no dataset": {LensOptions{Cache: []string{cache}, Questions: t.TempDir()}, fail.BadInput, "manifest.json"},
		"all missing": {LensOptions{Cache: []string{cache}, Tar: []string{tarGz(t, tarEntry{name: "images/0.png", data: pngOf(1)})}, MaxMissing: 0.5},
			fail.Bound, "img/0.png"},
	} {
		if len(c.o.Cache) > 0 {
			c.o.Out = t.TempDir()
		}
		if err := lensRun(t, c.o); fail.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if c.kind != fail.Bound {
			continue
		}
		if err := lensRun(t, c.o); fail.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, again: %v", name, err)
		}
	}
}

// TestLensKilled holds that a killed job goes on and ends with the same bytes,
// without unpacking what is there.
func TestLensKilled(t *testing.T) {
	var entries []tarEntry
	var cache strings.Builder
	for i := range 300 {
		name := fmt.Sprintf("images/%d/0.png", i)
		if i%20 != 3 {
			entries = append(entries, tarEntry{name: name, data: pngOf(uint8(i % 250))})
		}
		fmt.Fprintf(&cache, "{\"data_id\": \"q%d\", \"cached_data\": [{\"cached_title\": \"t\", \"cached_images_path\": %q}]}\n", (i*7)%300, name)
	}
	o := LensOptions{Cache: []string{lensFile(t, "c.jsonl", cache.String())}, Tar: []string{tarGz(t, entries...)}, Out: t.TempDir(), MaxMissing: 1}
	began := time.Now()
	killed(t, "lens", o, time.Minute)
	whole := time.Since(began)
	want := content(t, o.Out)
	delete(want, LensPublished) // names the folder
	if n := lensReport(t, o.Out).ImagesFound; n != 285 {
		t.Errorf("%d images found", n)
	}
	o.Out = t.TempDir()
	for _, part := range []float64{0.3, 0.5, 0.7, 0.9} {
		killed(t, "lens", o, time.Duration(part*float64(whole)))
	}
	if err := lensRun(t, o); err != nil {
		t.Fatal(err)
	}
	got := content(t, o.Out)
	delete(got, LensPublished)
	delete(want, "content") // sees the side file that names the folder
	delete(got, "content")
	sameContent(t, want, got)
}

// TestLensStops stops the job while it unpacks and continues.
func TestLensStops(t *testing.T) {
	o := LensOptions{Cache: []string{lensFile(t, "c.jsonl", cacheLines)}, Tar: []string{tarGz(t, tarEntry{name: "images/q2/0.png", data: pngOf(2)})}, Out: t.TempDir(), MaxMissing: 1}
	r := job.Testing(t)
	r.Stop()
	if err := Lens(context.Background(), r, o); fail.KindOf(err) != fail.Interrupted {
		t.Fatal(err)
	}
	if err := lensRun(t, o); err != nil {
		t.Fatal(err)
	}
	if n := lensReport(t, o.Out).ImagesFound; n != 2 {
		t.Error(n)
	}
}

// What a summary holds does not grow with the cache: of long lists the first, and
// how many there are.
// A report is written as encoding/json would.
func TestLensReportText(t *testing.T) {
	r := LensReport{Entries: 3, FoundBy: FoundBy{byName: 2, "\n  \"images_missing\": [": 1}, Missing: []LensMiss{}, QuestionsWithoutEntry: []string{"a", "<b>"}}
	odd := []string{"", "plain/0.png", "a\"b\\c", "<&>", "täg\u2028\x7f", "\xff\x00\t"}
	for i := range 3 {
		for k, s := range odd[:i*3] {
			r.Missing = append(r.Missing, LensMiss{s, k, odd[len(odd)-1-k], s + "!"})
		}
		want, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.text(); err != nil || string(got) != string(want)+"\n" {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	}
}

func TestLensBrief(t *testing.T) {
	var r LensReport
	for i := range 25 {
		r.Missing = append(r.Missing, LensMiss{DataID: fmt.Sprint(i)})
	}
	r.QuestionsWithoutEntry = []string{"q"}
	b := r.brief()
	if b.MissingInAll != 25 || len(b.Missing) != briefItems || b.Missing[19].DataID != "19" || b.WithoutEntryInAll != 1 || len(b.QuestionsWithoutEntry) != 1 {
		t.Errorf("%+v", b)
	}
	if len(r.Missing) != 25 {
		t.Error("the report itself was cut")
	}
}
