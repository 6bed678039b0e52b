package qwenvl

import (
	"slices"

	"searchloop/internal/tensor"
)

// The head works on chunks of rows whose logits fit what the back end holds at
// once, but at least 128 rows, so that the head's weights are not read for a few
// rows only. The logits of one Score stay for Backward when they fit headKeep
// values.
const (
	headKeep      = 1 << 22
	headRowsLeast = 128
	headRowsMost  = 1024
)

// HeadChunk is the number of rows whose logits are held at once when n are scored.
func HeadChunk(be tensor.Backend, vocab, n int) int {
	return min(n, max(headRowsLeast, min(headRowsMost, be.HeadValues()/vocab)))
}

// scored is the state of the last Score.
type scored struct {
	rows, targets  []int32
	temperature    float32
	x, norm, inv   *tensor.Tensor // of the rows
	logp, ent, lse *tensor.Tensor
	logits         *tensor.Tensor
	chunk          int          // rows
	kept           bool         // logits holds all chunks and has not been overwritten
	of             *tensor.Ints // each row's place among the asked ones
}

// Score gives, for every r of rows (indices of packed tokens), the log-prob of
// its target as the token after row r, and the entropy of that distribution, in
// nats: the softmax of the logits divided by temperature, which must be
// positive. A row's values do not depend on the other rows. The head is the
// expensive part: score the rows that count and no others.
func (p *Pass) Score(rows, targets []int32, temperature float32) (logp, entropy []float32) {
	if len(rows) != len(targets) || !(temperature > 0) {
		panic("qwenvl: Score needs a target for each row and a positive temperature")
	}
	m, s, n := p.m, &p.scored, len(rows)
	be, a, h, v := m.be, p.ws.arena, m.cfg.Hidden, m.cfg.Vocab
	*s = scored{rows: append(p.ws.intSlice(n)[:0], rows...), targets: append(p.ws.intSlice(n)[:0], targets...), temperature: temperature}
	logp, entropy = make([]float32, n), make([]float32, n)
	if n == 0 {
		return logp, entropy
	}
	need := append(p.ws.intSlice(n)[:0], rows...)
	slices.Sort(need)
	need = slices.Compact(need)
	if need[0] < 0 || int(need[len(need)-1]) >= p.in.rows {
		panic("qwenvl: Score of a row that the pack does not have")
	}
	p.ask(need)
	of := p.ws.intSlice(n)
	for i, r := range rows {
		at, _ := slices.BinarySearch(need, r)
		of[i] = int32(at)
	}
	s.of = be.UploadInts(of)
	s.x, s.norm, s.inv = a.Floats(n*h), a.Floats(n*h), a.Full(n)
	s.logp, s.ent, s.lse = a.Full(n), a.Full(n), a.Full(n)
	be.Gather(s.x, p.asked.out, s.of, h)
	be.RMSNorm(s.norm, s.inv, s.x, m.norm.w, n, h, m.cfg.RMSEps)
	s.chunk = HeadChunk(be, v, n)
	s.kept = n*v <= headKeep
	if s.kept {
		s.logits = a.Full(n * v)
	} else {
		s.logits = a.Full(s.chunk * v)
	}
	p.eachChunk(func(from, rows int, z *tensor.Tensor) {
		be.HeadChunk(a.View(s.logp, from, rows), a.View(s.ent, from, rows), a.View(s.lse, from, rows),
			a.View(s.norm, from*h, rows*h), m.head.w, be.UploadInts(s.targets[from:from+rows]), 1/temperature, z, rows, h, v)
	})
	be.Download(logp, s.logp)
	be.Download(entropy, s.ent)
	return logp, entropy
}

func (p *Pass) eachChunk(f func(from, rows int, z *tensor.Tensor)) {
	s, v, a := &p.scored, p.m.cfg.Vocab, p.ws.arena
	for from := 0; from < len(s.rows); from += s.chunk {
		rows := min(s.chunk, len(s.rows)-from)
		at := 0
		if s.kept {
			at = from * v
		}
		f(from, rows, a.View(s.logits, at, rows*v))
	}
}

// Backward adds to the gradients of all parameters the gradient of
//
//	Σ dlogp[i]·logp[i] + dentropy[i]·entropy[i]
//
// where logp and entropy are what Score gives for the same rows, targets and
// temperature; it scores them itself when the last Score was another. dentropy
// may be nil. A row whose two coefficients are zero has no influence whatever
// its logits are. It may be called more than once.
func (p *Pass) Backward(rows, targets []int32, temperature float32, dlogp, dentropy []float32) {
	if len(dlogp) != len(rows) || (dentropy != nil && len(dentropy) != len(rows)) {
		panic("qwenvl: Backward needs a coefficient for each row")
	}
	p.m.wantGradients()
	s, n := &p.scored, len(rows)
	if s.temperature != temperature || !slices.Equal(s.rows, rows) || !slices.Equal(s.targets, targets) {
		p.Score(rows, targets, temperature)
	}
	if n == 0 {
		return
	}
	m := p.m
	be, a, h, v := m.be, p.ws.arena, m.cfg.Hidden, m.cfg.Vocab
	mark := a.Mark()
	dl, de := a.Full(n), a.Full(n)
	be.Upload(dl, dlogp)
	if dentropy == nil {
		be.Zero(de)
	} else {
		be.Upload(de, dentropy)
	}
	dnorm, dx := a.Floats(n*h), a.Zeros(n*h)
	p.eachChunk(func(from, rows int, z *tensor.Tensor) {
		be.HeadChunkBackward(a.View(dnorm, from*h, rows*h), m.head.g, a.View(s.norm, from*h, rows*h), m.head.w,
			be.UploadInts(s.targets[from:from+rows]), a.View(dl, from, rows), a.View(de, from, rows),
			a.View(s.ent, from, rows), a.View(s.lse, from, rows), 1/temperature, z, rows, h, v, !s.kept)
	})
	s.temperature = 0 // the kept logits are gone
	be.RMSNormBackward(dx, m.norm.g, dnorm, s.x, m.norm.w, s.inv, n, h)
	dout := a.Zeros(len(p.asked.rows) * h)
	be.ScatterAdd(dout, dx, s.of, h)
	p.backward(dout)
	a.Release(mark)
}
