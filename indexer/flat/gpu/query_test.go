package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"searchloop/indexer/flat/dots"
	"searchloop/internal/fail"
)

func normal(rng *rand.Rand, n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64() * scale)
	}
	return v
}

// seen is rows as a scan of the given kind sees them, with the view of them.
func seen(rows []float32, dim int, k kind) ([]float64, view) {
	out := make([]float64, len(rows))
	v := view{kind: k, stored: k == f32}
	if k == u8 {
		v.column = make([]float32, 2*dim)
		for c := range dim {
			low, high := rows[c], rows[c]
			for i := c; i < len(rows); i += dim {
				low, high = min(low, rows[i]), max(high, rows[i])
			}
			v.column[c], v.column[dim+c] = low, high-low
		}
	}
	for r := 0; r < len(rows); r += dim {
		var norm, size, lost float64
		for c, x := range rows[r : r+dim] {
			y, z := float64(x), float64(x)
			switch k {
			case f32:
				z = float64(math.Float32frombits(math.Float32bits(x) &^ 0x1fff))
			case f16:
				y = float64(dots.FromHalf(dots.ToHalf(x)))
				z = y
			case bf16:
				y = float64(put(make([]byte, 2), 0, x, bf16))
				z = y
			case u8:
				low, width := float64(v.column[c]), float64(v.column[dim+c])
				code := min(max(math.Round((float64(x)-low)/width*255-.5), 0), 255)
				y, z = low+(code+.5)/255*width, code
			}
			out[r+c] = z
			norm += float64(x) * float64(x)
			lost += (float64(x) - y) * (float64(x) - y)
			if k == u8 {
				size += (z - 128) * (z - 128)
			} else {
				size += y * y
			}
		}
		v.norm, v.scan, v.lost = max(v.norm, math.Sqrt(norm)), max(v.scan, math.Sqrt(size)), max(v.lost, math.Sqrt(lost))
	}
	return out, v
}

// What a row scores is never above what its sum allows: a row below the threshold
// of the k-th best score is no hit. And the bound is not so wide that it is useless.
func TestTermsBoundScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const dim, n = 96, 300
	for _, k := range []kind{f32, f16, bf16, u8} {
		for _, scale := range []float64{1, 1e-6, 1e5} {
			rows, queries := normal(rng, n*dim, 1), normal(rng, 4*dim, scale)
			for c := range dim {
				queries[c] *= float32(math.Exp(6 * rng.NormFloat64())) // one of very unequal numbers
			}
			scanned, v := seen(rows, dim, k)
			pitch := pitchOf(dim, k)
			coded, terms, ok := prepare(v, queries, nil, dim, pitch, false)
			if !ok {
				t.Fatalf("%v: refused", k)
			}
			for q, x := range terms {
				for r := range n {
					var sum, want, size float64
					for c := range dim {
						b := coded[int64(q)*pitch:]
						var y float64
						switch k {
						case f32:
							y = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*c:])))
						case f16:
							y = float64(dots.FromHalf(binary.LittleEndian.Uint16(b[2*c:])))
						case bf16:
							y = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*c:])) << 16))
						case u8:
							y = float64(int8(b[c]))
						}
						sum += y * scanned[r*dim+c]
						want += float64(queries[q*dim+c]) * float64(rows[r*dim+c])
						size += float64(queries[q*dim+c]) * float64(queries[q*dim+c])
					}
					if sum < (want-x.shift)*x.inverse {
						t.Fatalf("%v, query %d, row %d: sum %g is below %g, the threshold of its own score %g", k, q, r, sum, (want-x.shift)*x.inverse, want)
					}
					wide := map[kind]float64{f32: .004, f16: .002, bf16: .01, u8: .08}[k]
					if over := sum/x.inverse + x.shift - want; over > wide*v.norm*math.Sqrt(size) {
						t.Errorf("%v, query %d, row %d: the bound is %g of the norms' product above the score", k, q, r, over/v.norm/math.Sqrt(size))
					}
				}
			}
		}
	}
}

// Bytes as they are stored: the folded query's product is the score, but for the base.
func TestTermsOfStoredBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const dim = 40
	q := normal(rng, dim, 1)
	v := view{kind: u8, stored: true, scan: 128 * math.Sqrt(dim)}
	coded, terms, ok := prepare(v, q, []float32{2.5}, dim, 48, true)
	if !ok {
		t.Fatal("refused")
	}
	for range 1000 {
		var sum, want float64
		for c := range dim {
			code := float64(rng.IntN(256))
			sum += float64(int8(coded[c])) * code
			want += float64(q[c]) * code
		}
		if want += 2.5; sum < (want-terms[0].shift)*terms[0].inverse {
			t.Fatalf("sum %g is below the threshold of its own score", sum)
		}
	}
}

func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		x    float32
		norm float64
		k    kind
	}{"zero query": {0, 1, f16}, "tiny": {1e-30, 1, f32}, "huge": {1e25, 1e10, bf16}, "huge rows": {1e-9, 1e35, u8}} {
		v := view{kind: c.k, stored: c.k == f32, norm: c.norm, scan: c.norm, column: []float32{0, 1}}
		if _, _, ok := prepare(v, []float32{c.x}, nil, 1, 16, false); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestPlan(t *testing.T) {
	const gib = int64(1) << 30
	work := workBytes(768)
	for name, c := range map[string]struct {
		rows, memory   int64
		scan           kind
		resident       int64
		copied, passes bool
	}{
		"all":            {20e6, 100 * gib, f16, 20e6, false, false},
		"with a copy":    {20e6, 100 * gib, u8, 20e6, true, false},
		"without a copy": {20e6, 40 * gib, u8, 20e6, false, false},
		"passing":        {20e6, 20 * gib, f16, (20*gib - work - 512<<20/1536*1536) / 1536, false, true},
		"all pass":       {20e6, work + 512<<20, u8, 0, false, true},
		"none":           {0, gib, f16, 0, false, false},
	} {
		p, err := planFor(c.rows, 768, f16, c.scan, c.scan != f16, c.memory)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.resident != c.resident || p.resident+p.passing != c.rows || p.passing > 0 != c.passes || p.copy > 0 != c.copied || p.chunk > 0 != c.passes {
			t.Errorf("%s: %+v", name, p)
		}
		if p.bytes() > c.memory {
			t.Errorf("%s: %d bytes of %d", name, p.bytes(), c.memory)
		}
	}
	_, err := planFor(1e6, 768, f32, f32, false, work+1000)
	if fail.KindOf(err) != fail.Usage {
		t.Errorf("no room: %v", err)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{"auto": "[] true false", "cpu": "[] false true", "": "[] false true", "cuda": "[] false false", "cuda:3": "[3] false false"} {
		which, auto, none, err := ordinals(name)
		if got := fmt.Sprint(which, auto, none); got != want || err != nil {
			t.Errorf("%q: %s, %v", name, got, err)
		}
	}
	for _, bad := range []string{"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cpu:0"} {
		if _, _, _, err := ordinals(bad); fail.KindOf(err) != fail.Usage {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, c := range []struct {
		name string
		of   kind
		want kind
		ok   bool
	}{{"", f32, f32, true}, {"stored", u8, u8, true}, {"fp16", f32, f16, true}, {"bf16", f16, bf16, true}, {"int8", f16, u8, true}, {"int8", u8, u8, true},
		{"fp16", u8, 0, false}, {"int4", f32, 0, false}} {
		if k, err := scanKind(c.name, c.of); k != c.want || (err == nil) != c.ok {
			t.Errorf("%q of %v: %v, %v", c.name, c.of, k, err)
		}
	}
}
