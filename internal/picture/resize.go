package picture

import (
	"math"

	"searchloop/internal/par"
)

// Resize scales the picture to h×w pixels by bicubic interpolation (a = -0.5)
// with antialiasing: first the columns, then the rows, each rounded to bytes, with
// coefficients of 22 fractional bits. That is the method of Pillow before 13, which
// models were trained with, and its result to
// the last bit.
func (p *Picture) Resize(h, w int) *Picture {
	q := p
	if w != p.W {
		t := taps(p.W, w)
		q = &Picture{W: w, H: p.H, Pix: make([]uint8, 3*w*p.H)}
		par.For(p.H, 1+1<<14/w, func(lo, hi int) {
			for y := lo; y < hi; y++ {
				src, dst := p.Pix[3*p.W*y:], q.Pix[3*w*y:]
				for x, k := range t {
					r, g, b := half, half, half
					s := src[3*k.from : 3*(k.from+len(k.k))]
					for i, c := range k.k {
						r += c * int(s[3*i])
						g += c * int(s[3*i+1])
						b += c * int(s[3*i+2])
					}
					dst[3*x], dst[3*x+1], dst[3*x+2] = clip(r), clip(g), clip(b)
				}
			}
		})
	}
	if h == q.H {
		if q == p {
			q = &Picture{W: p.W, H: p.H, Pix: append([]uint8(nil), p.Pix...)}
		}
		return q
	}
	t := taps(q.H, h)
	out := &Picture{W: w, H: h, Pix: make([]uint8, 3*w*h)}
	par.For(h, 1+1<<14/w, func(lo, hi int) {
		sum := make([]int, 3*w)
		for y := lo; y < hi; y++ {
			for i := range sum {
				sum[i] = half
			}
			for i, c := range t[y].k {
				src := q.Pix[3*w*(t[y].from+i):][:len(sum)]
				for j, v := range src {
					sum[j] += c * int(v)
				}
			}
			dst := out.Pix[3*w*y:]
			for i, v := range sum {
				dst[i] = clip(v)
			}
		}
	})
	return out
}

const (
	precision = 22
	half      = 1 << (precision - 1)
)

func clip(v int) uint8 { return uint8(min(max(v>>precision, 0), 255)) }

// kernel weighs the source pixels from, from+1, … for one target pixel.
type kernel struct {
	from int
	k    []int
}

// taps returns the kernel of each of n target pixels for a line of size pixels.
func taps(size, n int) []kernel {
	scale := float64(size) / float64(n)
	stretch := max(scale, 1)
	support := 2 * stretch
	out := make([]kernel, n)
	weights := make([]float64, 0, int(2*support)+3)
	for i := range out {
		center := (float64(i) + 0.5) * scale
		from := max(int(center-support+0.5), 0)
		to := min(int(center+support+0.5), size)
		weights = weights[:0]
		sum := 0.0
		for x := from; x < to; x++ {
			w := cubic((float64(x) - center + 0.5) * (1 / stretch))
			weights = append(weights, w)
			sum += w
		}
		k := make([]int, len(weights))
		for j, w := range weights {
			if sum != 0 {
				w /= sum
			}
			k[j] = int(w*(1<<precision) + math.Copysign(0.5, w))
		}
		out[i] = kernel{from, k}
	}
	return out
}

func cubic(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}
