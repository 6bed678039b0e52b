package tensor

// Arena hands out tensors that all die together at Reset. The memory stays, so
// that a second pass over a batch of the same size allocates nothing. What it
// hands out holds old values.
//
// It is not safe for concurrent use.
type Arena struct {
	be     Backend
	blocks []*Tensor // of float32
	used   int       // of the last block
	total  int       // handed out since Reset
	kind   Kind      // of what Floats hands out
	peak   int       // most in use of the last block

	heads    [][]Tensor // headers, in slabs so that pointers to them stay valid
	headUsed int
}

// NewArena returns an empty arena over be.
func NewArena(be Backend) *Arena { return &Arena{be: be, kind: be.Working()} }

const (
	arenaBlock = 1 << 18 // smallest block, in float32
	arenaAlign = 16      // float32; 64 bytes
	arenaSlab  = 128     // headers
)

// Floats returns n values of the back end's working kind; their content is not
// defined.
func (a *Arena) Floats(n int) *Tensor { return a.take(n, a.kind) }

// Full returns n values in float32.
func (a *Arena) Full(n int) *Tensor { return a.take(n, Float32) }

func (a *Arena) take(n int, kind Kind) *Tensor {
	words := (n*kind.Bytes() + 3) / 4
	size := (words + arenaAlign - 1) / arenaAlign * arenaAlign
	if len(a.blocks) == 0 || a.used+size > a.blocks[len(a.blocks)-1].Len() {
		a.blocks = append(a.blocks, a.be.AllocFull(max(size, arenaBlock, a.total/2)))
		a.used = 0
	}
	t := a.header()
	*t = a.blocks[len(a.blocks)-1].view(a.used, words)
	t.n, t.kind = n, kind
	a.used += size
	a.total += size
	a.peak = max(a.peak, a.used)
	return t
}

// Zeros returns n zeros of the working kind.
func (a *Arena) Zeros(n int) *Tensor {
	t := a.Floats(n)
	a.be.Zero(t)
	return t
}

// View is t.View without an allocation of its own.
func (a *Arena) View(t *Tensor, off, n int) *Tensor {
	v := a.header()
	*v = t.view(off, n)
	return v
}

func (a *Arena) header() *Tensor {
	slab := a.headUsed / arenaSlab
	if slab == len(a.heads) {
		a.heads = append(a.heads, make([]Tensor, arenaSlab))
	}
	t := &a.heads[slab][a.headUsed%arenaSlab]
	a.headUsed++
	return t
}

// Mark and Release bracket scratch: tensors handed out in between die at
// Release, if the block has not been changed meanwhile.
type Mark struct{ blocks, used, heads int }

// Mark notes the present state.
func (a *Arena) Mark() Mark { return Mark{len(a.blocks), a.used, a.headUsed} }

// Release gives back what was handed out since m was taken.
func (a *Arena) Release(m Mark) {
	if len(a.blocks) == m.blocks {
		a.used, a.headUsed = m.used, m.heads
	}
}

// Reset gives everything back. Several blocks become one of their joint size.
func (a *Arena) Reset() {
	if len(a.blocks) > 1 {
		n := 0
		for _, b := range a.blocks {
			n += b.Len()
			a.be.Free(b)
		}
		a.blocks = append(a.blocks[:0], a.be.AllocFull(n))
	}
	a.used, a.total, a.headUsed = 0, 0, 0
}

// Reserve takes room for n float32 at once; an arena that has memory keeps it.
func (a *Arena) Reserve(n int) {
	if len(a.blocks) == 0 {
		a.blocks = append(a.blocks, a.be.AllocFull(n))
	}
}

// Peak is the most that was in use of the arena's last block so far, in float32:
// of the whole arena where it has one block.
func (a *Arena) Peak() int { return a.peak }

// Free gives the memory back to the back end.
func (a *Arena) Free() {
	for _, b := range a.blocks {
		a.be.Free(b)
	}
	*a = Arena{be: a.be, kind: a.kind}
}

// Floats held, for reports of memory use.
func (a *Arena) Size() int {
	n := 0
	for _, b := range a.blocks {
		n += b.Len()
	}
	return n
}
