package vqa

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/corpus"
	"searchloop/internal/budget"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/job/jobtest"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/table"
	"searchloop/rollout"
	"searchloop/rollout/judge"
	"searchloop/rollout/trajectory"
	"searchloop/synth/lesson"
)

// chains are the photographs of the test, one a line: what fails, where the question
// then ends, and with which reason: the count by hand. Failures of boxes are told by
// the image's concept, those of hits, links and questions by a line of the page.
var chains = []struct{ fails, stage, reason string }{
	{"", StageKept, ""},            // box from the file; only the wider crop is the whole photograph
	{"boxes ", StageKept, ""},      // box from the writer
	{"second spot", StageKept, ""}, // the first box shows something else
	{"", StageKept, ""},
	{"boxes refuse", StageBoxes, "refusal"},
	{"boxes prose", StageBoxes, "JSON in prose"},
	{"boxes empty", StageBoxes, "empty reply"},
	{"boxes outside", StageBoxes, "no usable box"},
	{"boxes chinese", StageBoxes, "no usable box"},
	{"other", StageFound, "no hit shows what the image shows"},
	{"same mumble", StageFound, "no verdict"},
	{"same refuse", StageFound, "refusal"},
	{"entity invent", StageFound, "the name is not in the page"},
	{"entity skip", StageFound, "the page does not name it"},
	{"entity prose", StageFound, "JSON in prose"},
	{"no page", StagePage, "no page of the concept"},
	{"link refuse", StageLinked, "refusal"},
	{"link prose", StageLinked, "JSON in prose"},
	{"link invent", StageLinked, "the entity is not in the page"},
	{"link names", StageLinked, "the description names what it describes"},
	{"orphan", StageLinked, "no page of the next entity"},
	{"circle", StageLinked, "the chain goes in a circle"},
	{"foreign", StageForm, "wrong language"},
	{"invent", StageGrounded, "answer not in the page"},
	{"stubborn", StageFolded, "the name is still there"},
	{"forgetful", StageFolded, "the description was lost"},
	{"early", StageFolded, "an earlier page has the answer"},
	{"plain", StageSight, "answered without a page"},
	{"ambiguous", StageUnique, "more than one answer"},
	{"broken", StageImage, "the image cannot be read"},
}

const photographs = 12 // of which the first are each of one chain, since kept questions with one picture are compared

