package vec

// Add sets dst[i] = a[i] + b[i].
func Add(dst, a, b []float32) {
	same("Add", len(dst), len(a))
	same("Add", len(dst), len(b))
	add(dst, a, b)
}

// Sub sets dst[i] = a[i] - b[i].
func Sub(dst, a, b []float32) {
	same("Sub", len(dst), len(a))
	same("Sub", len(dst), len(b))
	sub(dst, a, b)
}

// Mul sets dst[i] = a[i] * b[i].
func Mul(dst, a, b []float32) {
	same("Mul", len(dst), len(a))
	same("Mul", len(dst), len(b))
	mul(dst, a, b)
}

// MulAdd sets dst[i] += a[i] * b[i].
func MulAdd(dst, a, b []float32) {
	same("MulAdd", len(dst), len(a))
	same("MulAdd", len(dst), len(b))
	mulAdd(dst, a, b)
}

// Scale sets dst[i] = s * x[i].
func Scale(dst, x []float32, s float32) {
	same("Scale", len(dst), len(x))
	scale(dst, x, s)
}

// Axpy sets y[i] += s * x[i].
func Axpy(y []float32, s float32, x []float32) {
	same("Axpy", len(y), len(x))
	axpy(y, s, x)
}

// AddRows adds the row b to every row of x, a matrix of width len(b).
func AddRows(x, b []float32) {
	for len(x) > 0 {
		add(x[:len(b)], x[:len(b)], b)
		x = x[len(b):]
	}
}

// SumRows adds every row of x, a matrix of width len(dst), to dst, in order: the
// gradient of a bias.
func SumRows(dst, x []float32) {
	for len(x) > 0 {
		add(dst, dst, x[:len(dst)])
		x = x[len(dst):]
	}
}

// Rope turns the pairs (x[i], x[i+h]), h = len(x)/2, by the angles whose cosines
// and sines are given (h of each): the rotary embedding of one head. With
// inverse set it turns back, which is also its gradient.
func Rope(x, cos, sin []float32, inverse bool) {
	h := len(cos)
	same("Rope", len(x), 2*h)
	same("Rope", len(sin), h)
	rope(x[:h], x[h:], cos, sin, inverse)
}

func addGeneric(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func subGeneric(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mulGeneric(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func mulAddGeneric(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += a[i] * b[i]
	}
}

func scaleGeneric(dst, x []float32, s float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = s * x[i]
	}
}

func axpyGeneric(y []float32, s float32, x []float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += s * x[i]
	}
}

func ropeGeneric(a, b, cos, sin []float32, inverse bool) {
	b, cos, sin = b[:len(a)], cos[:len(a)], sin[:len(a)]
	for i := range a {
		s := sin[i]
		if inverse {
			s = -s
		}
		x, y := a[i], b[i]
		// The conversions forbid fusing: the SIMD code, whose last elements come
		// through here, does not fuse either.
		a[i] = float32(x*cos[i]) - float32(y*s)
		b[i] = float32(y*cos[i]) + float32(x*s)
	}
}
