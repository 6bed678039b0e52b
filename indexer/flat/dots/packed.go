package dots

import (
	"sync"
	"unsafe"
)

// For many queries rows of float32 and queries are copied into the order in which a tile
// reads them: panels of some rows, or queries; of a panel first lanes 0 to 7 of
// every block of 16 terms, then lanes 8 to 15, for one of its rows after the other.
// Loads are then aligned, which those of index files never are, and fewer, and the sums those of the other kernels to the
// bit, since each of the 16 lanes still takes its terms in turn.
const (
	panelRows    = 4
	panelQueries = 3
	// packQueries is the number of queries from which copying the rows pays.
	packQueries = 32
)

// Prepare makes Scores faster for many queries and many calls. Queries must stay
// as they are.
func (j *Job) Prepare() {
	queries, blocks := len(j.Queries)/j.Dim, j.Dim/Lanes
	if active.packed == nil || j.L2 || j.Kind != F32 || queries < packQueries || blocks == 0 {
		return
	}
	panels := (queries + panelQueries - 1) / panelQueries
	j.packed = aligned(panels * panelQueries * blocks * Lanes)
	for q := range queries {
		pack(j.packed[q/panelQueries*panelQueries*blocks*Lanes:], q%panelQueries, panelQueries, unsafe.Pointer(&j.Queries[q*j.Dim]), blocks)
	}
}

// pack puts row number at of a panel of n where it belongs.
func pack(panel []float32, at, n int, row unsafe.Pointer, blocks int) {
	const half = Lanes / 2 * 4 // bytes
	active.pack(&panel[at*Lanes/2], (*byte)(row), uintptr(blocks), uintptr(n*half), uintptr(blocks*n*half))
}

// aligned is n zeros that begin with a line of the cache.
func aligned(n int) []float32 {
	v := make([]float32, n+16)
	skip := -int(uintptr(unsafe.Pointer(&v[0]))) & 63 / 4
	return v[skip : skip+n : skip+n]
}

var scratches = sync.Pool{New: func() any { return new([]float32) }} // packed rows

// scorePacked is Scores, but for terms beyond the last whole 16.
func (j Job) scorePacked(out []float32, ld, rows, queries int) {
	size, blocks := j.Dim*j.Kind.Bytes(), j.Dim/Lanes
	s := scratches.Get().(*[]float32)
	defer scratches.Put(s)
	if n := (rows + panelRows - 1) / panelRows * panelRows * blocks * Lanes; len(*s) < n {
		*s = aligned(n)
	}
	packed := *s
	panel := panelRows * blocks * Lanes
	for r := range rows {
		pack(packed[r/panelRows*panel:], r%panelRows, panelRows, unsafe.Pointer(&j.Rows[r*size]), blocks)
	}
	var odd [panelQueries * panelRows]float32 // what is not a whole tile goes by way of this
	tiles := ((queries + panelQueries - 1) / panelQueries) * ((rows + panelRows - 1) / panelRows)
	t := tile{blocks: blocks, ahead: uintptr(unsafe.Pointer(&packed[0]))}
	step := uintptr(0)
	if len(j.Next) > 0 {
		t.ahead, step = uintptr(unsafe.Pointer(&j.Next[0])), uintptr((len(j.Next)+tiles-1)/tiles)
	}
	for q := 0; q < queries; q += panelQueries {
		for r := 0; r < rows; r += panelRows {
			t.rows, t.queries = unsafe.Pointer(&packed[r*blocks*Lanes]), unsafe.Pointer(&j.packed[q*blocks*Lanes])
			n, m := min(panelQueries, queries-q), min(panelRows, rows-r)
			if n == panelQueries && m == panelRows {
				t.out, t.ldc = unsafe.Pointer(&out[q*ld+r]), uintptr(4*ld)
				active.packed(&t)
			} else {
				t.out, t.ldc = unsafe.Pointer(&odd[0]), 4*panelRows
				active.packed(&t)
				for i := range n {
					copy(out[(q+i)*ld+r:][:m], odd[i*panelRows:])
				}
			}
			t.ahead += step
		}
	}
}
