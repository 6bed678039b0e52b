package tensor

import "sync"

// Encoding is what encoders need of a back end: its operations, and some that join
// several and have no gradient.
type Encoding interface {
	Backend
	// Widths is what the widths of matrices must be multiples of.
	Widths() int
	// LinearAct sets y[rows,out] = act(x[rows,in]·w[out,in]ᵀ + bias[out]).
	LinearAct(y, x, w, bias *Tensor, rows, in, out int, act Act)
	// LayerNormIn sets x[rows,dim] to its LayerNorm, and x8 too unless it is nil.
	LayerNormIn(x *Tensor, x8 *Eighth, w, b *Tensor, rows, dim int, eps float32)
	// EmbedNorm sets x[r] = LayerNorm(words[ids[r]] + places[at[r]]), rows of dim, and x8
	// too unless it is nil.
	EmbedNorm(x *Tensor, x8 *Eighth, words, places *Tensor, ids, at *Ints, w, b *Tensor, dim int, eps float32)
	// SwiGLUNorm sets y[rows,width] to the LayerNorm of silu(gate)·up over the first n
	// columns of gu[rows,2*width] = [gate | up]. w and b are zeros from n on, and so is y.
	SwiGLUNorm(y, gu, w, b *Tensor, rows, n, width int, eps float32)
	// Pool sets out[s], float32 rows of dim, to the mean of the rows of x that belong to
	// sequence s, or to the first of them, brought to length 1 if unit is set.
	Pool(out, x *Tensor, cu *Ints, dim int, first, unit bool)
	// Later is Download that does not wait: dst has the values once wait has returned.
	// wait is called once, from any goroutine.
	Later(dst []float32, src *Tensor) (wait func())

	// HasEighths says whether there are products of Eighths.
	HasEighths() bool
	// HasBytes says whether there are products of Eighths that are integers.
	HasBytes() bool
	// AllocEighth makes room for n values of e4m3, AllocBytes for integers of which block
	// have a scale. FreeEighth gives it back.
	AllocEighth(n int, scale float32) *Eighth
	AllocBytes(n, block int) *Eighth
	FreeEighth(t *Eighth)
	UploadEighth(dst *Eighth, src []float32)
	// LinearEighth is Linear, LinearActEighth LinearAct, of such operands. Of integers, a
	// row of w has a scale; so has a row of x where y is set (LinearActEighth too), and
	// ByteBlock values of it where y is added to; and ByteBlock values of LinearActEighth's y.
	LinearEighth(y *Tensor, x, w *Eighth, bias *Tensor, rows, in, out int, acc bool)
	LinearActEighth(y, x, w *Eighth, bias *Tensor, rows, in, out int, act Act)
}

// Eighth is a run of values of 8 bits. Without a Block they are e4m3, four bits of
// exponent and three of fraction, of the value times Scale; what is larger than 448/Scale
// becomes that. With one they are integers from -127 to 127: every Block values, from the
// first on, have a scale, their largest size over 127, which integers are multiplied by.
type Eighth struct {
	T      *Tensor
	Scale  float32
	Block  int
	Scales *Tensor // on a device: 1/Scale and Scale; or those of the blocks
}

// ByteBlock is the block of what a product adds up.
const ByteBlock = 256

// Products are the ways in which an encoder takes the products of its perceptron and of
// queries, keys and values; the others are always of the back end's own kind.
type Products uint8

const (
	OwnProducts  Products = iota // of the back end's kind, such as bfloat16
	E4M3Products                 // in e4m3
	ByteProducts                 // in integers of 8 bits
)

// ProductsOf are those of a name: bf16, fp8 or int8.
func ProductsOf(name string) Products {
	return map[string]Products{"fp8": E4M3Products, "int8": ByteProducts}[name]
}

func (p Products) String() string { return [...]string{"bf16", "fp8", "int8"}[p] }

// Shared is a back end that several models compute on: a pass holds the lock.
type Shared struct {
	Encoding
	sync.Mutex
}

// Act is the function between the two products of a perceptron.
type Act uint8

const (
	GELU     Act = iota // exact, by erf
	TanhGELU            // its approximation by tanh
	ReLU
)
