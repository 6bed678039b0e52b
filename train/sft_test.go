package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
	"searchloop/rollout/trajectory"
)

// storeImage puts an image into a store and returns its id.
func storeImage(t testing.TB, dir, content string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	id := hex.EncodeToString(sum[:])
	if err := os.MkdirAll(filepath.Join(dir, id[:2]), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id[:2], id+".png"), []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return id
}

// newLessons is a folder with a policy and trajectories in which the assistant
// answers every question, and every tool, with the next digits.
func newLessons(t testing.TB, root string, n int, change func(rows []trajectory.Row)) toyWorld {
	t.Helper()
	w := toyWorld{root}
	toyFolder(t, w.at("policy"), 9, 6, 1)
	image := storeImage(t, w.at("images"), "a picture")
	var rows []trajectory.Row
	var judged []trajectory.Judged
	for i := range n {
		q := i % 5
		digit := func(d int) string { return string(rune('0' + d%5)) }
		row := trajectory.Row{ID: fmt.Sprintf("q%02d#0", i), Group: fmt.Sprintf("q%02d", i), Status: trajectory.OK, LogprobMode: trajectory.LogprobNone,
			Turns: []trajectory.Turn{
				{Role: "system", Text: "0"}, {Role: "user", Text: digit(q)},
				{Role: "assistant", Text: digit(q + 1), Call: "text_search", Finish: "stop"},
				{Role: "tool", Text: digit(i / 5), Call: "text_search"},
				{Role: "assistant", Text: digit(i/5+1) + digit(i/5+2), Finish: "stop"},
			}}
		if i%4 == 0 {
			row.Turns[1].Images = []string{image}
		}
		rows = append(rows, row)
		judged = append(judged, trajectory.Judged{ID: row.ID, Scored: true, Correct: i%3 != 0})
	}
	if change != nil {
		change(rows)
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	dataset(t, w.at("judged"), "judged", judged)
	return w
}

func (w toyWorld) lessons(out string) SFTOptions {
	return SFTOptions{Policy: w.at("policy"), Rollouts: w.at("rollouts"), Judged: w.at("judged"), Images: []string{w.at("nowhere"), w.at("images")}, Out: w.at(out)}
}

func mustSFT(t testing.TB, w toyWorld, out string, set ...string) string {
	t.Helper()
	if err := sft(context.Background(), toyRun(t, set...), w.lessons(out), toyKit); err != nil {
		t.Fatal(err)
	}
	return w.at(out)
}

func readStats(t testing.TB, dir string) (s Stats, raw map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, statsName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	return s, raw
}

func TestSFTLearns(t *testing.T) {
	w := newLessons(t, t.TempDir(), 20, nil)
	out := mustSFT(t, w, "out", "sft.epochs=12")
	ls := lines(t, out)
	first, last := num(t, ls[0], "loss"), num(t, ls[len(ls)-1], "loss")
	if last > first/3 {
		t.Errorf("the loss went from %.3f to %.3f", first, last)
	}
	if ls[0]["ratio_mean"] != nil || num(t, ls[len(ls)-1], "lr") >= .01 {
		t.Errorf("last line %v", ls[len(ls)-1])
	}
	// Trained are two turns: a digit, two digits, two end marks.
	s, raw := readStats(t, out)
	if tokens := raw["trained_tokens"].(map[string]any); tokens["min"].(float64) != 5 || tokens["max"].(float64) != 5 || s.TrainedRows != 20 {
		t.Errorf("%v", raw)
	}
	sameCheckpoint(t, out, mustSFT(t, w, "again", "sft.epochs=12"))
}

// Loss and gradient of a batch do not depend on its packs.
func TestSFTPacking(t *testing.T) {
	w := newLessons(t, t.TempDir(), 20, nil)
	var first map[string]any
	for _, budget := range []string{"20", "40", "1000"} {
		l := lines(t, mustSFT(t, w, budget, "sft.pack_tokens="+budget, "sft.batch_tokens=100000", "sft.epochs=1"))[0]
		if first == nil {
			first = l
		}
		for _, key := range []string{"loss", "grad_norm", "entropy", "trained_tokens", "tokens"} {
			near(t, key, num(t, l, key), num(t, first, key), 1e-6)
		}
	}
	if num(t, first, "trained_tokens") != 100 {
		t.Errorf("%v", first)
	}
}

func TestSFTStopAndContinue(t *testing.T) {
	w := newLessons(t, t.TempDir(), 20, nil)
	quiet := mustSFT(t, w, "quiet")
	for runs := 0; ; runs++ {
		r := toyRun(t)
		err := sft(context.Background(), r, w.lessons("stopped"), hookKit(func(_ *toy, n int) {
			if n >= 3+runs {
				r.Stop()
			}
		}))
		if err == nil {
			if runs < 3 {
				t.Errorf("stopped %d times only", runs)
			}
			sameCheckpoint(t, quiet, w.at("stopped"))
			return
		}
		if kindOf(err) != fail.Interrupted {
			t.Fatal(err)
		}
	}
}

func TestLessonsLeftOut(t *testing.T) {
	var lost string
	w := newLessons(t, t.TempDir(), 12, func(rows []trajectory.Row) {
		lost = strings.Repeat("cd", 32)
		rows[0].Status = trajectory.Failed
		rows[1].Status = trajectory.Truncated
		rows[2].Turns[3].Text = "letters" // the fake renderer refuses them
		rows[3].Turns[1].Images = []string{lost}
		rows[4].Turns[1].Text = strings.Repeat("0", 60)
		rows[5].Turns[2].Finish = "length"
		rows[6].Turns = rows[6].Turns[:2]
		rows[7].Turns[2].Error = "not JSON" // the rest of the row is learned
		rows[8].ID = rows[9].ID
		rows[10].Turns[1].Images = []string{"../../etc/passwd"}
	})
	out := mustSFT(t, w, "out")
	s, raw := readStats(t, out)
	want := map[string]int64{NotRendered: 2, NoImage: 2, TooLong: 1, NothingTrained: 1, Duplicate: 1}
	for reason, n := range want {
		if s.Refused[reason] != n {
			t.Errorf("%s: %d, want %d", reason, s.Refused[reason], n)
		}
	}
	if s.TrainedRows != 3 || s.TruncatedDropped != 1 || s.Status[trajectory.Failed] != 1 {
		t.Errorf("%+v", s)
	}
	if tokens := raw["trained_tokens"].(map[string]any); tokens["min"].(float64) != 3 {
		t.Errorf("a malformed call is learned: %v", tokens)
	}
	text, err := os.ReadFile(filepath.Join(out, rejectsName))
	if err != nil || strings.Count(string(text), "\n") != 7 || !strings.Contains(string(text), "letter") || !strings.Contains(string(text), lost) {
		t.Errorf("%s, %v", text, err)
	}
	out = mustSFT(t, newLessons(t, t.TempDir(), 12, nil), "out", "sft.only_correct=true")
	if s, _ := readStats(t, out); s.TrainedRows != 8 || s.IncorrectDropped != 4 {
		t.Errorf("%+v", s)
	}
}

func TestSFTRefusesToRun(t *testing.T) {
	w := newLessons(t, t.TempDir(), 3, func(rows []trajectory.Row) {
		for i := range rows {
			rows[i].Turns[0].Text = "letters"
		}
	})
	err := sft(context.Background(), toyRun(t), w.lessons("out"), toyKit)
	if kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "q00#0") {
		t.Errorf("%v", err)
	}
	for _, set := range []string{"sft.epochs=0", "sft.pack_tokens=0", "sft.batch_tokens=0", "sft.optimizer.schedule=constant", "sft.only_correct=true"} {
		o := w.lessons("out")
		o.Judged = ""
		s := []string{set}
		if strings.HasPrefix(set, "sft.opt") {
			s = []string{"sft.optimizer.warmup=1"}
		}
		if err := sft(context.Background(), toyRun(t, s...), o, toyKit); kindOf(err) != fail.Usage {
			t.Errorf("%s: %v", set, err)
		}
	}
	o := w.lessons("out")
	o.Policy = w.at("nowhere")
	if err := sft(context.Background(), toyRun(t), o, toyKit); kindOf(err) != fail.BadInput {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(w.at("policy"), "manifest.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := sft(context.Background(), toyRun(t), w.lessons("out"), toyKit); kindOf(err) != fail.BadInput {
		t.Errorf("%v", err)
	}
}

// Images are checked against their name whenever they are read.
func TestPictures(t *testing.T) {
	dir := t.TempDir()
	read, _ := toyKit.pictures("")
	p := OpenPictures(read, filepath.Join(dir, "none"), dir)
	good := storeImage(t, dir, "good")
	grid, err := p.Grid(good)
	if err != nil || grid != [3]int32{1, 2, 4} {
		t.Fatalf("%v, %v", grid, err)
	}
	bad := storeImage(t, dir, "bad")
	if err := os.WriteFile(filepath.Join(dir, bad[:2], bad+".png"), []byte("worse"), 0o666); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		bad: "another SHA-256", storeImage(t, dir, "broken"): "not a picture", strings.Repeat("00", 32): "none of", "x": "not a SHA-256", "../" + good[3:]: "not a SHA-256",
	} {
		if _, err := p.Patches(id, grid); kindOf(err) != fail.BadInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	// The cache holds what fits and drops what was not used for longest.
	p.budget = 3 * 8 * toyPatchDim
	var ids []string
	for i := range 5 {
		ids = append(ids, storeImage(t, dir, fmt.Sprint("image", i)))
	}
	for _, id := range ids {
		if _, err := p.Patches(id, grid); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Patches(ids[0], grid); err != nil {
			t.Fatal(err)
		}
	}
	if p.size > p.budget || len(p.held) != 3 || p.held[pictureKey{ids[0], grid}] == nil || p.held[pictureKey{ids[1], grid}] != nil {
		t.Errorf("%d held, %d values", len(p.held), p.size)
	}
}

func TestPacks(t *testing.T) {
	var seqs []*Sequence
	for i, n := range []int{5, 3, 8, 2, 7, 1, 8, 4, 6} {
		s := &Sequence{Tokens: make([]int32, n), Temperature: 1}
		if i == 8 {
			s.Temperature = .5
		}
		seqs = append(seqs, s)
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
	packs := pack(seqs, all, 10)
	seen := map[int]bool{}
	for _, p := range packs {
		n := 0
		for _, i := range p {
			n += len(seqs[i].Tokens)
			seen[i] = true
			if seqs[i].Temperature != seqs[p[0]].Temperature {
				t.Errorf("two temperatures in %v", p)
			}
		}
		if n > 10 {
			t.Errorf("pack %v has %d tokens", p, n)
		}
	}
	if len(seen) != 9 || len(packs) != 5 {
		t.Errorf("packs %v", packs)
	}
	if again := pack(seqs, shuffled(9, 4, 2), 10); fmt.Sprint(again) != fmt.Sprint(packs) {
		t.Errorf("packs depend on the order: %v and %v", packs, again)
	}
	if got := fmt.Sprint(batches(seqs, all, 10)); got != "[[0 1] [2 3] [4 5] [6] [7 8]]" {
		t.Errorf("batches %s", got)
	}
	if a, b := fmt.Sprint(shuffled(20, 1, 0)), fmt.Sprint(shuffled(20, 1, 1)); a == b || a != fmt.Sprint(shuffled(20, 1, 0)) {
		t.Errorf("shuffles %s, %s", a, b)
	}
}
