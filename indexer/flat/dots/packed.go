package dots

import (
	"sync"
	"unsafe"
)

// For many queries, queries and rows are copied into the order in which a tile of
// panelRows rows and panelQueries queries reads them: term by term, the rows of a
// panel side by side in vectors, the queries of a panel as single numbers. A lane
// takes its terms in turn, one lane after the other, so that the sums are those of
// the other kernels to the bit. The lanes are visited in four parts (0, 8, 1, 9; 2,
// 10, 3, 11; …), each of which the order of summation adds up first: a part of a
// panel of rows stays in the first-level cache while all queries stream past it.
const (
	panelRows    = 16
	panelQueries = 6
	parts        = 4
	// packQueries is the number of queries from which copying the rows pays.
	packQueries = 40
)

// sweep is the argument of the kernel for a panel of rows, all panels of queries
// and one part. Its layout is known to the assembly.
type sweep struct {
	out       unsafe.Pointer // of the first query and row
	temp      unsafe.Pointer // sums of part 2, [queries, panelRows]
	ldc       uintptr        // bytes from query to query of out
	rows      unsafe.Pointer
	queries   unsafe.Pointer
	blocks    int // of 16 terms, at least 1
	panels    int // of queries, at least 1
	part      int // 0: store; 1: add to out; 2: store in temp; 3: add temp and then out
	floor     unsafe.Pointer
	above     unsafe.Pointer // of part 3: a byte of a query is made nonzero when not all its scores are below its floor
	ahead     uintptr        // no pointer: it may run past the end, and is only fetched from
	aheadStep uintptr
	sums      unsafe.Pointer // room for two tiles, at the beginning of a line
}

// Prepare makes Scores faster for many queries and many calls. Queries must stay
// as they are.
func (j *Job) Prepare() {
	queries, blocks := len(j.Queries)/j.Dim, j.Dim/Lanes
	if active.sweep == nil || j.L2 || queries < packQueries || blocks == 0 {
		return
	}
	panels := (queries + panelQueries - 1) / panelQueries
	part := panels * panelQueries * blocks * Lanes / parts
	j.packed = aligned(parts * part)
	for q := range queries {
		panel := j.packed[q/panelQueries*panelQueries*blocks*Lanes/parts+q%panelQueries:]
		for i := range Lanes {
			at := place(i)
			to := panel[at/4*part+at%4*blocks*panelQueries:]
			from := j.Queries[q*j.Dim+i : (q+1)*j.Dim]
			for b := range blocks {
				to[b*panelQueries] = from[b*Lanes]
			}
		}
	}
}

// place is when lane i's turn comes: four lanes to a part.
func place(i int) int { return i%8/2*4 + i%2*2 + i/8 }

// aligned is n zeros that begin with a line of the cache.
func aligned(n int) []float32 {
	v := make([]float32, n+16)
	skip := -int(uintptr(unsafe.Pointer(&v[0]))) & 63 / 4
	return v[skip : skip+n : skip+n]
}

// scratch is what scoring packed rows needs beside its arguments.
type scratch struct {
	rows, temp []float32
	sums       []float32
	edge       []float32 // tiles that are not whole
	floor      []float32
	above      []byte
	last       []byte // the last rows, filled up to eight
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// sized is s, or a longer one where it is too short.
func sized(s []float32, n int) []float32 {
	if len(s) < n {
		return aligned(n)
	}
	return s
}

// scorePacked is Scores, but for terms beyond the last whole 16.
func (j Job) scorePacked(out []float32, ld, rows, queries int) {
	blocks := j.Dim / Lanes
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	high, wide := (rows+panelRows-1)/panelRows, (queries+panelQueries-1)/panelQueries // panels
	all := wide * panelQueries
	rowPanel, queryPanel := panelRows*blocks*Lanes/parts, panelQueries*blocks*Lanes/parts
	s.rows = sized(s.rows, high*rowPanel*parts)
	s.temp = sized(s.temp, high*all*panelRows)
	s.edge = sized(s.edge, high*panelQueries*panelRows+all*panelRows)
	j.turn(s, rows, high, rowPanel)
	s.floor = sized(s.floor, all)
	if len(s.above) < all {
		s.above = make([]byte, all)
	}
	clear(s.above)
	copy(s.floor, j.Floor)

	s.sums = sized(s.sums, 2*panelRows*panelQueries)
	t := sweep{blocks: blocks, sums: unsafe.Pointer(&s.sums[0])}
	if len(j.Next) > 0 {
		t.ahead, t.aheadStep = uintptr(unsafe.Pointer(&j.Next[0])), uintptr((len(j.Next)+parts*high*wide-1)/(parts*high*wide))
	}
	whole := queries / panelQueries
	run := func(out *float32, ld, part, panel, from, to int) {
		if from == to {
			return
		}
		t.out, t.ldc, t.part, t.panels = unsafe.Pointer(out), uintptr(4*ld), part, to-from
		t.temp = unsafe.Pointer(&s.temp[(panel*all+from*panelQueries)*panelRows])
		t.rows = unsafe.Pointer(&s.rows[(part*high+panel)*rowPanel])
		t.queries = unsafe.Pointer(&j.packed[(part*wide+from)*queryPanel])
		t.floor, t.above = unsafe.Pointer(&s.floor[from*panelQueries]), unsafe.Pointer(&s.above[from*panelQueries])
		active.sweep(&t)
		t.ahead += t.aheadStep * uintptr(to-from)
	}
	corner := s.edge[high*panelQueries*panelRows:] // the rows that are not a whole panel
	for part := range parts {
		for r := 0; r < rows; r += panelRows {
			panel := r / panelRows
			if rows-r < panelRows {
				run(&corner[0], panelRows, part, panel, 0, wide)
				continue
			}
			if whole > 0 {
				run(&out[r], ld, part, panel, 0, whole)
			}
			run(&s.edge[panel*panelQueries*panelRows], panelRows, part, panel, whole, wide)
		}
	}
	for r := 0; r < rows; r += panelRows {
		first, from := whole*panelQueries, s.edge[r*panelQueries:]
		n := min(panelRows, rows-r)
		if n < panelRows {
			first, from = 0, corner
		}
		for q := first; q < queries; q++ {
			copy(out[q*ld+r:][:n], from[(q-first)*panelRows:])
		}
	}
	if j.Dim%Lanes == 0 { // the sums are whole
		for q := range j.Above {
			j.Above[q] = s.above[q] != 0
		}
	}
}

// turn packs the rows.
func (j Job) turn(s *scratch, rows, high, rowPanel int) {
	size, blocks := j.Dim*j.Kind.Bytes(), j.Dim/Lanes
	const group = 8
	for r := 0; r < high*panelRows; r += group {
		from := j.Rows[min(r, rows)*size:]
		if rows-r < group {
			if len(s.last) < group*size {
				s.last = make([]byte, group*size)
			}
			clear(s.last[copy(s.last, from):])
			from = s.last
		}
		active.turn[j.Kind](&s.rows[r/panelRows*rowPanel+r%panelRows], &from[0], uintptr(size), uintptr(blocks), uintptr(4*high*rowPanel), uintptr(4*blocks*panelRows))
	}
}
