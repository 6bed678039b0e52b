package dots

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// stored is v as rows of kind k at an odd address, and the values they stand for.
func stored(v []float32, k Kind) ([]byte, []float32) {
	b := make([]byte, 1, 1+len(v)*k.Bytes())
	for _, x := range v {
		switch k {
		case F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		case F16:
			b = binary.LittleEndian.AppendUint16(b, ToHalf(x))
		case U8:
			b = append(b, byte(int(x*64)+128))
		}
	}
	exact := make([]float32, len(v))
	Decode(exact, b[1:], k)
	return b[1:], exact
}

func random(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64()) / 3
	}
	return v
}

func using(t testing.TB, k *kernel) {
	old := active
	active = k
	t.Cleanup(func() { active = old })
}

type variant struct {
	kind Kind
	l2   bool
}

var variants = []variant{{F32, false}, {F16, false}, {U8, false}, {F32, true}, {F16, true}}

func TestScoresAreRight(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range kernels {
		using(t, &kernels[i])
		for _, v := range variants {
			for _, dim := range []int{1, 15, 16, 17, 32, 100, 768} {
				for _, n := range [][2]int{{1, 1}, {3, 2}, {4, 6}, {5, 7}, {9, 13}} {
					rows, queries := n[0], n[1]
					b, exact := stored(random(rng, rows*dim), v.kind)
					q := random(rng, queries*dim)
					ld := rows + 2
					out := make([]float32, queries*ld)
					Job{Kind: v.kind, L2: v.l2, Rows: b, Queries: q, Dim: dim, Next: b}.Scores(out, ld)
					for a := range queries {
						for r := range rows {
							var want, size float64
							for c := range dim {
								x, y := float64(exact[r*dim+c]), float64(q[a*dim+c])
								term := x * y
								if v.l2 {
									term = (x - y) * (x - y)
								}
								want += term
								size += math.Abs(term)
							}
							if got := float64(out[a*ld+r]); math.Abs(got-want) > size*1e-5 {
								t.Fatalf("%s %v dim %d, row %d of %d, query %d of %d: %v, want %v", active.name, v, dim, r, rows, a, queries, got, want)
							}
						}
						if out[a*ld+rows] != 0 || out[a*ld+rows+1] != 0 {
							t.Fatalf("%s %v: wrote beyond the rows", active.name, v)
						}
					}
				}
			}
		}
	}
}

// A score does not depend on company, position or instruction set, and half
// floats score as the float32 numbers of the same values.
func TestOneOrderOfSummation(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const rows, queries = 23, 20
	for _, dim := range []int{48, 80, 768, 777} {
		for _, v := range variants {
			b, exact := stored(random(rng, rows*dim), v.kind)
			q := random(rng, queries*dim)
			var want []float32
			for i := range kernels[1:] {
				using(t, &kernels[1+i])
				all := make([]float32, rows*queries)
				Job{Kind: v.kind, L2: v.l2, Rows: b, Queries: q, Dim: dim}.Scores(all, rows)
				if want == nil {
					want = all
				}
				if !slices.Equal(all, want) {
					t.Fatalf("%v dim %d: %s differs from %s", v, dim, kernels[1+i].name, kernels[1].name)
				}
				many := make([]float32, 0, 2*queries*dim)
				many = append(append(many, q...), q...) // as many as are packed
				for _, n := range []int{rows, rows - 1, panelRows} {
					twice := make([]float32, 2*n*queries)
					j := Job{Kind: v.kind, L2: v.l2, Rows: b[:n*dim*v.kind.Bytes()], Queries: many, Dim: dim, Next: b}
					if j.Prepare(); (j.packed != nil) != (active.sweep != nil && !v.l2) {
						t.Fatalf("%v %s: packed: %t", v, active.name, j.packed != nil)
					}
					j.Scores(twice, n)
					for a := range 2 * queries {
						if got := twice[a*n : (a+1)*n]; !slices.Equal(got, want[a%queries*rows:][:n]) {
							t.Fatalf("%v dim %d %s: %d rows, query %d among many: %v, want %v", v, dim, active.name, n, a, got, want[a%queries*rows:][:n])
						}
					}
				}
				for a := range queries {
					one := make([]float32, rows+1)
					Job{Kind: v.kind, L2: v.l2, Rows: b, Queries: q[a*dim : (a+1)*dim], Dim: dim, Next: b}.Scores(one, rows+1)
					if !slices.Equal(one[:rows], want[a*rows:(a+1)*rows]) || one[rows] != 0 {
						t.Fatalf("%v dim %d %s: query %d alone: %v, in company %v", v, dim, active.name, a, one, want[a*rows:(a+1)*rows])
					}
				}
				size := dim * v.kind.Bytes()
				for r := range rows {
					for a := range queries {
						var one [1]float32
						Job{Kind: v.kind, L2: v.l2, Rows: b[r*size : (r+1)*size], Queries: q[a*dim : (a+1)*dim], Dim: dim}.Scores(one[:], 1)
						if one[0] != want[a*rows+r] {
							t.Fatalf("%v dim %d %s: row %d query %d alone: %v, in company %v", v, dim, active.name, r, a, one[0], want[a*rows+r])
						}
					}
				}
				plain, _ := stored(exact, F32)
				same := make([]float32, rows*queries)
				Job{Kind: F32, L2: v.l2, Rows: plain, Queries: q, Dim: dim}.Scores(same, rows)
				if !slices.Equal(same, want) {
					t.Fatalf("%v dim %d %s: differs from float32 rows of the same values", v, dim, active.name)
				}
			}
		}
	}
}

