package corpus

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"searchloop/internal/bench"
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// TestVerlSchemas holds the schemas that verl's users have; bench/verl_check.py
// compares them with published files by pandas.
func TestVerlSchemas(t *testing.T) {
	var b strings.Builder
	for _, f := range verlForms {
		b.WriteString("# " + f.name + "\n" + parquet.NewSchema("schema", groupOf(f.columns)).String() + "\n")
	}
	golden(t, "testdata/verl-schemas.txt", []byte(b.String()))
}

// TestVerlLists writes lists of several elements beside empty ones.
func TestVerlLists(t *testing.T) {
	q := Question{ID: "a", Text: "x?", RewardModel: RewardModel{GroundTruth: GroundTruth{Target: []string{"p", "q"}}}, Answers: []string{"p", "q"},
		Images: []ImageCell{{Bytes: []byte("1")}, {Bytes: []byte("2")}}, Prompt: []Message{{"system", "s"}, {"user", "u"}}}
	empty := Question{ID: "b", Text: "y?"}
	for _, form := range verlForms {
		var b bytes.Buffer
		w := newVerlWriter(form, &b, 7)
		if err := w.Write(q, empty, q); err != nil {
			t.Fatal(form.name, err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(form.name, err)
		}
		f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil || f.NumRows() != 3 {
			t.Fatal(form.name, err)
		}
	}
}

// TestRoundTrip takes every golden sample of every format of questions to verl's
// rows and back: as our own dataset, which keeps everything, and in the exact
// form of each system, which keeps what it has columns for.
func TestRoundTrip(t *testing.T) {
	for _, f := range Formats() {
		if f.Questions == nil || f.Unanswered {
			continue
		}
		for name, files := range samples(t, f.Name) {
			o := PrepOptions{Format: f.Name, What: Questions, In: files, Out: t.TempDir(), MaxRejects: 1}
			if err := prep(t, job.Flags{}, o); err != nil {
				t.Fatal(err)
			}
			first := rowsOfDataset[Question](t, o.Out)
			again := func(in string) []Question {
				b := PrepOptions{Format: "verl", In: []string{in}, Out: t.TempDir(), MaxRejects: 1}
				if err := prep(t, job.Flags{}, b); err != nil {
					t.Fatalf("%s/%s: %v", f.Name, name, err)
				}
				return rowsOfDataset[Question](t, b.Out)
			}
			equalRows(t, f.Name+"/"+name, first, again(o.Out), func(q *Question) {})
			shown := slices.ContainsFunc(first, func(q Question) bool { return len(q.Images) > 0 })
			for _, form := range verlForms {
				if shown && form.noImage {
					continue
				}
				v := PrepOptions{Format: "verl", In: []string{o.Out}, As: form.name, Out: t.TempDir(), MaxRejects: 1}
				if err := prep(t, job.Flags{}, v); err != nil {
					t.Fatalf("%s/%s as %s: %v", f.Name, name, form.name, err)
				}
				parts, _ := filepath.Glob(filepath.Join(v.Out, "part-*.parquet"))
				equalRows(t, f.Name+"/"+name+" as "+form.name, first, again(parts[0]), func(q *Question) {
					q.Meta, q.Prompt = "", nil // the prompt shows the images in one form and not in the other
					switch form.name {
					case "mm-deepresearch":
						q.Category = ""
					case "mmsearch-r1":
						q.Split, q.ExtraInfo.Split, q.Ability, q.AgentName = "", "", "", ""
						q.RewardModel = RewardModel{}
					case "search-r1":
						// A source's own number gets the source's name when it comes back.
						q.ID = strings.TrimPrefix(q.ID, idPart(q.DataSource))
						q.ExtraInfo.Index = q.ID
						q.Category, q.Ability, q.AgentName, q.RewardModel, q.Images, q.ImageIDs = "", "", "", RewardModel{}, nil, nil
					}
				})
			}
		}
	}
}

// TestVerlInPython writes the rows of each system anew and lets pandas and pyarrow
// compare types and values with the published file, or one made like it.
func TestVerlInPython(t *testing.T) {
	py := os.Getenv("SEARCHLOOP_PYTHON")
	if py == "" {
		py = "python3"
	}
	if missing := bench.Missing(py, "pandas", "pyarrow"); missing != "" {
		t.Skipf("needs Python with pandas and pyarrow (SEARCHLOOP_PYTHON names the interpreter): %s", missing)
	}
	write := func(t *testing.T, in, system, message, prefix string) string {
		o := PrepOptions{Format: "verl", In: []string{in}, As: system, System: message, Prefix: prefix, Out: t.TempDir(), MaxRejects: 1}
		if err := prep(t, job.Flags{}, o); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(o.Out, "part-00000-of-00001.parquet")
	}
	for _, c := range []struct{ system, message, prefix, file string }{
		{"mmsearch-r1", "", "", "../../shared/data/fvqa-mini/mini_data.parquet"}, {"mmsearch-r1", "", "", "testdata/formats/verl/infoseek/in/mini.data.parquet"},
		{"search-r1", "", "Reason first. Question: ", "testdata/formats/verl/search-r1/in/train.parquet"},
		// This sample has bad rows; what is left of it is written twice.
		{"mm-deepresearch", "Use the tools.", "Answer it. Question: ", "testdata/formats/verl/mmdr/in/MMSearch_test.parquet"},
	} {
		t.Run(c.system+"/"+filepath.Base(c.file), func(t *testing.T) {
			if _, err := os.Stat(c.file); err != nil {
				t.Skipf("%s is not here", c.file)
			}
			published := c.file
			if c.system == "mm-deepresearch" {
				published = write(t, c.file, c.system, c.message, c.prefix)
			}
			text, err := exec.Command(py, "bench/verl_check.py", c.system, published, write(t, published, c.system, c.message, c.prefix)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		})
	}
}

func equalRows(t *testing.T, what string, a, b []Question, without func(*Question)) {
	t.Helper()
	if len(a) != len(b) {
		t.Errorf("%s: %d rows, want %d", what, len(b), len(a))
		return
	}
	for i := range a {
		x, y := a[i], b[i]
		without(&x)
		without(&y)
		p, _ := json.Marshal(x)
		q, _ := json.Marshal(y)
		if !bytes.Equal(p, q) {
			t.Errorf("%s row %d:\n%s\n%s", what, i, p, q)
		}
	}
}

func TestAsRefuses(t *testing.T) {
	o := PrepOptions{Format: "verl", In: []string{"testdata/formats/verl/fvqa/in/fvqa_train.parquet"}, As: "nobody", Out: t.TempDir(), MaxRejects: 1}
	if err := prep(t, job.Flags{}, o); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "mmsearch-r1") {
		t.Error(err)
	}
	o = PrepOptions{Format: "passages", In: []string{"x"}, As: "mmsearch-r1", Out: t.TempDir()}
	if err := prep(t, job.Flags{}, o); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
}
