package gemm

import (
	"sync"
	"unsafe"

	"searchloop/internal/par"
)

// blockWork is the least number of multiply-adds that is worth handing to a
// worker, some microseconds. Products below twice that stay where they are.
const blockWork = 1 << 19

// minRows is the least number of rows a worker takes while there are enough of
// them: each worker packs its own copy of B's panels.
const minRows = 64

// product is one call. It is cut into blocks of C, each computed whole by one
// worker with its own packed copies, so that workers share nothing.
type product struct {
	c, a, b          matrix
	packed           *Packed // instead of b, when B was packed before
	kernel           *kernel
	m, n, k          int
	acc              bool
	rowStep, colStep int
	colBlocks        int
}

// scratch is what one worker needs while it computes blocks.
type scratch struct {
	b   [BlockK * 256]float32
	a   [BlockK * maxRows]float32
	out [maxRows * maxPanel]float32
	t   tile
}

var (
	products  = sync.Pool{New: func() any { return new(product) }}
	scratches = sync.Pool{New: func() any { return new(scratch) }}
)

func multiply(c, a, b matrix, m, n, k int, acc bool) {
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		if !acc {
			for i := range m {
				clear(c.data[i*c.row : i*c.row+n])
			}
		}
		return
	}
	product{c: c, a: a, b: b, kernel: active, m: m, n: n, k: k, acc: acc}.run()
}

func (q product) run() {
	p := products.Get().(*product)
	*p = q
	blocks := p.cut(par.Workers())
	if blocks == 1 {
		p.Do(0, 1)
	} else {
		par.Run(blocks, 1, p)
	}
	*p = product{}
	products.Put(p)
}

// cut chooses the size of the blocks and returns their number. It decides about
// speed only: no result depends on it.
func (p *product) cut(workers int) int {
	panel := 2 * p.kernel.width
	most := len(scratch{}.b) / min(p.k, BlockK) / panel * panel
	p.rowStep, p.colStep = p.m, min(roundUp(p.n, panel), most)
	if want := min(4*workers, p.m*p.n*p.k/blockWork); workers > 1 && want > 1 {
		// First rows, as long as a block keeps enough of them; then columns.
		rowBlocks := min(max(1, p.m/minRows), want)
		p.rowStep = roundUp((p.m+rowBlocks-1)/rowBlocks, p.kernel.rows)
		if rowBlocks < want {
			cols := max(1, want/rowBlocks)
			p.colStep = min(p.colStep, roundUp((p.n+cols-1)/cols, panel))
		}
	}
	p.colBlocks = (p.n + p.colStep - 1) / p.colStep
	return p.colBlocks * ((p.m + p.rowStep - 1) / p.rowStep)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// Do computes the blocks lo … hi-1.
func (p *product) Do(lo, hi int) {
	s := scratches.Get().(*scratch)
	for t := lo; t < hi; t++ {
		i, j := t/p.colBlocks*p.rowStep, t%p.colBlocks*p.colStep
		p.block(s, i, min(i+p.rowStep, p.m), j, min(j+p.colStep, p.n))
	}
	s.t = tile{} // holds pointers into the caller's matrices
	scratches.Put(s)
}

// block computes rows [i0, i1) and columns [j0, j1) of C.
func (p *product) block(s *scratch, i0, i1, j0, j1 int) {
	kn := p.kernel
	panel := 2 * kn.width
	if i1-i0 <= kn.rows && p.packed == nil {
		// A packed panel is used once: it had better stay in the first cache.
		for j := j0; j < j1; j += panel {
			p.columns(kn, s, i0, i1, j, min(j+panel, j1))
		}
		return
	}
	p.columns(kn, s, i0, i1, j0, j1)
}

// columns is block for columns whose packed panels fit into s.
func (p *product) columns(kn *kernel, s *scratch, i0, i1, j0, j1 int) {
	panel := 2 * kn.width
	t := &s.t
	// Few rows do not repay a copy of B.
	direct := p.b.col == 1 && i1-i0 <= 2*kn.rows && p.packed == nil
	for q := 0; q < p.k; q += BlockK {
		k := min(BlockK, p.k-q)
		t.k, t.add = k, dropped
		if q > 0 || p.acc {
			t.add = added
		}
		for j := j0; j < j1 && p.packed == nil; j += panel {
			if cols := min(panel, j1-j); !direct || cols < panel {
				kn.packB(s.b[(j-j0)*k:], p.b, q, j, k, cols, kn.panelWidth(cols))
			}
		}
		for i := i0; i < i1; i += kn.rows {
			t.rows = min(kn.rows, i1-i)
			if p.a.col == 1 || j1-j0 <= panel {
				t.a = unsafe.Pointer(&p.a.data[i*p.a.row+q*p.a.col])
				t.row, t.col = uintptr(p.a.row)*4, uintptr(p.a.col)*4
			} else {
				kn.packA(s.a[:], p.a, q, i, k, p.m)
				t.a, t.row, t.col = unsafe.Pointer(&s.a[0]), 4, maxRows*4
			}
			for j := j0; j < j1; j += panel {
				cols := min(panel, j1-j)
				width := kn.panelWidth(cols)
				switch {
				case p.packed != nil:
					t.b, t.step = unsafe.Pointer(&p.packed.data[q*p.packed.width+j*k]), uintptr(width)*4
				case direct && cols == panel:
					t.b, t.step = unsafe.Pointer(&p.b.data[q*p.b.row+j]), uintptr(p.b.row)*4
				default:
					t.b, t.step = unsafe.Pointer(&s.b[(j-j0)*k]), uintptr(width)*4
				}
				t.vecs = width / kn.width
				p.tile(kn, s, i, j, cols, width)
			}
		}
	}
}

// panelWidth is one vector where the columns fit into it, otherwise two.
func (kn *kernel) panelWidth(cols int) int {
	if cols <= kn.width {
		return kn.width
	}
	return 2 * kn.width
}

// tile runs the kernel for the tile at (i, j) of C, by way of s.out when the tile
// is wider than what is left of C.
func (p *product) tile(kn *kernel, s *scratch, i, j, cols, width int) {
	t := &s.t
	if cols == width {
		t.c, t.ldc = unsafe.Pointer(&p.c.data[i*p.c.row+j]), uintptr(p.c.row)*4
		kn.run(t)
		return
	}
	add := t.add
	t.c, t.ldc, t.add = unsafe.Pointer(&s.out[0]), uintptr(width)*4, dropped
	kn.run(t)
	t.add = add
	for r := range t.rows {
		dst, sum := p.c.data[(i+r)*p.c.row+j:][:cols], s.out[r*width:][:cols]
		if add == dropped {
			copy(dst, sum)
			continue
		}
		for x := range dst {
			dst[x] += sum[x]
		}
	}
}
