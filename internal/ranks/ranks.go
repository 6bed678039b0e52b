// Package ranks is what the processes of a data-parallel training say to each
// other. The trainer talks to a Group and to nothing else, also when it is alone;
// another way between processes is another Group.
//
// Every rank calls the same methods in the same order. A failure, of the way or of
// another rank, panics with a *Fault, which Guard turns into an error.
package ranks

import (
	"encoding/binary"
	"fmt"
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// Group is the ranks of a training.
type Group interface {
	Rank() int // from 0; rank 0 writes files
	Size() int
	// Gather gives every rank what each of them brought, by rank.
	Gather(x []byte) [][]byte
	// Reduce sums every part over the ranks, in the order of the ranks, into its
	// owner's tensor. What the others' tensors hold then is not defined.
	Reduce(be tensor.Backend, parts []Part)
	// Broadcast copies every part from its owner to all.
	Broadcast(be tensor.Backend, parts []Part)
	// Abort tells all ranks that this one fails: whatever they wait for fails.
	Abort(err error)
}

// Part is a run of values that every rank has in a tensor of its own, and the rank
// that owns it. All ranks list the same parts.
type Part struct {
	T     *tensor.Tensor
	Owner int
}

// Fault is a failed exchange, as a panic.
type Fault struct{ Err error }

func (f *Fault) Error() string { return f.Err.Error() }

// Guard, deferred, makes an error of a Fault.
func Guard(err *error) {
	switch x := recover().(type) {
	case nil:
	case *Fault:
		*err = x.Err
	default:
		panic(x)
	}
}

// Sum adds numbers over the ranks, in the order of the ranks: the same bits
// everywhere.
func Sum(g Group, x []float64) {
	if g.Size() == 1 {
		return
	}
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	for r, theirs := range g.Gather(b) {
		if len(theirs) != len(b) {
			panic(&Fault{fail.New(fail.Bug, "sum over ranks", "", "rank %d brought %d bytes, rank %d brought %d", r, len(theirs), g.Rank(), len(b))})
		}
		for i := range x {
			v := math.Float64frombits(binary.LittleEndian.Uint64(theirs[8*i:]))
			if r == 0 {
				x[i] = v
			} else {
				x[i] += v
			}
		}
	}
}

// Any tells whether some rank says so.
func Any(g Group, said bool) bool {
	x := []float64{0}
	if said {
		x[0] = 1
	}
	Sum(g, x)
	return x[0] > 0
}

// Share cuts n values that begin at the given place of total ones among the ranks:
// cuts[r] is where rank r's begin, cuts[ranks] is n. Cuts are multiples of 8.
func Share(at, n, total, ranks int) []int {
	cuts := make([]int, ranks+1)
	for r := 1; r < ranks; r++ {
		begin := int(int64(total) * int64(r) / int64(ranks))
		cuts[r] = min(n, max(0, begin-at)&^7)
	}
	cuts[ranks] = n
	return cuts
}

func (f *Fault) Unwrap() error { return f.Err }

func mustMatch(rank int, mine, theirs []Part) {
	ok := len(mine) == len(theirs)
	for i := 0; ok && i < len(mine); i++ {
		ok = mine[i].Owner == theirs[i].Owner && mine[i].T.Len() == theirs[i].T.Len()
	}
	if !ok {
		panic(&Fault{fail.Wrap(fail.Bug, "exchange tensors", "", fmt.Errorf("rank %d lists other parts than rank 0", rank))})
	}
}
