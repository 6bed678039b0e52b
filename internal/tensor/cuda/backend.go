//go:build cuda

// Package cuda is the tensor.Backend of an NVIDIA GPU: bfloat16 weights and
// activations, float32 sums and statistics. Products are cuBLASLt's, the rest is
// kernels of internal/cuda.
//
// Widths must be multiples of 8 and head dimensions at most 128: Check says so
// for a model before it is loaded. Operations are queued and return at once;
// Download waits. A failure of the device panics with a *cuda.Fault, which
// cuda.Guard turns into an error.
//
// Every operation sums in an order that depends on shapes alone: two runs give
// the same bits.
package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

type ptr = cuda.Ptr

// Backend computes on one device.
type Backend struct {
	d       *cuda.Device
	modules map[string]*cuda.Module
	kernels map[string]*cuda.Kernel
	scratch ptr // of partial sums
	size    int64

	packs  [4]packOf // the last attentions' layouts
	oldest int

	stage ptr // of offloaded moments, or 0

	portable bool // attention by the kernels of every GPU, for tests

	mu   sync.Mutex
	free map[int][]ptr // memory of Ints that are gone, by size class
}

// New opens GPU number ordinal and makes its kernels ready.
func New(ordinal int) (*Backend, error) {
	d, err := cuda.Open(ordinal)
	if err != nil {
		return nil, err
	}
	b := &Backend{d: d, kernels: map[string]*cuda.Kernel{}, free: map[int][]ptr{}}
	if b.modules, err = d.Load(slices.DeleteFunc(cuda.Sources(), func(m string) bool { return strings.HasPrefix(m, "search") })); err != nil {
		return nil, err
	}
	return b, nil
}

// Device is the GPU.
func (b *Backend) Device() *cuda.Device { return b.d }

// launch queues kernel module.name.
func (b *Backend) launch(module, name string, g cuda.Grid, args ...any) {
	k := b.kernels[name]
	if k == nil {
		var err error
		if k, err = b.d.Kernel(b.modules[module], name); err != nil {
			panic(&cuda.Fault{Err: err})
		}
		b.kernels[name] = k
	}
	b.d.Launch(k, g, args...)
}

// parts is room for n float32 until the next call.
func (b *Backend) parts(n int) ptr {
	if bytes := int64(4 * n); bytes > b.size {
		b.d.Free(b.scratch)
		b.size = bytes + min(bytes/4, 16<<20)
		b.scratch = b.d.Alloc(b.size)
	}
	return b.scratch
}

func at(t *tensor.Tensor) ptr {
	if t == nil {
		return 0
	}
	return ptr(t.Addr())
}

// first is the address of row 0.
func first(x tensor.Rows) ptr { return at(x.T) + ptr(x.Off*x.T.Kind().Bytes()) }

func bytesOf(t *tensor.Tensor) int { return t.Len() * t.Kind().Bytes() }

func (b *Backend) Working() tensor.Kind { return tensor.BFloat16 }

func (b *Backend) Alloc(n int) *tensor.Tensor     { return b.alloc(n, tensor.BFloat16) }
func (b *Backend) AllocFull(n int) *tensor.Tensor { return b.alloc(n, tensor.Float32) }

func (b *Backend) alloc(n int, kind tensor.Kind) *tensor.Tensor {
	p := b.d.Alloc(int64(n) * int64(kind.Bytes()))
	b.d.Clear(p, n*kind.Bytes())
	return tensor.FromDevice(uintptr(p), n, kind)
}

func (b *Backend) Free(t *tensor.Tensor) {
	b.d.Free(at(t))
	*t = tensor.Tensor{}
}

