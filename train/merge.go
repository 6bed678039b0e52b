package train

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/gemm"
	"searchloop/internal/job"
	"searchloop/internal/peft"
	"searchloop/internal/safetensors"
)

// MergeOptions are the places of a merge.
type MergeOptions struct {
	Policy  string // what the adapter was trained beside
	Adapter string // PEFT's folder: adapter_config.json and adapter_model.safetensors
	Out     string
}

// Merge adds a LoRA adapter to a policy's weights: a checkpoint as the policy,
// without training state.
func Merge(_ context.Context, r *job.Run, o MergeOptions) error { return merge(r, o, qwenKit) }

func merge(r *job.Run, o MergeOptions, k kit) error {
	inputs := map[string]string{}
	for _, name := range []string{peft.ConfigFile, peft.WeightsFile} {
		inputs["adapter/"+name] = filepath.Join(o.Adapter, name)
	}
	if err := policyInputs(inputs, "policy", o.Policy); err != nil {
		return err
	}
	d, part, err := folder(r, job.Spec{Dir: o.Out, Inputs: inputs, Params: struct{ Job string }{"merge"}})
	if err != nil || part == nil {
		return err
	}
	defer part.Discard()
	if err := verifyPolicy(o.Policy); err != nil {
		return err
	}
	policy, err := k.load(o.Policy, false)
	if err != nil {
		return err
	}
	if err := addAdapter(policy, o.Adapter); err != nil {
		return err
	}
	weights, small, err := policyFiles(o.Policy)
	if err != nil {
		return err
	}
	if err := clearWeights(d.Dir(), weights); err != nil {
		return err
	}
	if err := policy.Save(d.Dir()); err != nil {
		return err
	}
	for _, name := range small {
		if err := copyFile(filepath.Join(d.Dir(), name), filepath.Join(o.Policy, name)); err != nil {
			return err
		}
	}
	meta := Meta{Kind: "merge"}
	if meta.Policy, err = WeightsDigest(d.Dir()); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(d.Dir(), doneName), []byte(meta.Policy+"\n")); err != nil {
		return err
	}
	written, _, err := policyFiles(d.Dir())
	if err != nil {
		return err
	}
	r.Result(meta)
	return d.SealFiles(append(append(written, small...), doneName), meta)
}

// addAdapter changes the policy's weights. After an error they are as they were.
func addAdapter(policy Policy, dir string) error {
	c, err := peft.Read("read adapter", dir)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, peft.WeightsFile)
	f, err := safetensors.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	params := policy.Params()
	short := slices.ContainsFunc(params, func(p Param) bool { return strings.HasPrefix(p.Name, "visual.") })
	byModule := map[string]Param{}
	for _, p := range params {
		if module, ok := strings.CutSuffix(p.Name, ".weight"); ok {
			byModule[module], byModule[longModule(module, short)] = p, p
		}
	}
	type factors struct{ a, b string }
	found := map[string]*factors{}
	for _, name := range f.Names() {
		key := strings.Replace(strings.TrimPrefix(name, peft.Prefix), ".default.", ".", 1)
		module, isA := strings.CutSuffix(key, ".lora_A.weight")
		if !isA {
			var isB bool
			if module, isB = strings.CutSuffix(key, ".lora_B.weight"); !isB {
				return fail.New(fail.BadInput, "read adapter", path, "%s is no factor of a linear layer", name)
			}
		}
		if found[module] == nil {
			found[module] = new(factors)
		}
		if isA {
			found[module].a = name
		} else {
			found[module].b = name
		}
	}
	scale := c.Scale()
	type sum struct {
		p    Param
		a, b []float32
	}
	var sums []sum
	for _, module := range slices.Sorted(maps.Keys(found)) {
		p, ok := byModule[module]
		if !ok || len(p.Shape) != 2 {
			return fail.WithHint(fail.New(fail.BadInput, "read adapter", path, "the policy has no linear layer %s", module), "is it an adapter of this policy?")
		}
		var x [2][]float32
		for i, want := range [][]int{{c.Rank, p.Shape[1]}, {p.Shape[0], c.Rank}} {
			name := [2]string{found[module].a, found[module].b}[i]
			_, shape, ok := f.Info(name)
			if !ok || !slices.Equal(shape, want) {
				return fail.New(fail.BadInput, "read adapter", path, "factor %c of %s is missing or has the shape %v instead of %v", "AB"[i], module, shape, want)
			}
			if x[i], err = f.Float32(name); err != nil {
				return err
			}
		}
		sums = append(sums, sum{p, x[0], x[1]})
	}
	for _, s := range sums {
		for i := range s.b {
			s.b[i] *= scale
		}
		gemm.NN(s.p.W, s.b, s.a, s.p.Shape[0], s.p.Shape[1], c.Rank, true)
	}
	return nil
}
