package qwenvl

// Cost is what training on a row takes, in floating-point operations, forward and
// backward: 6 for each weight of a matrix product and token, the head included and
// the embedding table not; 6·layers·width for each pair of tokens (causal, so half
// of all pairs); and the same of the vision tower's patches, whose attention sees
// all pairs of a frame.
type Cost struct {
	Token, Pair            float64 // of a token, of a token and a token
	Patch, Merged, Patches float64 // of a patch, of a merged patch, of a pair of patches of one frame
}

// Cost is the model's.
func (c Config) Cost() Cost {
	q, kv := float64(c.Heads*c.HeadDim), float64(c.KVHeads*c.HeadDim)
	h, f, layers := float64(c.Hidden), float64(c.Intermediate), float64(c.Layers)
	mlps := 0.0 // weights that a token meets in all layers
	for i := range c.Layers {
		if c.Sparse(i) {
			mlps += h*float64(c.Experts) + float64(c.TopExperts)*3*h*float64(c.ExpertWidth)
		} else {
			mlps += 3 * h * f
		}
	}
	k := Cost{
		Token: 6 * (layers*(h*(q+2*kv)+q*h) + mlps + h*float64(c.Vocab)),
		Pair:  6 * layers * q,
	}
	if !c.HasVision() {
		return k
	}
	v := &c.Vision
	d, depth := float64(v.Hidden), float64(v.Depth)
	products := 2.0
	full := depth
	if v.windowed() {
		products, full = 3, float64(len(v.Full))
		side := float64(v.Window * c.MergeSize)
		k.Patch += 12 * (depth - full) * d * side * side
	}
	k.Patch += 6 * (float64(c.PatchDim())*d + depth*(4*d*d+products*d*float64(v.Intermediate)))
	k.Patches = 12 * full * d
	wide := d * float64(c.mergeUnit())
	k.Merged = 6 * float64(1+len(v.Deepstack)) * (wide*wide + wide*float64(v.Out))
	return k
}

// Row is the cost of a row of so many tokens with images of the given grids.
func (k Cost) Row(tokens int, grids [][3]int32, merge int32) float64 {
	n := float64(tokens)
	sum := k.Token*n + k.Pair*n*n
	for _, g := range grids {
		frame := float64(g[1]) * float64(g[2])
		merged := frame / float64(merge*merge)
		sum += float64(g[0]) * (k.Patch*frame + k.Merged*merged + k.Patches*frame*frame)
	}
	return sum
}