func (b *Backend) Upload(dst *tensor.Tensor, src []float32) {
	mustLen(dst, len(src))
	if len(src) == 0 {
		return
	}
	if dst.Kind() == tensor.Float32 {
		b.d.Upload(at(dst), unsafe.Pointer(&src[0]), 4*len(src))
		return
	}
	for i := 0; i < len(src); i += uploadPiece {
		part := src[i:min(i+uploadPiece, len(src))]
		p := b.parts(len(part))
		b.d.Upload(p, unsafe.Pointer(&part[0]), 4*len(part))
		b.launch("elementwise", "narrow", each(len(part)), at(dst)+ptr(2*i), p, int64(len(part)))
	}
}

// uploadPiece is the number of values converted at once.
const uploadPiece = 16 << 20

func (b *Backend) Download(dst []float32, src *tensor.Tensor) {
	mustLen(src, len(dst))
	if len(dst) == 0 {
		return
	}
	if src.Kind() == tensor.Float32 {
		b.d.Download(unsafe.Pointer(&dst[0]), at(src), 4*len(dst))
		return
	}
	for i := 0; i < len(dst); i += uploadPiece {
		part := dst[i:min(i+uploadPiece, len(dst))]
		p := b.parts(len(part))
		b.launch("elementwise", "widen", each(len(part)), p, at(src)+ptr(2*i), int64(len(part)))
		b.d.Download(unsafe.Pointer(&part[0]), p, 4*len(part))
	}
}

// UploadInts takes memory that is used again once the Ints is garbage. What is
// still queued reads it before anything new is written to it: there is one queue.
func (b *Backend) UploadInts(src []int32) *tensor.Ints {
	if len(src) == 0 {
		return tensor.IntsFromDevice(src, 0)
	}
	p, class := b.takeInts(len(src))
	b.d.Upload(p, unsafe.Pointer(&src[0]), 4*len(src))
	x := tensor.IntsFromDevice(src, uintptr(p))
	runtime.AddCleanup(x, func(p ptr) {
		b.mu.Lock()
		b.free[class] = append(b.free[class], p)
		b.mu.Unlock()
	}, p)
	return x
}

func (b *Backend) takeInts(n int) (p ptr, class int) {
	class = 64
	for class < n {
		class *= 2
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.free[class]; len(l) > 0 {
		b.free[class] = l[:len(l)-1]
		return l[len(l)-1], class
	}
	return b.d.Alloc(int64(4 * class)), class
}

func mustLen(t *tensor.Tensor, n int) {
	if t.Len() != n {
		panic("tensor: lengths differ")
	}
}

func mustKind(kind tensor.Kind, ts ...*tensor.Tensor) {
	for _, t := range ts {
		if t != nil && t.Kind() != kind {
			panic(fmt.Sprintf("tensor: a value of kind %d where %d is expected", t.Kind(), kind))
		}
	}
}

// each is the launch of one thread a value, each8 of one for eight values.
func each(n int) cuda.Grid  { return cuda.Grid{X: (n + 255) / 256, Threads: 256} }
func each8(n int) cuda.Grid { return each((n + 7) / 8) }

func (b *Backend) Zero(t *tensor.Tensor) { b.d.Clear(at(t), bytesOf(t)) }

func (b *Backend) Copy(dst, src *tensor.Tensor) {
	mustLen(dst, src.Len())
	n := src.Len()
	switch {
	case dst.Kind() == src.Kind():
		b.d.Copy(at(dst), at(src), bytesOf(src))
	case n == 0:
	case dst.Kind() == tensor.BFloat16:
		b.launch("elementwise", "narrow", each(n), at(dst), at(src), int64(n))
	default:
		b.launch("elementwise", "widen", each(n), at(dst), at(src), int64(n))
	}
}

func (b *Backend) Add(dst, src *tensor.Tensor) {
	mustLen(dst, src.Len())
	mustKind(dst.Kind(), src)
	if dst.Kind() == tensor.Float32 {
		b.launch("elementwise", "add_float", each(dst.Len()), at(dst), at(src), int64(dst.Len()))
		return
	}
	b.launch("elementwise", "add_bf16", each8(dst.Len()), at(dst), at(src), int64(dst.Len()))
}
