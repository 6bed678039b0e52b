package train

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/recipe"
	"searchloop/rollout/trajectory"
)

// GRPOOptions are the places of a policy update.
type GRPOOptions struct {
	Policy    string   // the policy that made the rollouts
	Reference string   // what KL is measured to; not read when grpo.kl is 0
	Rollouts  string   // trajectory.Row
	Judged    string   // trajectory.Judged of them
	Images    []string // image stores
	Out       string

	TensorBoard string // folder for event files; empty: none are written
	Device      string // as NewDevice reads it
}

// Ways to old log-probs, as recipes write them.
const (
	Bypass    = "bypass"    // as sampled
	Recompute = "recompute" // by this program, before the first update
	Current   = "current"   // what the policy says now: every ratio is 1, the gradient that of REINFORCE
)

// GRPO updates a policy from one judged rollouts dataset (arXiv 2402.03300):
// advantages by group, a few optimizer steps of the clipped loss, a new
// checkpoint. Old and reference log-probs are fixed once, before the first
// update, and kept beside the training state.
//
// When the policy is itself a checkpoint of GRPO, its optimizer's moments go on:
// the epochs of a loop are one optimization.
func GRPO(ctx context.Context, r *job.Run, o GRPOOptions) error { return grpo(ctx, r, o, qwenKit) }

func grpo(ctx context.Context, r *job.Run, o GRPOOptions, k kit) (err error) {
	defer cuda.Guard(&err)
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	g := rec.GRPO
	loss, err := NewLoss(g)
	if err != nil {
		return err
	}
	if err := checkGRPO(g); err != nil {
		return err
	}
	dev, err := NewDevice(o.Device, r.Log)
	if err != nil {
		return err
	}
	if g.KL == 0 {
		o.Reference = ""
	}
	inputs := map[string]string{"rollouts": o.Rollouts, "judged": o.Judged}
	if err := policyInputs(inputs, "policy", o.Policy); err != nil {
		return err
	}
	if o.Reference != "" {
		if err := policyInputs(inputs, "reference", o.Reference); err != nil {
			return err
		}
	} else if g.KL != 0 {
		return fail.New(fail.Usage, "grpo", "", "grpo.kl is %g: --reference is needed", g.KL)
	}
	d, part, err := folder(r, job.Spec{Dir: o.Out, Inputs: inputs, Params: struct {
		Job  string
		Seed uint64
		GRPO recipe.GRPO
		// Device is empty for the CPU.
		Device string `json:",omitempty"`
	}{"grpo", rec.Seed, g, dev.identity()}})
	if err != nil || part == nil {
		return err
	}
	defer part.Discard()
	if k, err = k.open(dev); err != nil {
		return err
	}
	u := &update{run: r, d: d, o: o, kit: k, settings: g}
	if err := u.read(); err != nil {
		return err
	}
	steps := u.plan(rec.Seed, g)
	packs := append(packsOfSteps(u.rows, steps), u.scored(g)...)
	if err := planRun(r, dev, u.policy, packs, g.Recompute, g.Optimizer, g.LoRA); err != nil {
		return err
	}
	if err := u.score(ctx, loss); err != nil {
		return err
	}
	if u.policy, err = adapt(u.policy, g.LoRA, rec.Seed); err != nil {
		return err
	}
	t, err := newRun(r, d, "grpo", g.Optimizer, u.policy, u.rows, steps, g.PackTokens, g.SaveSteps, u.images, u.goal)
	if err != nil {
		return err
	}
	t.board, t.routes, t.device = o.TensorBoard, u.routes, dev
	defer func() { err = errors.Join(err, u.routes.close()) }()
	if err := u.carry(t); err != nil {
		return err
	}
	if err := t.train(ctx, r); err != nil {
		return err
	}
	meta := Meta{Kind: "grpo", Steps: t.done, Rows: int64(len(u.rows)), Refused: int64(len(u.refused)), Skipped: t.opt.Skipped, Device: dev.String(), DType: dev.dtype()}
	if err := publish(d, d.Dir(), o.Policy, u.policy, u.stats, u.refused, o.Rollouts, &meta); err != nil {
		return err
	}
	r.Result(meta)
	return nil
}

