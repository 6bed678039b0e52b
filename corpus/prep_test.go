package corpus

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// TestMain lets a test run Prep or Lens in a process of its own, to kill it.
func TestMain(m *testing.M) {
	run := job.NewRun("test", job.Flags{ProgressMode: "none"}, os.Stdout, os.Stderr)
	var err error
	switch text := []byte(os.Getenv("CORPUS_TEST_OPTIONS")); os.Getenv("CORPUS_TEST_JOB") {
	case "":
		os.Exit(m.Run())
	case "prep":
		var o PrepOptions
		if err = json.Unmarshal(text, &o); err == nil {
			err = Prep(context.Background(), run, o)
		}
	case "lens":
		var o LensOptions
		if err = json.Unmarshal(text, &o); err == nil {
			err = Lens(context.Background(), run, o)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(fail.ExitCode(err))
}

// killed runs a job in a process of its own and kills it after d, unless it ends
// before. It says whether it was killed.
func killed(t *testing.T, what string, options any, d time.Duration) bool {
	t.Helper()
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CORPUS_TEST_JOB="+what, "CORPUS_TEST_OPTIONS="+string(text))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(d, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	if timer.Stop() && err != nil {
		t.Fatalf("%s: %v\n%s", what, err, log.String())
	}
	return err != nil
}

// content gives the bytes of a dataset but for times: its parts and its images.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	m, err := manifest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"content": m.Content()}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if strings.HasSuffix(name, ".json") && (name == manifest.File || strings.HasPrefix(name, "part-")) {
			return nil // hold times
		}
		data, err := os.ReadFile(path)
		if !strings.Contains(filepath.Base(name), tempMark) { // of a killed process; goes after an hour
			out[name] = manifest.Hash(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameContent(t *testing.T, a, b map[string]string) {
	t.Helper()
	for k := range a {
		if a[k] != b[k] {
			t.Errorf("%s differs", k)
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d files, want %d", len(b), len(a))
	}
}

// questionsFile writes n questions with images and, here and there, bad rows.
func questionsFile(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	for i := range n {
		im := base64.StdEncoding.EncodeToString(pngOf(uint8(i % 200)))
		id := i
		switch {
		case i%50 == 7:
			im = "AAAA"
		case i%50 == 9:
			id = i / 2 // an id that was
		}
		fmt.Fprintf(&b, "{\"id\": \"q%d\", \"question\": \"What is %d?\", \"answers\": [\"a%d\"], \"image\": {\"bytes\": \"%s\"}}\n", id, i, i, im)
	}
	path := filepath.Join(t.TempDir(), "questions.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func prep(t *testing.T, f job.Flags, o PrepOptions) error {
	t.Helper()
	r := job.Testing(t)
	f.ProgressMode = "none"
	r.Flags = f
	return Prep(context.Background(), r, o)
}

func TestPrepShards(t *testing.T) {
	in := questionsFile(t, 400)
	o := PrepOptions{Format: "jsonl", In: []string{in}, Images: filepath.Join(t.TempDir(), "images"), MaxRejects: 1}
	var want []Question
	for _, n := range []int{1, 2, 7} {
		o.Out = t.TempDir()
		o.Cells = CellBytes // no paths that differ from folder to folder
		for i := n - 1; i >= 0; i-- {
			if err := prep(t, job.Flags{Shard: fmt.Sprintf("%d/%d", i, n)}, o); err != nil {
				t.Fatal(err)
			}
		}
		rows := rowsOfDataset[Question](t, o.Out)
		m, _ := manifest.Open(o.Out)
		if m.Counts != (manifest.Counts{In: 400, OK: 384, Rejected: 16}) {
			t.Errorf("%d shards: %+v", n, m.Counts)
		}
		if want == nil {
			want = rows
		}
		if len(rows) != len(want) || !slices.EqualFunc(rows, want, func(a, b Question) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("%d shards give other rows", n)
		}
	}
}

func TestPrepKilled(t *testing.T) {
	o := PrepOptions{Format: "jsonl", In: []string{questionsFile(t, 600)}, Out: t.TempDir(), MaxRejects: 1}
	began := time.Now()
	if killed(t, "prep", o, time.Minute) {
		t.Fatal("killed too early")
	}
	whole := time.Since(began)
	want := content(t, o.Out)
	o.Out = t.TempDir()
	kills := 0
	for _, part := range []float64{0.2, 0.5, 0.7, 0.85, 0.95} {
		if killed(t, "prep", o, time.Duration(part*float64(whole))) {
			kills++
		}
	}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	sameContent(t, want, content(t, o.Out))
	if kills == 0 {
		t.Log("no process was killed in time")
	}
}

func TestPrepStops(t *testing.T) {
	r := job.Testing(t)
	r.Stop()
	o := PrepOptions{Format: "jsonl", In: []string{questionsFile(t, 10)}, Out: t.TempDir(), MaxRejects: 1}
	if err := Prep(context.Background(), r, o); fail.KindOf(err) != fail.Interrupted {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Prep(ctx, job.Testing(t), o); fail.KindOf(err) != fail.Interrupted {
		t.Error(err)
	}
	if _, err := manifest.Open(o.Out); err == nil {
		t.Error("an interrupted job left a manifest")
	}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Error(err)
	}
}

func TestPrepTwiceAndLimit(t *testing.T) {
	o := PrepOptions{Format: "jsonl", In: []string{questionsFile(t, 30)}, Out: t.TempDir(), MaxRejects: 1, Limit: 8}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	first := content(t, o.Out)
	part := filepath.Join(o.Out, "part-00000-of-00001.parquet")
	before, _ := os.Stat(part)
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.Stat(part); !os.SameFile(before, after) {
		t.Error("a finished part was written again")
	}
	if m, _ := manifest.Open(o.Out); m.Counts != (manifest.Counts{In: 8, OK: 7, Rejected: 1}) {
		t.Errorf("%+v", m.Counts)
	}
	if err := prep(t, job.Flags{Fresh: true}, o); err != nil {
		t.Fatal(err)
	}
	sameContent(t, first, content(t, o.Out))
	o.Limit, o.Split, o.DataSource = 0, "held-out", "mine"
	if err := prep(t, job.Flags{Shards: 3}, o); err != nil {
		t.Fatal(err)
	}
	rows := rowsOfDataset[Question](t, o.Out)
	if len(rows) != 28 || rows[27].Split != "held-out" || rows[0].DataSource != "mine" || rows[0].ExtraInfo.Split != "held-out" {
		t.Errorf("%d rows, %+v", len(rows), rows[0])
	}
}

func TestPrepCells(t *testing.T) {
	dir := t.TempDir()
	o := PrepOptions{Format: "jsonl", In: []string{questionsFile(t, 2)}, Images: filepath.Join(dir, "store"), Out: filepath.Join(dir, "q"), MaxRejects: 1}
	for cells, want := range map[string]string{"": "../store/", CellAbsolute: o.Images + "/", CellBytes: "bytes"} {
		o.Cells = cells
		if err := prep(t, job.Flags{}, o); err != nil {
			t.Fatal(err)
		}
		q := rowsOfDataset[Question](t, o.Out)[0]
		im := q.Images[0]
		switch {
		case cells == CellBytes && im.Path == nil && bytes.Equal(im.Bytes, pngOf(0)):
		case cells != CellBytes && im.Bytes == nil && *im.Path == want+cellPath(q.ImageIDs[0], ".png"):
		default:
			t.Errorf("cells %q: %v, %d bytes", cells, im.Path, len(im.Bytes))
		}
	}
}

// TestPrepRefuses holds that bad input is a clear error with file and remedy and
// leaves no dataset.
func TestPrepRefuses(t *testing.T) {
	whole, err := os.ReadFile("testdata/formats/verl/mmdr/in/MMSearch_test.parquet")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, data string) string {
		path := filepath.Join(dir, name)
		os.WriteFile(path, []byte(data), 0o600)
		return path
	}
	cut := file("cut.parquet", string(whole[:len(whole)*2/3]))
	prose := file("prose.jsonl", "once upon a time\nthere was no JSON\n")
	list := file("cut.json", `[{"id": "a", "question": "x?", "answer": "y"}, {"id": "b", `)
	absent := filepath.Join(dir, "absent.parquet")
	for name, c := range map[string]struct {
		o    PrepOptions
		kind fail.Kind
		says []string
	}{
		"cut parquet":   {PrepOptions{Format: "verl", In: []string{cut}}, fail.BadInput, []string{cut, "fetch it again"}},
		"other parquet": {PrepOptions{Format: "mmsearch", In: []string{"testdata/formats/verl/mmdr/in/MMSearch_test.parquet"}}, fail.BadInput, []string{"no column query", "reward_model"}},
		"prose":         {PrepOptions{Format: "jsonl", In: []string{prose}}, fail.BadInput, []string{prose, "row 1", "none of 2 rows", "--format"}},
		"cut list":      {PrepOptions{Format: "jsonl", In: []string{list}}, fail.BadInput, []string{list, "row 2", "cut short"}},
		"absent":        {PrepOptions{Format: "verl", In: []string{absent}}, fail.BadInput, []string{absent}},
		"folder":        {PrepOptions{Format: "cranfield", In: []string{dir}}, fail.BadInput, []string{dir, "cran.all"}},
		"no format":     {PrepOptions{Format: "nope", In: []string{prose}}, fail.Usage, []string{"nope", "cranfield"}},
		"no kind":       {PrepOptions{Format: "verl", What: Passages, In: []string{prose}}, fail.Usage, []string{"verl gives questions"}},
		"no input":      {PrepOptions{Format: "verl"}, fail.Usage, []string{"--in"}},
		"no documents":  {PrepOptions{Format: "cranfield", In: []string{"testdata/formats/cranfield/small/in/cran.qry"}}, fail.Usage, []string{"cran.all.1400"}},
		"no cells":      {PrepOptions{Format: "verl", In: []string{cut}, Cells: "x"}, fail.Usage, []string{"relative"}},
	} {
		c.o.Out = filepath.Join(t.TempDir(), "out")
		c.o.MaxRejects = 1
		err := prep(t, job.Flags{}, c.o)
		if fail.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not say %q", name, err, s)
			}
		}
		if _, err := manifest.Open(c.o.Out); err == nil {
			t.Errorf("%s left a dataset", name)
		}
	}
}

func TestPrepBound(t *testing.T) {
	o := PrepOptions{Format: "jsonl", In: []string{questionsFile(t, 100)}, Out: t.TempDir(), MaxRejects: 0.03}
	err := prep(t, job.Flags{}, o)
	var e *fail.Error
	if !errors.As(err, &e) || e.Kind != fail.Bound || !strings.Contains(err.Error(), "4 of 100") {
		t.Fatal(err)
	}
	if _, err := manifest.Open(o.Out); err != nil {
		t.Error("the dataset is complete all the same:", err)
	}
	if again := prep(t, job.Flags{}, o); again == nil || again.Error() != err.Error() {
		t.Error("the bound is still broken when there is nothing to do:", again)
	}
	o.MaxRejects = 0.04
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Error("the bound was moved:", err)
	}
}

