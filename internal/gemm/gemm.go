// Package gemm multiplies float32 matrices. Matrices are row-major; the entry
// points differ in which operand is transposed. It holds no shapes and no
// gradients: that is the work of the package that calls it.
//
// Every element of a product is summed over k in one fixed order: blocks of
// BlockK terms, each block from zero upwards in k, the blocks added in order
// (to what was there when acc is set). The order does not depend on m, n, the
// number of workers, the transposition or the position of the element, so a
// row's result is bit-identical alone or in a batch. On a CPU with AVX2 and FMA
// every step is one fused multiply-add, and AVX2 and AVX-512 agree to the bit;
// the portable kernel rounds the product as well and agrees only closely.
//
// C must not overlap A or B. A length that does not fit is a panic: it is a
// mistake in the calling code, never in data.
package gemm

import "fmt"

//go:generate go run ./asm

// BlockK is the number of terms that are summed from zero before they are added
// to the running total of an element.
const BlockK = 256

// View is a matrix whose rows begin Stride elements apart: one head's columns in
// the activations of all heads, for example.
type View struct {
	Data   []float32
	Stride int
}

// NT computes C[m,n] = A[m,k]·B[n,k]ᵀ, added to C when acc is set. It is the
// forward pass of a linear layer whose weight is [out, in].
func NT(c, a, b []float32, m, n, k int, acc bool) {
	NTView(View{c, n}, View{a, k}, View{b, k}, m, n, k, acc)
}

// NN computes C[m,n] = A[m,k]·B[k,n], added to C when acc is set: dX = dY·W.
func NN(c, a, b []float32, m, n, k int, acc bool) {
	NNView(View{c, n}, View{a, k}, View{b, n}, m, n, k, acc)
}

// TN computes C[m,n] = A[k,m]ᵀ·B[k,n], added to C when acc is set. It is the
// gradient of a weight: dW += dYᵀ·X.
func TN(c, a, b []float32, m, n, k int, acc bool) {
	TNView(View{c, n}, View{a, m}, View{b, n}, m, n, k, acc)
}

// NTView is NT for matrices with strides.
func NTView(c, a, b View, m, n, k int, acc bool) {
	check("NT", c, a, b, m, n, k, m, k, n, k)
	multiply(matrix{c.Data, c.Stride, 1}, matrix{a.Data, a.Stride, 1}, matrix{b.Data, 1, b.Stride}, m, n, k, acc)
}

// NNView is NN for matrices with strides.
func NNView(c, a, b View, m, n, k int, acc bool) {
	check("NN", c, a, b, m, n, k, m, k, k, n)
	multiply(matrix{c.Data, c.Stride, 1}, matrix{a.Data, a.Stride, 1}, matrix{b.Data, b.Stride, 1}, m, n, k, acc)
}

// TNView is TN for matrices with strides.
func TNView(c, a, b View, m, n, k int, acc bool) {
	check("TN", c, a, b, m, n, k, k, m, k, n)
	multiply(matrix{c.Data, c.Stride, 1}, matrix{a.Data, 1, a.Stride}, matrix{b.Data, b.Stride, 1}, m, n, k, acc)
}

// matrix is an operand as the product sees it: element (i, j) is
// data[i*row+j*col].
type matrix struct {
	data     []float32
	row, col int
}

func check(name string, c, a, b View, m, n, k, aRows, aCols, bRows, bCols int) {
	if m < 0 || n < 0 || k < 0 || !c.holds(m, n) || !a.holds(aRows, aCols) || !b.holds(bRows, bCols) {
		panic(fmt.Sprintf("gemm.%s: m %d, n %d, k %d do not fit slices of length c %d, a %d, b %d with strides %d, %d, %d",
			name, m, n, k, len(c.Data), len(a.Data), len(b.Data), c.Stride, a.Stride, b.Stride))
	}
}

func (v View) holds(rows, cols int) bool {
	if rows == 0 || cols == 0 {
		return true
	}
	return v.Stride >= cols && len(v.Data) >= (rows-1)*v.Stride+cols
}
