//go:build cuda

package cuda

// #include "blas.h"
import "C"

import (
	"fmt"
	"unsafe"

	"searchloop/internal/fail"
)

// blas is cuBLASLt with the plans of the products seen so far.
type blas struct {
	handle    unsafe.Pointer
	workspace Ptr
	plans     map[planKey]*C.struct_lt_plan
}

// workspaceSize is what NVIDIA recommends for Hopper.
const workspaceSize = 32 << 20

// Product is a matrix product of row-major bfloat16 matrices:
// D[Rows,Cols] = act(A·B + bias), with A [Rows,K] (or stored [K,Rows] with TransA)
// and B [K,Cols] (or stored [Cols,K] with TransB), each with its leading dimension.
type Product struct {
	Rows, Cols, K    int
	TransA, TransB   bool
	LdA, LdB, LdD    int
	Float            bool // D is float32; otherwise bfloat16
	Accumulate, Bias bool // D += A·B; with a bfloat16 bias of Cols values
	Act              Act
	Eighth           bool // A and B are e4m3 (with TransB only), each times one float32
	EighthOut        bool // so is D
}

// Act is a function of a product's sums.
type Act int

const (
	Plain    Act = iota
	TanhGELU     // GELU's approximation by tanh
	ReLU
)

// Scales are addresses of one float32 each: A and B are multiplied by theirs, and D by
// its own before it is stored as e4m3.
type Scales struct{ A, B, D Ptr }

// planKey is what an algorithm is chosen for: cuBLASLt would take addresses for
// multiples of 256 unless it is told otherwise.
type planKey struct {
	Product
	align uint32
}

// Multiply queues a product; bias may be 0.
func (d *Device) Multiply(p Product, a, b, out, bias Ptr) {
	d.MultiplyScaled(p, a, b, out, bias, Scales{})
}

// MultiplyScaled is Multiply of scaled operands.
func (d *Device) MultiplyScaled(p Product, a, b, out, bias Ptr, s Scales) {
	d.must("multiply", func() error { return d.multiply(p, a, b, out, bias, s) })
}

func (d *Device) multiply(p Product, a, b, out, bias Ptr, s Scales) error {
	if err := d.openBlas(); err != nil {
		return err
	}
	key := planKey{p, min(256, uint32((a|b|out|bias)&-(a|b|out|bias)))}
	plan := d.blas.plans[key]
	if plan == nil {
		kind := C.int(0)
		switch {
		case p.Float:
			kind = 1
		case p.EighthOut:
			kind = 2
		}
		// Row-major is column-major with everything transposed: Dᵀ = Bᵀ·Aᵀ.
		c := C.struct_lt_product{
			trans_a: flag(p.TransB), trans_b: flag(p.TransA), m: C.int(p.Cols), n: C.int(p.Rows), k: C.int(p.K),
			lda: C.int(p.LdB), ldb: C.int(p.LdA), ldd: C.int(p.LdD), in_eighth: flag(p.Eighth), out: kind,
			accumulate: flag(p.Accumulate), bias: flag(p.Bias), act: C.int(p.Act), align: C.uint(key.align),
		}
		if code := C.lt_plan(d.blas.handle, &c, workspaceSize, &plan); code != 0 {
			return fmt.Errorf("cuBLASLt has no algorithm for %+v: status %d", p, int(code))
		}
		d.blas.plans[key] = plan
	}
	at := C.struct_lt_operands{a: C.ulonglong(b), b: C.ulonglong(a), d: C.ulonglong(out), bias: C.ulonglong(bias),
		scale_a: C.ulonglong(s.B), scale_b: C.ulonglong(s.A), scale_d: C.ulonglong(s.D)}
	code := C.lt_run(d.blas.handle, plan, &at, C.ulonglong(d.blas.workspace), workspaceSize, unsafe.Pointer(d.stream.C()))
	if code != 0 {
		return fmt.Errorf("cuBLASLt: status %d for %+v", int(code), p)
	}
	return nil
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (d *Device) openBlas() error {
	if d.blas != nil {
		return nil
	}
	names, free := cStrings(libraryNames("libcublasLt"))
	defer free()
	var why [512]C.char
	if C.lt_open((**C.char)(unsafe.Pointer(names)), &why[0], C.size_t(len(why))) != 0 {
		return fail.WithHint(fail.New(fail.Usage, "open cuBLASLt", "", "%s", C.GoString(&why[0])),
			"install cuBLAS (libcublasLt, of CUDA 12 or 13), or set CUDA_HOME or LD_LIBRARY_PATH to where it is")
	}
	b := &blas{plans: map[planKey]*C.struct_lt_plan{}}
	if code := C.lt_create(&b.handle); code != 0 {
		return fmt.Errorf("cuBLASLt does not start: status %d", int(code))
	}
	b.workspace = d.Alloc(workspaceSize)
	d.blas = b
	return nil
}