// TestPrepFolder holds that a folder stands for the files of the format in it.
func TestPrepFolder(t *testing.T) {
	for _, what := range []string{Passages, Questions} {
		o := PrepOptions{Format: "cranfield", What: what, In: []string{"testdata/formats/cranfield/small/in"}, Out: t.TempDir(), Prefix: "Answer. Question: ", MaxRejects: 1}
		if err := prep(t, job.Flags{}, o); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/formats/cranfield/small/want-"+what+".json", read(t, o.Out, what))
		if m, _ := manifest.Open(o.Out); len(m.Inputs) != map[string]int{Passages: 1, Questions: 2}[what] {
			t.Errorf("%s: %+v", what, m.Inputs)
		}
	}
}

func TestRequireImage(t *testing.T) {
	o := PrepOptions{Format: "mmsearch", In: []string{"testdata/formats/mmsearch/end2end/in/end2end.parquet"}, Out: t.TempDir(), MaxRejects: 1, RequireImage: true}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	if rows := rowsOfDataset[Question](t, o.Out); len(rows) != 1 || rows[0].ID != "MMSearch_0" {
		t.Error(rows)
	}
	all := PrepOptions{Format: o.Format, In: o.In, Out: t.TempDir(), MaxRejects: 1}
	if err := prep(t, job.Flags{}, all); err != nil {
		t.Fatal(err)
	}
	some, err := manifest.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	every, err := manifest.Open(all.Out)
	if err != nil || every.Counts.OK < 2 || some.Counts.Rejected != every.Counts.Rejected { // what is left out is no reject
		t.Errorf("%+v with, %+v without --require-image, %v", some.Counts, every.Counts, err)
	}
}

// TestPrepReadsItself holds that our questions are verl rows: preparing a
// prepared dataset changes nothing that matters.
func TestPrepReadsItself(t *testing.T) {
	o := PrepOptions{Format: "verl", In: []string{"testdata/formats/verl/mmdr/in/MMSearch_test.parquet"}, Out: t.TempDir(), MaxRejects: 1}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	first := rowsOfDataset[Question](t, o.Out)
	o.In, o.Out = []string{o.Out}, t.TempDir() // a dataset stands for its parts
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	again := rowsOfDataset[Question](t, o.Out)
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) {
		t.Errorf("first  %s\nsecond %s", a, b)
	}
}
