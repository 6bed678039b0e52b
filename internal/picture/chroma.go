package picture

import (
	"image"
	"image/color"
)

// flattenChroma draws an image whose colour is stored apart from its brightness
// and, as a rule, at half the resolution. The standard library would repeat each
// colour sample, and would read WebP's narrow range (16 to 235) as the full one,
// washing it out; here colour is interpolated and converted as libjpeg and libwebp
// do, because that is what models have been trained on. alpha may be nil.
func flattenChroma(m *image.YCbCr, alpha func(y int) []uint8, webp bool) *Picture {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	p := &Picture{W: w, H: h, Pix: make([]uint8, 3*w*h)}
	cw, ch := w, h // size of the colour planes
	var halfW, halfH bool
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio420:
		cw, ch, halfW, halfH = (w+1)/2, (h+1)/2, true, true
	case image.YCbCrSubsampleRatio422:
		cw, halfW = (w+1)/2, true
	case image.YCbCrSubsampleRatio440:
		ch, halfH = (h+1)/2, true
	}
	up := upsampler{halfW: halfW, halfH: halfH, webp: webp, sum: make([]int, cw)}
	if halfW && cw <= 2 && !webp {
		halfW, halfH = false, false // libjpeg repeats the samples of so narrow an image
	}
	cb, cr := make([]uint8, w+1), make([]uint8, w+1)
	for y := range h {
		near, far := y, y
		if halfH {
			near = y / 2
			far = min(max(near-1+y%2*2, 0), ch-1)
		}
		switch {
		case halfW || halfH:
			up.low = y%2 == 1
			up.line(cb, m.Cb[near*m.CStride:][:cw], m.Cb[far*m.CStride:][:cw])
			up.line(cr, m.Cr[near*m.CStride:][:cw], m.Cr[far*m.CStride:][:cw])
		default: // full resolution, or a rare ratio that is repeated
			for x := range w {
				i := m.COffset(m.Rect.Min.X+x, m.Rect.Min.Y+y)
				cb[x], cr[x] = m.Cb[i], m.Cr[i]
			}
		}
		luma, dst := m.Y[y*m.YStride:][:w], p.Pix[3*w*y:]
		for x, l := range luma {
			if webp {
				dst[3*x], dst[3*x+1], dst[3*x+2] = narrow(l, cb[x], cr[x])
			} else {
				dst[3*x], dst[3*x+1], dst[3*x+2] = color.YCbCrToRGB(l, cb[x], cr[x])
			}
		}
		if alpha != nil {
			for x, a := range alpha(y)[:w] {
				over(dst[3*x:], dst[3*x], dst[3*x+1], dst[3*x+2], a)
			}
		}
	}
	return p
}

// upsampler makes one full line of colour of the half-resolution line it lies on
// (near) and the next closest (far): weights 3/4 and 1/4 in each direction.
type upsampler struct {
	halfW, halfH, webp bool
	low                bool // the line is the lower of its pair
	sum                []int
}

func (u *upsampler) line(dst, near, far []uint8) {
	n := len(near)
	if u.webp {
		u.webpLine(dst, near, far)
		return
	}
	// shift: the weights of sum add up to 1<<shift.
	sum, shift := u.sum, 0
	for i, v := range near {
		sum[i] = int(v)
		if u.halfH {
			sum[i] = 3*int(v) + int(far[i])
		}
	}
	if u.halfH {
		shift = 2
	}
	if !u.halfW {
		bias := 0
		if u.halfH {
			if bias = 1; u.low {
				bias = 2
			}
		}
		for x := range dst[:len(dst)-1] {
			dst[x] = uint8((sum[x] + bias) >> shift)
		}
		return
	}
	left, right := 1, 2 // roundings
	if u.halfH {
		left, right = 8, 7
	}
	for i, v := range sum {
		before, after := v, v
		if i > 0 {
			before = sum[i-1]
		}
		if i+1 < n {
			after = sum[i+1]
		}
		dst[2*i] = uint8((3*v + before + left) >> (shift + 2))
		if 2*i+1 < len(dst) {
			dst[2*i+1] = uint8((3*v + after + right) >> (shift + 2))
		}
	}
}

func (u *upsampler) webpLine(dst, near, far []uint8) {
	w := len(dst) - 1
	n := len(near)
	edge := func(i int) uint8 { return uint8((3*int(near[i]) + int(far[i]) + 2) >> 2) }
	dst[0] = edge(0)
	for i := 1; i <= (w-1)/2; i++ {
		a, b, c, d := int(near[i-1]), int(near[i]), int(far[i-1]), int(far[i])
		s := a + b + c + d + 8
		dst[2*i-1] = uint8(((s+2*(b+c))>>3 + a) >> 1)
		dst[2*i] = uint8(((s+2*(a+d))>>3 + b) >> 1)
	}
	if w%2 == 0 {
		dst[w-1] = edge(n - 1)
	}
}

// narrow converts a colour of BT.601's narrow range, in libwebp's fixed point.
func narrow(y, cb, cr uint8) (r, g, b uint8) {
	l, u, v := int(y)*19077>>8, int(cb), int(cr)
	clip := func(x int) uint8 { return uint8(min(max(x>>6, 0), 255)) }
	return clip(l + v*26149>>8 - 14234), clip(l - u*6419>>8 - v*13320>>8 + 8708), clip(l + u*33050>>8 - 17685)
}
