package gemm

import "unsafe"

// tile is the argument of a tile kernel: C[rows, vecs·width] = or += A·B over k
// terms. Strides are in bytes. Its layout is known to the assembly.
type tile struct {
	c, a, b unsafe.Pointer
	ldc     uintptr // from row to row of C
	row     uintptr // from row to row of A
	col     uintptr // along k in A
	step    uintptr // along k in B; the columns of B are contiguous
	k       int     // at least 1
	rows    int     // 1 … kernel.rows
	vecs    int     // 1 or 2 vectors of columns
	add     int     // what becomes of the old C: dropped, added or continued
}

const (
	dropped   = 0 // the sum from zero is stored
	added     = 1 // the sum from zero is added to C
	continued = 2 // the sum goes on from C
)

// kernel is the innermost code for one kind of CPU.
type kernel struct {
	name  string
	rows  int // most rows of a tile
	width int // floats in a vector; a panel of B is two of them wide
	run   func(*tile)

	// transpose writes groups times 8 rows at src, stride bytes apart, as columns:
	// blocks times 8 terms, each step bytes after the one before. Nil: not there.
	transpose func(dst, src unsafe.Pointer, step, stride uintptr, blocks, groups int)
	// copyRows copies k rows of bytes (32, 64 or 128) from stride bytes apart to
	// contiguous. Nil: not there.
	copyRows func(dst, src unsafe.Pointer, stride uintptr, k, bytes int)
}

// maxRows and maxPanel bound every kernel's tile.
const (
	maxRows  = 8
	maxPanel = 32
)

// portable is the kernel for CPUs without one of their own.
var portable = kernel{name: "portable", rows: 4, width: 4, run: runPortable}

// kernels lists what this CPU can run, the best last.
var kernels = append([]kernel{portable}, native()...)

var active = &kernels[len(kernels)-1]

// Kernel names the code in use: AVX-512, AVX2 or portable.
func Kernel() string { return active.name }

func runPortable(t *tile) {
	for v := range t.vecs {
		for r := range t.rows {
			c := (*[4]float32)(unsafe.Add(t.c, uintptr(r)*t.ldc+uintptr(v)*16))
			var s0, s1, s2, s3 float32
			if t.add == continued {
				s0, s1, s2, s3 = c[0], c[1], c[2], c[3]
			}
			a, b := uintptr(r)*t.row, uintptr(v)*16
			for range t.k {
				x, y := *(*float32)(unsafe.Add(t.a, a)), (*[4]float32)(unsafe.Add(t.b, b))
				s0 += x * y[0]
				s1 += x * y[1]
				s2 += x * y[2]
				s3 += x * y[3]
				a, b = a+t.col, b+t.step
			}
			if t.add == added {
				s0, s1, s2, s3 = s0+c[0], s1+c[1], s2+c[2], s3+c[3]
			}
			*c = [4]float32{s0, s1, s2, s3}
		}
	}
}
