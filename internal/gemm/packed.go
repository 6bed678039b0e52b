package gemm

import "fmt"

// Packed is the B of an NT product in the order in which the kernels read it: a
// weight that is used again and again with few rows of A, as in decoding, where
// packing it anew would cost more than the product. The results are those of NT,
// to the bit. It holds a copy; a weight that changes must be packed again.
type Packed struct {
	n, k   int
	width  int // columns, those of the last panel filled up
	kernel *kernel
	data   []float32 // by blocks of BlockK terms, in them by panels
}

// Pack packs b, [n, k].
func Pack(b []float32, n, k int) *Packed {
	p := &Packed{n: n, k: k}
	p.Repack(b)
	return p
}

// Repack takes in new values of the same shape.
func (p *Packed) Repack(b []float32) {
	check("Pack", View{}, View{}, View{b, p.k}, 0, p.n, p.k, 0, 0, p.n, p.k)
	p.kernel = active
	panel := 2 * active.width
	last := p.n % panel
	p.width = p.n - last
	if last > 0 {
		p.width += p.kernel.panelWidth(last)
	}
	if len(p.data) != p.width*p.k {
		p.data = make([]float32, p.width*p.k)
	}
	for q := 0; q < p.k; q += BlockK {
		k := min(BlockK, p.k-q)
		for j := 0; j < p.n; j += panel {
			cols := min(panel, p.n-j)
			p.kernel.packB(p.data[q*p.width+j*k:], matrix{b, 1, p.k}, q, j, k, cols, p.kernel.panelWidth(cols))
		}
	}
}

// NT computes C[m,n] = A[m,k]·Bᵀ, added to C when acc is set.
func (p *Packed) NT(c, a []float32, m int, acc bool) {
	if m < 0 || len(c) < m*p.n || len(a) < m*p.k {
		panic(fmt.Sprintf("gemm.Packed.NT: m %d, n %d, k %d do not fit slices of length c %d, a %d", m, p.n, p.k, len(c), len(a)))
	}
	if m == 0 || p.n == 0 || p.k == 0 {
		multiply(matrix{c, p.n, 1}, matrix{}, matrix{}, m, p.n, 0, acc)
		return
	}
	product{c: matrix{c, p.n, 1}, a: matrix{a, p.k, 1}, packed: p, kernel: p.kernel, m: m, n: p.n, k: p.k, acc: acc}.run()
}
