package train

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// SFTOptions are the places of a warm start.
type SFTOptions struct {
	Policy   string   // trained from
	Rollouts string   // trajectory.Row: what is imitated; may be empty when there are Examples
	Examples []string // files of conversations: ShareGPT or messages, JSON or JSON lines
	Judged   string   // needed by sft.only_correct
	Images   []string // image stores
	Out      string
	// Tools are the schemas that the policy will see in its system message; empty
	// when the recipe sends none.
	Tools json.RawMessage

	TensorBoard string // folder for event files; empty: none are written
	Device      string // as NewDevice reads it
}

// SFT teaches a policy to write the assistant turns of finished trajectories
// (cross-entropy, mean over all trained tokens of an optimizer batch), given
// everything before them.
func SFT(ctx context.Context, r *job.Run, o SFTOptions) error { return sft(ctx, r, o, qwenKit) }

func sft(ctx context.Context, r *job.Run, o SFTOptions, k kit) (err error) {
	defer cuda.Guard(&err)
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	g := rec.SFT
	if err := checkSFT(g); err != nil {
		return err
	}
	if !g.OnlyCorrect || o.Rollouts == "" {
		o.Judged = ""
	} else if o.Judged == "" {
		return fail.New(fail.Usage, "sft", "", "sft.only_correct is set: --judged is needed")
	}
	if o.Rollouts == "" && len(o.Examples) == 0 {
		return fail.New(fail.Usage, "sft", "", "nothing to learn from: --rollouts or --examples is needed")
	}
	dev, err := NewDevice(o.Device, r.Log)
	if err != nil {
		return err
	}
	inputs := map[string]string{"rollouts": o.Rollouts, "judged": o.Judged}
	for i, path := range o.Examples {
		inputs[fmt.Sprintf("examples/%d", i)] = path
	}
	examples, err := readExamples(o, k)
	if err != nil {
		return err
	}
	if err := policyInputs(inputs, "policy", o.Policy); err != nil {
		return err
	}
	d, part, err := folder(r, job.Spec{Dir: o.Out, Inputs: inputs, Params: struct {
		Job   string
		Seed  uint64
		SFT   recipe.SFT
		Tools json.RawMessage `json:",omitempty"`
		// Pictures are the images that examples name by path.
		Pictures string `json:",omitempty"`
		// Device is empty for the CPU.
		Device string `json:",omitempty"`
	}{"sft", rec.Seed, g, o.Tools, examples.digest(), dev.identity()}})
	if err != nil || part == nil {
		return err
	}
	defer part.Discard()
	if k, err = k.open(dev); err != nil {
		return err
	}
	s := &school{run: r, o: o, kit: k, settings: g, images: examples.images, examples: examples.rows}
	if err := s.read(); err != nil {
		return err
	}
	steps := s.plan(rec.Seed, g)
	if err := planRun(r, dev, s.policy, packsOfSteps(s.rows, steps), g.Recompute, g.Optimizer, g.LoRA); err != nil {
		return err
	}
	if s.policy, err = adapt(s.policy, g.LoRA, rec.Seed); err != nil {
		return err
	}
	t, err := newRun(r, d, "sft", g.Optimizer, s.policy, s.rows, steps, g.PackTokens, g.SaveSteps, s.images, new(imitation))
	if err != nil {
		return err
	}
	t.board, t.device = o.TensorBoard, dev
	if err := t.train(ctx, r); err != nil {
		return err
	}
	meta := Meta{Kind: "sft", Steps: t.done, Rows: int64(len(s.rows)), Refused: int64(len(s.refused)), Skipped: t.opt.Skipped, Device: dev.String(), DType: dev.dtype()}
	if err := publish(d, d.Dir(), o.Policy, s.policy, s.stats, s.refused, o.Rollouts, &meta); err != nil {
		return err
	}
	r.Result(meta)
	return nil
}

