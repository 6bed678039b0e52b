//go:build goexperiment.simd && amd64

package vec

import (
	"simd/archsimd"
	"unsafe"
)

//go:generate go run ./widen

// What this CPU and operating system can run. Tests switch it down.
var (
	hasAVX2   = archsimd.X86.AVX2() && archsimd.X86.FMA()
	hasAVX512 = hasAVX2 && archsimd.X86.AVX512()
)

type (
	f8  = archsimd.Float32x8
	f16 = archsimd.Float32x16
)

func data(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

// get and put reach element i of the slice that p is the data of.
func get(p unsafe.Pointer, i int) f8 {
	return archsimd.LoadFloat32x8((*[8]float32)(unsafe.Add(p, 4*i)))
}

func put(p unsafe.Pointer, i int, v f8) { v.Store((*[8]float32)(unsafe.Add(p, 4*i))) }

// part and putPart are for the up to seven elements at the end; lanes that are
// not there read as 0. They are masked, which the checker of pointers that comes
// with -race cannot know.
//
//go:nocheckptr
func part(x []float32, i int) f8 { return archsimd.LoadFloat32x8SlicePart(x[i:]) }

//go:nocheckptr
func putPart(x []float32, i int, v f8) { v.StoreSlicePart(x[i:]) }

func splat(x float32) f8         { return archsimd.BroadcastFloat32x8(x) }
func fold(a, b, c, d f8) float32 { return lanes(a.Add(c).Add(b.Add(d))) }
func done()                      { archsimd.ClearAVXUpperBits() }

// The same for vectors of 16.

func get16(p unsafe.Pointer, i int) f16 {
	return archsimd.LoadFloat32x16((*[16]float32)(unsafe.Add(p, 4*i)))
}

func put16(p unsafe.Pointer, i int, v f16) { v.Store((*[16]float32)(unsafe.Add(p, 4*i))) }

//go:nocheckptr
func part16(x []float32, i int) f16 { return archsimd.LoadFloat32x16SlicePart(x[i:]) }

//go:nocheckptr
func putPart16(x []float32, i int, v f16) { v.StoreSlicePart(x[i:]) }

func splat16(x float32) f16 { return archsimd.BroadcastFloat32x16(x) }

// lanes adds the lanes as a tree: 0 and 4, 1 and 5, … then 0 and 2, 1 and 3. It
// stays with vector instructions to the end: between them and before done, the
// scalar ones that the compiler makes of float32 arithmetic are slow on Intel.
func lanes(v f8) float32 {
	h := v.GetLo().Add(v.GetHi())
	h = h.Add(h.SelectFromPair(2, 3, 0, 1, h))
	return h.Add(h.SelectFromPair(1, 0, 3, 2, h)).GetElem(0)
}
