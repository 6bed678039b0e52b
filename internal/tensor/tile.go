package tensor

import "searchloop/internal/gemm"

// The small matrix products inside attention: operands of a few dozen columns
// that live in scratch, where the packing of a general product would cost as
// much as the product. Every element is one chain of multiply-adds in the order
// of k, so that leading rows, trailing zeros in k and the cut into pieces along
// k (through acc) all leave its bits alone.

// tileRows is how many rows of queries share one cut of the keys; tileCols is what
// mulTile needs n to be a multiple of.
const (
	tileRows = 4
	tileCols = 8
)

func ceilTo(n, m int) int { return (n + m - 1) / m * m }

// mulTile computes c[m,n] = a[m,k]·b[k,n], added to c when acc is set. Row i of
// c begins at i*ldc, row p of b at p*ldb, and element (i,p) of a lies at
// i*ars + p*acs, so that a may be read transposed. n is a multiple of tileCols.
func mulTile(c []float32, ldc int, a []float32, ars, acs int, b []float32, ldb, m, n, k int, acc bool) {
	if m == 0 || n == 0 || k == 0 {
		return
	}
	gemm.Direct(gemm.View{Data: c, Stride: ldc}, a, ars, acs, gemm.View{Data: b, Stride: ldb}, m, n, k, acc)
}

// transpose sets dst[c*ld+r] = src[r*stride+c] for r < rows, c < cols.
func transpose(dst []float32, ld int, src []float32, stride, rows, cols int) {
	r := 0
	for ; r+8 <= rows; r += 8 { // eight rows at a time: what is written lies together
		row := func(i int) []float32 { return src[(r+i)*stride : (r+i)*stride+cols] }
		s0, s1, s2, s3, s4, s5, s6, s7 := row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)
		for c := range s0 {
			d := dst[c*ld+r : c*ld+r+8 : c*ld+r+8]
			d[0], d[1], d[2], d[3] = s0[c], s1[c], s2[c], s3[c]
			d[4], d[5], d[6], d[7] = s4[c], s5[c], s6[c], s7[c]
		}
	}
	for ; r < rows; r++ {
		for c, x := range src[r*stride : r*stride+cols] {
			dst[c*ld+r] = x
		}
	}
}
