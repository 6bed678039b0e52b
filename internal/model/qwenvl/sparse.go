package qwenvl

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// sparse is the MLP of a sparse layer: a router and its experts.
type sparse struct {
	router  weight // [Experts, Hidden]
	experts []expert
}

type expert struct{ gateUp, down weight }

func (s *sparse) each(f func(*weight)) {
	f(&s.router)
	for i := range s.experts {
		f(&s.experts[i].gateUp)
		f(&s.experts[i].down)
	}
}

// addExperts lays a sparse layer out as its checkpoint has it.
func (b *builder) addExperts(p string, cfg *Config) *sparse {
	h, wide, n := cfg.Hidden, cfg.ExpertWidth, cfg.Experts
	s := &sparse{router: b.add(p+"gate.weight", n, h), experts: make([]expert, n)}
	if cfg.ExpertLayout == ExpertsSeparate {
		for i := range s.experts {
			q := fmt.Sprintf("%sexperts.%d.", p, i)
			s.experts[i].gateUp = join(b.add(q+"gate_proj.weight", wide, h), b.add(q+"up_proj.weight", wide, h))
			s.experts[i].down = b.add(q+"down_proj.weight", h, wide)
		}
		return s
	}
	up, down := []int{n, 2 * wide, h}, []int{n, h, wide}
	if cfg.ExpertLayout == ExpertsTransposed {
		up, down = []int{n, h, 2 * wide}, []int{n, wide, h}
	}
	allUp, allDown := b.add(p+"experts.gate_up_proj", up...), b.add(p+"experts.down_proj", down...)
	for i := range s.experts {
		s.experts[i].gateUp = weight{off: allUp.off + i*2*wide*h, n: 2 * wide * h}
		s.experts[i].down = weight{off: allDown.off + i*wide*h, n: wide * h}
	}
	return s
}

// findExpertLayout tells the two stacked layouts apart by the shapes in the
// files; where gate_up_proj is square, down_proj is not.
func (c *Config) findExpertLayout(shape func(name string) []int) {
	if c.Experts == 0 || c.ExpertLayout == ExpertsSeparate {
		return
	}
	prefix := "model."
	if c.HasVision() {
		prefix = "model.language_model."
	}
	for i := range c.Layers {
		if c.Sparse(i) {
			if slices.Equal(shape(fmt.Sprintf("%slayers.%d.mlp.experts.down_proj", prefix, i)), []int{c.Experts, c.ExpertWidth, c.Hidden}) {
				c.ExpertLayout = ExpertsTransposed
			}
			return
		}
	}
}

// routed is where the tokens of a sparse layer went. Slot i·TopExperts + j is the
// j-th expert of row i; slots are worked on expert by expert, each at its place.
type routed struct {
	n      int
	chosen []int32        // expert of each slot
	weight []float32      // of each slot
	bounds []int          // places of expert e: [bounds[e], bounds[e+1])
	row    *tensor.Ints   // of each place
	taps   []*tensor.Ints // places of each row's slots, four at a time
	shares []*tensor.Tensor
	gateUp *tensor.Tensor // [places, 2·ExpertWidth]
	out    *tensor.Tensor // [places, Hidden]
}

// route chooses experts for n rows: the TopExperts largest logits, weighed by
// the softmax among them, which is the softmax over all experts renormalised.
// Rows with forced experts take those, weighed by the present logits.
func (m *Model) route(a *tensor.Arena, s *sparse, norm *tensor.Tensor, n int, forced []int32) *routed {
	be, c := m.be, &m.cfg
	k, e := c.TopExperts, c.Experts
	logits := a.Full(n * e)
	be.Linear(logits, norm, s.router.w, nil, n, c.Hidden, e, false)
	z := make([]float32, n*e)
	be.Download(z, logits)
	r := &routed{n: n, chosen: make([]int32, n*k), weight: make([]float32, n*k), bounds: make([]int, e+1)}
	order := make([]int32, e)
	for i := range n {
		row, top := z[i*e:(i+1)*e], r.chosen[i*k:(i+1)*k]
		if forced != nil && forced[i*k] >= 0 {
			copy(top, forced[i*k:])
		} else {
			for j := range order {
				order[j] = int32(j)
			}
			slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(row[y], row[x]) })
			copy(top, order)
		}
		softmaxOf(r.weight[i*k:(i+1)*k], row, top)
	}
	for _, x := range r.chosen {
		r.bounds[x+1]++
	}
	for x := range e {
		r.bounds[x+1] += r.bounds[x]
	}
	next := slices.Clone(r.bounds[:e])
	rows, place := make([]int32, n*k), make([]int32, n*k)
	for slot, x := range r.chosen {
		rows[next[x]], place[slot] = int32(slot/k), int32(next[x])
		next[x]++
	}
	r.row = be.UploadInts(rows)
	// Mix takes four taps; what is missing to the last four repeats a tap of the
	// row with weight 0.
	for from := 0; from < k; from += 4 {
		taps, shares := make([]int32, 4*n), make([]float32, 4*n)
		for i := range n {
			for j := range 4 {
				slot := i*k + min(from+j, k-1)
				taps[4*i+j] = place[slot]
				if from+j < k {
					shares[4*i+j] = r.weight[slot]
				}
			}
		}
		t := a.Full(4 * n)
		be.Upload(t, shares)
		r.taps, r.shares = append(r.taps, be.UploadInts(taps)), append(r.shares, t)
	}
	return r
}