// checkGRPO refuses settings before anything is read.
func checkGRPO(g recipe.GRPO) error {
	if _, err := NewDenominator(g.Aggregation, g.NormTokens); err != nil {
		return err
	}
	correction, err := NewCorrection(g.Correction)
	if err != nil {
		return err
	}
	if _, err := NewSchedule(g.Optimizer, 1); err != nil {
		return err
	}
	if err := checkOptimizer(g.Optimizer); err != nil {
		return err
	}
	if err := checkRecompute("grpo.recompute", g.Recompute); err != nil {
		return err
	}
	if _, err := Estimate(nil, g.Advantage, g.AdvantageEps); err != nil {
		return err
	}
	bad := func(key, format string, args ...any) error {
		return fail.New(fail.Usage, "grpo."+key, "", format, args...)
	}
	switch {
	case g.OldLogprobs != Bypass && g.OldLogprobs != Recompute && g.OldLogprobs != Current:
		return bad("old_logprobs", "%q: want %s, %s or %s", g.OldLogprobs, Bypass, Recompute, Current)
	case correction != nil && g.OldLogprobs != Recompute:
		return bad("correction", "with old_logprobs %s there is nothing to correct: the ratio is formed with the sampled log-probs, or not at all; it needs %s", g.OldLogprobs, Recompute)
	case !oneOf(g.Retokenised, "", "refuse", "accept"):
		return bad("retokenised", "%q: want refuse or accept", g.Retokenised)
	case g.Retokenised == "accept" && (g.OldLogprobs == Bypass || correction != nil):
		return bad("retokenised", "accept: nothing was sampled with such tokens that %s or a correction could use; it needs old_logprobs %s or %s, and no correction", Bypass, Recompute, Current)
	case g.Truncated != "keep" && g.Truncated != "mask" && g.Truncated != "drop":
		return bad("truncated", "%q: want keep, mask or drop", g.Truncated)
	case !oneOf(g.Failed, "", "exclude", "zero", "drop_group"):
		return bad("failed", "%q: want exclude, zero or drop_group", g.Failed)
	case !oneOf(g.ZeroVariance, "", "auto", "keep", "drop"):
		return bad("zero_variance", "%q: want auto, keep or drop", g.ZeroVariance)
	case g.Overlong.MaxTokens < 0 || g.Overlong.Buffer < 0 || g.Overlong.Buffer > g.Overlong.MaxTokens || !(g.Overlong.Penalty >= 0):
		return bad("overlong", "%+v: want 0 ≤ buffer_tokens ≤ max_tokens and a penalty of 0 (means 1) or more", g.Overlong)
	case g.Updates < 1:
		return bad("updates", "%d: want 1 or more", g.Updates)
	case g.Passes < 1:
		return bad("passes", "%d: want 1 or more", g.Passes)
	case g.PackTokens < 1:
		return bad("pack_tokens", "%d: want 1 or more", g.PackTokens)
	case !(g.AdvantageEps >= 0):
		return bad("advantage_eps", "%g: want 0 or more", g.AdvantageEps)
	}
	return nil
}

func oneOf(s string, allowed ...string) bool { return slices.Contains(allowed, s) }

// update is one GRPO job between its flags and its checkpoint.
type update struct {
	run      *job.Run
	d        *job.Dataset
	o        GRPOOptions
	kit      kit
	settings recipe.GRPO

	policy Policy
	images *Pictures
	routes *routeBook // of the old log-probs' pass, to replay; or nil
	*epoch
	goal *improvement
}

// read loads the policy and the rows.
func (u *update) read() error {
	if err := verifyPolicy(u.o.Policy); err != nil {
		return err
	}
	var err error
	if u.policy, err = u.kit.load(u.o.Policy, u.settings.FreezeVision); err != nil {
		return err
	}
	_, known, err := u.kit.renderer(u.o.Policy)
	if err != nil {
		return err
	}
	read, err := u.kit.pictures(u.o.Policy)
	if err != nil {
		return err
	}
	u.images = OpenPictures(read, u.o.Images...)
	e := epochReader{
		rollouts: u.o.Rollouts, judged: u.o.Judged, images: u.images, settings: u.settings, names: identities(u.o.Policy), log: u.run.Log,
		check: Checker{Traits: u.policy.Traits(), Known: known, Budget: u.settings.PackTokens,
			Recompute: u.settings.OldLogprobs == Recompute && !u.correcting(), Retokenised: u.settings.Retokenised == "accept"},
	}
	if u.epoch, err = e.read(); err != nil {
		return err
	}
	return u.report()
}