// newVision is a list of images, a gallery and pages, with a chain of three entities
// behind each image.
func newVision(t *testing.T) *scene {
	t.Helper()
	all, photos := liveVQA(t)
	w := &scene{t: t, dir: t.TempDir()}
	store, err := corpus.OpenStore(filepath.Join(w.dir, "gallery", "images"))
	must(t, err)
	var concepts []string
	var pages, pictures []corpus.Passage
	n := len(chains)
	for i, c := range chains {
		photo := i
		if i >= 4 {
			photo = 4 + i%(photographs-4)
		}
		file := filepath.Join(w.dir, fmt.Sprintf("%d.jpg", photo))
		if _, err := os.Stat(file); err != nil {
			must(t, os.WriteFile(file, quarter(t, filepath.Join(photos, all[photo].Image)), 0o600))
		}
		data, err := os.ReadFile(file)
		must(t, err)
		sha, err := store.Put(data)
		must(t, err)
		first, second, third := name(i), name(n+i), name(2*n+i)
		script := func(prefix string) string {
			if strings.HasPrefix(c.fails, prefix) {
				return "\nScript: " + c.fails
			}
			return ""
		}
		hit := "A sight of " + first + fmt.Sprintf("\nnumber k%d", i) + script("same") + script("entity")
		pictures = append(pictures, corpus.Passage{ID: fmt.Sprint("https://pictures.example/", i), Contents: hit, ImageID: sha})
		concept := map[string]any{"id": fmt.Sprint("v", i), "image": file, "licence": "MIT", "boxes": []any{map[string]any{"box": []int{250, 250, 750, 750}, "what": fmt.Sprintf("the sight k%d", i)}}}
		description := "the neighbour of "
		last := fmt.Sprintf("%q\nQ: What does %s keep?\nA: the %s treasure\n", third, third, strings.ToLower(third))
		target := second
		switch c.fails {
		case "second spot":
			concept["boxes"] = []any{[]int{0, 0, 300, 300}, concept["boxes"].([]any)[0]}
		case "other":
			concept["boxes"] = []any{map[string]any{"box": []int{250, 250, 750, 750}, "what": "the sight of something"}}
		case "broken":
			concept["image"] = filepath.Join(w.dir, "broken.jpg")
			must(t, os.WriteFile(concept["image"].(string), []byte("\xff\xd8\xff\xe0 no picture"), 0o600))
		case "orphan":
			target = "Nobody"
		case "stubborn", "forgetful":
			description = "the " + c.fails + " neighbour of "
		case "plain":
			last = strings.Replace(last, "What does "+third+" keep?", "What of "+third+" can be seen plainly?", 1)
			last = strings.Replace(last, "A: the "+strings.ToLower(third)+" treasure", "A: everything", 1)
		case "foreign", "invent", "ambiguous":
			last += "Script: " + c.fails + "\n"
		}
		if mode, ok := strings.CutPrefix(c.fails, "boxes "); ok {
			delete(concept, "boxes")
			concept["concept"] = strings.TrimSpace(fmt.Sprintf("%s k%d", mode, i))
		}
		text, err := json.Marshal(concept)
		must(t, err)
		concepts = append(concepts, string(text))
		start := fmt.Sprintf("%q\n%s lies among hills.\nL: %s | %s%s%s\n", first, first, target, description, first, script("link"))
		if c.fails == "early" {
			start += "It is where the " + strings.ToLower(third) + " treasure was made.\n"
		}
		middle := fmt.Sprintf("%q\n%s lies at the sea.\nL: %s | the harbour beside %s\n", second, second, third, second)
		if c.fails == "circle" {
			middle = fmt.Sprintf("%q\n%s lies at the sea.\nL: %s | the harbour beside %s\n", second, second, first, second)
		}
		for k, p := range []string{start, middle, last} {
			if k > 0 || c.fails != "no page" {
				pages = append(pages, corpus.Passage{ID: fmt.Sprintf("https://pages.example/%d/%d", i, k), Contents: p})
			}
		}
	}
	w.o.Concepts = filepath.Join(w.dir, "images.jsonl")
	must(t, os.WriteFile(w.o.Concepts, []byte(strings.Join(concepts, "\n")+"\n"), 0o600))
	w.o.TextIndex = w.index("pages", pages)
	w.o.Gallery = jobtest.Dataset(t, filepath.Join(w.dir, "gallery"), corpus.Passages, 1, pictures...)
	w.o.Out = filepath.Join(w.dir, "out")
	w.recipe = "synth-vision"
	w.serve()
	return w
}

// quarter is a photograph in a quarter of its size, since the test looks at it often.
func quarter(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	p, err := picture.Decode(data)
	must(t, err)
	data, err = p.Resize(p.H/4, p.W/4).JPEG(90)
	must(t, err)
	return data
}

var visionSet = []string{"synth.image_pixels=50176", "synth.scales=[100, 200]", "tools=[{name: search, kind: text_search, topk: 5, format: links}, {name: crop_and_search, topk: 5}]"}

