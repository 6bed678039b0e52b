package leak

import (
	"math"
	"math/bits"
	"slices"

	"searchloop/internal/picture"
)

// Print is what is kept of a picture to know it again: a perceptual hash of it and
// of many windows of it, and a small grey copy. A crop of a picture has about the
// hash of one of its windows; the grey copies then tell whether it is one.
type Print struct {
	whole   uint64
	windows []window
	grey    *plane
}

type window struct {
	hash uint64
	box
}

// box is a part of a picture, from 0 to 1 on both axes.
type box struct{ x0, y0, x1, y1 float64 }

// Settings of the search, found on photographs (TestPhotographs has the figures).
const (
	smallSide = 192  // longer side of the copy that windows are cut from
	far       = 16   // bits of the hash that a window and a crop of it may differ in
	tries     = 3    // windows that are looked at closely
	least     = 0.80 // correlation of the fine structure of two pictures that are the same
)

// spans are the windows along one axis: how long, and where they begin.
var spans = func() (out [][2]float64) {
	for _, s := range []struct {
		long  float64
		steps int
	}{{1, 1}, {0.9, 3}, {0.8, 4}, {0.7, 5}, {0.6, 6}} {
		for i := range s.steps {
			from := 0.0
			if s.steps > 1 {
				from = (1 - s.long) * float64(i) / float64(s.steps-1)
			}
			out = append(out, [2]float64{from, from + s.long})
		}
	}
	return out
}()

// Of makes the print of a picture.
func Of(p *picture.Picture) *Print {
	w, h := p.W, p.H
	if long := max(w, h); long > smallSide {
		w, h = max(w*smallSide/long, 8), max(h*smallSide/long, 8)
	}
	if w != p.W || h != p.H {
		p = p.Resize(h, w)
	}
	out := &Print{grey: newPlane(p)}
	for _, x := range spans {
		for _, y := range spans {
			// Crops keep about the shape of the picture.
			if r := (x[1] - x[0]) / (y[1] - y[0]); r < 0.74 || r > 1.36 {
				continue
			}
			b := box{x[0], y[0], x[1], y[1]}
			hash := out.grey.hash(b)
			out.windows = append(out.windows, window{hash, b})
			if b == (box{0, 0, 1, 1}) {
				out.whole = hash
			}
		}
	}
	return out
}

// Same says whether one picture is the other or a part of it, as far as can be
// seen: encoded anew, in another size, cropped. score is the correlation of their
// fine structure at the best place, 0 when no window is near.
func Same(a, b *Print) (same bool, score float64) {
	score = max(inside(a, b), inside(b, a))
	return score >= least, score
}

// inside looks for a in the windows of b whose hashes are nearest.
func inside(a, b *Print) (best float64) {
	type place struct{ far, at int }
	nearest := [tries]place{}
	for i := range nearest {
		nearest[i] = place{far + 1, -1}
	}
	for i, w := range b.windows {
		d := bits.OnesCount64(a.whole ^ w.hash)
		for k := range nearest {
			if d < nearest[k].far {
				copy(nearest[k+1:], nearest[k:])
				nearest[k] = place{d, i}
				break
			}
		}
	}
	for _, n := range nearest {
		if n.at >= 0 && best < least {
			best = max(best, fit(a.grey, b.grey, b.windows[n.at].box))
		}
	}
	return best
}

// plane is a grey picture whose sums over rectangles are known.
type plane struct {
	w, h int
	sum  []float64 // (w+1)·(h+1)
}

func newPlane(p *picture.Picture) *plane {
	out := &plane{w: p.W, h: p.H, sum: make([]float64, (p.W+1)*(p.H+1))}
	for y := range p.H {
		row := 0.0
		for x := range p.W {
			i := 3 * (y*p.W + x)
			row += 0.299*float64(p.Pix[i]) + 0.587*float64(p.Pix[i+1]) + 0.114*float64(p.Pix[i+2])
			out.sum[(y+1)*(p.W+1)+x+1] = out.sum[y*(p.W+1)+x+1] + row
		}
	}
	return out
}

// upTo is the sum of everything left of and above a point, between pixels linearly.
func (p *plane) upTo(x, y float64) float64 {
	xi, yi := min(int(x), p.w-1), min(int(y), p.h-1)
	fx, fy := x-float64(xi), y-float64(yi)
	i := yi*(p.w+1) + xi
	top := p.sum[i] + fx*(p.sum[i+1]-p.sum[i])
	low := p.sum[i+p.w+1] + fx*(p.sum[i+p.w+2]-p.sum[i+p.w+1])
	return top + fy*(low-top)
}

// A perceptual hash is made of the lowest waves×waves frequencies of side×side means:
// a bit says whether one is above their median (Zauner 2010). Only these are computed:
// a picture has hundreds of windows.
const side, waves = 32, 8

