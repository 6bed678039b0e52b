package train

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// dataset writes rows as a finished dataset of one part.
func dataset[T any](t testing.TB, dir, schema string, rows []T) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "part-00000-of-00001.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	w := table.NewWriter[T](f)
	for _, err := range []error{w.Write(rows...), w.Close(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := manifest.PartOf(dir, "part-00000-of-00001.parquet", int64(len(rows)), false)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(manifest.Path(dir))
	m := manifest.Manifest{Schema: schema, Version: 1, Spec: schema, Parts: []manifest.Part{p}}
	if _, err := m.Write(manifest.Path(dir)); err != nil {
		t.Fatal(err)
	}
}

// toyRecipe is a recipe with everything GRPO needs; lines are added below.
const toyRecipe = `
name: toy
seed: 11
sampling: {train: {n: 4, temperature: 1, top_p: 1}, eval: {n: 1, temperature: 1, top_p: 1}}
sft:
  optimizer: {lr: 0.05, schedule: cosine, warmup: 0.1, min_lr: 0.005, beta1: 0.9, beta2: 0.99, eps: 1.0e-8, weight_decay: 0.01, clip_norm: 1.0}
  epochs: 3
  batch_tokens: 60
  pack_tokens: 40
  save_steps: 2
grpo:
  optimizer: {lr: 0.05, schedule: constant, warmup: 0, min_lr: 0, beta1: 0.9, beta2: 0.99, eps: 1.0e-8, weight_decay: 0.01, clip_norm: 1.0}
  advantage: grpo
  advantage_eps: 1.0e-6
  clip_low: 0.2
  clip_high: 0.28
  dual_clip: 3.0
  kl: 0.01
  kl_estimator: k3
  aggregation: token-mean
  old_logprobs: bypass
  updates: 3
  passes: 2
  pack_tokens: 40
  truncated: keep
  max_mismatch: 0.001
  save_steps: 1
`

// toyRun is a job.Run with the toy recipe and overrides.
func toyRun(t testing.TB, set ...string) *job.Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toy.yaml")
	if err := os.WriteFile(path, []byte(toyRecipe), 0o666); err != nil {
		t.Fatal(err)
	}
	r := job.Testing(t)
	r.RecipePath, r.Set = path, set
	return r
}

// toyKit trains toys; patches are six values a patch, made of the picture's bytes.
var toyKit = kit{
	load: loadToy,
	pictures: func(string) (PatchReader, error) {
		return func(data []byte, grid [3]int32) ([3]int32, []float32, error) {
			if string(data) == "broken" {
				return grid, nil, fmt.Errorf("not a picture")
			}
			if grid == [3]int32{} {
				grid = [3]int32{1, 2, 4}
			}
			patches := make([]float32, int(grid[0]*grid[1]*grid[2])*toyPatchDim)
			for i := range patches {
				patches[i] = float32(data[i%len(data)]) / 256
			}
			return grid, patches, nil
		}, nil
	},
	renderer: func(string) (Renderer, int, error) { return toyRender, 0, nil },
}

// toyRender writes a digit as token 4 to 8, a turn as 4 and its text (an
// assistant's with the end mark 0), an image as its pads between 1 and 2. A text with a letter does not render.
func toyRender(msgs []chat.Message, _ json.RawMessage) (*chat.Prompt, error) {
	p := new(chat.Prompt)
	for _, m := range msgs {
		p.IDs = append(p.IDs, 4)
		from := len(p.IDs)
		for _, im := range m.Images {
			p.IDs = append(p.IDs, 1)
			p.ImageOffsets = append(p.ImageOffsets, int32(len(p.IDs)))
			for range im.Tokens() {
				p.IDs = append(p.IDs, toyPad)
			}
			p.IDs = append(p.IDs, 2)
		}
		for _, c := range m.Text {
			if c < '0' || c > '4' {
				return nil, fmt.Errorf("letter %q", c)
			}
			p.IDs = append(p.IDs, 4+c-'0')
		}
		if m.Role == chat.Assistant {
			p.IDs = append(p.IDs, 0)
		}
		p.Spans = append(p.Spans, chat.Span{From: from, To: len(p.IDs)})
	}
	return p, nil
}

// player samples rollouts from a policy; nothing of the trainer is used for that
// but the model.
type player struct {
	policy Policy
	rng    *rand.Rand
	vocab  int
}

// say continues a prompt by n tokens and gives their log-probs.
func (p *player) say(t testing.TB, prompt []int32, images []qwenvl.Image, n int) (tokens []int32, logp []float32) {
	t.Helper()
	tokens = append(tokens, prompt...)
	for range n {
		b := &qwenvl.Batch{Tokens: tokens, CuSeqlens: []int32{0, int32(len(tokens))}, Images: images}
		var grids [][3]int32
		for _, im := range images {
			grids = append(grids, im.Grid)
		}
		var err error
		if b.Positions, err = p.policy.Positions(tokens, grids); err != nil {
			t.Fatal(err)
		}
		pass, err := p.policy.Forward(b)
		if err != nil {
			t.Fatal(err)
		}
		rows, targets := make([]int32, p.vocab), make([]int32, p.vocab)
		for v := range rows {
			rows[v], targets[v] = int32(len(tokens)-1), int32(v)
		}
		all, _ := pass.Score(rows, targets, 1)
		pass.Release()
		x, next := p.rng.Float64(), p.vocab-1
		for v, l := range all {
			if x -= exp(l); x < 0 {
				next = v
				break
			}
		}
		tokens, logp = append(tokens, int32(next)), append(logp, all[next])
	}
	return tokens[len(prompt):], logp
}

