package tensor

// Arena hands out tensors that all die together at Reset. The memory stays, so
// that a second pass over a batch of the same size allocates nothing. What it
// hands out holds old values.
//
// It is not safe for concurrent use.
type Arena struct {
	be     Backend
	blocks []*Tensor
	used   int // of the last block
	total  int // handed out since Reset

	heads    [][]Tensor // headers, in slabs so that pointers to them stay valid
	headUsed int
}

// NewArena returns an empty arena over be.
func NewArena(be Backend) *Arena { return &Arena{be: be} }

const (
	arenaBlock = 1 << 18 // smallest block, in values
	arenaAlign = 16      // values; 64 bytes
	arenaSlab  = 128     // headers
)

// Floats returns n values; their content is not defined.
func (a *Arena) Floats(n int) *Tensor {
	size := (n + arenaAlign - 1) / arenaAlign * arenaAlign
	if len(a.blocks) == 0 || a.used+size > a.blocks[len(a.blocks)-1].Len() {
		a.blocks = append(a.blocks, a.be.Alloc(max(size, arenaBlock, a.total/2)))
		a.used = 0
	}
	t := a.header()
	*t = a.blocks[len(a.blocks)-1].view(a.used, n)
	a.used += size
	a.total += size
	return t
}

// Zeros returns n zeros.
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
		a.blocks = append(a.blocks[:0], a.be.Alloc(n))
	}
	a.used, a.total, a.headUsed = 0, 0, 0
}

// Floats held, for reports of memory use.
func (a *Arena) Size() int {
	n := 0
	for _, b := range a.blocks {
		n += b.Len()
	}
	return n
}