// checkSFT refuses settings before anything is read.
func checkSFT(g recipe.SFT) error {
	if _, err := NewSchedule(g.Optimizer, 1); err != nil {
		return err
	}
	if err := checkOptimizer(g.Optimizer); err != nil {
		return err
	}
	if err := checkRecompute("sft.recompute", g.Recompute); err != nil {
		return err
	}
	for _, s := range []struct {
		key string
		n   int
	}{{"epochs", g.Epochs}, {"batch_tokens", g.BatchTokens}, {"pack_tokens", g.PackTokens}} {
		if s.n < 1 {
			return fail.New(fail.Usage, "sft."+s.key, "", "%d: want 1 or more", s.n)
		}
	}
	return nil
}

// school is one SFT job between its flags and its checkpoint.
type school struct {
	run      *job.Run
	o        SFTOptions
	kit      kit
	settings recipe.SFT

	policy   Policy
	images   *Pictures
	examples []*dialogue
	*lessons
}

// examples are conversations from files, with the images they name.
type examples struct {
	rows   []*dialogue
	images *Pictures
}

func readExamples(o SFTOptions, k kit) (*examples, error) {
	read, err := k.pictures(o.Policy)
	if err != nil {
		return nil, err
	}
	e := &examples{images: OpenPictures(read, o.Images...)}
	for _, path := range o.Examples {
		rows, err := readDialogues(path, e.images)
		if err != nil {
			return nil, err
		}
		e.rows = append(e.rows, rows...)
	}
	return e, nil
}

// digest identifies the images; "" without any.
func (e *examples) digest() string {
	var list strings.Builder
	for _, d := range e.rows {
		for i := range d.turns {
			for _, id := range d.turns[i].images {
				list.WriteString(id)
			}
		}
	}
	if list.Len() == 0 {
		return ""
	}
	return manifest.Hash([]byte(list.String()))
}

// read loads the policy and renders the trajectories.
func (s *school) read() error {
	if err := verifyPolicy(s.o.Policy); err != nil {
		return err
	}
	var err error
	if s.policy, err = s.kit.load(s.o.Policy, s.settings.FreezeVision); err != nil {
		return err
	}
	render, known, err := s.kit.renderer(s.o.Policy)
	if err != nil {
		return err
	}
	l := lessonReader{rollouts: s.o.Rollouts, examples: s.examples, render: render, tools: s.o.Tools, images: s.images,
		check: Checker{Traits: s.policy.Traits(), Known: known, Budget: s.settings.PackTokens}}
	if s.o.Judged != "" {
		if l.correct, err = correctRows(s.o.Judged); err != nil {
			return err
		}
	}
	if s.lessons, err = l.read(); err != nil {
		return err
	}
	return s.report()
}

func (s *school) report() error {
	st, log := s.stats, s.run.Log
	warnRefused(log, st)
	if len(s.rows) == 0 {
		e := fail.New(fail.BadInput, "sft", s.o.Rollouts, "none of %d rows can be learned from: %d refused, %d failed, %d truncated, %d incorrect",
			st.Rows, len(s.refused), st.Status[trajectory.Failed], st.TruncatedDropped, st.IncorrectDropped)
		e.Hint = firstRefusal(s.refused)
		return e
	}
	log.Info("rows to learn from", "rows", len(s.rows), "of", st.Rows, "trained_tokens", int64(st.TrainedTokens.sum),
		"failed", st.Status[trajectory.Failed], "truncated", st.TruncatedDropped, "incorrect", st.IncorrectDropped)
	return nil
}

func firstRefusal(refused []refusedRow) string {
	if len(refused) == 0 {
		return ""
	}
	return fmt.Sprintf("first refusal: row %d (%s): %v", refused[0].row, refused[0].id, refused[0].reason)
}

// plan shuffles the rows anew in every epoch, cuts them into optimizer batches
// and packs each.
func (l *lessons) plan(seed uint64, g recipe.SFT) []Step {
	var steps []Step
	for epoch := range g.Epochs {
		for _, batch := range batches(l.rows, shuffled(len(l.rows), seed, epoch), g.BatchTokens) {
			steps = append(steps, Step{Pass: epoch, Packs: pack(l.rows, batch, g.PackTokens)})
		}
	}
	return steps
}
