package corpus

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// TestMapping reads a benchmark that no code knows, from three kinds of file.
func TestMapping(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "pics"), 0o777)
	os.WriteFile(filepath.Join(dir, "pics", "a.png"), pngOf(3), 0o600)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		os.WriteFile(path, []byte(text), 0o600)
		return path
	}
	csv := file("rows.csv", "no,lang,ask,right,A pic,\"level, of\"\r\n1,en,\"Which \"\"one\"\"?\",\"['x' 'y']\",pics/a.png,hard\r\n2,de,Was?,z,,easy\r\n3,en,cut\r\n4,en,Why?,because,,\n")
	jsonl := file("rows.jsonl", `{"no":1,"lang":"en","ask":"Which \"one\"?","right":["x","y"],"A pic":"pics/a.png","level, of":"hard"}`+"\n"+
		`{"no":2,"lang":"de","ask":"Was?","right":"z"}`+"\n[1]\n"+`{"no":4,"lang":"en","ask":"Why?","right":"because"}`+"\n")
	yaml := file("map.yaml", "id: [no]\nid_prefix: q_\nquestion: [ask]\nanswers: [right]\nimages: [A pic]\ncategory: ['level, of']\nkeep: {lang: [en]}\nsplit_is: test\ndata_source_is: new\nmeta: [lang]\n")
	for _, in := range []string{csv, jsonl} {
		o := PrepOptions{Format: "map", MapFile: yaml, In: []string{in}, Out: t.TempDir(), MaxRejects: 1}
		if err := prep(t, job.Flags{}, o); err != nil {
			t.Fatal(err)
		}
		rows := rowsOfDataset[Question](t, o.Out)
		if len(rows) != 2 {
			t.Fatalf("%s: %d rows", in, len(rows))
		}
		q := rows[0]
		if q.ID != "q_1" || q.Text != `Which "one"?` || !slices.Equal(q.Answers, []string{"x", "y"}) || len(q.ImageIDs) != 1 || q.Category != "hard" ||
			q.Split != "test" || q.DataSource != "new" || q.Meta != `{"lang":"en"}` {
			t.Errorf("%s: %+v", in, q)
		}
		if q := rows[1]; q.ID != "q_4" || q.Answers[0] != "because" || len(q.ImageIDs) != 0 {
			t.Errorf("%s: %+v", in, q)
		}
	}
	// The same by flags, and an option's letter as the answer.
	in := file("choice.jsonl", `{"q":{"text":"Which?"},"opts":["Red","B. Blue"],"key":"B"}`+"\n"+`{"q":{"text":"Which?"},"opts":["Red","Blue"],"key":"Blue"}`+"\n"+`{"q":{"text":"Which?"},"opts":["Red","Blue"],"key":"C"}`+"\n")
	o := PrepOptions{Format: "map", Map: []string{"question=q.text", "options=opts", "answers=key"}, In: []string{in}, Out: t.TempDir(), MaxRejects: 1}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	rows := rowsOfDataset[Question](t, o.Out)
	if len(rows) != 2 || rows[0].Text != "Which?\n\nA. Red\nB. Blue" || !slices.Equal(rows[0].Answers, []string{"Blue", "B. Blue", "B"}) || !slices.Equal(rows[1].Answers, rows[0].Answers) || rows[0].ID != "choice_0" {
		t.Errorf("%+v", rows)
	}
}

func TestMappingRefuses(t *testing.T) {
	in := filepath.Join(t.TempDir(), "rows.csv")
	os.WriteFile(in, []byte("a,b\n1,2\n"), 0o600)
	bad := filepath.Join(t.TempDir(), "map.yaml")
	os.WriteFile(bad, []byte("qestion: [a]\n"), 0o600)
	for name, c := range map[string]struct {
		o    PrepOptions
		kind fail.Kind
		says string
	}{
		"no answers": {PrepOptions{Format: "map", Map: []string{"question=a"}}, fail.Usage, "--map answers="},
		"no field":   {PrepOptions{Format: "map", Map: []string{"qestion=a"}}, fail.Usage, "qestion"},
		"no column":  {PrepOptions{Format: "map", Map: []string{"question=c", "answers=b"}}, fail.BadInput, "the columns are a, b"},
		"bad file":   {PrepOptions{Format: "map", MapFile: bad}, fail.BadInput, bad},
		"no format":  {PrepOptions{Format: "jsonl", Map: []string{"question=a"}}, fail.Usage, "--format map"},
		"bad keep":   {PrepOptions{Format: "map", Map: []string{"question=a", "answers=b"}, Keep: []string{"x"}}, fail.Usage, "--keep x"},
	} {
		c.o.In, c.o.Out = []string{in}, filepath.Join(t.TempDir(), "out")
		if err := prep(t, job.Flags{}, c.o); fail.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
