package train

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
)

const exampleLines = `
{"conversations": [{"from": "human", "value": "<image>what<image>?"}, {"from": "gpt", "value": "a"}, {"from": "observation", "value": "o"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, {"from": "observation", "value": "<image>seen"}, {"from": "gpt", "value": "b"}], "system": "s", "tools": "[{\"name\": \"f\"}]", "images": ["one.png", "sub/two.png", "one.png"]}
{"id": 7, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "thinking", "loss": false}, {"role": "user", "content": "q2"}, {"role": "assistant", "content": "text"}, {"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": \"{\\\"y\\\": 2}\"}"}, {"role": "tool_call", "content": "[{\"name\": \"g\"}]"}, {"role": "tool_response", "content": "r"}, {"role": "assistant", "content": "done", "weight": 1}]}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "see "}, {"type": "image_url", "image_url": {"url": "DATA"}}, {"type": "text", "text": " this <image>"}]}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]}
{"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}]}
{"messages": [{"role": "user", "content": "no mark"}, {"role": "assistant", "content": "x"}], "images": ["one.png"]}
{"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}], "images": ["missing.png"]}
{"messages": [{"role": "wizard", "content": "x"}]}
{"messages": [{"role": "user", "content": "x"}, {"role": "tool_call", "content": "not json"}]}
{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"text": "nothing"}
{"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "x"}], "images": ["http://nowhere/x.png"]}
{"messages": [{"role": "user", "content": "x"}], "videos": ["v.mp4"]}
`

func exampleFile(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	for path, data := range map[string]string{name: text, "one.png": "first", "sub/two.png": "second"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, name)
}

