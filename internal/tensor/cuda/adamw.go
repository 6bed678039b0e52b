//go:build cuda

package cuda

import (
	"slices"
	"unsafe"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// moments is the state of one weight: the moments in float32 and the lower halves
// of the float32 weights, 10 bytes a value beside the weight's 2 and the
// gradient's 4; on the device, or in page-locked memory of the host.
type moments struct {
	b    *Backend
	w, g *tensor.Tensor
	dev  state[ptr]
	host *hosted // nil: on the device
}

// state is where the three parts of a state are.
type state[P any] struct{ low, m, v P }

// hosted is a state in the host's memory: all three in one allocation.
type hosted struct {
	all  unsafe.Pointer
	low  []int16
	m, v []float32
}

// stageValues are fetched, updated and stored at a time.
const stageValues = 32 << 20

func (b *Backend) NewMoments(w, g *tensor.Tensor, k tensor.Keeping) tensor.Moments {
	mustKind(tensor.BFloat16, w)
	mustKind(tensor.Float32, g)
	n := w.Len()
	s := &moments{b: b, w: w, g: g}
	if n == 0 {
		return s
	}
	if k.Offload {
		all := b.d.AllocHost(10 * int64(n))
		clear(unsafe.Slice((*byte)(all), 10*n))
		s.host = &hosted{all: all, m: unsafe.Slice((*float32)(all), n), v: unsafe.Slice((*float32)(unsafe.Add(all, 4*n)), n),
			low: unsafe.Slice((*int16)(unsafe.Add(all, 8*n)), n)}
		return s
	}
	s.dev = state[ptr]{b.d.Alloc(int64(2 * n)), b.d.Alloc(int64(4 * n)), b.d.Alloc(int64(4 * n))}
	b.d.Clear(s.dev.low, 2*n)
	b.d.Clear(s.dev.m, 4*n)
	b.d.Clear(s.dev.v, 4*n)
	return s
}

func (s *moments) Free() {
	if s.host != nil {
		s.b.d.FreeHost(s.host.all)
	} else {
		for _, p := range []ptr{s.dev.low, s.dev.m, s.dev.v} {
			s.b.d.Free(p)
		}
	}
	*s = moments{b: s.b}
}

// squareSlice values are summed by one block.
const squareSlice = 1 << 14

func (b *Backend) SquaredSums(all []*tensor.Tensor) []float64 {
	mustKind(tensor.Float32, all...)
	out := make([]float64, len(all))
	// Address and length of each, which are 64-bit, then its first block.
	where, firsts := make([]int32, 0, 4*len(all)), make([]int32, 0, len(all))
	var of []int // the tensor of each entry
	total := 0
	for i, t := range all {
		if n := t.Len(); n > 0 {
			p := uint64(at(t))
			where, firsts, of = append(where, int32(uint32(p)), int32(p>>32), int32(uint32(n)), int32(uint64(n)>>32)), append(firsts, int32(total)), append(of, i)
			total += (n + squareSlice - 1) / squareSlice
		}
	}
	if total == 0 {
		return out
	}
	p := b.parts(total)
	table := b.UploadInts(slices.Concat(where, firsts))
	w := ptr(table.Addr())
	b.launch("adamw", "sum_squares", cuda.Grid{X: total, Threads: 256}, p, w, w+ptr(4*len(where)), len(firsts), squareSlice)
	keep(table)
	sums := make([]float32, total)
	b.Download(sums, tensor.FromDevice(uintptr(p), total, tensor.Float32))
	firsts = append(firsts, int32(total))
	for k, i := range of {
		for _, s := range sums[firsts[k]:firsts[k+1]] {
			out[i] += float64(s)
		}
	}
	return out
}

func (s *moments) Step(u tensor.Update) {
	n := s.w.Len()
	if n == 0 {
		return
	}
	if s.host == nil {
		s.step(u, s.dev, 0, n)
		return
	}
	d := s.b.d
	if s.b.stage == 0 {
		s.b.stage = d.Alloc(10 * stageValues)
	}
	m := s.b.stage
	at := state[ptr]{m: m, v: m + 4*stageValues, low: m + 8*stageValues}
	for from := 0; from < n; from += stageValues {
		k, h := min(stageValues, n-from), s.host
		m, v, low := unsafe.Pointer(&h.m[from]), unsafe.Pointer(&h.v[from]), unsafe.Pointer(&h.low[from])
		d.Fetch(at.m, m, 4*k)
		d.Fetch(at.v, v, 4*k)
		d.Fetch(at.low, low, 2*k)
		s.step(u, at, from, k)
		d.Store(m, at.m, 4*k)
		d.Store(v, at.v, 4*k)
		d.Store(low, at.low, 2*k)
	}
}

// step updates n weights from the given one on; p is where their state is.
func (s *moments) step(u tensor.Update, p state[ptr], from, n int) {
	fix1, fix2 := u.Fixes()
	s.b.launch("adamw", "adamw", each(n), at(s.w)+ptr(2*from), p.low, p.m, p.v, at(s.g)+ptr(4*from), int64(n), float32(u.Scale), float32(u.LR),
		float32(u.Beta1), float32(1-u.Beta1), float32(u.Beta2), float32(1-u.Beta2), float32(u.Eps), float32(u.Decay), fix1, fix2)
}

func (s *moments) Read(w, m, v []float32) {
	d, n := s.b.d, s.w.Len()
	if n == 0 {
		return
	}
	if s.host != nil {
		d.Wait()
		copy(m, s.host.m)
		copy(v, s.host.v)
	} else {
		if m != nil {
			d.Download(unsafe.Pointer(&m[0]), s.dev.m, 4*n)
		}
		if v != nil {
			d.Download(unsafe.Pointer(&v[0]), s.dev.v, 4*n)
		}
	}
	if w == nil {
		return
	}
	s.b.Download(w, s.w)
	low := s.lows()
	for i := range w {
		w[i] = tensor.Whole(w[i], low[i])
	}
}

// lows are the lower halves; of an offloaded state, themselves.
func (s *moments) lows() []int16 {
	if s.host != nil {
		return s.host.low
	}
	low := make([]int16, s.w.Len())
	s.b.d.Download(unsafe.Pointer(&low[0]), s.dev.low, 2*len(low))
	return low
}

func (s *moments) Write(w, m, v []float32) {
	d, n := s.b.d, s.w.Len()
	if n == 0 {
		return
	}
	if s.host != nil {
		d.Wait()
		copy(s.host.m, m)
		copy(s.host.v, v)
	} else {
		if m != nil {
			d.Upload(s.dev.m, unsafe.Pointer(&m[0]), 4*n)
		}
		if v != nil {
			d.Upload(s.dev.v, unsafe.Pointer(&v[0]), 4*n)
		}
	}
	if w == nil {
		return
	}
	high, low := make([]float32, n), make([]int16, n)
	for i, x := range w {
		high[i], low[i] = tensor.Halves(x)
	}
	s.b.Upload(s.w, high)
	if s.host != nil {
		copy(s.host.low, low)
		return
	}
	d.Upload(s.dev.low, unsafe.Pointer(&low[0]), 2*n)
}
