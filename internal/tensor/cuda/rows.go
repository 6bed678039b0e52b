//go:build cuda

package cuda

import (
	"runtime"
	"slices"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// keep holds x's memory until the work that reads it is queued.
func keep(x *tensor.Ints) { runtime.KeepAlive(x) }

// words is the number of 4-byte words of a row of dim values.
func words(t *tensor.Tensor, dim int) int { return dim * t.Kind().Bytes() / 4 }

func eachWord(rows, n int) cuda.Grid { return cuda.Grid{X: rows, Threads: max(32, min(256, n))} }

func (b *Backend) Gather(y, x *tensor.Tensor, rows *tensor.Ints, dim int) {
	mustKind(y.Kind(), x)
	if n := words(x, dim); rows.Len() > 0 {
		b.launch("rows", "gather", eachWord(rows.Len(), n), at(y), at(x), ptr(rows.Addr()), n)
	}
}

func (b *Backend) Scatter(y, x *tensor.Tensor, rows *tensor.Ints, dim int) {
	mustKind(y.Kind(), x)
	if n := words(x, dim); rows.Len() > 0 {
		b.launch("rows", "scatter", eachWord(rows.Len(), n), at(y), at(x), ptr(rows.Addr()), n)
	}
}

func (b *Backend) ScatterAdd(y, x *tensor.Tensor, rows *tensor.Ints, dim int) {
	b.addSegments(y, x, rows.Host(), 0, 1, dim)
}

func (b *Backend) RowDots(y, x, z *tensor.Tensor, rows *tensor.Ints, dim int) {
	mustKind(tensor.Float32, y)
	mustKind(tensor.BFloat16, x, z)
	if n := rows.Len(); n > 0 {
		b.launch("rows", "row_dots", cuda.Grid{X: (n + 7) / 8, Threads: 256}, at(y), at(x), at(z), ptr(rows.Addr()), n, dim)
	}
}

func (b *Backend) Mix(y, x *tensor.Tensor, taps *tensor.Ints, weight *tensor.Tensor, rows, dim int) {
	mustKind(tensor.Float32, weight)
	if rows > 0 {
		b.launch("rows", "mix", eachWord(rows, dim), at(y), at(x), ptr(taps.Addr()), at(weight), dim)
	}
}

func (b *Backend) MixBackward(dx, dy *tensor.Tensor, taps *tensor.Ints, weight *tensor.Tensor, rows, dim int) {
	mustKind(tensor.Float32, weight)
	b.addSegments(dx, dy, taps.Host()[:4*rows], at(weight), 4, dim)
}

// addSegments adds item i, row i/per of x, to row target[i] of y, skipping
// negative ones. Which items belong to which row is sorted out here, so that each
// row has one writer and a fixed order.
func (b *Backend) addSegments(y, x *tensor.Tensor, target []int32, weight ptr, per, dim int) {
	order := make([]int32, 0, len(target))
	for i, t := range target {
		if t >= 0 {
			order = append(order, int32(i))
		}
	}
	if len(order) == 0 {
		return
	}
	slices.SortStableFunc(order, func(i, j int32) int { return int(target[i]) - int(target[j]) })
	var to, start []int32
	for k, i := range order {
		if k == 0 || target[i] != to[len(to)-1] {
			to, start = append(to, target[i]), append(start, int32(k))
		}
	}
	start = append(start, int32(len(order)))
	t := b.UploadInts(slices.Concat(to, start, order))
	p := ptr(t.Addr())
	name := "scatter_add_bf16"
	if y.Kind() == tensor.Float32 {
		name = "scatter_add_float"
	}
	mustKind(tensor.BFloat16, x)
	b.launch("rows", name, eachWord(len(to), dim), at(y), at(x), p, p+ptr(4*len(to)), p+ptr(4*(len(to)+len(start))), weight, per, dim)
	keep(t)
}