// report says what became of the rows, and stops when there is none.
func (u *update) report() error {
	s := u.stats
	log := u.run.Log
	warnRefused(log, s)
	if n := s.Status[trajectory.Failed] + s.Unscored; n > 0 {
		log.Info("rows without a reward left out", "failed", s.Status[trajectory.Failed], "unscored", s.Unscored, "of", s.Rows)
	}
	if s.SingleGroups > 0 {
		log.Warn("groups of one row have no advantage", "groups", s.SingleGroups, "of", s.Groups)
	}
	if s.Groups > 0 && float64(s.EqualGroups) > .9*float64(s.Groups) {
		log.Warn("in nearly all groups every reward is the same: there is little to learn from", "groups", s.EqualGroups, "of", s.Groups, "reward", short(s.Reward.mean()))
	}
	if s.Groups == 0 {
		e := fail.New(fail.BadInput, "grpo", u.o.Rollouts, "none of %d rows can be trained on: %d refused, %d failed, %d without a reward, %d truncated",
			s.Rows, len(u.refused), s.Status[trajectory.Failed], s.Unscored, s.TruncatedDropped)
		e.Hint = firstRefusal(u.refused)
		return e
	}
	log.Info("rows to train on", "rows", s.TrainedRows, "of", s.Rows, "groups", u.groups, "left_out_equal", s.EqualDropped,
		"reward", short(s.Reward.mean()), "tokens", int64(s.Tokens.sum))
	return nil
}

// correcting tells whether there is a rollout correction: then sampled log-probs
// must be comparable.
func (u *update) correcting() bool {
	c, err := NewCorrection(u.settings.Correction)
	return c != nil && err == nil
}

// score fixes old and reference log-probs, and the correction between sampled
// and old ones.
func (u *update) score(ctx context.Context, loss *Loss) error {
	divisor, err := NewDenominator(u.settings.Aggregation, u.settings.NormTokens)
	if err != nil {
		return err
	}
	u.goal = &improvement{loss: loss, divisor: divisor, maxMismatch: u.settings.MaxMismatch}
	if u.goal.correction, err = NewCorrection(u.settings.Correction); err != nil {
		return err
	}
	if u.settings.OldLogprobs == Recompute {
		old, err := u.logprobs(ctx, "old", func() (Policy, error) { return u.policy, nil })
		if err != nil {
			return err
		}
		for i, s := range u.rows {
			s.Old = old[i]
			if s.Sampled != nil {
				u.goal.mismatch.Add(s.Old, s.Sampled)
			}
			if c := u.goal.correction; c != nil {
				s.Weight, s.Skip, s.Kept, s.Outside = c.Row(s.Old, s.Sampled)
			}
		}
		if err := u.goal.mismatch.check(u.settings.MaxMismatch); err != nil {
			return err
		}
		if u.settings.RouterReplay == ReplayOld {
			if u.routes, err = openRoutes(u.journal("old"), u.d.Digest(), u.rows); err != nil {
				return err
			}
		}
	} else {
		u.goal.measure = true
		for _, s := range u.rows {
			if u.settings.OldLogprobs == Bypass {
				s.Old = s.Sampled
			}
		}
	}
	if loss.KL == 0 {
		return nil
	}
	var loaded lender
	ref, err := u.logprobs(ctx, "reference", func() (Policy, error) {
		p, err := u.reference()
		if l, ok := p.(lender); err == nil && ok && p != u.policy {
			loaded = l
			l.borrow(u.policy)
		}
		return p, err
	})
	if err != nil {
		return err
	}
	if own, ok := u.policy.(lender); ok && loaded != nil {
		own.borrow(loaded)
		loaded.free()
	}
	for i, s := range u.rows {
		s.Ref = ref[i]
	}
	return nil
}