// play makes n rollouts of each prompt, judged by reward.
func (p *player) play(t testing.TB, prompts [][]int32, n, length int, reward func(prompt, said []int32) float64) ([]trajectory.Row, []trajectory.Judged) {
	t.Helper()
	var rows []trajectory.Row
	var judged []trajectory.Judged
	for q, prompt := range prompts {
		for k := range n {
			said, logp := p.say(t, prompt, nil, length)
			row := trajectory.Row{
				ID: fmt.Sprintf("q%02d#%d", q, k), Question: fmt.Sprintf("q%02d", q), Group: fmt.Sprintf("q%02d", q), Sample: int32(k),
				Status: trajectory.OK, LogprobMode: trajectory.LogprobProcessed, Temperature: 1, TopP: 1, Policy: "toy",
				Turns: []trajectory.Turn{{Role: "user", Text: "?"}, {Role: "assistant", Text: "!", Call: "text_search"}, {Role: "tool", Text: "..", Error: "no"}},
			}
			row.TokenIDs = append(append(row.TokenIDs, prompt...), said...)
			row.LossMask, row.Logprobs = make([]bool, len(row.TokenIDs)), make([]float32, len(row.TokenIDs))
			for i := range said {
				row.LossMask[len(prompt)+i], row.Logprobs[len(prompt)+i] = true, logp[i]
			}
			rows = append(rows, row)
			r := reward(prompt, said)
			judged = append(judged, trajectory.Judged{ID: row.ID, Question: row.Question, Group: row.Group, Status: row.Status, Scored: true,
				Reward: r, Correct: r > .5, Components: []trajectory.Component{{Name: "answer", Value: r, Weight: 1}}})
		}
	}
	return rows, judged
}

// toyWorld is a folder with a policy, a reference, rollouts and judgements.
type toyWorld struct{ root string }

func (w toyWorld) at(name string) string { return filepath.Join(w.root, name) }

func (w toyWorld) options(out string) GRPOOptions {
	return GRPOOptions{Policy: w.at("policy"), Reference: w.at("reference"), Rollouts: w.at("rollouts"), Judged: w.at("judged"),
		Images: []string{w.at("images")}, Out: w.at(out)}
}

// newToyWorld plays groups questions, 4 samples each, of a policy that is not the
// reference. change may spoil rows before they are written.
func newToyWorld(t testing.TB, root string, groups int, change func([]trajectory.Row, []trajectory.Judged) ([]trajectory.Row, []trajectory.Judged)) toyWorld {
	t.Helper()
	w := toyWorld{root}
	toyFolder(t, w.at("policy"), 9, 4, 1)
	toyFolder(t, w.at("reference"), 9, 4, 2)
	policy, err := loadToy(w.at("policy"), false)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{policy: policy, rng: rand.New(rand.NewPCG(3, 3)), vocab: 9}
	var prompts [][]int32
	for q := range groups {
		prompts = append(prompts, []int32{4, int32(4 + q%5), int32(4 + q/5%5)})
	}
	// The images' tokens must not be said: rows that have them would be refused.
	rows, judged := p.play(t, prompts, 4, 5, func(prompt, said []int32) float64 {
		if said[0]%2 == prompt[1]%2 {
			return 1
		}
		return 0
	})
	for i := range rows {
		for j := range rows[i].TokenIDs {
			if id := rows[i].TokenIDs[j]; rows[i].LossMask[j] && id >= 1 && id <= toyPad {
				rows[i].LossMask[j] = false
				rows[i].TokenIDs[j] = 0
			}
		}
	}
	rescore(t, policy, rows)
	if change != nil {
		rows, judged = change(rows, judged)
	}
	dataset(t, w.at("rollouts"), "rollouts", rows)
	dataset(t, w.at("judged"), "judged", judged)
	return w
}

// rescore sets the rows' log-probs to what the policy says.
func rescore(t testing.TB, policy Policy, rows []trajectory.Row) {
	t.Helper()
	for i := range rows {
		row := &rows[i]
		s := &Sequence{Tokens: row.TokenIDs, Temperature: row.Temperature}
		s.Spans, s.Trained = spansOf(row.LossMask)
		var p packed
		logp, err := p.score(policy, nil, []*Sequence{s})
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range s.Spans {
			for j := span.From; j < span.To; j++ {
				row.Logprobs[j], logp = logp[0], logp[1:]
			}
		}
	}
}

func kindOf(err error) fail.Kind { return fail.KindOf(err) }