// The chain behind photographs of LiveVQA: the funnel is the one counted by hand.
func TestChains(t *testing.T) {
	w := newVision(t)
	must(t, w.run(w.o, visionSet...))
	want, got := map[string]int{}, map[string]int{}
	for _, c := range chains {
		want[c.stage+": "+c.reason]++
	}
	for i, o := range outcomes(t, w.o.Out) {
		got[o.Stage+": "+o.Reason]++
		if c := chains[i]; o.Stage != c.stage || o.Reason != c.reason {
			t.Errorf("%s (%s): %s: %s (%s), want %s: %s", o.Key, c.fails, o.Stage, o.Reason, o.Detail, c.stage, c.reason)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var f Funnel
	text, err := os.ReadFile(filepath.Join(w.o.Out, FunnelFile))
	must(t, err)
	must(t, json.Unmarshal(text, &f))
	// 30 in; 1 broken image; 5 without boxes; 6 not found; 1 without a page; 6 that lead
	// nowhere; 0 not written; 1 of bad form; 1 invented; 3 not folded; 0 that tell too
	// much or are known; 1 seen; 1 not unique.
	var passed []int
	for _, s := range f.Passed {
		passed = append(passed, s.N)
	}
	if !slices.Equal(passed, []int{29, 24, 18, 17, 11, 11, 10, 9, 6, 6, 6, 5, 4, 4, 4, 4}) || f.Kept != 4 || f.In != 30 {
		t.Errorf("%v %+v", passed, f)
	}
	n := 0
	for row, err := range table.ReadDataset[Row](w.o.Out) {
		must(t, err)
		n++
		w.rightChain(&row)
	}
	m, err := manifest.Open(w.o.Out)
	must(t, err)
	if asked := w.writer.Requests() + w.checker.Requests(); n != 4 || m.Usage.Requests != int64(asked) {
		t.Errorf("%d rows, %d requests told of, %d made", n, m.Usage.Requests, asked)
	}

	w.teach()

	// A budget stops it; with a higher one it goes on, to the bytes of a run that was
	// never stopped.
	first, o := part(t, w.o.Out), w.o
	o.Out, o.Limits.Requests = filepath.Join(w.dir, "stopped"), 60
	if err := w.run(o, visionSet...); fail.ExitCode(err) != 69 || !strings.Contains(err.Error(), "budget is used up") {
		t.Fatal(err)
	}
	before := w.writer.Requests() + w.checker.Requests()
	o.Limits.Requests = 0
	must(t, w.run(o, visionSet...))
	if n := w.writer.Requests() + w.checker.Requests() - before; n >= int(m.Usage.Requests) {
		t.Errorf("%d requests after the budget was raised, of %d in all", n, m.Usage.Requests)
	}
	if !bytes.Equal(first, part(t, o.Out)) {
		t.Error("other bytes")
	}
}

// teach has a text model go on from the looks of kept questions, judges, and chooses:
// of four one is right, one wrong, one of bad form, one never ends.
func (w *scene) teach() {
	t := w.t
	with := func(recipe string, set ...string) *job.Run {
		r := job.Testing(t)
		r.RecipePath, r.Set = "../../pipelines/recipes/"+recipe+".yaml", set
		return r
	}
	limited := []string{"sampling.eval.n=1", "protocol.max_tool_calls=27", "rollout.price=10", "rollout.prompt_price=1"}
	o := rollout.Options{Questions: w.o.Out, TextIndex: w.o.TextIndex, Pages: []string{filepath.Join(w.dir, "pages")}, Script: "researcher", Mode: rollout.Eval, Run: "r", Out: filepath.Join(w.dir, "rollouts")}
	o.Limits.Requests = 40
	if err := rollout.Run(t.Context(), with("vision-deepresearch-bridge", limited...), o); fail.ExitCode(err) != 69 || !strings.Contains(err.Error(), "budget is used up") {
		t.Fatal(err)
	}
	o.Limits = budget.Limits{Tokens: 1 << 30}
	must(t, rollout.Run(t.Context(), with("vision-deepresearch-bridge", limited...), o))
	judged := filepath.Join(w.dir, "judged")
	must(t, judge.Run(t.Context(), with("vision-deepresearch-bridge", limited...), judge.Options{Rollouts: o.Out, Out: judged}))
	lessons := filepath.Join(w.dir, "lessons")
	must(t, lesson.Run(t.Context(), with("synth-vision"), lesson.Options{Rollouts: o.Out, Judged: judged, Images: []string{filepath.Join(w.o.Out, "images")}, Out: lessons}))

	m, err := manifest.Open(o.Out)
	must(t, err)
	if m.Usage.Cost <= 0 || m.Usage.Requests < 90 {
		t.Errorf("%+v", m.Usage)
	}
	var rows []trajectory.Row
	for row, err := range trajectory.Rollouts(lessons) {
		must(t, err)
		rows = append(rows, row)
	}
	rejects, err := os.ReadFile(filepath.Join(lessons, "rejects-00000-of-00001.jsonl"))
	must(t, err)
	for _, why := range []string{`"wrong"`, "bad form: turn", "truncated: tool calls exhausted"} {
		if strings.Count(string(rejects), why) != 1 {
			t.Errorf("%s: not once in %s", why, rejects)
		}
	}
	if len(rows) != 1 {
		t.Fatalf("%d chosen: %s", len(rows), rejects)
	}
	row := rows[0]
	policy := 0
	for _, turn := range row.Turns {
		if turn.Role == "assistant" {
			policy++
		}
	}
	// System and user, the looks with their observations, then dozens of turns.
	if u := row.Turns[1]; policy < 25 || row.Turns[0].Role != "system" || u.Role != "user" || len(u.Images) != 1 || !strings.HasPrefix(u.Text, "image_id: 1\nQuestion: ") ||
		row.Turns[2].Call != "crop_and_search" || !strings.Contains(row.Turns[3].Text, "A sight of ") || len(row.TokenIDs) != 0 || row.Policy == "" || row.Seed == 0 {
		t.Errorf("%d turns: %+v", policy, row.Turns[:4])
	}
	for _, turn := range row.Turns {
		if strings.Contains(turn.Text, "You do not see the image") {
			t.Error("the row has what only the text model read")
		}
	}
	for _, form := range []string{lesson.ShareGPT, lesson.Swift} {
		text, err := os.ReadFile(filepath.Join(lessons, form+"-00000-of-00001.jsonl"))
		must(t, err)
		if strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), "<image>image_id: 1") || !strings.Contains(string(text), `"images":["images/`) || !strings.Contains(string(text), `\"name\":\"crop_and_search\"`) {
			t.Errorf("%s: %.600s", form, text)
		}
	}
}

