package train

import (
	"encoding/json"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/peft"
	"searchloop/internal/recipe"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

// adapted is a policy whose own weights stand still and which learns low-rank
// factors of what is added to some of them (LoRA, arXiv 2106.09685):
//
//	W = W₀ + s·B·A,   A [rank, in], B [out, rank],   s = alpha/rank or alpha/√rank
//
// The sum is formed after every update, so that the model knows nothing of it;
// the factors' gradients are formed from that of W before it.
type adapted struct {
	Policy
	settings recipe.LoRA
	scale    float32
	pairs    []*pair
	narrow   *tensor.Tensor // room for a gradient in the working kind, where that is not float32
}

// pair is one adapted weight. The factors, their gradients and their optimizer are
// in host memory; what is as large as the weight is where the policy is.
type pair struct {
	module  string // without .weight, as transformers names it
	be      tensor.Trainer
	w, g    *tensor.Tensor // of the policy
	frozen  *tensor.Tensor
	out, in int
	a, b    Param
	scaled  []float32 // s·B

	// Copies beside the policy: A, s·B and, in float32, their gradients.
	at, sb, da, db *tensor.Tensor
}

// decoderLinears are the modules that are adapted when the recipe names none.
var decoderLinears = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// adapt wraps a policy as the recipe says; without a rank it is returned as it is.
func adapt(p Policy, o recipe.LoRA, seed uint64) (Policy, error) {
	bad := func(key, format string, args ...any) (Policy, error) {
		return nil, fail.New(fail.Usage, "lora."+key, "", format, args...)
	}
	switch {
	case o.Rank == 0 && o.Alpha == 0 && len(o.Targets) == 0 && !o.RSLoRA:
		return p, nil
	case o.Rank < 1:
		return bad("rank", "%d: want 1 or more", o.Rank)
	case !(o.Alpha >= 0) || math.IsInf(o.Alpha, 0):
		return bad("alpha", "%g: want 0 (the rank) or more", o.Alpha)
	}
	l := &adapted{Policy: p, settings: o, scale: loraScale(o)}
	params := p.Params()
	largest := 0
	var be tensor.Trainer
	short := slices.ContainsFunc(params, func(q Param) bool { return strings.HasPrefix(q.Name, "visual.") })
	for _, q := range params {
		module, ok := strings.CutSuffix(q.Name, ".weight")
		if !ok || len(q.Shape) != 2 || !targeted(module, q.Vision, o.Targets) {
			continue
		}
		r := &pair{module: longModule(module, short), out: q.Shape[0], in: q.Shape[1]}
		r.be, r.w, r.g = q.place()
		be, largest = r.be, max(largest, r.w.Len())
		if be.Working() != tensor.Float32 && o.Rank%8 != 0 {
			return bad("rank", "%d: the GPU's products need a multiple of 8", o.Rank)
		}
		r.frozen = be.Alloc(r.w.Len())
		be.Copy(r.frozen, r.w)
		factor := func(name string, rows, cols int) Param {
			return Param{Name: peft.Prefix + r.module + "." + name + ".weight", Shape: []int{rows, cols}, Vision: q.Vision,
				W: make([]float32, rows*cols), G: make([]float32, rows*cols)}
		}
		r.a, r.b = factor("lora_A", o.Rank, r.in), factor("lora_B", r.out, o.Rank)
		r.scaled = make([]float32, len(r.b.W))
		r.at, r.sb, r.da, r.db = be.Alloc(len(r.a.W)), be.Alloc(len(r.b.W)), be.AllocFull(len(r.a.W)), be.AllocFull(len(r.b.W))
		h := fnv.New64a()
		h.Write([]byte(r.module))
		rng := rand.New(rand.NewPCG(seed, h.Sum64()))
		bound := 1 / math.Sqrt(float64(r.in)) // as torch initialises a linear layer
		for i := range r.a.W {
			r.a.W[i] = float32((2*rng.Float64() - 1) * bound)
		}
		l.pairs = append(l.pairs, r)
	}
	if len(l.pairs) == 0 {
		return bad("targets", "%v: no linear layer of the policy has such a name", o.Targets)
	}
	if be.Working() != tensor.Float32 {
		l.narrow = be.Alloc(largest)
	}
	return l, nil
}

func loraScale(o recipe.LoRA) float32 {
	alpha := o.Alpha
	if alpha == 0 {
		alpha = float64(o.Rank)
	}
	return peft.LoRA{Rank: o.Rank, Alpha: alpha, RSLoRA: o.RSLoRA}.Scale()
}

// targeted: names are the last part of a module's, or all of it; the vision
// tower is adapted only where it is named in full.
func targeted(module string, vision bool, targets []string) bool {
	if slices.Contains(targets, module) {
		return true
	}
	if len(targets) == 0 {
		targets = decoderLinears
	}
	return !vision && slices.Contains(targets, module[strings.LastIndexByte(module, '.')+1:])
}

// longModule is what transformers calls a module whose weights are stored under
// the short names of Qwen2.5-VL.
func longModule(module string, short bool) string {
	if rest, ok := strings.CutPrefix(module, "visual."); ok {
		return "model.visual." + rest
	}
	if rest, ok := strings.CutPrefix(module, "model."); ok && short {
		return "model.language_model." + rest
	}
	return module
}

// Params are the factors.
func (l *adapted) Params() []Param {
	var out []Param
	for _, p := range l.pairs {
		out = append(out, p.a, p.b)
	}
	return out
}

// gather forms the factors' gradients: dB = s·dW·Aᵀ, dA = s·Bᵀ·dW.
func (l *adapted) gather() {
	rank := l.settings.Rank
	for _, p := range l.pairs {
		be, g := p.be, p.g
		if l.narrow != nil {
			g = l.narrow.View(0, p.g.Len())
			be.Copy(g, p.g)
		}
		be.Upload(p.at, p.a.W)
		be.Linear(p.db, g, p.at, nil, p.out, p.in, rank, false)
		be.Download(p.b.G, p.db)
		for i := range p.b.G {
			p.b.G[i] *= l.scale
		}
		p.scale(l.scale)
		be.Zero(p.da)
		be.LinearBackward(nil, p.da, nil, p.sb, g, nil, p.out, p.in, rank, false)
		be.Download(p.a.G, p.da)
	}
}

// scale makes sb s·B.
func (p *pair) scale(s float32) {
	for i, x := range p.b.W {
		p.scaled[i] = s * x
	}
	p.be.Upload(p.sb, p.scaled)
}

// add adds sb·A to w.
func (p *pair) add(w *tensor.Tensor, rank int) {
	p.be.Upload(p.at, p.a.W)
	p.be.LinearBackward(w, nil, nil, p.sb, nil, p.at, p.out, p.in, rank, true)
}

// apply makes the policy's weights those of the factors.
func (l *adapted) apply() {
	for _, p := range l.pairs {
		p.scale(l.scale)
		p.be.Copy(p.w, p.frozen)
		p.add(p.w, l.settings.Rank)
	}
}

// rebase takes the policy's present weights for those with the factors: the next
// epoch of a loop begins at what the last one merged.
func (l *adapted) rebase() {
	for _, p := range l.pairs {
		p.scale(-l.scale)
		p.add(p.frozen, l.settings.Rank)
	}
	l.apply()
}

// AdapterDir is the folder of a checkpoint that holds the adapter, in PEFT's format.
const AdapterDir = "adapter"

// Save writes the merged policy, and the adapter beside it.
func (l *adapted) Save(dir string) error {
	if err := l.Policy.Save(dir); err != nil {
		return err
	}
	var tensors []safetensors.Tensor
	var modules []string
	for _, p := range l.pairs {
		modules = append(modules, p.module)
		for _, f := range []Param{p.a, p.b} {
			tensors = append(tensors, safetensors.Tensor{Name: f.Name, DType: "F32", Shape: f.Shape, F32: f.W})
		}
	}
	at := filepath.Join(dir, AdapterDir)
	if err := safetensors.Write(filepath.Join(at, peft.WeightsFile), tensors, map[string]string{"format": "pt"}); err != nil {
		return err
	}
	alpha := l.settings.Alpha
	if alpha == 0 {
		alpha = float64(l.settings.Rank)
	}
	text, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": nil, "inference_mode": true,
		"r": l.settings.Rank, "lora_alpha": alpha, "use_rslora": l.settings.RSLoRA, "lora_dropout": 0.0, "bias": "none",
		"fan_in_fan_out": false, "init_lora_weights": true, "modules_to_save": nil, "target_modules": modules,
	}, "", "  ")
	if err != nil {
		return fail.Wrap(fail.Bug, "write adapter", at, err)
	}
	return atomicfile.WriteFile(filepath.Join(at, peft.ConfigFile), append(text, '\n'))
}

// files are what Save writes beside the policy's own.
func (l *adapted) files() []string {
	return []string{AdapterDir + "/" + peft.ConfigFile, AdapterDir + "/" + peft.WeightsFile}
}
