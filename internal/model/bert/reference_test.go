package bert

import "math"

// reference is the forward pass written out in float64, one token and one
// element after the other.
func reference(e *Encoder, ids []int32) []float64 {
	h := e.config.Hidden
	x := make([][]float64, len(ids))
	for p, id := range ids {
		x[p] = make([]float64, h)
		for j := range h {
			x[p][j] = float64(e.words[int(id)*h+j]) + float64(e.positions[p*h+j])
		}
		norm64(x[p], e.embedNorm, float64(e.config.Eps))
	}
	for _, l := range e.layers {
		layer64(x, l, e.config)
	}
	v := make([]float64, h)
	var sq float64
	for j := range h {
		for p := range x {
			v[j] += x[p][j] / float64(len(x))
		}
		sq += v[j] * v[j]
	}
	for j := range v {
		v[j] /= math.Sqrt(sq)
	}
	return v
}

func layer64(x [][]float64, l layer, c config) {
	h, d := c.Hidden, c.Hidden/c.Heads
	qkv := make([][]float64, len(x))
	for p := range x {
		qkv[p] = linear64(x[p], l.qkv)
	}
	for p := range x {
		mixed := make([]float64, h)
		for head := range c.Heads {
			w := make([]float64, len(x))
			var total float64
			for q := range x {
				for j := head * d; j < (head+1)*d; j++ {
					w[q] += qkv[p][j] * qkv[q][h+j]
				}
				w[q] = math.Exp(w[q] / math.Sqrt(float64(d)))
				total += w[q]
			}
			for q := range x {
				for j := head * d; j < (head+1)*d; j++ {
					mixed[j] += w[q] / total * qkv[q][2*h+j]
				}
			}
		}
		add64(x[p], linear64(mixed, l.out))
		norm64(x[p], l.attentionNorm, float64(c.Eps))
		up := linear64(x[p], l.up)
		for i, v := range up {
			switch c.Act {
			case "gelu":
				up[i] = v * 0.5 * math.Erfc(-v/math.Sqrt2)
			case "relu":
				up[i] = max(v, 0)
			default:
				up[i] = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
		}
		add64(x[p], linear64(up, l.down))
		norm64(x[p], l.outputNorm, float64(c.Eps))
	}
}

func linear64(x []float64, l linear) []float64 {
	y := make([]float64, len(l.b))
	w := unpacked(l, len(x))
	for i := range y {
		y[i] = float64(l.b[i])
		for j, v := range x {
			y[i] += v * float64(w[j*len(y)+i])
		}
	}
	return y
}

// unpacked is a layer's weight transposed, [in, out]: the product of the unit
// matrix with it, which is exact.
func unpacked(l linear, in int) []float32 {
	unit, w := make([]float32, in*in), make([]float32, in*len(l.b))
	for i := range in {
		unit[i*in+i] = 1
	}
	l.w.NT(w, unit, in, false)
	return w
}

func add64(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

func norm64(x []float64, n norm, eps float64) {
	var mean, variance float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	for i := range x {
		x[i] = (x[i]-mean)/math.Sqrt(variance+eps)*float64(n.w[i]) + float64(n.b[i])
	}
}
