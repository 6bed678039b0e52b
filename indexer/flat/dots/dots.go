// Package dots scores stored vectors against queries: rows of float32, half
// floats or bytes and float32 queries go in, inner products or squared distances
// come out. It is the innermost loop of exact search and knows nothing else.
//
// Every score is summed in one fixed order, whatever else is scored beside it:
// lane i of 16 takes the terms i, i+16, … in turn; lanes i and i+8 are added, then
// neighbours twice, then the two sums that are left; terms beyond the last whole
// 16 are added to that one by one. On a CPU with AVX2 and FMA a term is one fused
// multiply-add, and AVX2 and AVX-512 agree to the bit; the portable code rounds
// products as well and agrees only closely. A row of half floats scores as the
// float32 row of the same values would.
package dots

import (
	"fmt"
	"unsafe"
)

//go:generate go run ./asm

// Kind is how the numbers of a row are stored.
type Kind uint8

// The kinds of storage, little-endian, without padding or alignment.
const (
	F32 Kind = iota
	F16
	U8 // as whole numbers 0 … 255
)

// Bytes is the size of one number.
func (k Kind) Bytes() int { return [...]int{4, 2, 1}[k] }

// Lanes is the number of terms that are summed side by side.
const Lanes = 16

// tile is the argument of a kernel. Its layout is known to the assembly.
type tile struct {
	out       unsafe.Pointer
	ldc       uintptr // bytes from query to query of out
	rows      unsafe.Pointer
	stride    uintptr // bytes from row to row
	queries   unsafe.Pointer
	step      uintptr // bytes from query to query
	blocks    int     // of 16 terms, at least 1
	count     int     // queries; of along, rows
	ahead     uintptr // no pointer: it may run past the end, and is only fetched from
	aheadStep uintptr
}

// kernel is the loop for one kind of CPU: it scores rows rows against up to
// queries queries, or tall rows against one.
type kernel struct {
	name          string
	rows, queries int
	tall          int
	run           [5]func(*tile) // F32, F16, U8, and squared distances for F32, F16
	along         [5]func(*tile) // the same for one query and count rows, in the order of memory; nil: run does it
	sweep         func(*sweep)   // inner products of packed rows; nil: rows are best taken as they are
	// turn packs eight rows, stride bytes apart, by kind: part and lane are the bytes
	// from part to part and from lane to lane of where they go.
	turn [3]func(dst *float32, src *byte, stride, blocks, part, lane uintptr)
}

var portable = kernel{name: "portable", rows: 2, queries: 3, tall: 2, run: [...]func(*tile){
	func(t *tile) { runPortable(t, F32, false) }, func(t *tile) { runPortable(t, F16, false) }, func(t *tile) { runPortable(t, U8, false) },
	func(t *tile) { runPortable(t, F32, true) }, func(t *tile) { runPortable(t, F16, true) },
}}

// kernels lists what this CPU can run, the best last.
var kernels = append([]kernel{portable}, native()...)

var active = &kernels[len(kernels)-1]

// Kernel names the code in use: AVX-512, AVX2 or portable.
func Kernel() string { return active.name }

// Job is rows to score.
type Job struct {
	Kind    Kind
	L2      bool   // squared distances instead of inner products; not for U8
	Rows    []byte // row-major, Dim numbers each
	Queries []float32
	Dim     int
	// Next is memory that will be wanted soon, most likely the rows after Rows. It
	// is fetched into the cache meanwhile. May be nil.
	Next []byte
	// Floor and Above, both given or neither, spare looking at scores: Scores sets
	// Above[q] to false where it knows every score of query q to be below Floor[q].
	Floor []float32
	Above []bool

	packed []float32 // Queries, by Prepare
}

