package train

import (
	"cmp"
	"fmt"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
)

// Ways to recompute, as recipes write them.
const (
	RecomputeNone      = "none"
	RecomputeSelective = "selective" // queries and keys after norm and rotation
	RecomputeFull      = "full"      // everything of a layer but its input
	RecomputeAuto      = "auto"      // on a GPU the first of these that fits; none on the CPU
)

var recomputes = []struct {
	name string
	how  qwenvl.Recompute
}{{RecomputeNone, qwenvl.RecomputeNone}, {RecomputeSelective, qwenvl.RecomputeSelective}, {RecomputeFull, qwenvl.RecomputeFull}}

func checkRecompute(key, how string) error {
	if !oneOf(how, "", RecomputeAuto, RecomputeNone, RecomputeSelective, RecomputeFull) {
		return fail.New(fail.Usage, key, "", "%q: want auto, none, selective or full", how)
	}
	return nil
}

// need is what a run takes of its device's memory, in bytes.
type need struct {
	qwenvl.Memory
	Optimizer int64 // on the device
	Offloaded int64 // of the optimizer, in host memory
	Adapter   int64 // of LoRA: the frozen weights and room for a gradient
}

// rest is what is taken after the weights were loaded.
func (n *need) rest() int64 { return n.Gradients + n.Optimizer + n.Activations + n.Adapter }

// spare is what a device takes for itself while it works: product and reduction
// scratch, lists of rows.
const spare = 512 << 20

// planner is a policy whose memory can be planned.
type planner interface {
	Policy
	// plan tells what the packs take, each given by its sequences.
	plan(r qwenvl.Recompute, packs [][]*Sequence) (qwenvl.Memory, error)
	reserve(r qwenvl.Recompute, m *qwenvl.Memory)
	// trainable counts weights: trained, adapted by LoRA, of the largest adapted one.
	trainable(l recipe.LoRA) (trained, targets, largest int64)
}

// planRun works out the memory of a run over the packs, says so, and takes that of
// the passes. A run that does not fit is refused before it begins, with the numbers.
func planRun(r *job.Run, d *Device, policy Policy, packs [][]*Sequence, how string, o recipe.Optimizer, l recipe.LoRA) error {
	p, ok := policy.(planner)
	if !ok {
		return nil
	}
	if how == "" {
		how = RecomputeAuto
	}
	free, total := d.free()
	packs = largest(packs)
	for _, k := range recomputes {
		if how != RecomputeAuto && how != k.name {
			continue
		}
		m, err := p.plan(k.how, packs)
		if err != nil {
			return err
		}
		n := needOf(d, p, m, o, l)
		if !d.onHost() && n.rest()+spare > free {
			if how == RecomputeAuto && k.how != qwenvl.RecomputeFull {
				continue
			}
			return tooLarge(d, &n, k.name, free, total, o)
		}
		args := []any{"device", d.String(), "dtype", d.dtype(), "weights", gib(n.Weights), "gradients", gib(n.Gradients), "optimizer", gib(n.Optimizer),
			"activations", gib(n.Activations - n.Head), "head", gib(n.Head), "recompute", k.name}
		if n.Offloaded > 0 {
			args = append(args, "offloaded", gib(n.Offloaded))
		}
		if n.Adapter > 0 {
			args = append(args, "frozen", gib(n.Adapter))
		}
		if !d.onHost() {
			args = append(args, "free_before", gib(free), "of", gib(total))
		}
		r.Log.Info("memory plan", args...)
		if d.onHost() {
			p.reserve(k.how, nil)
		} else {
			p.reserve(k.how, &m)
		}
		return nil
	}
	return nil
}

// needOf adds the optimizer's part.
func needOf(d *Device, p planner, m qwenvl.Memory, o recipe.Optimizer, l recipe.LoRA) need {
	n := need{Memory: m}
	trained, targets, largest := p.trainable(l)
	if l.Rank > 0 {
		width := m.Weights / max(1, m.Gradients/4)
		n.Adapter = targets * width
		if !d.onHost() {
			n.Adapter += largest * width
		}
		return n // factors and their moments are small, and the host's
	}
	bytes := int64(8) // both moments
	switch {
	case o.Master == MasterSplit || !d.onHost():
		bytes += 2
	case o.Master == MasterFloat32:
		bytes += 4
	}
	if n.Optimizer = bytes * trained; o.Offload && !d.onHost() {
		n.Optimizer, n.Offloaded = offloadStage, n.Optimizer
	}
	return n
}

// offloadStage is what an offloaded state is updated in, piece by piece.
const offloadStage = 320 << 20

func tooLarge(d *Device, n *need, how string, free, total int64, o recipe.Optimizer) error {
	hint := "smaller pack_tokens"
	if how != RecomputeFull {
		hint += ", recompute: full"
	}
	if !o.Offload {
		hint += ", optimizer.offload: true (its state in host memory)"
	}
	return fail.WithHint(fail.New(fail.Usage, "plan memory", d.String(), "%s are needed beside the weights' %s (gradients %s, optimizer %s, activations %s with recompute %s, head %s, adapter %s, %s spare), %s of %s are free",
		gib(n.rest()+spare), gib(n.Weights), gib(n.Gradients), gib(n.Optimizer), gib(n.Activations-n.Head), how, gib(n.Head), gib(n.Adapter), gib(spare), gib(free), gib(total)),
		hint+", LoRA, or a larger GPU")
}

func gib(n int64) string {
	if n < 1<<28 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// largest leaves out packs that another one has more of everything than: more memory
// than that they do not take.
func largest(packs [][]*Sequence) [][]*Sequence {
	type size struct{ tokens, trained, patches int64 }
	covers := func(a, b size) bool { return a.tokens >= b.tokens && a.trained >= b.trained && a.patches >= b.patches }
	sizes := make([]size, len(packs))
	order := make([]int, len(packs))
	for i, p := range packs {
		order[i] = i
		for _, s := range p {
			sizes[i].tokens += int64(len(s.Tokens))
			sizes[i].trained += int64(s.Trained)
			for _, im := range s.Images {
				sizes[i].patches += int64(im.Grid[0]) * int64(im.Grid[1]) * int64(im.Grid[2])
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b].tokens, sizes[a].tokens) })
	var out [][]*Sequence
	var kept []size
	for _, i := range order {
		if !slices.ContainsFunc(kept, func(k size) bool { return covers(k, sizes[i]) }) {
			kept, out = append(kept, sizes[i]), append(out, packs[i])
		}
	}
	return out
}

// packsOfSteps lists what the steps of a run pass over.
func packsOfSteps(rows []*Sequence, steps []Step) [][]*Sequence {
	var out [][]*Sequence
	for _, s := range steps {
		for _, p := range s.Packs {
			seqs := make([]*Sequence, len(p))
			for k, i := range p {
				seqs[k] = rows[i]
			}
			out = append(out, seqs)
		}
	}
	return out
}
