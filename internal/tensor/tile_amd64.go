//go:build goexperiment.simd && amd64

package tensor

import (
	"simd/archsimd"
	"unsafe"
)

func init() {
	switch {
	case archsimd.X86.AVX512():
		mulTileImpl = mulTile512
	case archsimd.X86.AVX2() && archsimd.X86.FMA():
		mulTileImpl = mulTile256
	}
}

type (
	v16 = archsimd.Float32x16
	v8  = archsimd.Float32x8
)

func load16(p unsafe.Pointer) v16 { return archsimd.LoadFloat32x16((*[16]float32)(p)) }
func load8(p unsafe.Pointer) v8   { return archsimd.LoadFloat32x8((*[8]float32)(p)) }
func store16(p unsafe.Pointer, v v16) {
	v.Store((*[16]float32)(p))
}
func store8(p unsafe.Pointer, v v8) {
	v.Store((*[8]float32)(p))
}
func splat16(p unsafe.Pointer) v16 { return archsimd.BroadcastFloat32x16(*(*float32)(p)) }
func splat8(p unsafe.Pointer) v8   { return archsimd.BroadcastFloat32x8(*(*float32)(p)) }

func at(p unsafe.Pointer, i int) unsafe.Pointer { return unsafe.Add(p, 4*i) }

// The tiles below keep their pointers and move offsets: a pointer that ran past
// the end of its slice after the last step would be one the garbage collector
// must not see.

// Columns outside, rows inside: the panel of b stays in the first-level cache.
func mulTile512(c []float32, ldc int, a []float32, ars, acs int, b []float32, ldb, m, n, k int, acc bool) {
	pc, pa, pb := unsafe.Pointer(&c[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])
	j := 0
	for ; j+32 <= n; j += 32 {
		for i := 0; i < m; i += 4 {
			tile4x32(at(pc, i*ldc+j), at(pa, i*ars), at(pb, j), k, ldc, ars, acs, ldb, acc)
		}
	}
	if j+16 <= n {
		for i := 0; i < m; i += 4 {
			tile4x16(at(pc, i*ldc+j), at(pa, i*ars), at(pb, j), k, ldc, ars, acs, ldb, acc)
		}
		j += 16
	}
	if j < n {
		for i := 0; i < m; i += 4 {
			tile4x8(at(pc, i*ldc+j), at(pa, i*ars), at(pb, j), k, ldc, ars, acs, ldb, acc)
		}
	}
	archsimd.ClearAVXUpperBits()
}

func mulTile256(c []float32, ldc int, a []float32, ars, acs int, b []float32, ldb, m, n, k int, acc bool) {
	pc, pa, pb := unsafe.Pointer(&c[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])
	j := 0
	for ; j+16 <= n; j += 16 {
		for i := 0; i < m; i += 4 {
			tile4x2x8(at(pc, i*ldc+j), at(pa, i*ars), at(pb, j), k, ldc, ars, acs, ldb, acc)
		}
	}
	if j < n {
		for i := 0; i < m; i += 4 {
			tile4x8(at(pc, i*ldc+j), at(pa, i*ars), at(pb, j), k, ldc, ars, acs, ldb, acc)
		}
	}
	archsimd.ClearAVXUpperBits()
}

func tile4x32(c, a, b unsafe.Pointer, k, ldc, ars, acs, ldb int, acc bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 v16
	if acc {
		c00, c01 = load16(c), load16(at(c, 16))
		c10, c11 = load16(at(c, ldc)), load16(at(c, ldc+16))
		c20, c21 = load16(at(c, 2*ldc)), load16(at(c, 2*ldc+16))
		c30, c31 = load16(at(c, 3*ldc)), load16(at(c, 3*ldc+16))
	}
	a1, a2, a3 := at(a, ars), at(a, 2*ars), at(a, 3*ars)
	acs, ldb = 4*acs, 4*ldb
	for ao, bo := 0, 0; k > 0; k-- {
		b0, b1 := load16(unsafe.Add(b, bo)), load16(unsafe.Add(b, bo+64))
		x := splat16(unsafe.Add(a, ao))
		c00, c01 = x.MulAdd(b0, c00), x.MulAdd(b1, c01)
		x = splat16(unsafe.Add(a1, ao))
		c10, c11 = x.MulAdd(b0, c10), x.MulAdd(b1, c11)
		x = splat16(unsafe.Add(a2, ao))
		c20, c21 = x.MulAdd(b0, c20), x.MulAdd(b1, c21)
		x = splat16(unsafe.Add(a3, ao))
		c30, c31 = x.MulAdd(b0, c30), x.MulAdd(b1, c31)
		ao, bo = ao+acs, bo+ldb
	}
	store16(c, c00)
	store16(at(c, 16), c01)
	store16(at(c, ldc), c10)
	store16(at(c, ldc+16), c11)
	store16(at(c, 2*ldc), c20)
	store16(at(c, 2*ldc+16), c21)
	store16(at(c, 3*ldc), c30)
	store16(at(c, 3*ldc+16), c31)
}

