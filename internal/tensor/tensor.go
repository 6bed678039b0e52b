// Package tensor holds the operations that the models are written in, as one
// interface, Backend, and its implementation on the CPU. Tensors go in and
// results come out in tensors the caller provides; an operation is as large as
// a kernel that is worth launching (a norm, a rotary embedding, attention over
// a pack of sequences, one chunk of the output head), so that a GPU can stand
// behind the same interface.
//
// It knows no layers, no names and no files, keeps no graph and differentiates
// nothing by itself: every operation has its gradient beside it, and the model
// calls both. A gradient is added to its tensor unless the operation says that
// it is set.
//
// Shapes are given with the call; a length that does not fit is a mistake of
// the calling code and panics. Sequences are packed one after the other without
// padding and told apart by cumulative lengths.
//
// Every result that belongs to one sequence, and to one row of it, is computed
// in an order that depends neither on the rest of the pack nor on the number of
// workers: a sequence gives the same bits alone, in a pack, and piece by piece
// through the pages of a Cache.
package tensor

// Kind is how a back end stores values.
type Kind uint8

const (
	Float32 Kind = iota
	BFloat16
	Float8 // e4m3, of an Eighth
)

// Bytes of one value.
func (k Kind) Bytes() int {
	switch k {
	case BFloat16:
		return 2
	case Float8:
		return 1
	}
	return 4
}

// Tensor is a run of values in the memory of one back end. Weights and
// activations are of the back end's working kind (float32 on the CPU, bfloat16
// on a GPU); gradients of weights, statistics, tables of angles, log-probs and
// logits are float32 everywhere. Views share the memory. It is a handle: copying
// it copies no values.
type Tensor struct {
	host []float32
	dev  uintptr
	n    int
	kind Kind
}

// FromHost wraps x without a copy; it is how a back end whose memory is the
// process's own makes tensors, and how tests do.
func FromHost(x []float32) *Tensor { return &Tensor{host: x, n: len(x)} }

// FromDevice wraps n values at a device address.
func FromDevice(addr uintptr, n int, kind Kind) *Tensor { return &Tensor{dev: addr, n: n, kind: kind} }

// Len is the number of values.
func (t *Tensor) Len() int { return t.n }

// Kind is how the values are stored.
func (t *Tensor) Kind() Kind { return t.kind }

// Host is the memory itself when it is the process's own, nil for a device.
// Writing to it writes the tensor.
func (t *Tensor) Host() []float32 { return t.host }

// Addr is the device address, 0 for host memory.
func (t *Tensor) Addr() uintptr { return t.dev }

// View is the part [off, off+n) of t, sharing its memory.
func (t *Tensor) View(off, n int) *Tensor {
	v := t.view(off, n)
	return &v
}

func (t *Tensor) view(off, n int) Tensor {
	if off < 0 || n < 0 || off+n > t.n {
		panic("tensor: view outside of its tensor")
	}
	if t.host != nil {
		return Tensor{host: t.host[off : off+n : off+n], n: n}
	}
	return Tensor{dev: t.dev + uintptr(off*t.kind.Bytes()), n: n, kind: t.kind}
}

// Ints is a run of int32 values (token ids, row numbers, cumulative lengths) in
// the memory of one back end. Host always holds them as well: kernels' launch
// sizes depend on them.
type Ints struct {
	host []int32
	dev  uintptr
}

// IntsFromHost wraps x without a copy.
func IntsFromHost(x []int32) *Ints { return &Ints{host: x} }

// IntsFromDevice joins a device copy with the host values it was made from.
func IntsFromDevice(x []int32, addr uintptr) *Ints { return &Ints{host: x, dev: addr} }

func (t *Ints) Len() int      { return len(t.host) }
func (t *Ints) Host() []int32 { return t.host }
func (t *Ints) Addr() uintptr { return t.dev }

// Rows says where the rows of an operand lie inside a wider matrix: row r is
// the run that begins at Off + r*Stride.
type Rows struct {
	T           *Tensor
	Off, Stride int
}

// Heads is the shape of an attention. Heads query heads share KVHeads key and
// value heads in equal groups; query head h reads key head h*KVHeads/Heads.
type Heads struct {
	Heads, KVHeads, Dim int
	Scale               float32
	Causal              bool // false: every row sees its whole sequence
	Longest             int  // no sequence is longer, for a choice of kernels that no pack changes; 0: not said
}
