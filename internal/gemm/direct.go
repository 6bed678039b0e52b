package gemm

import "unsafe"

// directCols is what Direct needs n to be a multiple of.
const directCols = 8

// eight is a kernel for directCols columns where the active one is wider.
var eight *kernel

// Direct computes C[m,n] = A[m,k]·B[k,n] on this goroutine, reading the operands
// as they lie: for small matrices in the cache, whose packing would cost as much
// as the product. Element (i, p) of A is a[i*row+p*col], so that A may be read
// transposed. n must be a multiple of 8.
//
// Unlike in the other products an element is a single chain of multiply-adds in
// the order of k, which begins with the old C when acc is set: cutting k into
// pieces, or adding zeros at its end, leaves its bits alone.
func Direct(c View, a []float32, row, col int, b View, m, n, k int, acc bool) {
	switch {
	case m <= 0 || n <= 0:
		return
	case k <= 0:
		for i := 0; i < m && !acc; i++ {
			clear(c.Data[i*c.Stride:][:n])
		}
		return
	case n%directCols != 0:
		panic("gemm.Direct: n is not a multiple of 8")
	}
	check("Direct", c, View{}, b, m, n, k, 0, 0, k, n)
	_ = a[(m-1)*row+(k-1)*col]
	s := scratches.Get().(*scratch)
	t := &s.t
	t.ldc, t.row, t.col, t.step, t.k = uintptr(c.Stride)*4, uintptr(row)*4, uintptr(col)*4, uintptr(b.Stride)*4, k
	t.add = dropped
	if acc {
		t.add = continued
	}
	for j := 0; j < n; {
		kn, vecs := active, 2
		for vecs*kn.width > n-j {
			if vecs--; vecs == 0 {
				kn, vecs = eight, 1
			}
		}
		t.vecs, t.b = vecs, unsafe.Pointer(&b.Data[j])
		for i := 0; i < m; i += kn.rows {
			t.rows = min(kn.rows, m-i)
			t.c, t.a = unsafe.Pointer(&c.Data[i*c.Stride+j]), unsafe.Pointer(&a[i*row])
			kn.run(t)
		}
		j += vecs * kn.width
	}
	*t = tile{}
	scratches.Put(s)
}
