package train

import (
	"fmt"
	"strings"
	"testing"

	"searchloop/rollout/trajectory"
)

func TestInspect(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 3, func(rows []trajectory.Row, judged []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged) {
		for i := range judged {
			judged[i].Reward = float64(i % 2)
		}
		rows[0].LossMask = []bool{false, false, true, true, false, true, true, true}[:len(rows[0].TokenIDs)]
		rows[0].TokenIDs[1] = toyPad
		rows[0].Images = []trajectory.Image{{ID: "0123456789", GridT: 1, GridH: 2, GridW: 2, Offset: 1}}
		rows[1].TopP = .5
		rows[2].Turns = nil
		return rows, judged
	})
	read, _ := toyKit.pictures("")
	r := toyRun(t)
	rec, err := r.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	show := func(colour bool, o InspectOptions) string {
		t.Helper()
		var out strings.Builder
		v := inspector{w: &out, colour: colour, epochReader: epochReader{rollouts: w.at("rollouts"), judged: w.at("judged"), images: OpenPictures(read), settings: rec.GRPO, log: r.Log,
			check: Checker{Traits: newToy(9, 4, 1).Traits(), Budget: 40}}}
		v.say = func(ids []int32) string {
			text := ""
			for _, id := range ids {
				text += fmt.Sprint(id)
			}
			return text + "\x1b"
		}
		o.Rollouts = w.at("rollouts")
		if err := v.show(o); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	text := show(false, InspectOptions{Rows: 3})
	for _, want := range []string{"q00#0  status ok", "refused: image file missing", "[image 01234567 1×2×2, tokens 1–2]«", "»", "refused: sampling was cut: top_p 0.5", "q00#2", "advantage ", "12 rows: ", "␦"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "q00#3") || strings.Contains(text, "\x1b") {
		t.Errorf("too much:\n%s", text)
	}
	if one := show(true, InspectOptions{IDs: []string{"q01#1"}}); !strings.Contains(one, "q01#1") || strings.Contains(one, "q00") || !strings.Contains(one, "\x1b[32m") {
		t.Errorf("%q", one)
	}
	v := inspector{w: new(strings.Builder), epochReader: epochReader{rollouts: w.at("rollouts"), judged: w.at("judged"), images: OpenPictures(read), settings: rec.GRPO, log: r.Log, check: Checker{Budget: 40}}}
	v.say = func([]int32) string { return "" }
	if err := v.show(InspectOptions{Rollouts: w.at("rollouts"), IDs: []string{"nobody"}}); err == nil {
		t.Error("a row that is not there")
	}
}
