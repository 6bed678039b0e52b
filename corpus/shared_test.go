package corpus

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// shared gives a file of the real inputs that lie beside the repository.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not here", path)
	}
	return path
}

func prepShared(t *testing.T, o PrepOptions) (out string, counts manifest.Counts) {
	t.Helper()
	o.Out, o.MaxRejects = t.TempDir(), 0.1
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	checkStore(t, o.Out)
	return o.Out, m.Counts
}

// TestInfoSeek reads FVQA/InfoSeek rows as verl stores them.
func TestInfoSeek(t *testing.T) {
	out, counts := prepShared(t, PrepOptions{Format: "verl", In: []string{shared(t, "fvqa-mini/mini_data.parquet")}})
	if counts != (manifest.Counts{In: 5, OK: 5}) {
		t.Error(counts)
	}
	rows := rowsOfDataset[Question](t, out)
	s, _ := OpenStore(filepath.Join(out, "images"))
	for i, size := range []int{56490, 160269, 101236, 70668, 59180} {
		data, err := s.Get(rows[i].ImageIDs[0])
		if err != nil || len(data) != size || imageExt(data) != ".jpg" {
			t.Errorf("image %d has %d bytes, want %d: %v", i, len(data), size, err)
		}
	}
	q := rows[0]
	if q.ID != "mini_data_0" || q.Text != "What is the country of origin of this food?" || q.DataSource != "mmsearch_r1/infoseek_train_split" || q.Split != "train" {
		t.Errorf("%+v", q)
	}
	if want := `["Kingdom of Spain","ESP","🇪🇸","ES","Spain"]`; q.RewardModel.CandidateAnswers != want {
		t.Error(q.RewardModel.CandidateAnswers)
	}
	if want := []string{"Spain", "Kingdom of Spain", "ESP", "🇪🇸", "ES"}; !slices.Equal(q.Answers, want) {
		t.Error(q.Answers)
	}
}

func TestLiveVQA(t *testing.T) {
	out, counts := prepShared(t, PrepOptions{Format: "livevqa", In: []string{shared(t, "livevqa-news/benchmark.json")}})
	if counts != (manifest.Counts{In: 192, OK: 192}) {
		t.Error(counts)
	}
	levels, images := map[string]int{}, map[string]bool{}
	for _, q := range rowsOfDataset[Question](t, out) {
		levels[q.Category]++
		images[q.ImageIDs[0]] = true
		if !strings.HasSuffix(q.ID, "_"+q.Category) || !strings.Contains(q.Text, "\n\nA. ") || len(q.Answers) < 3 || q.Split != "test" {
			t.Errorf("%+v", q)
		}
	}
	if levels["level1"] != 96 || levels["level2"] != 96 || len(images) != 96 {
		t.Error(levels, len(images))
	}
	first := rowsOfDataset[Question](t, out)[0]
	if first.ID != "livevqa_0_20250507201753398216_level1" || first.Answers[0] != "Origami figures" || !slices.Contains(first.Answers, "A") {
		t.Errorf("%+v", first)
	}
}

func TestCranfield(t *testing.T) {
	docs := shared(t, "cranfield/cran.all.1400")
	out, counts := prepShared(t, PrepOptions{Format: "cranfield", In: []string{docs}})
	if counts != (manifest.Counts{In: 1400, OK: 1398, Rejected: 2}) { // 471 and 995 are empty
		t.Error(counts)
	}
	rows := rowsOfDataset[Passage](t, out)
	if p := rows[0]; p.ID != "1" || !strings.HasPrefix(p.Contents, "\"experimental investigation of the aerodynamics of a wing in a slipstream .\"\nexperimental") {
		t.Errorf("%+v", p)
	}
	if p := rows[len(rows)-1]; p.ID != "1400" || !strings.HasSuffix(p.Contents, "graphical forms .") {
		t.Errorf("%+v", p)
	}
	in := []string{shared(t, "cranfield/cran.qry"), shared(t, "cranfield/cranqrel")}
	out, counts = prepShared(t, PrepOptions{Format: "cranfield", What: Questions, In: in})
	if counts != (manifest.Counts{In: 225, OK: 225}) {
		t.Error(counts)
	}
	questions := rowsOfDataset[Question](t, out)
	if q := questions[2]; q.ID != "cranfield_3" || q.Meta != `{"number":"004"}` || q.Text[:4] != "what" {
		t.Errorf("%+v", q)
	}
	text, err := os.ReadFile(filepath.Join(out, "qrels.tsv"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 1838 || lines[0] != "query-id\tcorpus-id\tscore" || !slices.Contains(lines, "cranfield_1\t184\t3") || !slices.Contains(lines, "cranfield_225\t1188\t4") {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

func TestTextCorpus(t *testing.T) {
	out, counts := prepShared(t, PrepOptions{Format: "passages", In: []string{shared(t, "text-corpus/search-r1-example.jsonl")}})
	if counts != (manifest.Counts{In: 10, OK: 10}) {
		t.Error(counts)
	}
	if p := rowsOfDataset[Passage](t, out)[0]; p.ID != "0" || !strings.HasPrefix(p.Contents, "\"Evan Morris\"\nEvan Morris Evan L. Morris (January 26, 1977 – July 9, 2015)") {
		t.Errorf("%+v", p)
	}
}