// softmaxOf sets w to the softmax of z at the given places.
func softmaxOf(w, z []float32, at []int32) {
	top := math.Inf(-1)
	for _, x := range at {
		top = math.Max(top, float64(z[x]))
	}
	sum := 0.0
	for _, x := range at {
		sum += math.Exp(float64(z[x]) - top)
	}
	for j, x := range at {
		w[j] = float32(math.Exp(float64(z[x])-top) / sum)
	}
}

// eachExpert visits the experts that have rows, with the views of their places.
func (r *routed) eachExpert(s *sparse, f func(x *expert, from, rows int)) {
	for e := range s.experts {
		if n := r.bounds[e+1] - r.bounds[e]; n > 0 {
			f(&s.experts[e], r.bounds[e], n)
		}
	}
}

// multiply sets y[rows,out] = x[rows,in]·w, for w stored [out,in] or, by
// ExpertsTransposed, [in,out].
func (m *Model) multiply(y, x, w *tensor.Tensor, rows, in, out int) {
	if m.cfg.ExpertLayout == ExpertsTransposed {
		m.be.LinearBackward(y, nil, nil, x, nil, w, rows, out, in, false)
		return
	}
	m.be.Linear(y, x, w, nil, rows, in, out, false)
}

// multiplyBackward is its gradient: dx is set, dw added to.
func (m *Model) multiplyBackward(dx, dw, dy, x, w *tensor.Tensor, rows, in, out int) {
	if m.cfg.ExpertLayout == ExpertsTransposed {
		m.be.Linear(dx, dy, w, nil, rows, out, in, false)
		m.be.LinearBackward(nil, dw, nil, x, dy, nil, rows, out, in, false)
		return
	}
	m.be.LinearBackward(dx, dw, nil, dy, x, w, rows, in, out, false)
}

// takeExperts adds to out what the experts make of norm's rows.
func (m *Model) takeExperts(a *tensor.Arena, s *sparse, r *routed, out, norm *tensor.Tensor) {
	be, h, wide, places := m.be, m.cfg.Hidden, m.cfg.ExpertWidth, r.row.Len()
	r.gateUp, r.out = a.Floats(places*2*wide), a.Floats(places*h)
	mark := a.Mark()
	in, act := a.Floats(places*h), a.Floats(places*wide)
	be.Gather(in, norm, r.row, h)
	r.eachExpert(s, func(x *expert, from, n int) {
		m.multiply(a.View(r.gateUp, from*2*wide, n*2*wide), a.View(in, from*h, n*h), x.gateUp.w, n, h, 2*wide)
	})
	be.SwiGLU(act, r.gateUp, places, wide)
	r.eachExpert(s, func(x *expert, from, n int) {
		m.multiply(a.View(r.out, from*h, n*h), a.View(act, from*wide, n*wide), x.down.w, n, wide, h)
	})
	a.Release(mark)
	for i := range r.taps {
		be.Mix(out, r.out, r.taps[i], r.shares[i], r.n, h)
	}
}