// rightChain checks a kept question: its looks, its chain, its words, how it was made.
func (w *scene) rightChain(row *Row) {
	t, s := w.t, row.Synth
	var i int
	_, err := fmt.Sscanf(s.ConceptID, "v%d", &i)
	must(t, err)
	first, second, third := name(i), name(len(chains)+i), name(2*len(chains)+i)
	if s.Concept != first || len(s.Hops) != 2 || s.Hops[0].Entity != second || s.Hops[1].Entity != third || row.Answers[0] != "the "+strings.ToLower(third)+" treasure" {
		t.Errorf("%s: %+v", row.ID, s)
	}
	if want := fmt.Sprintf("What does the harbour beside the neighbour of the thing in the image: the sight k%d keep?", i); row.Text != want {
		t.Errorf("%s: %s", row.ID, row.Text)
	}
	looks := 1
	if chains[i].fails == "second spot" {
		looks = 2
	}
	if len(s.Looks) != looks {
		t.Fatalf("%s: %d looks", row.ID, len(s.Looks))
	}
	l := s.Looks[looks-1]
	if l.Found != first || len(l.Boxes) != 2 || l.Boxes[0] != (corpus.LookBox{Left: 250, Top: 250, Right: 750, Bottom: 750, Scale: 100}) || l.Boxes[1] != (corpus.LookBox{Right: 1000, Bottom: 1000, Scale: 200}) {
		t.Errorf("%s: %+v", row.ID, l)
	}
	if !strings.Contains(l.Turn, `"bbox":[[250,250,750,750],[0,0,1000,1000]]`) || !strings.Contains(l.Observation, "[A sight of "+first+"](https://pictures.example/") {
		t.Errorf("%s: %s\n%s", row.ID, l.Turn, l.Observation)
	}
	if h := l.Hits[len(l.Hits)-1]; !h.Same || h.Box != 1 || h.Score < 0.99 {
		t.Errorf("%s: %+v", row.ID, l.Hits)
	}
	// At least a verdict, a name, two links, the question, three folds, four checks.
	if len(s.Made) < 12 {
		t.Errorf("%s: %d requests", row.ID, len(s.Made))
	}
	for _, m := range s.Made {
		if m.Model == "" || m.Prompt == "" || m.Seed == 0 || m.Reply == "" {
			t.Errorf("%s: %+v", row.ID, m)
		}
	}
}