func TestDialogues(t *testing.T) {
	text := strings.Replace(exampleLines, "DATA", "data:image/png;base64,"+base64.StdEncoding.EncodeToString([]byte("third")), 1)
	read, _ := toyKit.pictures("")
	images := OpenPictures(read)
	rows, err := readDialogues(exampleFile(t, "x.jsonl", text), images)
	if err != nil {
		t.Fatal(err)
	}
	show := func(d *dialogue) string {
		var b strings.Builder
		for _, u := range d.turns {
			fmt.Fprintf(&b, "%s %q %d%v", u.role, u.text, len(u.images), u.at)
			if u.learn {
				b.WriteString("!")
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	for i, want := range []string{
		"system \"s\" 0[]\nuser \"what?\" 2[0 4]\nassistant \"a\" 0[]!\ntool \"o\" 0[]\nassistant \"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"x\\\": 1}}\\n</tool_call>\" 0[]!\ntool \"seen\" 1[0]\nassistant \"b\" 0[]!\n",
		"system \"s\" 0[]\nuser \"q\" 0[]\nassistant \"thinking\" 0[]\nuser \"q2\" 0[]\nassistant \"text\\n<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"y\\\": 2}}\\n</tool_call>\\n<tool_call>\\n{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {}}\\n</tool_call>\" 0[]!\ntool \"r\" 0[]\nassistant \"done\" 0[]!\n",
		"user \"see  this <image>\" 1[4]\nassistant \"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}\\n</tool_call>\" 0[]!\n",
	} {
		if rows[i].broken != nil || show(rows[i]) != want {
			t.Errorf("row %d: %v\n%swant\n%s", i+1, rows[i].broken, show(rows[i]), want)
		}
	}
	if string(rows[0].tools) != `[{"name": "f"}]` || rows[1].id != "x.jsonl:2 7" {
		t.Errorf("tools %s, id %s", rows[0].tools, rows[1].id)
	}
	for i, want := range []string{BadImages, BadImages, NoImage, NotRendered, NotRendered, NotRendered, NotRendered, NoImage, NotRendered} {
		if r := rows[3+i].broken; r == nil || r.Reason != want {
			t.Errorf("row %d: %v, want %s", 4+i, r, want)
		}
	}
	// The images are read as others are.
	for _, u := range rows[0].turns {
		for _, id := range u.images {
			if _, err := images.Grid(id); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := images.Grid(rows[2].turns[0].images[0]); err != nil {
		t.Error(err)
	}
	// A list reads as lines do.
	var list []json.RawMessage
	for l := range strings.Lines(strings.TrimSpace(text)) {
		list = append(list, json.RawMessage(l))
	}
	joined, _ := json.Marshal(list)
	again, err := readDialogues(exampleFile(t, "x.json", string(joined)), OpenPictures(read))
	if err != nil || len(again) != len(rows) || show(again[1]) != show(rows[1]) {
		t.Errorf("%d rows, %v", len(again), err)
	}
	for name, bad := range map[string]string{"empty": "", "cut": string(joined[:len(joined)-1]), "cut inside": string(joined[:40]), "text": "hello", "half a line": exampleLines[:100]} {
		if _, err := readDialogues(exampleFile(t, "bad.json", bad), OpenPictures(read)); kindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Examples are learned like trajectories, with the same masks.
func TestSFTFromExamples(t *testing.T) {
	w := newLessons(t, t.TempDir(), 4, nil)
	var text strings.Builder
	for i := range 12 {
		fmt.Fprintf(&text, `{"messages": [{"role": "user", "content": "%d"}, {"role": "assistant", "content": "%d", "loss": %v}, {"role": "user", "content": "%d"}, {"role": "assistant", "content": "%d"}]}`+"\n",
			i%5, (i+1)%5, i%2 == 0, i%4, (i+1)%4)
	}
	text.WriteString(`{"messages": [{"role": "user", "content": "a letter"}, {"role": "assistant", "content": "1"}]}` + "\n")
	o := w.lessons("out")
	o.Rollouts, o.Judged, o.Examples = "", "", []string{exampleFile(t, "x.jsonl", text.String())}
	if err := sft(context.Background(), toyRun(t, "sft.epochs=12"), o, toyKit); err != nil {
		t.Fatal(err)
	}
	s, raw := readStats(t, o.Out)
	tokens := raw["trained_tokens"].(map[string]any)
	if s.TrainedRows != 12 || s.Refused[NotRendered] != 1 || tokens["min"].(float64) != 2 || tokens["max"].(float64) != 4 {
		t.Errorf("%v", raw)
	}
	rejects, _ := os.ReadFile(filepath.Join(o.Out, rejectsName))
	if !strings.Contains(string(rejects), `"row":13`) || !strings.Contains(string(rejects), "x.jsonl") {
		t.Errorf("%s", rejects)
	}
	ls := lines(t, o.Out)
	if first, last := num(t, ls[0], "loss"), num(t, ls[len(ls)-1], "loss"); last > first/2 {
		t.Errorf("the loss went from %.3f to %.3f", first, last)
	}
	// Both together.
	o = w.lessons("both")
	o.Examples = []string{exampleFile(t, "x.jsonl", text.String())}
	if err := sft(context.Background(), toyRun(t), o, toyKit); err != nil {
		t.Fatal(err)
	}
	if s, _ = readStats(t, o.Out); s.TrainedRows != 16 {
		t.Errorf("%d rows", s.TrainedRows)
	}
	o.Rollouts, o.Examples, o.Out = "", nil, w.at("none")
	if err := sft(context.Background(), toyRun(t), o, toyKit); kindOf(err) != fail.Usage {
		t.Errorf("%v", err)
	}
}

// Through the real template: images in the middle of a text, tool results, and
// what is trained.
func TestExampleThroughTemplate(t *testing.T) {
	dir := t.TempDir()
	qwenFolder(t, dir, 3)
	render, _, err := qwenRenderer(dir)
	if err != nil {
		t.Fatal(err)
	}
	read, err := qwenPictures(dir)
	if err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	if err := os.WriteFile(filepath.Join(store, "e.png"), []byte(emblem(t, 0)), 0o666); err != nil {
		t.Fatal(err)
	}
	text := `{"messages": [{"role": "user", "content": "look <image> here"}, {"role": "assistant", "content": "yes"}], "images": ["e.png"]}`
	if err := os.WriteFile(filepath.Join(store, "x.jsonl"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	images := OpenPictures(read)
	rows, err := readDialogues(filepath.Join(store, "x.jsonl"), images)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := LoadQwen(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	l := lessonReader{render: render, images: images, grids: map[string][3]int32{}, check: Checker{Traits: policy.Traits(), Budget: 1000}}
	s, refusal := l.example(rows[0])
	if refusal != nil {
		t.Fatal(refusal)
	}
	want, err := render([]chat.Message{{Role: "user", Text: "look  here", Images: []chat.Image{{Grid: s.Images[0].Grid, Merge: 2}}, At: []int{5}}, {Role: "assistant", Text: "yes"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Tokens, want.IDs) || len(s.Spans) != 1 || s.Trained != 4 || int(s.Spans[0].From) != want.Spans[1].From {
		t.Errorf("%+v", s)
	}
}