// expertsBackward sets dnorm from dout, the gradient of what takeExperts added
// to, and adds to the gradients of router and experts. The router learns through
// the weights of the experts taken, also of those it would not choose any more.
func (m *Model) expertsBackward(a *tensor.Arena, s *sparse, r *routed, dnorm, dout, norm *tensor.Tensor) {
	be, h, wide, k, e, places := m.be, m.cfg.Hidden, m.cfg.ExpertWidth, m.cfg.TopExperts, m.cfg.Experts, r.row.Len()
	mark := a.Mark()
	defer a.Release(mark)
	dots := a.Full(places)
	be.RowDots(dots, r.out, dout, r.row, h)
	dweight := make([]float32, places) // by place
	be.Download(dweight, dots)

	dplace, in, dgateUp := a.Zeros(places*h), a.Floats(places*h), a.Floats(places*2*wide)
	act, dact := a.Floats(places*wide), a.Floats(places*wide)
	for i := range r.taps {
		be.MixBackward(dplace, dout, r.taps[i], r.shares[i], r.n, h)
	}
	be.Gather(in, norm, r.row, h)
	be.SwiGLU(act, r.gateUp, places, wide)
	r.eachExpert(s, func(x *expert, from, n int) {
		m.multiplyBackward(a.View(dact, from*wide, n*wide), x.down.g, a.View(dplace, from*h, n*h), a.View(act, from*wide, n*wide), x.down.w, n, wide, h)
	})
	be.SwiGLUBackward(dgateUp, act, dact, r.gateUp, places, wide)
	r.eachExpert(s, func(x *expert, from, n int) {
		m.multiplyBackward(a.View(dplace, from*h, n*h), x.gateUp.g, a.View(dgateUp, from*2*wide, n*2*wide), a.View(in, from*h, n*h), x.gateUp.w, n, h, 2*wide)
	})

	// The softmax among the chosen: dz = w·(dw - Σ w·dw).
	dz, place := make([]float32, r.n*e), slices.Clone(r.bounds[:e])
	dw := make([]float32, k)
	for i := range r.n {
		mean := 0.0
		for j := range k {
			slot := i*k + j
			x := r.chosen[slot]
			dw[j] = dweight[place[x]]
			place[x]++
			mean += float64(r.weight[slot]) * float64(dw[j])
		}
		for j := range k {
			slot := i*k + j
			dz[i*e+int(r.chosen[slot])] = r.weight[slot] * float32(float64(dw[j])-mean)
		}
	}
	dlogits := a.Floats(r.n * e)
	be.Upload(dlogits, dz)
	be.LinearBackward(dnorm, s.router.g, nil, dlogits, norm, s.router.w, r.n, h, e, false)
	be.ScatterAdd(dnorm, dplace, r.row, h)
}

// Routes are the experts that the rows of the pass took, in the form of a
// Batch's Routes. In the last layer only the rows that Score asked for are
// routed; the others' numbers are -1.
func (p *Pass) Routes() [][]int32 {
	k := p.m.cfg.TopExperts
	all := make([][]int32, len(p.m.layers))
	for i := range p.layers {
		if r := p.layers[i].feed.routed; r != nil {
			all[i] = slices.Clone(r.chosen)
		} else {
			all[i] = slices.Clone(p.layers[i].chosen)
		}
	}
	if r := p.asked.feed.routed; r != nil {
		last := make([]int32, p.in.rows*k)
		for i := range last {
			last[i] = -1
		}
		for i, row := range p.asked.rows {
			copy(last[int(row)*k:], r.chosen[i*k:(i+1)*k])
		}
		all[len(all)-1] = last
	}
	return all
}

// forced are the experts to replay in a layer, of all rows or of the given ones.
func (p *Pass) forced(layer int, rows []int32) []int32 {
	if p.routes == nil || p.routes[layer] == nil {
		return nil
	}
	if rows == nil {
		return p.routes[layer]
	}
	k := p.m.cfg.TopExperts
	out := make([]int32, 0, len(rows)*k)
	for _, r := range rows {
		out = append(out, p.routes[layer][int(r)*k:(int(r)+1)*k]...)
	}
	return out
}

// checkRoutes refuses routes that do not fit the model and n tokens.
func (m *Model) checkRoutes(routes [][]int32, n int) error {
	bad := func(format string, args ...any) error {
		return fail.New(fail.BadInput, "model input", "", format, args...)
	}
	if routes == nil {
		return nil
	}
	if len(routes) != len(m.layers) {
		return bad("routes of %d layers for %d", len(routes), len(m.layers))
	}
	k := m.cfg.TopExperts
	for i, r := range routes {
		switch {
		case r == nil:
			continue
		case m.layers[i].sparse == nil:
			return bad("routes for layer %d, which has no experts", i)
		case len(r) != n*k:
			return bad("layer %d: %d routes for %d tokens of %d experts", i, len(r), n, k)
		}
		for t := range n {
			top := r[t*k : (t+1)*k]
			if top[0] < 0 {
				continue
			}
			for j, x := range top {
				if x < 0 || int(x) >= m.cfg.Experts || slices.Contains(top[:j], x) {
					return bad("layer %d, token %d: experts %v", i, t, top)
				}
			}
		}
	}
	return nil
}
