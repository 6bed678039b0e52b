//go:build cuda

package gpu

import (
	"context"

	"searchloop/indexer/flat"
	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

// Random is an index of random half floats that is made on a GPU, to measure
// searches of more rows than one wants to write to a disk.
type Random struct {
	Device *cuda.Device

	p  *part
	by map[kind]*slab
}

// NewRandom makes rows vectors of dim numbers, normal with deviation 1/√dim.
func NewRandom(ordinal int, rows int64, dim int, seed int64) (r *Random, err error) {
	defer cuda.Guard(&err)
	p, err := newPart(ordinal, f16, u8)
	if err != nil {
		return nil, err
	}
	if dim%8 != 0 || rows > maxRows {
		return nil, fail.New(fail.Usage, "make random rows", "", "%d rows of dimension %d", rows, dim)
	}
	p.dim, p.stored, p.scan, p.end = dim, f16, f16, rows
	p.plan = plan{resident: rows}
	p.take()
	s := &slab{n: rows, rows: p.d.Alloc(rows * pitchOf(dim, f16))}
	p.slabs = []*slab{s}
	p.launch("noise", cuda.Grid{X: 16 * p.d.SMs, Threads: 256}, s.rows, pitchOf(dim, f16), rows, dim, seed)
	return &Random{Device: p.d, p: p, by: map[kind]*slab{f16: s}}, p.look(s)
}

// As chooses how rows are scanned from now on, as Options.Scan does, and by which
// kernels: portable ones are those of every GPU.
func (r *Random) As(scan string, portable bool) (err error) {
	defer cuda.Guard(&err)
	k, err := scanKind(scan, f16)
	if err != nil {
		return err
	}
	p := r.p
	p.portable, p.scan = portable, k
	if r.by[k] == nil {
		s := *r.by[f16]
		if err := p.encode(&s); err != nil {
			return err
		}
		r.by[k] = &s
	}
	p.slabs = []*slab{r.by[k]}
	return nil
}

// Search finds the k best rows of at most 1024 queries.
func (r *Random) Search(queries []float32, k int) (hits [][]flat.Hit, err error) {
	defer cuda.Guard(&err)
	return r.p.search(context.Background(), queries, k, flat.Range{From: 0, To: r.p.end})
}

// Close gives the memory back.
func (r *Random) Close() error { return r.p.close() }