// lender is a policy whose memory for passes another one can use meanwhile.
type lender interface {
	Policy
	borrow(from Policy)
	free()
}

// scored are the packs of log-probs' passes.
func (u *update) scored(g recipe.GRPO) (packs [][]*Sequence) {
	if g.OldLogprobs != Recompute && g.KL == 0 {
		return nil
	}
	all := make([]int, len(u.rows))
	for i := range all {
		all[i] = i
	}
	return packsOfSteps(u.rows, []Step{{Packs: pack(u.rows, all, g.PackTokens)}})
}

// reference is the reference policy; the policy itself when both have the same
// weights.
func (u *update) reference() (Policy, error) {
	if err := verifyPolicy(u.o.Reference); err != nil {
		return nil, err
	}
	a, err := WeightsDigest(u.o.Policy)
	if err != nil {
		return nil, err
	}
	b, err := WeightsDigest(u.o.Reference)
	if err != nil {
		return nil, err
	}
	if a == b {
		return u.policy, nil
	}
	ref, err := u.kit.load(u.o.Reference, true)
	if err != nil {
		return nil, err
	}
	if x, y := ref.Traits(), u.policy.Traits(); x.Vocab != y.Vocab || x.PatchDim != y.PatchDim || x.ImagePad != y.ImagePad {
		return nil, fail.New(fail.BadInput, "load reference", u.o.Reference, "its vocabulary (%d) or images differ from the policy's (%d)", x.Vocab, y.Vocab)
	}
	return ref, nil
}

func (u *update) journal(name string) string {
	return filepath.Join(u.d.Dir(), workName, name+"-logprobs.journal")
}

func (u *update) logprobs(ctx context.Context, name string, policy func() (Policy, error)) ([][]float32, error) {
	p := u.run.Progress(name+" log-probs", int64(len(u.rows)))
	defer p.Done()
	s := scorer{
		what: name + " log-probs", path: u.journal(name), header: u.d.Digest(),
		policy: policy, images: u.images, budget: u.settings.PackTokens, stopping: u.run.Stopping(),
		kept: p.Skip, note: func(n int64) { p.Add(n, 0) },
	}
	return s.scores(ctx, u.rows)
}

// carry continues the optimizer of the policy's own training, and its float32
// weights when the policy was saved in a narrower type: an epoch's steps may be
// smaller than what that type can hold.
func (u *update) carry(t *run) error {
	dir := filepath.Join(u.o.Policy, StateDir)
	c, err := readCursor(dir)
	if err != nil || c.Kind != "grpo" {
		return nil
	}
	// Without the state this would be another run than the one that the manifests
	// tell of, so that is no ground to begin anew.
	if err := refusePruned(u.o.Policy, StateDir+"/"+c.File); err != nil {
		return err
	}
	f, err := c.open(dir, t.params)
	if err != nil {
		u.run.Log.Warn("the optimizer starts anew", "because", err)
		return nil
	}
	defer f.Close()
	if l, ok := t.policy.(*adapted); ok {
		if err := c.read(f, t.params, t.opt, true); err != nil {
			return err
		}
		l.rebase()
		t.opt.Skipped = 0
		u.run.Log.Info("continuing the policy's adapter", "updates", c.Updates)
		return nil
	}
	var room []float32
	for _, p := range t.params {
		master, err := f.Float32("weight." + p.Name)
		if err != nil {
			return err
		}
		for i, w := range p.values(&room) {
			// bfloat16 keeps 8 bits.
			if d := master[i] - w; d > max(w, -w)/128 || -d > max(w, -w)/128 {
				u.run.Log.Warn("the optimizer starts anew", "because", "the training state is not of these weights", "tensor", p.Name)
				return nil
			}
		}
	}
	if err := c.read(f, t.params, t.opt, true); err != nil {
		return err
	}
	t.opt.Skipped = 0
	u.run.Log.Info("continuing the policy's optimizer", "updates", c.Updates)
	return nil
}
