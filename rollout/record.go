package rollout

import (
	"encoding/json"
	"math"
	"strconv"

	"searchloop/internal/jsonscan"
	"searchloop/rollout/trajectory"
)

// record is a journal payload: JSON with the names of the fields, which encoding/json
// reads.
type record struct {
	Row  trajectory.Row
	Time timing
}

// append writes a record. By reflection it would take longer than all else that a
// trajectory does between two calls.
func (r *record) append(b []byte) ([]byte, error) {
	w := fields{b: b}
	w.open(`{"Row":{`)
	row := &r.Row
	w.text("ID", row.ID)
	w.text("Run", row.Run)
	w.whole("Epoch", int64(row.Epoch))
	w.text("Question", row.Question)
	w.whole("Sample", int64(row.Sample))
	w.text("Group", row.Group)
	w.text("DataSource", row.DataSource)
	w.text("Category", row.Category)
	w.text("Text", row.Text)
	w.texts("Answers", row.Answers)
	w.text("Status", row.Status)
	w.text("Why", row.Why)
	w.text("Answer", row.Answer)
	w.truth("HasAnswer", row.HasAnswer)
	list(&w, "Turns", row.Turns, func(t *trajectory.Turn) {
		w.open("{")
		w.text("Role", t.Role)
		w.text("Text", t.Text)
		w.texts("Images", t.Images)
		w.text("Call", t.Call)
		w.text("Args", t.Args)
		w.text("Error", t.Error)
		w.whole("Tokens", int64(t.Tokens))
		w.text("Finish", t.Finish)
		if len(t.Sources) > 0 {
			list(&w, "Sources", t.Sources, func(s *trajectory.Source) {
				w.open("{")
				w.text("Provider", s.Provider)
				w.text("URL", s.URL)
				w.text("Time", s.Time)
				w.text("SHA256", s.SHA256)
				w.b = append(w.b, '}')
			})
		}
		w.b = append(w.b, '}')
	})
	list(&w, "TokenIDs", row.TokenIDs, func(id *int32) { w.b = strconv.AppendInt(w.b, int64(*id), 10) })
	list(&w, "LossMask", row.LossMask, func(m *bool) { w.b = strconv.AppendBool(w.b, *m) })
	list(&w, "Logprobs", row.Logprobs, func(p *float32) { w.float(float64(*p), 32) })
	w.text("LogprobMode", row.LogprobMode)
	list(&w, "Images", row.Images, func(i *trajectory.Image) {
		w.open("{")
		w.text("ID", i.ID)
		w.whole("GridT", int64(i.GridT))
		w.whole("GridH", int64(i.GridH))
		w.whole("GridW", int64(i.GridW))
		w.whole("Offset", int64(i.Offset))
		w.b = append(w.b, '}')
	})
	if row.TokenSource != "" {
		w.text("TokenSource", row.TokenSource)
	}
	w.number("Temperature", float64(row.Temperature), 32)
	w.number("TopP", float64(row.TopP), 32)
	w.whole("TopK", int64(row.TopK))
	w.whole("Seed", row.Seed)
	w.text("Policy", row.Policy)
	w.text("Recipe", row.Recipe)
	w.b = append(w.b, '}')
	w.name("Time")
	w.open("{")
	tm := &r.Time
	w.text("id", tm.ID)
	w.number("seconds", tm.Seconds, 64)
	w.number("policy_seconds", tm.Policy, 64)
	w.number("tool_seconds", tm.Tools, 64)
	w.whole("turns", int64(tm.Turns))
	w.whole("policy_calls", int64(tm.Calls))
	w.whole("prompt_tokens", tm.Prompt)
	if tm.Cost != 0 {
		w.number("cost", tm.Cost, 64)
	}
	return append(w.b, "}}"...), w.err
}

// fields writes the fields of objects.
type fields struct {
	b   []byte
	err error
}

func (w *fields) open(s string) { w.b = append(w.b, s...) }

func (w *fields) name(s string) {
	if c := w.b[len(w.b)-1]; c != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), s...), `":`...)
}

func (w *fields) text(name, s string) {
	w.name(name)
	w.b = jsonscan.AppendText(w.b, s)
}

func (w *fields) texts(name string, texts []string) {
	list(w, name, texts, func(s *string) { w.b = jsonscan.AppendText(w.b, *s) })
}

func (w *fields) whole(name string, n int64) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *fields) truth(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

func (w *fields) number(name string, f float64, bits int) {
	w.name(name)
	w.float(f, bits)
}

func (w *fields) float(f float64, bits int) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		_, w.err = json.Marshal(f) // says that it is no number
		return
	}
	w.b = strconv.AppendFloat(w.b, f, 'g', -1, bits)
}

// list writes a list; one that is nil is null.
func list[T any](w *fields, name string, items []T, item func(*T)) {
	w.name(name)
	if items == nil {
		w.b = append(w.b, "null"...)
		return
	}
	w.b = append(w.b, '[')
	for i := range items {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		item(&items[i])
	}
	w.b = append(w.b, ']')
}