// Above leaves out no query with a score that is not below its floor, be it NaN,
// and where rows are packed and panels are whole it leaves out all others.
func TestAboveTheFloor(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const queries = packQueries + 5
	for i := range kernels {
		using(t, &kernels[i])
		for _, v := range variants {
			for _, dim := range []int{15, 48, 777} {
				for _, rows := range []int{1, 23, 2 * panelRows} {
					b, _ := stored(random(rng, rows*dim), v.kind)
					j := Job{Kind: v.kind, L2: v.l2, Rows: b, Queries: random(rng, queries*dim), Dim: dim, Floor: make([]float32, queries), Above: make([]bool, queries)}
					j.Prepare()
					out := make([]float32, queries*rows)
					j.Scores(out, rows)
					for q := range queries {
						j.Floor[q] = slices.Max(out[q*rows : (q+1)*rows])
						if q%2 == 1 {
							j.Floor[q] = math.Nextafter32(j.Floor[q], float32(math.Inf(1)))
						}
					}
					j.Scores(out, rows)
					spares := j.packed != nil && rows%panelRows == 0 && dim%Lanes == 0
					for q, above := range j.Above {
						if q%2 == 0 && !above || spares && above != (q%2 == 0) {
							t.Fatalf("%s %v dim %d, %d rows, query %d: above the floor: %t", active.name, v, dim, rows, q, above)
						}
					}
					if v.kind != F32 {
						continue
					}
					binary.LittleEndian.PutUint32(b[(rows-1)*dim*4:], math.Float32bits(float32(math.NaN())))
					j.Scores(out, rows)
					if q := slices.Index(j.Above, false); q >= 0 {
						t.Fatalf("%s %v dim %d, %d rows, query %d: NaN is not above the floor", active.name, v, dim, rows, q)
					}
				}
			}
		}
	}
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := FromHalf(uint16(h))
		if f != f {
			continue
		}
		if got := ToHalf(f); got != uint16(h) {
			t.Fatalf("%04x is %v is %04x", h, f, got)
		}
		// Half way to the next: to even. A little on either side: to the nearer.
		if next := FromHalf(uint16(h) + 1); h&0x7fff < 0x7bff {
			mid := (f + next) / 2
			even := uint16(h) + uint16(h)&1
			if got := ToHalf(mid); got != even {
				t.Fatalf("half way above %04x: %04x, want %04x", h, got, even)
			}
			if got := ToHalf(math.Nextafter32(mid, f)); got != uint16(h) {
				t.Fatalf("below half way above %04x: %04x", h, got)
			}
			if got := ToHalf(math.Nextafter32(mid, next)); got != uint16(h)+1 {
				t.Fatalf("over half way above %04x: %04x", h, got)
			}
		}
	}
	for f, want := range map[float32]uint16{65504: 0x7bff, 65519.99: 0x7bff, 65520: 0x7c00, -1e9: 0xfc00, float32(math.Inf(1)): 0x7c00, 1e-9: 0} {
		if got := ToHalf(f); got != want {
			t.Errorf("%v: %04x, want %04x", f, got, want)
		}
	}
}

func BenchmarkScores(b *testing.B) {
	const dim = 768
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range kernels[1:] {
		for _, v := range variants[:3] {
			for _, n := range []int{1, 2, 3, 6, 16, 32, 64, 256, -16, -32, -64, -256} { // below 0: without packing
				b.Run(fmt.Sprintf("%s/%v/queries=%d", kernels[1+i].name, v.kind, n), func(b *testing.B) {
					using(b, &kernels[1+i])
					n, prepare := max(n, -n), n > 0
					rows, _ := stored(random(rng, 48*dim), v.kind)
					j := Job{Kind: v.kind, Rows: rows, Queries: random(rng, n*dim), Dim: dim}
					if prepare {
						j.Prepare()
					}
					out := make([]float32, 48*n)
					for b.Loop() {
						j.Scores(out, 48)
					}
					b.ReportMetric(2*48*dim*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
