// Package gemm multiplies float32 matrices. Matrices are row-major; the three
// entry points differ in which operand is transposed. It holds no shapes and no
// gradients: that is the work of the package that calls it.
//
// Every element of a product is summed over k in one fixed order: blocks of
// BlockK terms, each block from zero upwards in k, the blocks added in order
// (to what was there when acc is set). The order does not depend on m, n, the
// number of workers or the position of the element, so a row's result is
// bit-identical alone or in a batch. With SIMD every step is one fused
// multiply-add, and AVX2 and AVX-512 agree to the bit; the generic kernel
// rounds the product as well and agrees only closely.
//
// C must not overlap A or B. A length that does not fit is a panic: it is a
// mistake in the calling code, never in data.
package gemm

import "fmt"

// BlockK is the number of terms that are summed from zero before they are added
// to the running total of an element.
const BlockK = 256

// NT computes C[m,n] = A[m,k]·B[n,k]ᵀ, added to C when acc is set. It is the
// forward pass of a linear layer whose weight is [out, in].
func NT(c, a, b []float32, m, n, k int, acc bool) {
	check("NT", c, a, b, m, n, k)
	mul(matrix{c, n, 1}, matrix{a, k, 1}, matrix{b, 1, k}, m, n, k, acc)
}

// NN computes C[m,n] = A[m,k]·B[k,n], added to C when acc is set.
func NN(c, a, b []float32, m, n, k int, acc bool) {
	check("NN", c, a, b, m, n, k)
	mul(matrix{c, n, 1}, matrix{a, k, 1}, matrix{b, n, 1}, m, n, k, acc)
}

// TN computes C[m,n] = A[k,m]ᵀ·B[k,n], added to C when acc is set. It is the
// gradient of a weight: dW += dYᵀ·X.
func TN(c, a, b []float32, m, n, k int, acc bool) {
	check("TN", c, a, b, m, n, k)
	mul(matrix{c, n, 1}, matrix{a, 1, m}, matrix{b, n, 1}, m, n, k, acc)
}

// matrix is a view: element (i, j) is data[i*row+j*col].
type matrix struct {
	data     []float32
	row, col int
}

func check(name string, c, a, b []float32, m, n, k int) {
	if m < 0 || n < 0 || k < 0 || len(a) < m*k || len(b) < n*k || len(c) < m*n {
		panic(fmt.Sprintf("gemm.%s: m %d, n %d, k %d do not fit slices of length c %d, a %d, b %d",
			name, m, n, k, len(c), len(a), len(b)))
	}
}