// Scores writes the score of query q and row r to out[q*ld+r]. It runs on this
// goroutine alone. Lengths that do not fit are a mistake of the caller: a panic.
func (j Job) Scores(out []float32, ld int) {
	size := j.Dim * j.Kind.Bytes()
	rows, queries := len(j.Rows)/size, len(j.Queries)/j.Dim
	if rows == 0 || queries == 0 {
		return
	}
	if ld < rows || len(out) < (queries-1)*ld+rows || j.L2 && j.Kind == U8 {
		panic(fmt.Sprintf("dots.Scores: %d scores with stride %d for %d rows and %d queries of kind %d", len(out), ld, rows, queries, j.Kind))
	}
	for q := range j.Above {
		j.Above[q] = true
	}
	if j.packed != nil && rows >= panelRows/2 {
		j.scorePacked(out, ld, rows, queries)
		if rest := j.Dim % Lanes; rest > 0 {
			j.rest(out, ld, rows, queries, j.Dim-rest)
		}
		return
	}
	kn, what := active, int(j.Kind)
	if j.L2 {
		what += 3
	}
	run := kn.run[what]
	t := tile{stride: uintptr(size), step: uintptr(4 * j.Dim), blocks: j.Dim / Lanes}
	if along := kn.along[what]; along != nil && queries == 1 && t.blocks > 0 {
		t.out, t.rows, t.queries, t.count = unsafe.Pointer(&out[0]), unsafe.Pointer(&j.Rows[0]), unsafe.Pointer(&j.Queries[0]), rows
		along(&t)
		if rest := j.Dim % Lanes; rest > 0 {
			j.rest(out, ld, rows, 1, j.Dim-rest)
		}
		return
	}
	groups := (queries + kn.queries - 1) / kn.queries
	high := kn.rows // rows of a tile
	if queries == 1 {
		high = kn.tall
	}
	j.prefetch(&t, high, groups)
	var odd [4 * 6]float32 // what is left of the rows goes by way of this
	for g, q := 0, 0; g < groups; g++ {
		t.count = (queries - q + groups - g - 1) / (groups - g) // groups of one size
		t.queries = unsafe.Pointer(&j.Queries[q*j.Dim])
		for r := 0; r < rows && t.blocks > 0; {
			t.rows = unsafe.Pointer(&j.Rows[r*size])
			if rows-r >= high {
				t.out, t.ldc, t.stride = unsafe.Pointer(&out[q*ld+r]), uintptr(4*ld), uintptr(size)
				run(&t)
				t.ahead += t.aheadStep * uintptr(t.blocks)
				r += high
				continue
			}
			t.out, t.ldc, t.stride = unsafe.Pointer(&odd[0]), 16, 0
			run(&t)
			for i := range t.count {
				out[(q+i)*ld+r] = odd[4*i]
			}
			r++
		}
		q += t.count
	}
	if rest := j.Dim % Lanes; rest > 0 {
		j.rest(out, ld, rows, queries, j.Dim-rest)
	}
}

// near is how far ahead of a single pass the memory is fetched, in bytes: enough to
// hide its latency, and few enough lines for the cache to hold.
const near = 4 << 10

// prefetch spreads the fetching of what comes over the tiles. Where every row is
// read once, that is what lies a little ahead; where the rows stay in the cache for
// more groups of queries, it is Next.
func (j Job) prefetch(t *tile, high, groups int) {
	t.ahead = uintptr(unsafe.Pointer(&j.Rows[0]))
	if len(j.Next) == 0 {
		return
	}
	t.aheadStep = uintptr((Lanes*j.Kind.Bytes()*high + groups - 1) / groups)
	if groups == 1 {
		t.ahead += near
		return
	}
	t.ahead = uintptr(unsafe.Pointer(&j.Next[0]))
}

// rest adds the terms from first on.
func (j Job) rest(out []float32, ld, rows, queries, first int) {
	size := j.Dim * j.Kind.Bytes()
	x := make([]float32, j.Dim-first)
	for r := range rows {
		Decode(x, j.Rows[r*size+first*j.Kind.Bytes():(r+1)*size], j.Kind)
		for q := range queries {
			s := out[q*ld+r]
			if first == 0 {
				s = 0
			}
			for i, y := range j.Queries[q*j.Dim+first : (q+1)*j.Dim] {
				if j.L2 {
					d := x[i] - y
					s += float32(d * d)
				} else {
					s += float32(x[i] * y)
				}
			}
			out[q*ld+r] = s
		}
	}
}

func runPortable(t *tile, k Kind, l2 bool) {
	var x [Lanes]float32
	for q := range t.count {
		for r := range 2 {
			var s [Lanes]float32
			row := unsafe.Add(t.rows, uintptr(r)*t.stride)
			query := unsafe.Add(t.queries, uintptr(q)*t.step)
			for b := range t.blocks {
				Decode(x[:], unsafe.Slice((*byte)(unsafe.Add(row, b*Lanes*k.Bytes())), Lanes*k.Bytes()), k)
				y := (*[Lanes]float32)(unsafe.Add(query, b*Lanes*4))
				for i := range s {
					if l2 {
						d := x[i] - y[i]
						s[i] += float32(d * d)
					} else {
						s[i] += float32(x[i] * y[i])
					}
				}
			}
			for i := range 8 {
				s[i] += s[i+8]
			}
			sum := ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
			*(*float32)(unsafe.Add(t.out, uintptr(q)*t.ldc+uintptr(4*r))) = sum
		}
	}
}