func tile4x16(c, a, b unsafe.Pointer, k, ldc, ars, acs, ldb int, acc bool) {
	var c0, c1, c2, c3 v16
	if acc {
		c0, c1, c2, c3 = load16(c), load16(at(c, ldc)), load16(at(c, 2*ldc)), load16(at(c, 3*ldc))
	}
	a1, a2, a3 := at(a, ars), at(a, 2*ars), at(a, 3*ars)
	acs, ldb = 4*acs, 4*ldb
	for ao, bo := 0, 0; k > 0; k-- {
		b0 := load16(unsafe.Add(b, bo))
		c0 = splat16(unsafe.Add(a, ao)).MulAdd(b0, c0)
		c1 = splat16(unsafe.Add(a1, ao)).MulAdd(b0, c1)
		c2 = splat16(unsafe.Add(a2, ao)).MulAdd(b0, c2)
		c3 = splat16(unsafe.Add(a3, ao)).MulAdd(b0, c3)
		ao, bo = ao+acs, bo+ldb
	}
	store16(c, c0)
	store16(at(c, ldc), c1)
	store16(at(c, 2*ldc), c2)
	store16(at(c, 3*ldc), c3)
}

func tile4x2x8(c, a, b unsafe.Pointer, k, ldc, ars, acs, ldb int, acc bool) {
	var c00, c01, c10, c11, c20, c21, c30, c31 v8
	if acc {
		c00, c01 = load8(c), load8(at(c, 8))
		c10, c11 = load8(at(c, ldc)), load8(at(c, ldc+8))
		c20, c21 = load8(at(c, 2*ldc)), load8(at(c, 2*ldc+8))
		c30, c31 = load8(at(c, 3*ldc)), load8(at(c, 3*ldc+8))
	}
	a1, a2, a3 := at(a, ars), at(a, 2*ars), at(a, 3*ars)
	acs, ldb = 4*acs, 4*ldb
	for ao, bo := 0, 0; k > 0; k-- {
		b0, b1 := load8(unsafe.Add(b, bo)), load8(unsafe.Add(b, bo+32))
		x := splat8(unsafe.Add(a, ao))
		c00, c01 = x.MulAdd(b0, c00), x.MulAdd(b1, c01)
		x = splat8(unsafe.Add(a1, ao))
		c10, c11 = x.MulAdd(b0, c10), x.MulAdd(b1, c11)
		x = splat8(unsafe.Add(a2, ao))
		c20, c21 = x.MulAdd(b0, c20), x.MulAdd(b1, c21)
		x = splat8(unsafe.Add(a3, ao))
		c30, c31 = x.MulAdd(b0, c30), x.MulAdd(b1, c31)
		ao, bo = ao+acs, bo+ldb
	}
	store8(c, c00)
	store8(at(c, 8), c01)
	store8(at(c, ldc), c10)
	store8(at(c, ldc+8), c11)
	store8(at(c, 2*ldc), c20)
	store8(at(c, 2*ldc+8), c21)
	store8(at(c, 3*ldc), c30)
	store8(at(c, 3*ldc+8), c31)
}

func tile4x8(c, a, b unsafe.Pointer, k, ldc, ars, acs, ldb int, acc bool) {
	var c0, c1, c2, c3 v8
	if acc {
		c0, c1, c2, c3 = load8(c), load8(at(c, ldc)), load8(at(c, 2*ldc)), load8(at(c, 3*ldc))
	}
	a1, a2, a3 := at(a, ars), at(a, 2*ars), at(a, 3*ars)
	acs, ldb = 4*acs, 4*ldb
	for ao, bo := 0, 0; k > 0; k-- {
		b0 := load8(unsafe.Add(b, bo))
		c0 = splat8(unsafe.Add(a, ao)).MulAdd(b0, c0)
		c1 = splat8(unsafe.Add(a1, ao)).MulAdd(b0, c1)
		c2 = splat8(unsafe.Add(a2, ao)).MulAdd(b0, c2)
		c3 = splat8(unsafe.Add(a3, ao)).MulAdd(b0, c3)
		ao, bo = ao+acs, bo+ldb
	}
	store8(c, c0)
	store8(at(c, ldc), c1)
	store8(at(c, 2*ldc), c2)
	store8(at(c, 3*ldc), c3)
}