// wave[u][x] is the u-th cosine of the discrete cosine transform.
var wave = func() (out [waves][side]float64) {
	for u := range out {
		for x := range out[u] {
			out[u][x] = math.Cos(math.Pi * float64(u) * (float64(x) + 0.5) / side)
		}
	}
	return out
}()

// hash is the perceptual hash of a part of a picture.
func (p *plane) hash(b box) (bits uint64) {
	var rows [side][waves]float64
	var above, here [side + 1]float64
	line := func(j int, out *[side + 1]float64) {
		y := min((b.y0+(b.y1-b.y0)*float64(j)/side)*float64(p.h), float64(p.h))
		for i := range out {
			out[i] = p.upTo(min((b.x0+(b.x1-b.x0)*float64(i)/side)*float64(p.w), float64(p.w)), y)
		}
	}
	line(0, &above)
	for j := range side {
		line(j+1, &here)
		for i := range side {
			v := here[i+1] - here[i] - above[i+1] + above[i]
			for u := range waves {
				rows[j][u] += v * wave[u][i]
			}
		}
		above = here
	}
	var all [waves * waves]float64
	for v := range waves {
		for u := range waves {
			for j := range side {
				all[v*waves+u] += rows[j][u] * wave[v][j]
			}
		}
	}
	sorted := all
	slices.Sort(sorted[:])
	median := (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
	for k, x := range all {
		if x > median {
			bits |= 1 << k
		}
	}
	return bits
}

const cells = 32

// sample is a part of a picture in cells×cells means, less what is smooth in it,
// of length 1.
func (p *plane) sample(b box, out *[cells * cells]float64) {
	var at [cells + 1][cells + 1]float64
	for j := range cells + 1 {
		for i := range cells + 1 {
			x := (b.x0 + (b.x1-b.x0)*float64(i)/cells) * float64(p.w)
			y := (b.y0 + (b.y1-b.y0)*float64(j)/cells) * float64(p.h)
			at[j][i] = p.upTo(min(max(x, 0), float64(p.w)), min(max(y, 0), float64(p.h)))
		}
	}
	block := func(i0, j0, i1, j1 int) float64 {
		return (at[j1][i1] - at[j0][i1] - at[j1][i0] + at[j0][i0]) / float64((i1-i0)*(j1-j0))
	}
	var norm, mean float64
	for j := range cells {
		for i := range cells {
			around := block(max(i-3, 0), max(j-3, 0), min(i+4, cells), min(j+4, cells))
			v := block(i, j, i+1, j+1) - around
			out[j*cells+i] = v
			mean += v / (cells * cells)
		}
	}
	for k := range out {
		out[k] -= mean
		norm += out[k] * out[k]
	}
	if norm = math.Sqrt(norm); norm > 1e-6 {
		for k := range out {
			out[k] /= norm
		}
	}
}

// fit is the correlation of a whole picture with the part of another that it is
// most like, near a box.
func fit(a, b *plane, at box) float64 {
	var want, got [cells * cells]float64
	a.sample(box{0, 0, 1, 1}, &want)
	score := func(c box) float64 {
		if c.x0 < -1e-9 || c.y0 < -1e-9 || c.x1 > 1+1e-9 || c.y1 > 1+1e-9 || c.x1-c.x0 < 0.2 || c.y1-c.y0 < 0.2 {
			return -1
		}
		b.sample(c, &got)
		s := 0.0
		for k := range want {
			s += want[k] * got[k]
		}
		return s
	}
	best := score(at)
	for _, step := range []float64{0.06, 0.03, 0.015, 0.007, 0.003} {
		for range 6 {
			from := at
			for _, d := range [][4]float64{
				{1, 0, 1, 0}, {-1, 0, -1, 0}, {0, 1, 0, 1}, {0, -1, 0, -1}, // moved
				{-1, 0, 0, 0}, {1, 0, 0, 0}, {0, -1, 0, 0}, {0, 1, 0, 0}, {0, 0, -1, 0}, {0, 0, 1, 0}, {0, 0, 0, -1}, {0, 0, 0, 1}, // one edge
				{-1, -1, 1, 1}, {1, 1, -1, -1}, // grown
			} {
				c := box{from.x0 + step*d[0], from.y0 + step*d[1], from.x1 + step*d[2], from.y1 + step*d[3]}
				c.x0, c.y0, c.x1, c.y1 = max(c.x0, 0), max(c.y0, 0), min(c.x1, 1), min(c.y1, 1)
				if s := score(c); s > best {
					best, at = s, c
				}
			}
			if at == from {
				break
			}
		}
		if best < 0.25 { // nothing to climb
			return best
		}
	}
	return best
}
