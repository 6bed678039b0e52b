package corpus

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	parquetgo "github.com/parquet-go/parquet-go"

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

// TestOptionByPlace reads answers that are places among the options, with the
// mapping inside a benchmark's file.
func TestOptionByPlace(t *testing.T) {
	dir := t.TempDir()
	bench, in := filepath.Join(dir, "bench.yaml"), filepath.Join(dir, "rows.jsonl")
	os.WriteFile(bench, []byte("name: b\nmetric: choice\nmapping:\n  id_prefix: b_\n  question: [q]\n  options: [o]\n  answers: [a]\n  answer_is: index\n"), 0o600)
	os.WriteFile(in, []byte(`{"q":"Which?","o":["1","0"],"a":"1"}`+"\n"+`{"q":"Which?","o":["x","y"],"a":"2"}`+"\n"+`{"q":"Which?","o":["x","y"],"a":"y"}`+"\n"), 0o600)
	o := PrepOptions{Format: "map", MapFile: bench, In: []string{in}, Out: filepath.Join(dir, "out"), MaxRejects: 1}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	rows := rowsOfDataset[Question](t, o.Out)
	if len(rows) != 1 || rows[0].ID != "b_0" || rows[0].Answers[0] != "0" || !slices.Contains(rows[0].Answers, "B") {
		t.Errorf("%+v", rows)
	}
	os.WriteFile(bench, []byte("mapping: {question: [q], answers: [a], answer_is: letter}\n"), 0o600)
	o.Out = filepath.Join(dir, "other")
	if err := prep(t, job.Flags{}, o); fail.KindOf(err) != fail.Usage {
		t.Errorf("answer_is: letter: %v", err)
	}
}

// recipeFile writes a recipe with such mappings.
func recipeFile(t *testing.T, mappings string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mine.yaml")
	text := "name: mine\nsampling: {train: {n: 1}, eval: {n: 1}}\nprotocol: {user_prefix: 'Question: '}\nmappings:\n" + mappings
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRecipeMapping reads a benchmark that only the recipe knows, by its name.
func TestRecipeMapping(t *testing.T) {
	mine := recipeFile(t, "  my-bench:\n    doc: what we ask\n    from: our shelf\n    question: [ask]\n    answers: [right]\n    id: [no]\n    split_is: test\n")
	csv := filepath.Join(t.TempDir(), "rows.csv")
	os.WriteFile(csv, []byte("no,ask,right\r\n7,Why?,because\r\n"), 0o600)
	jsonl := filepath.Join(t.TempDir(), "rows.jsonl")
	os.WriteFile(jsonl, []byte(`{"no":7,"ask":"Why?","right":["because"]}`+"\n"), 0o600)
	parquet := filepath.Join(t.TempDir(), "rows.parquet")
	rows := []struct {
		No    int64  `parquet:"no"`
		Ask   string `parquet:"ask"`
		Right string `parquet:"right"`
	}{{7, "Why?", "because"}}
	if err := parquetgo.WriteFile(parquet, rows); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{csv, jsonl, parquet} {
		o := PrepOptions{Format: "my-bench", In: []string{in}, Out: t.TempDir()}
		if err := prep(t, job.Flags{RecipePath: mine}, o); err != nil {
			t.Fatal(in, err)
		}
		got := rowsOfDataset[Question](t, o.Out)
		if len(got) != 1 {
			t.Fatalf("%s: %d rows", in, len(got))
		}
		q := got[0]
		if q.ID != "7" || q.Text != "Why?" || !slices.Equal(q.Answers, []string{"because"}) || q.Split != "test" || q.DataSource != "my-bench" || q.Prompt[0].Content != "Question: Why?" {
			t.Errorf("%s: %+v", in, q)
		}
	}
	r := job.Testing(t)
	var list bytes.Buffer
	r.RecipePath, r.Out = mine, &list
	if err := Prep(t.Context(), r, PrepOptions{List: true}); err != nil || !strings.Contains(list.String(), "what we ask") ||
		!strings.Contains(list.String(), "ask, right; no") || !strings.Contains(list.String(), "our shelf") {
		t.Errorf("%v\n%s", err, &list)
	}

	for name, c := range map[string]struct{ format, mappings, says string }{
		"hides ours":     {"verl", "  verl: {question: [q], answers: [a]}\n", "another name"},
		"unknown":        {"your-bench", "  my-bench: {question: [q], answers: [a]}\n", "of the recipe are my-bench"},
		"misspelt field": {"my-bench", "  my-bench: {question: [q], answer: [a]}\n", "answer"},
		"no answers":     {"my-bench", "  my-bench: {question: [q]}\n", "mappings.my-bench"},
	} {
		o := PrepOptions{Format: c.format, In: []string{csv}, Out: filepath.Join(t.TempDir(), "out")}
		if err := prep(t, job.Flags{RecipePath: recipeFile(t, c.mappings)}, o); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
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
