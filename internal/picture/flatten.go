package picture

import (
	"image"
	"image/color"
)

// flatten draws m, of the named format, on a white canvas of w×h pixels. A GIF
// frame may cover only a part of its canvas.
func flatten(m image.Image, format string, w, h int) *Picture {
	switch m := m.(type) {
	case *image.YCbCr:
		return flattenChroma(m, nil, format == "webp")
	case *image.NYCbCrA:
		return flattenChroma(&m.YCbCr, func(y int) []uint8 { return m.A[y*m.AStride:] }, format == "webp")
	}
	r := m.Bounds()
	p := &Picture{W: w, H: h, Pix: make([]uint8, 3*w*h)}
	if r != image.Rect(0, 0, w, h) {
		for i := range p.Pix {
			p.Pix[i] = 0xff
		}
	}
	r = r.Intersect(image.Rect(0, 0, w, h))
	for y := r.Min.Y; y < r.Max.Y; y++ {
		row(p.Pix[3*(y*w+r.Min.X):3*(y*w+r.Max.X)], m, r.Min.X, y)
	}
	return p
}

// row writes the pixels of m from (x, y) on into dst.
func row(dst []uint8, m image.Image, x, y int) {
	n := len(dst) / 3
	switch m := m.(type) {
	case *image.Gray:
		for i, v := range m.Pix[m.PixOffset(x, y):][:n] {
			dst[3*i], dst[3*i+1], dst[3*i+2] = v, v, v
		}
	case *image.NRGBA:
		for i := range n {
			s := m.Pix[m.PixOffset(x+i, y):]
			over(dst[3*i:], s[0], s[1], s[2], s[3])
		}
	case *image.RGBA: // PNG and BMP give it only for opaque images
		for i := range n {
			s := m.Pix[m.PixOffset(x+i, y):]
			white := 0xff - s[3]
			dst[3*i], dst[3*i+1], dst[3*i+2] = s[0]+white, s[1]+white, s[2]+white
		}
	case *image.CMYK:
		for i := range n {
			s := m.Pix[m.PixOffset(x+i, y):]
			dst[3*i], dst[3*i+1], dst[3*i+2] = color.CMYKToRGB(s[0], s[1], s[2], s[3])
		}
	default:
		for i := range n {
			c := color.NRGBA64Model.Convert(m.At(x+i, y)).(color.NRGBA64)
			over(dst[3*i:], uint8(c.R>>8), uint8(c.G>>8), uint8(c.B>>8), uint8(c.A>>8))
		}
	}
}

// over lays a colour of opacity a on white.
func over(dst []uint8, r, g, b, a uint8) {
	if a != 0xff {
		mix := func(c uint8) uint8 { return uint8((int(c)*int(a) + 255*(255-int(a)) + 127) / 255) }
		r, g, b = mix(r), mix(g), mix(b)
	}
	dst[0], dst[1], dst[2] = r, g, b
}
